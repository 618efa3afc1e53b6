"""How every benchmark runs: side by side, warmed up, in turns, with the median of the rounds.

A script states its question, declares its metrics and fills them; this module does the rest:

    H1  All systems run during the whole measurement, and are measured in turns, each round in
        another order. A disturbance of the machine hits all of them alike.
    H2  Rounds of warming up come first and count for nothing. A JVM needs them; all get them.
    H3  Five rounds or more count, and their median. `--quick` has fewer and smaller ones: it shows
        that a benchmark works, not what the answer is.
    H4  Round trips of single requests are measured on one core (`on_one_core`), or with the client
        on a core of its own (`client_apart`). Left to the scheduler it is one or the other by its
        whim, and the waking of a core costs more than most servers do.

Results go to stdout (a table, or JSON with `--json`), progress to stderr. Exit code 0: measured;
1: measured and a target was missed.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.results import MISSED, Answer, Metric
from benchmarks.subjects import (
    FLOOR,
    KAFKA,
    TIDELOG,
    Cluster,
    Subject,
    new_subject,
    running_cluster,
)
from benchmarks.tables import print_answer
from tidelog.bench.environment import describe_environment
from tidelog.lab.peers import why_kafka_is_unavailable

ROUNDS = 5
WARM_UP_ROUNDS = 3
QUICK_ROUNDS = 2
QUICK_WARM_UP_ROUNDS = 1
QUICK_DIVISOR = 10


@dataclass(slots=True)
class Bench:
    """One run of one script: what was asked on the command line, and where to put things."""

    folder: Path
    quick: bool
    subjects: Sequence[str]
    rounds: int
    warm_up_rounds: int
    progress: Progress
    running: ExitStack
    metrics: list[Metric] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    cores: frozenset[int] = field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))

    def metric(self, metric: Metric) -> Metric:
        self.metrics.append(metric)
        return metric

    def count(self, full: int) -> int:
        """A number of records or requests, less when it has to be quick."""
        return max(1, full // QUICK_DIVISOR) if self.quick else full

    def on_one_core(self) -> None:
        """Keep the client, and every system started from now on, on the same core (H4)."""
        os.sched_setaffinity(0, {max(self.cores)})

    def client_apart(self) -> bool:
        """Move the client to another core than the systems; False if there is only one (H4)."""
        if len(self.cores) == 1:
            return False
        os.sched_setaffinity(0, {min(self.cores)})
        return True

    def has(self, subject: str) -> bool:
        return subject in self.subjects

    def start_subjects(self) -> dict[str, Subject]:
        """Every system asked for, running until the script ends."""
        started: dict[str, Subject] = {}
        for name in self.subjects:
            self.say(f"starting {name}")
            subject = new_subject(name, self.folder / name, {})
            self.running.enter_context(subject)
            started[name] = subject
        return started

    def start_clusters(self, names: Sequence[str]) -> dict[str, Cluster]:
        """Three brokers of each of these, running until the script ends."""
        started: dict[str, Cluster] = {}
        for name in names:
            self.say(f"starting three brokers of {name}")
            folder = self.folder / f"{name}-cluster"
            started[name] = self.running.enter_context(running_cluster(name, folder, {}))
        return started

    def turns(self, what: str, names: Sequence[str]) -> Iterator["Turn"]:
        """Each system once per round, rounds of warming up first, in an order that rotates."""
        total = (self.warm_up_rounds + self.rounds) * len(names)
        task = self.progress.add_task(what, total=total)
        for round_index in range(self.warm_up_rounds + self.rounds):
            shift = round_index % max(1, len(names))
            for name in [*names[shift:], *names[:shift]]:
                yield Turn(name, round_index, counts=round_index >= self.warm_up_rounds)
                self.progress.advance(task)
        self.progress.remove_task(task)

    def passes(self, what: str) -> Iterator["Pass"]:
        """Rounds in which the systems take turns by themselves, every few requests."""
        total = self.warm_up_rounds + self.rounds
        task = self.progress.add_task(what, total=total)
        for round_index in range(total):
            yield Pass(counts=round_index >= self.warm_up_rounds)
            self.progress.advance(task)
        self.progress.remove_task(task)

    def say(self, text: str) -> None:
        self.progress.console.print(f"  {text}", style="dim", highlight=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """One system's turn in one round."""

    name: str
    round_index: int
    counts: bool

    @property
    def label(self) -> str:
        """Part of a topic's name that no other turn has."""
        return f"{self.name}-{self.round_index}"

    def record(self, metric: Metric, value: float) -> None:
        if self.counts:
            metric.record(self.name, value)


@dataclass(frozen=True, slots=True)
class Pass:
    """One round in which all systems are measured together."""

    counts: bool

    def record(self, metric: Metric, values: Mapping[str, float]) -> None:
        if self.counts:
            for series, value in values.items():
                metric.record(series, value)


def run_script(
    script: str,
    question: str,
    measure: Callable[[Bench], None],
    subjects: Sequence[str] = (TIDELOG, KAFKA, FLOOR),
) -> int:
    """The `main` of every benchmark. `subjects` are what it can measure."""
    arguments = _parse_arguments(script, question, subjects)
    os.sync()  # What the script before left to be written would be written under this one.
    environment = describe_environment()
    folder = Path(tempfile.mkdtemp(prefix=f"tidelog-{script}-", dir=arguments.folder))
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    console = Console(stderr=True)
    console.print(question, style="bold", highlight=False)
    try:
        with _progress(console) as progress, ExitStack() as running:
            bench = Bench(
                folder=folder,
                quick=arguments.quick,
                subjects=_available(arguments.subjects, console),
                rounds=arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS),
                warm_up_rounds=QUICK_WARM_UP_ROUNDS if arguments.quick else WARM_UP_ROUNDS,
                progress=progress,
                running=running,
            )
            measure(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    command = shlex.join(["python", "-m", f"benchmarks.{script}", *sys.argv[1:]])
    answer = Answer(script, question, command, date, environment, bench.remarks, bench.metrics)
    if arguments.json:
        sys.stdout.write(json.dumps(answer.to_json()) + "\n")
    else:
        print_answer(answer)
    return 1 if _missed(answer) else 0


def _parse_arguments(script: str, question: str, subjects: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{script}", description=question)
    parser.add_argument("--quick", action="store_true", help="less load, fewer rounds, no answer")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, help=f"rounds that count (default {ROUNDS})")
    parser.add_argument("--folder", type=Path, help="where data is kept (default: the temp dir)")
    parser.add_argument(
        "--subjects",
        type=lambda text: text.split(","),
        default=list(subjects),
        help=f"which of {','.join(subjects)} to measure (default: all)",
    )
    return parser.parse_args()


def _available(subjects: Sequence[str], console: Console) -> list[str]:
    reason = why_kafka_is_unavailable()
    if reason is None or KAFKA not in subjects:
        return list(subjects)
    console.print(f"  without Kafka: {reason}", style="yellow", highlight=False)
    return [subject for subject in subjects if subject != KAFKA]


def _progress(console: Console) -> Progress:
    columns = (TextColumn("  {task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)


def _missed(answer: Answer) -> bool:
    return any(
        metric.verdict(target) == MISSED for metric in answer.metrics for target in metric.targets
    )
