"""A pytest plugin that tells `scripts/run_tests.py` how a suite is getting on.

Loaded with `-p tests.support.progress`. Each line it writes to the file named by
`TIDELOG_TEST_PROGRESS` is one JSON object: `{"collected": n}` once, then `{"outcome": ...}` for
every test that ended, with `"reason"` where it was skipped, and `{"file": ..., "took_s": ...}` for
each of a test's phases.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

VARIABLE = "TIDELOG_TEST_PROGRESS"


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get(VARIABLE)
    # Of several processes only the first tells: it hears of every test.
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Progress(Path(path)))


class _Progress:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tell({"collected": len(session.items)})

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self._tell({"collected": len(ids)})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell({"outcome": "failed", "test": report.nodeid})
        elif report.skipped:
            self._tell({"outcome": "skipped", "test": report.nodeid, "reason": _reason(report)})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tell({"file": report.location[0], "took_s": report.duration})
        if report.failed:
            # A test whose clean-up fails has passed already; the failure counts beside it.
            self._tell({"outcome": "failed", "test": report.nodeid})
        elif report.skipped:
            self._tell({"outcome": "skipped", "test": report.nodeid, "reason": _reason(report)})
        elif report.when == "call":
            self._tell({"outcome": "passed", "test": report.nodeid})

    def _tell(self, fact: dict[str, object]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    where = report.longrepr
    if isinstance(where, tuple):
        return str(where[2]).removeprefix("Skipped: ")
    return getattr(report, "wasxfail", "") or "expected to fail"
