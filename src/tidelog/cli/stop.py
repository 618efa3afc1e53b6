"""`tidelog stop`: stop brokers of a local cluster cleanly, one after the other."""

import time
from typing import Annotated

import typer

from tidelog.cli.brokers import BrokersArgument, broker_names, cluster_folder, running_of
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import print_json, print_line
from tidelog.lab.errors import LabError
from tidelog.lab.running import stop_in_turn


def register(app: typer.Typer) -> None:
    app.command("stop", rich_help_panel=Panel.LOCAL)(run)


def run(
    brokers: BrokersArgument,
    *,
    data: DataOption = None,
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long they may take to stop.")
    ] = 60.0,
    as_json: JsonOption = False,
) -> int:
    """Stop brokers of the local cluster cleanly; the others take over what they led.

    'tidelog restart' starts them again. Exit 1 if one was not running or did not stop in time.
    """
    stopped = running_of(cluster_folder(data), brokers)
    began = time.monotonic()
    remaining = stop_in_turn(stopped, is_impatient=lambda: time.monotonic() >= began + timeout)
    if remaining:
        raise LabError(f"{broker_names(remaining)} did not stop within {timeout:g} s")
    if as_json:
        print_json({"stopped": [broker.id for broker in stopped]})
    else:
        print_line(f"Stopped {broker_names(stopped)} in {time.monotonic() - began:.2f} s.")
    return 0
