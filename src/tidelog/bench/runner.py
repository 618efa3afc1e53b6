"""A whole run: systems started, scenarios measured in turns, everything stopped (B1, B2).

    steady scenarios (1 to 4, 6)    one cluster of each system runs through all of them
    brokers that die (5)            every round has clusters of its own

What cannot be measured - a load that fails, a peer with too few brokers - is a problem in the
results, and the rest goes on. A system that does not start ends the run.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.bench.deaths import measure_deaths
from tidelog.bench.document import (
    LATENCY_SETUP,
    SCENARIOS,
    TITLES,
    death_rows,
    throughput_rows,
)
from tidelog.bench.errors import BenchError, Interrupted
from tidelog.bench.load_process import LoadStarter
from tidelog.bench.measured import LatencyPair, Results, Rounds, Setup
from tidelog.bench.plan import LoadPlan
from tidelog.bench.rounds import Turn, turns
from tidelog.bench.steady import measure_latency, measure_throughput, warm_up
from tidelog.bench.subjects import Subject, SubjectStarter
from tidelog.client.errors import ClientError
from tidelog.lab.errors import LabError, StartCancelled

_DEATHS: Final = 5
_LATENCY: Final = 6


@dataclass(frozen=True, slots=True)
class Watcher:
    """Who is told how far it is, and may have had enough."""

    on_step: Callable[[str], None]
    """A measurement is about to begin; `step_count` says how many there are."""
    on_scenario: Callable[[int, Results], None]
    """A scenario is through."""
    is_cancelled: Callable[[], bool]


def step_count(scenarios: Sequence[int], subject_count: int, plan: LoadPlan) -> int:
    """Measurements of a run, those for warming up too."""
    rounds = plan.rounds + plan.warm_up_rounds
    rows = {number: len(throughput_rows(number)) for number in (1, 2, 3, 4)} | {_LATENCY: 1}
    steady = sum(rows[number] for number in scenarios if number != _DEATHS) * rounds
    deaths = len(death_rows()) * plan.death_rounds if _DEATHS in scenarios else 0
    return (steady + deaths) * subject_count


class BenchRun:
    """Measures the scenarios it is asked for, in `folder`, which it empties as it goes."""

    def __init__(
        self,
        starters: Sequence[SubjectStarter],
        plan: LoadPlan,
        folder: Path,
        watcher: Watcher,
    ) -> None:
        self._starters = starters
        self._plan = plan
        self._folder = folder
        self._watcher = watcher
        self._results = Results(tuple(starter.name for starter in starters))

    def run(self, scenarios: Sequence[int]) -> Results:
        """Interrupted or StartCancelled if the watcher has had enough."""
        assert set(scenarios) <= set(SCENARIOS)
        os.sync()  # What was left to be written before would be written under this.
        steady = [number for number in scenarios if number != _DEATHS]
        if steady:
            with self._running() as subjects:
                for number in steady:
                    self._measure_steady(number, subjects)
                    self._watcher.on_scenario(number, self._results)
        if _DEATHS in scenarios:
            self._measure_deaths()
            self._watcher.on_scenario(_DEATHS, self._results)
        return self._results

    @contextmanager
    def _running(self) -> Iterator[dict[str, Subject]]:
        """All systems, side by side."""
        with ExitStack() as stopping:
            subjects = {}
            for starter in self._starters:
                subject = starter.start(
                    self._folder / _file_name(starter.name), self._watcher.is_cancelled
                )
                stopping.callback(subject.stop)
                subjects[starter.name] = subject
            load = LoadStarter(self._folder, self._watcher.is_cancelled)
            for subject in subjects.values():
                warm_up(subject, load, self._plan)
            yield subjects

    # -- scenarios that leave brokers alone --------------------------------------------------------

    def _measure_steady(self, number: int, subjects: dict[str, Subject]) -> None:
        load = LoadStarter(self._folder, self._watcher.is_cancelled)
        if number == _LATENCY:
            pairs: Rounds[LatencyPair] = Rounds()
            self._results.latency = pairs
            for turn in self._turns(list(subjects), row_count=1):
                with self._measuring(number, turn, LATENCY_SETUP.described):
                    pair = measure_latency(subjects[turn.subject], load, LATENCY_SETUP, self._plan)
                    if turn.counts:
                        pairs.add(turn.subject, turn.round_index, pair)
            return
        rows = throughput_rows(number)
        self._results.throughput[number] = rows
        for turn in self._turns(list(subjects), row_count=len(rows)):
            row = rows[turn.row_index]
            with self._measuring(number, turn, _said(row.setup)):
                measured = measure_throughput(subjects[turn.subject], load, row.setup, self._plan)
                if turn.counts:
                    row.rounds.add(turn.subject, turn.round_index, measured)

    def _turns(self, subjects: Sequence[str], *, row_count: int) -> Iterator[Turn]:
        return turns(
            subjects,
            row_count=row_count,
            rounds=self._plan.rounds,
            warm_up_rounds=self._plan.warm_up_rounds,
        )

    # -- the one that does not ---------------------------------------------------------------------

    def _measure_deaths(self) -> None:
        rows = death_rows()
        self._results.deaths = rows
        starters = {each.name: each for each in self._starters if each.is_ours_to_break}
        for starter in self._starters:
            if not starter.is_ours_to_break:
                self._results.remarks.append(
                    f"scenario 5 was not run on {starter.name}: brokers that were not started here "
                    "are not killed, and their disks are not read"
                )
        for turn in turns(
            list(starters), row_count=len(rows), rounds=self._plan.death_rounds, warm_up_rounds=0
        ):
            row = rows[turn.row_index]
            with self._measuring(_DEATHS, turn, row.case.described), self._fresh_folder() as folder:
                measured = measure_deaths(
                    starters[turn.subject],
                    folder,
                    row.case,
                    self._plan,
                    self._watcher.is_cancelled,
                )
                row.rounds.add(turn.subject, turn.round_index, measured)

    @contextmanager
    def _fresh_folder(self) -> Iterator[Path]:
        """Gone afterwards: a round leaves gigabytes."""
        folder = self._folder / "deaths"
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    # -- both --------------------------------------------------------------------------------------

    @contextmanager
    def _measuring(self, number: int, turn: Turn, what: str) -> Iterator[None]:
        """Tell the watcher; note down what could not be measured."""
        if self._watcher.is_cancelled():
            raise Interrupted("not everything is measured yet")
        self._watcher.on_step(f"scenario {number}, {TITLES[number]}: {turn.subject}, {what}")
        try:
            yield
        except StartCancelled:
            raise
        except (BenchError, ClientError, LabError) as error:
            problem = f"scenario {number}, {what}, {turn.subject}: {error}"
            if problem not in self._results.problems:
                self._results.problems.append(problem)


def _said(setup: Setup) -> str:
    return f"{setup.described}, {setup.partitions} partition{'s' * (setup.partitions > 1)}"


def _file_name(subject: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in subject)
