#!/usr/bin/env python3
"""Run the test suites one after the other and say how it went. `make test` is this script.

Each suite is a pytest process of its own: what one leaves behind - threads, open files, a crash of
the interpreter - cannot change another's verdict. A suite shows one line that moves while it runs
(on a terminal; elsewhere a line now and then), its failures in full when it ends, and at the very
end come the table, the files that took longest, the reasons of skips, and `N passed, N failed,
N skipped`.

Exit codes: 0 everything passed or was skipped, 1 something failed, 2 wrong usage.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# In the order in which a mistake is cheapest to find.
SUITES = {
    "tidy": "tests/test_tidy.py",
    "unit": "tests/unit",
    "contract": "tests/contract",
    "scenarios": "tests/scenarios",
    "simulation": "tests/simulation",
    "fuzz": "tests/fuzz",
    "integration": "tests/integration",
    "compatibility": "tests/compatibility",
    "compatibility3": "tests/compatibility",
    "pipeline": "tests/pipeline",
}

# The same tests on a cluster of three brokers, with three replicas of everything.
ENVIRONMENTS = {"compatibility3": {"TIDELOG_SUBJECT": "tidelog3"}}

# Suites that mostly wait for processes: a worker for each core, whole files at a time, because the
# tests of a file may share a broker. Of the pipeline's, one worker has all that share the Spark
# session (tests/pipeline/conftest.py).
PARALLEL = {"unit", "integration", "compatibility", "compatibility3", "pipeline"}
WORKERS = ["-n", "2", "--dist", "loadfile", "--maxprocesses", "2"]

# Suites whose tests share nothing and take long: each test where there is room.
SPREAD = {"simulation"}
SPREAD_WORKERS = ["-n", "2", "--dist", "worksteal", "--maxprocesses", "2"]

# A suite that takes longer hangs, also on two cores that have something else to do.
SUITE_TIMEOUT_S = 1_800
STOP_GRACE_S = 10
POLL_INTERVAL_S = 0.2
QUIET_INTERVAL_S = 15
SLOWEST_SHOWN = 12

PROGRESS_VARIABLE = "TIDELOG_TEST_PROGRESS"
NO_TESTS_COLLECTED = 5


@dataclass(slots=True)
class Suite:
    """One suite and what is known of it so far."""

    name: str
    path: Path
    collected: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    skip_reasons: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    file_took_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    problem: str | None = None
    _begun: str = ""

    @property
    def done(self) -> int:
        return self.outcomes.total()

    @property
    def has_failed(self) -> bool:
        return self.problem is not None or self.outcomes["failed"] > 0

    def learn(self, text: str) -> None:
        """Take in what was read next of the suite's progress.

        It may end within a line: the kernel shows a write that crosses a page half done.
        """
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._learn_fact(json.loads(line))

    def _learn_fact(self, fact: dict[str, Any]) -> None:
        self.collected = fact.get("collected", self.collected)
        if "outcome" in fact:
            self.outcomes[fact["outcome"]] += 1
        if fact.get("outcome") == "skipped":
            self.skip_reasons[fact["reason"]] += 1
        if "took_s" in fact:
            self.file_took_s[fact["file"]] += fact["took_s"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run tidelog's test suites.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}")
    chosen = parser.parse_args(arguments).suites or list(SUITES)
    for name in chosen:
        if name not in SUITES:
            parser.error(f"there is no suite '{name}', only {', '.join(SUITES)}")
    _mind_signals()
    suites = [suite for suite in map(_suite, chosen) if _has_tests(suite.path)]
    for suite in suites:
        _run(suite)
    _summarise(suites)
    return 1 if any(suite.has_failed for suite in suites) or not suites else 0


def _mind_signals() -> None:
    # Who starts this in the background (`&`, nohup) has it ignore some, and everything that tests
    # start would ignore them too: programs that are to end with Ctrl-C would not.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Unwinds, so that `_follow` ends the suite: it is in a session of its own and would go on.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def _suite(name: str) -> Suite:
    return Suite(name, ROOT / SUITES[name])


def _has_tests(path: Path) -> bool:
    return path.is_file() or any(path.rglob("test_*.py"))


def _run(suite: Suite) -> None:
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidelog-test.") as folder:
        progress = Path(folder) / "progress"
        output = Path(folder) / "output"
        progress.touch()
        with output.open("wb") as sink:
            process = subprocess.Popen(
                _command(suite),
                cwd=ROOT,
                env={
                    **os.environ,
                    **ENVIRONMENTS.get(suite.name, {}),
                    PROGRESS_VARIABLE: str(progress),
                },
                stdout=sink,
                stderr=subprocess.STDOUT,
                # A group of its own: if the suite hangs, brokers that it started go with it.
                start_new_session=True,
            )
        exit_code = _follow(suite, process, progress, started_s)
        suite.took_s = time.monotonic() - started_s
        suite.problem = suite.problem or _problem(suite, exit_code)
        _say_line(suite, last=True)
        if suite.has_failed:
            sys.stdout.write(output.read_text(encoding="utf-8", errors="replace"))
            sys.stdout.flush()


def _command(suite: Suite) -> list[str]:
    options = ["-p", "tests.support.progress", "--tb=short", "-q", "-rfE", "--color=no"]
    return [sys.executable, "-m", "pytest", *options, *_workers(suite), str(suite.path)]


def _workers(suite: Suite) -> list[str]:
    if suite.name in SPREAD:
        return SPREAD_WORKERS
    return WORKERS if suite.name in PARALLEL else []


def _problem(suite: Suite, exit_code: int) -> str | None:
    """What pytest's exit code says beyond the tests that failed."""
    if exit_code == 0 or (exit_code == 1 and suite.outcomes["failed"]):
        return None
    if exit_code == NO_TESTS_COLLECTED:
        return "has no tests"
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with pytest's exit code {exit_code}"


