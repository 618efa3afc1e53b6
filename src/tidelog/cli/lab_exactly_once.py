"""`tidelog lab exactly-once`: transactions under faults, with a verdict."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import LabFolder, lab_folder
from tidelog.cli.lab_verdicts import records_progress, show_verdicts
from tidelog.cli.options import Coordination, CoordinationOption, JsonOption
from tidelog.cli.output import (
    complain,
    duration_text,
    print_heading,
    print_json,
    print_line,
)
from tidelog.lab.errors import StartCancelled
from tidelog.lab.exactly_once_schedule import PlannedFault, plan

if TYPE_CHECKING:
    from tidelog.lab.exactly_once import ExactlyOnceOutcome

_BROKER_COUNT_MAX: Final = 9


class GroupProtocol(StrEnum):
    """How applications share the input."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


def run(
    *,
    records: Annotated[int, typer.Option(min=1, help="Records of the input.")] = 100_000,
    count: Annotated[int, typer.Option("--faults", min=0, help="How many faults.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="The same faults for the same seed.")] = 1,
    brokers: Annotated[
        int, typer.Option(min=3, max=_BROKER_COUNT_MAX, help="Brokers in the cluster.")
    ] = 3,
    partitions: Annotated[int, typer.Option(min=1, max=100, help="Of each topic.")] = 6,
    applications: Annotated[
        int, typer.Option(min=1, max=20, help="Processes that share the work.")
    ] = 2,
    protocol: Annotated[
        GroupProtocol, typer.Option(help="Of the group: classic, or consumer (KIP-848).")
    ] = GroupProtocol.CLASSIC,
    coordination: CoordinationOption = Coordination.SQLITE,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="An empty folder to keep everything in.",
            show_default="one that is removed if all is well",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Transform a topic in transactions while everything is killed, and count.

    Starts a cluster of its own, and applications that consume, transform and produce in
    transactions. Leaders, the coordinators of the group and of the transactions, the controller and
    the applications themselves are killed with kill -9, paused or restarted meanwhile. In the end
    who reads committed records must see each record once and in order, and no transaction may be
    open. Exit 1 if it is not so.
    """
    faults = plan(seed, fault_count=count, record_count=records)
    with lab_folder(data) as folder, Interrupts() as interrupts:
        try:
            outcome = _run(
                folder.path,
                faults,
                interrupts,
                records=records,
                brokers=brokers,
                partitions=partitions,
                applications=applications,
                protocol=protocol.value,
                coordination=coordination.value,
            )
        except StartCancelled:
            complain("interrupted", command="tidelog lab exactly-once")
            return 130
        folder.is_kept = folder.is_kept or not outcome.is_good
        if as_json:
            print_json(_as_json(outcome))
        else:
            _show(outcome, seed, folder)
    return 0 if outcome.is_good else 1


def _run(
    folder: Path,
    faults: tuple[PlannedFault, ...],
    interrupts: Interrupts,
    *,
    records: int,
    brokers: int,
    partitions: int,
    applications: int,
    protocol: str,
    coordination: str,
) -> "ExactlyOnceOutcome":
    from tidelog.lab import exactly_once as lab  # noqa: PLC0415 - loads clients
    from tidelog.lab.mortal_cluster import MortalCluster  # noqa: PLC0415

    is_cancelled = interrupts.at_least(1)
    cluster = MortalCluster(folder, coordination, is_cancelled)
    with records_progress(records) as on_progress:
        try:
            on_progress("starting the cluster", 0)
            cluster.start(brokers, lab.SETTINGS)
            outcome = lab.ExactlyOnceLab(
                lab.ExactlyOnceRun(
                    folder=folder,
                    record_count=records,
                    partition_count=partitions,
                    application_count=applications,
                    protocol=protocol,
                    replication_factor=lab.REPLICATION_FACTOR,
                    faults=faults,
                ),
                cluster,
                lab.Watcher(on_progress, is_cancelled),
            ).run()
        finally:
            stopped = cluster.stop()
    outcome.problems += stopped
    return outcome


def _show(outcome: "ExactlyOnceOutcome", seed: int, folder: LabFolder) -> None:
    show_verdicts(outcome.verdicts, outcome.problems)
    found = sum(verdict.found for verdict in outcome.verdicts)
    print_line(
        f"{len(outcome.injected)} faults in {duration_text(outcome.took_s)} (seed {seed}): "
        f"{found:,} records committed; applications gave up and were replaced "
        f"{outcome.given_up} times."
    )
    if outcome.silent_at:
        print_line(
            f"The longest time without a commit: {duration_text(outcome.longest_silence_s)} "
            f"({outcome.silent_at})."
        )
    if outcome.is_good:
        print_heading("Every record came through exactly once and in order.")
    else:
        print_heading(f"Something went wrong; {folder.path} has the logs of everybody.")


def _as_json(outcome: "ExactlyOnceOutcome") -> dict[str, object]:
    return {
        "good": outcome.is_good,
        "faults": outcome.injected,
        "took_s": round(outcome.took_s, 3),
        "given_up": outcome.given_up,
        "longest_silence_s": round(outcome.longest_silence_s, 3),
        "silent_at": outcome.silent_at,
        "partitions": [asdict(verdict) for verdict in outcome.verdicts],
        "problems": outcome.problems,
    }
