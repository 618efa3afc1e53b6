"""`tidelog bench`: the six scenarios of the document, alone or beside a peer (B1, B2).

Exit codes: 0 measured, 1 something could not be measured, 2 wrong usage, 130 interrupted.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli import bench_peers
from tidelog.cli.bench_progress import measuring_progress
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import lab_folder
from tidelog.cli.lab_session import FolderOption
from tidelog.cli.options import JsonOption, Panel
from tidelog.cli.output import complain, print_json, print_line

if TYPE_CHECKING:
    from tidelog.bench.about import About
    from tidelog.bench.measured import Results
    from tidelog.bench.plan import LoadPlan
    from tidelog.bench.subjects import SubjectStarter

KAFKA: Final = "kafka"
# Four of them run beside each other; Kafka's own start script has 1 GiB for one.
_HEAP_MIB: Final = 512
_IN_FLIGHT: Final = 50
_SCENARIOS: Final = {
    1: "acks x replicas x min ISR, 12 partitions.",
    2: "Replicas x min ISR, 1 partition, acks=-1.",
    3: "acks x replicas, 1 partition.",
    4: "1, 2, 4, 8 and 12 partitions.",
    5: "Brokers killed while sending: TPS, errors, what reached the disk.",
    6: "Latency of the producer, and end to end.",
}

QuickOption: TypeAlias = Annotated[
    bool, typer.Option("--quick", help="A smoke run: small loads, no answers.")
]
ScaleOption: TypeAlias = Annotated[
    float, typer.Option(min=0.05, max=1_000, metavar="X", help="So many times as long loads.")
]
RoundsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, max=100, help="Rounds that count.", show_default="3, or 2 with --quick"),
]
InFlightOption: TypeAlias = Annotated[
    int, typer.Option(min=1, max=10_000, help="Records under way at a time: what `sync` means.")
]
PeerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="kafka|HOST:PORT",
        help="Measure beside Apache Kafka, started here, or beside a cluster that runs.",
    ),
]
KafkaHomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="An unpacked distribution of Kafka.",
        show_default="what `bench peers fetch` has fetched",
    ),
]
KafkaHeapOption: TypeAlias = Annotated[
    int, typer.Option(min=128, metavar="MIB", help="Heap of each of Kafka's brokers.")
]
ReportOption: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE.html", help="Write a page that needs no other file.")
]


def register(app: typer.Typer) -> None:
    bench = typer.Typer(
        no_args_is_help=True, help="Measure the document's six scenarios, here and on Kafka."
    )
    for number, words in _SCENARIOS.items():
        bench.command(str(number), help=words)(_command([number]))
    bench.command("all", help="All six, with the document's summary.")(_command([*_SCENARIOS]))
    bench_peers.register(bench)
    app.add_typer(bench, name="bench", rich_help_panel=Panel.LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The command line."""

    scenarios: Sequence[int]
    is_quick: bool
    plan: "LoadPlan"
    starters: "Sequence[SubjectStarter]"
    data: Path | None
    report: Path | None
    as_json: bool


def _command(scenarios: Sequence[int]) -> Callable[..., int]:
    def run(
        *,
        quick: QuickOption = False,
        scale: ScaleOption = 1.0,
        rounds: RoundsOption = None,
        in_flight: InFlightOption = _IN_FLIGHT,
        peer: PeerOption = None,
        kafka_home: KafkaHomeOption = None,
        kafka_heap: KafkaHeapOption = _HEAP_MIB,
        data: FolderOption = None,
        report: ReportOption = None,
        as_json: JsonOption = False,
    ) -> int:
        from tidelog.bench.plan import LoadPlan  # noqa: PLC0415

        _require_writable(report)
        plan = LoadPlan.of(is_quick=quick, scale=scale, rounds=rounds, in_flight=in_flight)
        starters = _starters(peer, kafka_home, kafka_heap)
        return _bench(
            _Asked(
                scenarios=scenarios,
                is_quick=quick,
                plan=plan,
                starters=starters,
                data=data,
                report=report,
                as_json=as_json,
            )
        )

    return run