def _follow(
    suite: Suite, process: subprocess.Popen[bytes], progress: Path, started_s: float
) -> int:
    said_s = started_s
    with progress.open(encoding="utf-8") as facts:
        try:
            while True:
                exit_code = process.poll()
                suite.learn(facts.read())
                if exit_code is not None:
                    return exit_code
                suite.took_s = time.monotonic() - started_s
                if suite.took_s > SUITE_TIMEOUT_S:
                    suite.problem = f"hung: it was stopped after {SUITE_TIMEOUT_S} s"
                    return _stop(process)
                if sys.stdout.isatty() or time.monotonic() - said_s > QUIET_INTERVAL_S:
                    said_s = time.monotonic()
                    _say_line(suite, last=False)
                time.sleep(POLL_INTERVAL_S)
        except BaseException:
            _stop(process)
            raise


def _stop(process: subprocess.Popen[bytes]) -> int:
    """End the suite and every process that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            return process.wait(timeout=STOP_GRACE_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    return process.wait()


def _say_line(suite: Suite, *, last: bool) -> None:
    share = 100 * suite.done // max(suite.collected, suite.done, 1)
    line = f"{suite.name:<14} {share:3d} %  {_counts(suite.outcomes)}  {suite.took_s:6.1f} s"
    if suite.problem:
        line += f"  {suite.problem}"
    if sys.stdout.isatty():
        sys.stdout.write(f"\r\x1b[K{line}" + ("\n" if last else ""))
    else:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _summarise(suites: list[Suite]) -> None:
    total: Counter[str] = Counter()
    sys.stdout.write(f"\n{'suite':<14} {'passed':>7} {'failed':>7} {'skipped':>8} {'time':>9}\n")
    for suite in suites:
        counted = Counter(suite.outcomes)
        if suite.problem and not counted["failed"]:
            counted["failed"] += 1  # A suite that could not be run is a failure like any other.
        total += counted
        sys.stdout.write(
            f"{suite.name:<14} {counted['passed']:>7} {counted['failed']:>7} "
            f"{counted['skipped']:>8} {suite.took_s:>7.1f} s\n"
        )
    _say_slowest(suites)
    _say_skips(suites)
    sys.stdout.write(f"\n{_counts(total)}\n")


def _say_slowest(suites: list[Suite]) -> None:
    """Where the time went: whoever wants the tests to be faster begins there."""
    files = [
        (took_s, suite.name, name) for suite in suites for name, took_s in suite.file_took_s.items()
    ]
    sys.stdout.write("\nThe files that took longest:\n")
    for took_s, suite_name, name in sorted(files, reverse=True)[:SLOWEST_SHOWN]:
        sys.stdout.write(f"{took_s:>7.1f} s  {suite_name:<14} {name}\n")


def _say_skips(suites: list[Suite]) -> None:
    for suite in suites:
        for reason, count in sorted(suite.skip_reasons.items()):
            sys.stdout.write(f"\n{suite.name}: {count} skipped because {reason}")
    if any(suite.skip_reasons for suite in suites):
        sys.stdout.write("\n")


def _counts(outcomes: Counter[str]) -> str:
    return (
        f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
