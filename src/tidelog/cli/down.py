"""`tidelog down`: stop the local cluster of a data folder."""

import time
from typing import Annotated

import typer

from tidelog.cli.brokers import broker_names, cluster_folder
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import complain, print_json, print_line
from tidelog.lab.errors import LabError
from tidelog.lab.running import end_leftovers, kill_broker, running_brokers, stop_cluster
from tidelog.lab.state import BrokerState


def register(app: typer.Typer) -> None:
    app.command("down", rich_help_panel=Panel.LOCAL)(run)


def run(
    data: DataOption = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long brokers may take to stop.")
    ] = 60.0,
    kill: Annotated[
        bool, typer.Option("--kill", help="Kill what has not stopped by then.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Stop the local cluster cleanly.

    Exit 0 once every broker has ended, 1 if none was running or one did not stop in time.
    """
    folder = cluster_folder(data)
    running = running_brokers(folder)
    if not running:
        end_leftovers(folder)
        raise LabError(f"no cluster is running in {folder.root}")
    began = time.monotonic()
    remaining = stop_cluster(
        folder, running, is_impatient=lambda: time.monotonic() >= began + timeout
    )
    if remaining and kill:
        _kill(remaining)
        end_leftovers(folder)
    elif remaining:
        pids = ", ".join(f"broker {broker.id} (pid {broker.pid})" for broker in remaining)
        raise LabError(f"{pids} did not stop within {timeout:g} s; --kill ends it the hard way")
    if as_json:
        print_json({"stopped": [broker.id for broker in running]})
    else:
        print_line(f"Stopped {broker_names(running)} in {time.monotonic() - began:.2f} s.")
    return 0


def _kill(brokers: tuple[BrokerState, ...]) -> None:
    for broker in brokers:
        complain(f"broker {broker.id} did not stop in time and is killed", command="tidelog down")
        kill_broker(broker)