def _bench(asked: _Asked) -> int:
    from tidelog.bench.errors import Interrupted  # noqa: PLC0415 - loads clients
    from tidelog.lab.errors import StartCancelled  # noqa: PLC0415

    about = _about(asked)
    with lab_folder(asked.data) as folder, Interrupts() as interrupts:
        try:
            results = _measure(asked, folder.path, interrupts)
        except (Interrupted, StartCancelled):
            complain("interrupted", command="tidelog bench")
            return 130
    _conclude(asked, results, about)
    for problem in results.problems:
        complain(f"not measured: {problem}", command="tidelog bench")
    return 1 if results.problems else 0


def _measure(asked: _Asked, folder: Path, interrupts: Interrupts) -> "Results":
    from tidelog.bench.runner import BenchRun, Watcher, step_count  # noqa: PLC0415

    total = step_count(asked.scenarios, len(asked.starters), asked.plan)
    with measuring_progress(total) as live:

        def on_scenario(number: int, results: "Results") -> None:
            with live.paused():
                _show_scenario(number, results, as_json=asked.as_json)

        watcher = Watcher(live.on_step, on_scenario, interrupts.at_least(1))
        return BenchRun(asked.starters, asked.plan, folder, watcher).run(asked.scenarios)


def _show_scenario(number: int, results: "Results", *, as_json: bool) -> None:
    from tidelog.bench.as_json import scenario_as_json  # noqa: PLC0415
    from tidelog.cli.bench_show import show_scenario  # noqa: PLC0415

    if as_json:
        print_json(scenario_as_json(results, number))
    else:
        show_scenario(results, number)
    sys.stdout.flush()


def _conclude(asked: _Asked, results: "Results", about: "About") -> None:
    from tidelog.bench.as_json import run_as_json  # noqa: PLC0415
    from tidelog.bench.page import report_html  # noqa: PLC0415
    from tidelog.cli.bench_show import show_conclusion  # noqa: PLC0415

    if asked.report is not None:
        asked.report.write_text(report_html(results, about), encoding="utf-8")
    if asked.as_json:
        print_json(run_as_json(results, about))
        return
    show_conclusion(results, about)
    if asked.report is not None:
        print_line(f"Report: {asked.report}")


def _about(asked: _Asked) -> "About":
    from tidelog.bench.about import About  # noqa: PLC0415
    from tidelog.bench.environment import describe_environment, java_version  # noqa: PLC0415
    from tidelog.bench.subjects import KafkaStarter  # noqa: PLC0415

    environment = describe_environment()
    kafka = [each for each in asked.starters if isinstance(each, KafkaStarter)]
    if kafka:
        heap = f"{kafka[0].installation.heap_mib} MiB of heap for each broker"
        environment["kafka"] = f"{kafka[0].version}, {java_version()}, {heap}"
    else:
        del environment["kafka"]
    return About(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=shlex.join(["tidelog", *sys.argv[1:]]),
        environment=environment,
        plan=asked.plan,
        is_quick=asked.is_quick,
    )


def _starters(
    peer: str | None, kafka_home: Path | None, kafka_heap_mib: int
) -> "list[SubjectStarter]":
    from tidelog.bench.subjects import ForeignStarter, TidelogStarter  # noqa: PLC0415
    from tidelog.client.bootstrap import parse_bootstrap  # noqa: PLC0415

    if kafka_home is not None and peer != KAFKA:
        raise ConfigError("--kafka-home is given but --peer kafka is not")
    if peer is None:
        return [TidelogStarter()]
    if peer == KAFKA:
        return [TidelogStarter(), _kafka(kafka_home, kafka_heap_mib)]
    try:
        parse_bootstrap(peer)
    except ConfigError:
        raise ConfigError(
            f"--peer is '{peer}' but must be kafka or host:port[,host:port...]"
        ) from None
    return [TidelogStarter(), ForeignStarter(peer)]


def _kafka(home: Path | None, heap_mib: int) -> "SubjectStarter":
    from tidelog.bench.subjects import KafkaStarter  # noqa: PLC0415
    from tidelog.lab.kafka import SERVER_FLAGS, KafkaUnavailable, find_kafka  # noqa: PLC0415

    try:
        found = find_kafka(home, jvm_flags=SERVER_FLAGS, heap_mib=heap_mib)
    except KafkaUnavailable as error:
        if home is None:
            raise
        raise ConfigError(str(error)) from error
    return KafkaStarter(found)


def _require_writable(report: Path | None) -> None:
    """Before an hour of measuring rather than behind it."""
    if report is not None and not report.absolute().parent.is_dir():
        raise ConfigError(f"--report is {report} but there is no folder {report.absolute().parent}")
