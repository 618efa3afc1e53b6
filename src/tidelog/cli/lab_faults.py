"""`tidelog lab faults` and `tidelog lab run`: faults under load, and the verdict (B3)."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_choice import Acks, EngineName, LabChoice
from tidelog.cli.lab_folder import LabFolder
from tidelog.cli.lab_live import live_view
from tidelog.cli.lab_report import ReportOption, require_writable, write_report
from tidelog.cli.lab_session import FolderOption, run_lab, show_conclusion
from tidelog.cli.options import Coordination, CoordinationOption, JsonOption
from tidelog.cli.output import Cell, duration_text, print_json, print_line, print_table
from tidelog.lab.scenarios import SCENARIOS, find_schedule

if TYPE_CHECKING:
    from tidelog.lab.fault_schedule import PacedFault, Possible, TimedFault
    from tidelog.lab.faults import FaultRun, Outcome
    from tidelog.lab.injector import BegunFault
    from tidelog.lab.local_cluster import LocalCluster
    from tidelog.lab.verdict import PartitionVerdict

_BROKER_COUNT_MAX: Final = 9
_PROBLEMS_SHOWN_MAX: Final = 20
_DISK_MIB: Final = 256
_KAFKA_HEAP_MIB: Final = 512
_WRONG: Final = ("lost", "duplicated", "reordered", "unexpected", "undone")
_COUNTED: Final = ("stored", "acknowledged", *_WRONG)


SeedOption: TypeAlias = Annotated[
    int, typer.Option(min=0, help="The same faults for the same seed.")
]
BrokersOption: TypeAlias = Annotated[
    int, typer.Option(min=3, max=_BROKER_COUNT_MAX, help="Brokers in the cluster.")
]
PartitionsOption: TypeAlias = Annotated[
    int, typer.Option(min=1, max=100, help="Partitions of its topic.")
]
EngineOption: TypeAlias = Annotated[
    EngineName, typer.Option(help="Whose brokers: ours, or Apache Kafka's, to compare.")
]
KafkaHomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="A Kafka distribution.", show_default="what 'bench peers fetch' brought"
    ),
]
AcksOption: TypeAlias = Annotated[
    Acks, typer.Option(help="'all' is idempotent; with '1' records may be lost, and are counted.")
]
MinInsyncOption: TypeAlias = Annotated[
    int, typer.Option(min=1, max=3, help="min.insync.replicas of the topic.")
]
UncleanOption: TypeAlias = Annotated[
    bool, typer.Option("--unclean", help="Allow unclean elections, which lose records.")
]


def faults(
    *,
    count: Annotated[int, typer.Option(min=1, help="How many faults.")] = 200,
    seed: SeedOption = 1,
    coordination: CoordinationOption = Coordination.SQLITE,
    engine: EngineOption = EngineName.TIDELOG,
    kafka_home: KafkaHomeOption = None,
    brokers: BrokersOption = 3,
    partitions: PartitionsOption = 6,
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=_BROKER_COUNT_MAX,
            help="Brokers a fault may take at once.",
            show_default="all",
        ),
    ] = None,
    acks: AcksOption = Acks.ALL,
    min_insync: MinInsyncOption = 2,
    unclean: UncleanOption = False,
    data: FolderOption = None,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> int:
    """Faults of every kind, one after the other, and check that nothing is lost.

    Starts a cluster of its own. Producers and consumers use a topic of three replicas while brokers
    are killed, paused, stopped, cut off, slowed down and forgotten, their disks filled and their
    logs torn: leaders, followers, controllers, coordinators, some of them or all. In the end
    everything that was acknowledged must be there, once and in order, and the replicas must be
    equal byte for byte. Exit 1 if anything is not so.
    """
    from tidelog.lab.fault_schedule import random_faults  # noqa: PLC0415 - after the options

    choice = LabChoice(
        command="tidelog lab faults",
        subject=("--count", str(count)),
        schedule=None,
        engine=engine,
        kafka_home=kafka_home,
        coordination=coordination,
        seed=seed,
        brokers=brokers,
        partitions=partitions,
        at_once=brokers if at_once is None else at_once,
        acks=acks,
        min_insync=min_insync,
        unclean=unclean,
        data=data,
        report=report,
        as_json=as_json,
    )
    return _run(choice, lambda possible: random_faults(seed, fault_count=count, possible=possible))


def run(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO", help="A name, a file, or 'kill leader every 10s for 2m'."
        ),
    ] = None,
    *,
    seed: SeedOption = 1,
    coordination: CoordinationOption = Coordination.SQLITE,
    engine: EngineOption = EngineName.TIDELOG,
    kafka_home: KafkaHomeOption = None,
    brokers: BrokersOption = 3,
    partitions: PartitionsOption = 6,
    acks: AcksOption = Acks.ALL,
    min_insync: MinInsyncOption = 2,
    unclean: UncleanOption = False,
    data: FolderOption = None,
    report: ReportOption = None,
    as_json: JsonOption = False,
) -> int:
    """A schedule of faults, by name or in words, and check that nothing is lost.

    Without SCENARIO it lists those that have a name. The load and the verdict are those of
    'tidelog lab faults'.
    """
    from tidelog.lab.fault_schedule import timeline  # noqa: PLC0415 - after the options

    if scenario is None:
        _list_scenarios(as_json=as_json)
        return 0
    sentences = find_schedule(scenario)
    choice = LabChoice(
        command="tidelog lab run",
        subject=(scenario,),
        schedule="\n".join(sentence.text for sentence in sentences),
        engine=engine,
        kafka_home=kafka_home,
        coordination=coordination,
        seed=seed,
        brokers=brokers,
        partitions=partitions,
        at_once=brokers,
        acks=acks,
        min_insync=min_insync,
        unclean=unclean,
        data=data,
        report=report,
        as_json=as_json,
    )
    return _run(choice, lambda possible: timeline(sentences, seed=seed, possible=possible))


def _list_scenarios(*, as_json: bool) -> None:
    if as_json:
        for name, scenario in SCENARIOS.items():
            print_json({"name": name, **asdict(scenario)})
        return
    print_table(
        ["SCENARIO", "WHAT HAPPENS"], [[name, each.purpose] for name, each in SCENARIOS.items()]
    )


def _run(
    choice: LabChoice,
    plan: "Callable[[Possible], Sequence[PacedFault] | Sequence[TimedFault]]",
) -> int:
    if choice.at_once > choice.brokers:
        raise ConfigError(
            f"--at-once is {choice.at_once} but there are only {choice.brokers} brokers"
        )
    require_writable(choice.report)
    if choice.engine is EngineName.KAFKA and choice.coordination is Coordination.ZOOKEEPER:
        raise ConfigError("--coordination zookeeper is for tidelog; Kafka's brokers have KRaft")

    def in_folder(folder: Path, interrupts: Interrupts) -> "Outcome":
        from tidelog.lab.faults import Watcher, run_faults  # noqa: PLC0415 - loads clients

        prepared = _prepare(choice, plan, folder, interrupts)
        with live_view(prepared) as live:

            def on_fault(begun: "BegunFault") -> None:
                live.on_fault(begun)
                if choice.as_json:
                    print_json(_fault_as_json(begun, live.began_at))
                    sys.stdout.flush()

            watcher = Watcher(live.on_progress, on_fault, interrupts.at_least(1))
            return run_faults(prepared, watcher)

    def show(outcome: "Outcome", folder: LabFolder) -> None:
        write_report(outcome, choice)
        if choice.as_json:
            print_json(_as_json(outcome))
        else:
            _show(outcome, choice, folder)

    return run_lab(choice.command, choice.data, in_folder, show)


def _prepare(
    choice: LabChoice,
    plan: "Callable[[Possible], Sequence[PacedFault] | Sequence[TimedFault]]",
    folder: Path,
    interrupts: Interrupts,
) -> "FaultRun":
    from tidelog.lab.fault_schedule import Possible  # noqa: PLC0415
    from tidelog.lab.faults import (  # noqa: PLC0415
        SESSION_TIMEOUT_S,
        SETTINGS_OF_KAFKA,
        SETTINGS_OF_TIDELOG,
        FaultRun,
    )
    from tidelog.lab.small_disks import why_no_small_disks  # noqa: PLC0415
    from tidelog.lab.workload import Care  # noqa: PLC0415

    is_kafka = choice.engine is EngineName.KAFKA
    # Kafka ends when its only log directory fails, which is another fault than a full disk.
    disk_mib = None if is_kafka or why_no_small_disks() is not None else _DISK_MIB
    possible = Possible(
        has_ensemble=choice.coordination is Coordination.ZOOKEEPER,
        has_network=True,
        has_small_disks=disk_mib is not None,
        can_expire=True,
        at_once_max=choice.at_once,
        broker_count=choice.brokers,
        partition_count=choice.partitions,
        session_timeout_s=SESSION_TIMEOUT_S,
    )
    return FaultRun(
        cluster=_cluster(choice, folder, interrupts, disk_mib),
        settings=dict(SETTINGS_OF_KAFKA if is_kafka else SETTINGS_OF_TIDELOG),
        broker_count=choice.brokers,
        partition_count=choice.partitions,
        care=Care(choice.acks, is_idempotent=choice.acks is Acks.ALL),
        min_insync_replicas=choice.min_insync,
        allows_unclean_election=choice.unclean,
        faults=plan(possible),
    )


def _cluster(
    choice: LabChoice, folder: Path, interrupts: Interrupts, disk_mib: int | None
) -> "LocalCluster":
    from tidelog.lab.kafka import SERVER_FLAGS, find_kafka  # noqa: PLC0415
    from tidelog.lab.local_cluster import LocalCluster  # noqa: PLC0415

    is_cancelled = interrupts.at_least(1)
    if choice.engine is EngineName.KAFKA:
        installation = find_kafka(
            choice.kafka_home, jvm_flags=SERVER_FLAGS, heap_mib=_KAFKA_HEAP_MIB
        )
        return LocalCluster.of_kafka(folder, installation, is_cancelled, has_network=True)
    return LocalCluster.of_tidelog(
        folder, choice.coordination, is_cancelled, has_network=True, disk_mib=disk_mib
    )


def _show(outcome: "Outcome", choice: LabChoice, folder: LabFolder) -> None:
    rows: list[list[Cell]] = [
        [kind, len(gaps), _gap_text(_median(gaps)), _gap_text(max(gaps))]
        for kind, gaps in sorted(outcome.gaps_by_kind().items())
    ]
    if rows:
        print_table(["FAULT", "COUNT", "MEDIAN GAP", "LONGEST GAP"], rows)
        print_line()
    print_table(*_verdict_table(outcome))
    print_line()
    if not outcome.is_good:
        _show_problems(outcome)
    print_line(
        f"{len(outcome.injected)} faults in {duration_text(outcome.took_s)} (seed {choice.seed}) "
        f"on {outcome.engine}: {outcome.sent:,} records sent, {outcome.acknowledged:,} "
        f"acknowledged, {outcome.lost:,} of them lost, {outcome.duplicated:,} stored twice; "
        f"longest time without an acknowledgement {_gap_text(outcome.longest_gap_s)}, a partition "
        f"took nothing for {duration_text(outcome.unavailable_s)} in all."
    )
    if choice.report is not None:
        print_line(f"The report is {choice.report}.")
    show_conclusion(
        outcome,
        folder,
        good="Nothing was lost, doubled or out of order, and the replicas are equal byte for byte.",
    )


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _verdict_table(outcome: "Outcome") -> tuple[list[str], list[list[Cell]]]:
    """All partitions together, below each of those that are not as they should be."""
    verdicts = outcome.verdicts
    rows = [
        _verdict_row(str(each.partition), [each], outcome) for each in verdicts if not each.is_good
    ]
    heading = ["PARTITION", *map(str.upper, _COUNTED), "REPLICAS", "UNAVAILABLE", "LONGEST GAP"]
    return heading, [*rows, _verdict_row("all", verdicts, outcome)]


def _verdict_row(
    name: str, verdicts: "Sequence[PartitionVerdict]", outcome: "Outcome"
) -> list[Cell]:
    numbers = {each.partition for each in verdicts}
    gaps_s = [gap.length_s for gap in outcome.gaps if gap.partition in numbers]
    return [
        name,
        *(sum(getattr(each, column) for each in verdicts) for column in _COUNTED),
        "equal" if all(each.difference is None for each in verdicts) else "differ",
        _gap_text(sum(gaps_s) / max(1, len(verdicts))),
        _gap_text(max(gaps_s, default=0.0)),
    ]


def _show_problems(outcome: "Outcome") -> None:
    problems = [
        *outcome.problems,
        *(
            f"partition {verdict.partition}: {example}"
            for verdict in outcome.verdicts
            for example in (*verdict.examples, verdict.difference)
            if example is not None
        ),
    ]
    for problem in problems[:_PROBLEMS_SHOWN_MAX]:
        print_line(f"  {problem}")
    if len(problems) > _PROBLEMS_SHOWN_MAX:
        print_line(f"  and {len(problems) - _PROBLEMS_SHOWN_MAX} more")
    print_line()


def _gap_text(seconds: float) -> str:
    """Shorter ones than the workload notes down are none."""
    return f"{1_000 * seconds:,.0f} ms" if seconds else "none"


def _fault_as_json(begun: "BegunFault", began_at: float) -> dict[str, object]:
    return {
        "fault": begun.fault.number,
        "kind": begun.fault.kind,
        "victims": begun.names,
        "at_s": round(begun.at - began_at, 3),
        "away_s": round(begun.fault.away_s, 3),
    }


def _as_json(outcome: "Outcome") -> dict[str, object]:
    return {
        "good": outcome.is_good,
        "engine": outcome.engine,
        "faults": len(outcome.injected),
        "took_s": round(outcome.took_s, 3),
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        **{name: sum(getattr(each, name) for each in outcome.verdicts) for name in _WRONG},
        "longest_gap_s": round(outcome.longest_gap_s, 3),
        "unavailable_s": round(outcome.unavailable_s, 3),
        "gaps_s": {
            kind: [round(gap_s, 3) for gap_s in gaps]
            for kind, gaps in sorted(outcome.gaps_by_kind().items())
        },
        "partitions": [asdict(verdict) for verdict in outcome.verdicts],
        "problems": outcome.problems,
    }
