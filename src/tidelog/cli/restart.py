"""`tidelog restart`: start brokers of a local cluster again, dead or alive.

Several are restarted one after the other. Before the next goes down, the one before has to be in
sync again: a rolling restart costs no partition its leader, and no producer its acks=all.
"""

import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from tidelog.cli.brokers import BrokersArgument, cluster_folder
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import print_json, print_line
from tidelog.lab.errors import BrokerDied, LabError, StartCancelled
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.in_sync import (
    Lacking,
    NotInSync,
    SyncWait,
    partitions_in_sync,
    wait_until_in_sync,
)
from tidelog.lab.proxied import seen_by_clients
from tidelog.lab.running import find_brokers, restart_broker
from tidelog.lab.starting import Patience
from tidelog.lab.state import BrokerState

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
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Be in sync again before the next goes down."),
    ] = True,
    wait_timeout: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long that may take.")
    ] = 120.0,
    as_json: JsonOption = False,
) -> int:
    """Start brokers of the local cluster again, with the settings and ports they had.

    One that runs is stopped cleanly first. Of several, the next goes down when the one before is in
    sync again, wherever it was. Exit 1 if one cannot be stopped or started, or takes too long.
    """
    folder = cluster_folder(data)
    known = find_brokers(folder, brokers)
    returned = [broker.id for broker in known if not broker.is_alive]
    before = partitions_in_sync(folder) if wait and len(brokers) > 1 else {}
    with Interrupts() as interrupts:
        is_cancelled = interrupts.at_least(1)
        patience = Patience(_READY_WITHIN_S, is_cancelled=is_cancelled)
        for number, broker_id in enumerate(brokers, start=1):
            began = time.monotonic()
            try:
                broker = _restart(folder, broker_id, stop_within_s=timeout, patience=patience)
            except StartCancelled:
                return 130
            _print_started(
                seen_by_clients(folder, broker), time.monotonic() - began, as_json=as_json
            )
            if not wait or number == len(brokers):
                continue
            up = [each for each in returned if each in brokers[:number]]
            progress = _Progress(is_silent=as_json)
            asked = SyncWait(wait_timeout, is_cancelled, progress.on_progress)
            try:
                if not wait_until_in_sync(folder, before, up, asked):
                    return 130
            except NotInSync as error:
                raise LabError(
                    f"{error}: broker {brokers[number]} was left alone; --no-wait does not wait"
                ) from error
            progress.done()
    return 0


class _Progress:
    """A line when a wait begins, and one when it has ended."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._began: float | None = None

    def on_progress(self, missing: Sequence[Lacking]) -> None:
        if self._began is None:
            self._began = time.monotonic()
            plural = "" if len(missing) == 1 else "s"
            self._say(f"Waiting for {len(missing):,} partition{plural} to be in sync again.")

    def done(self) -> None:
        if self._began is not None:
            self._say(f"In sync again after {time.monotonic() - self._began:.2f} s.")

    def _say(self, sentence: str) -> None:
        if not self._is_silent:
            print_line(sentence)


def _restart(
    folder: ClusterFolder, broker_id: int, *, stop_within_s: float, patience: Patience
) -> BrokerState:
    try:
        return restart_broker(folder, broker_id, stop_within_s=stop_within_s, patience=patience)
    except BrokerDied as error:
        where = folder.output_file(broker_id)
        raise LabError(
            f"broker {broker_id}: {error.sentence}"
            if error.sentence is not None
            else f"{error} while starting; {where} says more"
        ) from error


def _print_started(broker: BrokerState, took_s: float, *, as_json: bool) -> None:
    if as_json:
        address = {"host": broker.host, "port": broker.port}
        print_json({"id": broker.id, **address, "pid": broker.pid})
    else:
        print_line(
            f"Broker {broker.id} runs at {broker.address} (pid {broker.pid}), "
            f"ready in {took_s:.2f} s."
        )
