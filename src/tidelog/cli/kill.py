"""`tidelog kill`: end brokers of a local cluster at once, to see what becomes of the others."""

import typer

from tidelog.cli.brokers import BrokersArgument, broker_names, cluster_folder, running_of
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import print_json, print_line
from tidelog.lab.running import kill_broker


def register(app: typer.Typer) -> None:
    app.command("kill", rich_help_panel=Panel.LOCAL)(run)


def run(brokers: BrokersArgument, *, data: DataOption = None, as_json: JsonOption = False) -> int:
    """Kill brokers of the local cluster, as kill -9 does.

    'tidelog restart' starts them again. Exit 1 if one was not running.
    """
    killed = running_of(cluster_folder(data), brokers)
    for broker in killed:
        kill_broker(broker)
    if as_json:
        print_json({"killed": [broker.id for broker in killed]})
    else:
        print_line(f"Killed {broker_names(killed)}.")
    return 0
