"""`tidelog restart`: start brokers of a local cluster again, dead or alive."""

import time
from typing import Annotated, Final

import typer

from tidelog.cli.brokers import BrokersArgument, cluster_folder
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import print_json, print_line
from tidelog.lab.errors import BrokerDied, LabError, StartCancelled
from tidelog.lab.running import find_brokers, restart_broker
from tidelog.lab.starting import Patience

_READY_WITHIN_S: Final = 60.0


def register(app: typer.Typer) -> None:
    app.command("restart", rich_help_panel=Panel.LOCAL)(run)


def run(
    brokers: BrokersArgument,
    *,
    data: DataOption = None,
    timeout: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long one that runs may take to stop."),
    ] = 60.0,
    as_json: JsonOption = False,
) -> int:
    """Start brokers of the local cluster again, with the settings and ports they had.

    One that runs is stopped cleanly first. Exit 1 if one cannot be stopped or started.
    """
    folder = cluster_folder(data)
    find_brokers(folder, brokers)
    with Interrupts() as interrupts:
        patience = Patience(_READY_WITHIN_S, is_cancelled=interrupts.at_least(1))
        for broker_id in brokers:
            began = time.monotonic()
            try:
                broker = restart_broker(folder, broker_id, stop_within_s=timeout, patience=patience)
            except StartCancelled:
                return 130
            except BrokerDied as error:
                where = folder.output_file(broker_id)
                raise LabError(
                    f"broker {broker_id}: {error.sentence}"
                    if error.sentence is not None
                    else f"{error} while starting; {where} says more"
                ) from error
            if as_json:
                address = {"host": broker.host, "port": broker.port}
                print_json({"id": broker.id, **address, "pid": broker.pid})
            else:
                print_line(
                    f"Broker {broker.id} runs at {broker.address} (pid {broker.pid}), "
                    f"ready in {time.monotonic() - began:.2f} s."
                )
    return 0
