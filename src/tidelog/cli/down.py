"""`tidelog down`: stop the local cluster of a data folder."""

import time
from typing import Annotated

import typer

from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import complain, print_json, print_line
from tidelog.lab.cluster import forget_brokers, kill_broker, running_brokers, stop_broker
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder, default_data_folder
from tidelog.lab.state import BrokerState


def register(app: typer.Typer) -> None:
    app.command("down", rich_help_panel=Panel.LOCAL)(run)


def run(
    data: DataOption = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long a broker may take to stop.")
    ] = 60.0,
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill what has not stopped by then.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Stop the local cluster cleanly.

    Exit 0 once every broker has ended, 1 if none was running or one did not stop in time.
    """
    folder = ClusterFolder((data or default_data_folder()).expanduser().absolute())
    running = running_brokers(folder)
    if not running:
        forget_brokers(folder)
        raise LabError(f"no cluster is running in {folder.root}")
    started = time.monotonic()
    remaining = [broker for broker in running if not stop_broker(broker, within_s=timeout)]
    if remaining and kill:
        _kill(remaining)
        remaining = []
    if remaining:
        pids = ", ".join(f"broker {broker.id} (pid {broker.pid})" for broker in remaining)
        raise LabError(f"{pids} did not stop within {timeout:g} s; --kill ends it the hard way")
    forget_brokers(folder)
    if as_json:
        print_json({"stopped": [broker.id for broker in running]})
    else:
        names = ", ".join(str(broker.id) for broker in running)
        print_line(f"Stopped broker {names} in {time.monotonic() - started:.2f} s.")
    return 0


def _kill(brokers: list[BrokerState]) -> None:
    for broker in brokers:
        complain(f"broker {broker.id} did not stop in time and is killed", command="tidelog down")
        kill_broker(broker)
