"""`tidelog lab exactly-once`: transactions under faults, with a verdict."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import LabFolder
from tidelog.cli.lab_session import (
    FolderOption,
    passage_as_json,
    run_lab,
    run_on_cluster,
    show_conclusion,
)
from tidelog.cli.lab_verdicts import show_verdicts
from tidelog.cli.options import Coordination, CoordinationOption, JsonOption
from tidelog.cli.output import duration_text, print_json, print_line
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
    data: FolderOption = None,
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

    def in_folder(folder: Path, interrupts: Interrupts) -> "ExactlyOnceOutcome":
        return _run(
            folder,
            faults,
            interrupts,
            records=records,
            brokers=brokers,
            partitions=partitions,
            applications=applications,
            protocol=protocol.value,
            coordination=coordination.value,
        )

    def show(outcome: "ExactlyOnceOutcome", folder: LabFolder) -> None:
        if as_json:
            print_json(_as_json(outcome))
        else:
            _show(outcome, seed, folder)

    return run_lab("tidelog lab exactly-once", data, in_folder, show)


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

    run = lab.ExactlyOnceRun(
        folder=folder,
        record_count=records,
        partition_count=partitions,
        application_count=applications,
        protocol=protocol,
        replication_factor=lab.REPLICATION_FACTOR,
        faults=faults,
    )
    return run_on_cluster(
        folder,
        interrupts,
        lambda cluster, watcher: lab.ExactlyOnceLab(run, cluster, watcher).run(),
        broker_count=brokers,
        coordination=coordination,
        settings=lab.SETTINGS,
        record_count=records,
    )


def _show(outcome: "ExactlyOnceOutcome", seed: int, folder: LabFolder) -> None:
    show_verdicts(outcome.verdicts, outcome.problems)
    found = sum(verdict.found for verdict in outcome.verdicts)
    print_line(
        f"{len(outcome.happened)} faults in {duration_text(outcome.took_s)} (seed {seed}): "
        f"{found:,} records committed; applications gave up and were replaced "
        f"{outcome.given_up} times."
    )
    if outcome.silent_at:
        print_line(
            f"The longest time without a commit: {duration_text(outcome.longest_silence_s)} "
            f"({outcome.silent_at})."
        )
    show_conclusion(outcome, folder, good="Every record came through exactly once and in order.")


def _as_json(outcome: "ExactlyOnceOutcome") -> dict[str, object]:
    return passage_as_json(
        outcome,
        happened_as="faults",
        figures={
            "given_up": outcome.given_up,
            "longest_silence_s": round(outcome.longest_silence_s, 3),
            "silent_at": outcome.silent_at,
        },
    )
