"""What Spark says, brought down to what matters; and a query until its end, without Spark."""

import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidelog.pipeline import running
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.running import (
    Progress,
    QueryRun,
    failure_of,
    lag_of,
    observed_count,
    state_count,
)

IN_A_WRITER = """\
[STREAM_FAILED] Query [id = 1be2ee53, runId = b1166056] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: Traceback (most recent \
call last):
  File "/work/src/tidelog/pipeline/sink_options.py", line 161, in _require_no_slips
    raise OptionError(f"{name} is no option; {known[near[0]]} is one")
tidelog.pipeline.errors.OptionError: topc is no option; topic is one
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1be2ee53-8e3d-4597-bd03-b49d7c857843]
"""


WITHOUT_TRACEBACK = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source reader: \
tidelog.pipeline.errors.OptionError: topc is no option; topic is one
 SQLSTATE: 38000
"""


@pytest.mark.parametrize("message", [IN_A_WRITER, WITHOUT_TRACEBACK])
def test_a_wrong_option_is_told_from_other_failures(message: str) -> None:
    failure = failure_of(message)
    assert isinstance(failure, OptionError)
    assert str(failure) == "topc is no option; topic is one"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (
            "x\ntidelog.client.errors.RequestFailed: topic orders does not exist\n SQLSTATE: 38000",
            "topic orders does not exist",
        ),
        (
            "[STREAM_FAILED] Traceback\nKeyError: 'x'\nValueError: not a number\n at java...",
            "ValueError: not a number",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `nope` cannot be resolved. "
            "SQLSTATE: 42703;\n'Project ['nope]",
            "A column `nope` cannot be resolved.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: no space left "
            "SQLSTATE: XXKST\n=== Streaming Query ===",
            "no space left",
        ),
        (
            "An error occurred while calling o91.save.\n: org.apache.spark.SparkException: Job "
            "aborted due to stage failure: Lost task 1.0 (TID 9): org.apache.spark.SparkException: "
            "Python worker exited unexpectedly (crashed)\n\tat org.apache.spark.api.Runner.x(R:1)"
            "\nCaused by: java.io.EOFException\n\tat java.base/java.io.DataInputStream.read(D:2)",
            "Python worker exited unexpectedly (crashed)",
        ),
        ("something\nelse", "something"),
        ("", "Spark did not say why"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. SQLSTATE: 40000",
            "Concurrent update to the log.",
        ),
    ],
)
def test_the_sentence_that_matters_is_found(message: str, sentence: str) -> None:
    failure = failure_of(message)
    assert type(failure) is PipelineError
    assert str(failure) == sentence


def test_lag_is_what_is_there_and_not_read() -> None:
    source = {
        "endOffset": {"orders": {"0": 10, "1": 5}},
        "latestOffset": {"orders": {"0": 12, "1": 5, "2": 3}},
    }
    assert lag_of({"sources": [source]}) == 5


def test_a_source_that_does_not_say_has_no_lag() -> None:
    assert lag_of({"sources": [{"endOffset": {"orders": {"0": 1}}, "latestOffset": None}]}) is None


def test_numbers_of_all_operators_are_added() -> None:
    operators = [
        {"numRowsDroppedByWatermark": 2, "customMetrics": {"numDroppedDuplicateRows": 3}},
        {"numRowsDroppedByWatermark": 1, "customMetrics": {}},
    ]
    progress = {"stateOperators": operators}
    assert state_count(progress, "numRowsDroppedByWatermark") == 3
    assert state_count(progress, "numDroppedDuplicateRows") == 3


def test_what_was_not_observed_is_nothing() -> None:
    assert observed_count({}, "ours", "without_id") == 0
    assert (
        observed_count({"observedMetrics": {"ours": {"without_id": 4}}}, "ours", "without_id") == 4
    )


@pytest.fixture
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake query goes on when it is looked at, not when time passes."""
    monkeypatch.setattr(running, "_POLL_S", 0.0)


class FakeProgress:
    """Of a micro-batch: its number, when it began, and how many rows it had."""

    def __init__(self, batch: int, rows: int, began: int) -> None:
        self.batchId = batch
        self.timestamp = f"2026-11-20T00:00:{began:06}Z"
        self.json = json.dumps(
            {"batchId": batch, "numInputRows": rows, "durationMs": {}, "sources": []}
        )


class FakeQuery:
    """Ends some micro-batches at each question whether it is active, and then ends itself."""

    def __init__(self, *turns: list[tuple[int, int]], ends: bool = True) -> None:
        self._turns = list(turns)
        self._ends = ends
        self._all: list[FakeProgress] = []
        self._is_stopped = False
        self.is_awaited = False
        self.recent_count = 0

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's
        if self._turns:
            for batch, rows in self._turns.pop(0):
                self._all.append(FakeProgress(batch, rows, len(self._all)))
            return True
        return not self._ends and not self._is_stopped

    @property
    def lastProgress(self) -> FakeProgress | None:  # noqa: N802 - Spark's
        return self._all[-1] if self._all else None

    @property
    def recentProgress(self) -> list[FakeProgress]:  # noqa: N802 - Spark's
        self.recent_count += 1
        return self._all[-100:]

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": bool(self._turns)}

    def stop(self) -> None:
        self._is_stopped = True
        self._all.append(FakeProgress(1_000, 1, len(self._all)))

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's
        self.is_awaited = True


def run_of(
    query: FakeQuery, on_progress: Callable[[Progress], None] = lambda _progress: None
) -> QueryRun:
    return QueryRun(cast("Any", query), lambda _found: {"odd": 1}, on_progress)


def test_each_micro_batch_is_counted_once_however_many_end_between_two_looks(
    without_waits: None,
) -> None:
    query = FakeQuery([(0, 5)], [], [(1, 2)], [(batch, 2) for batch in range(2, 90)])
    seen: list[Progress] = []
    outcome = run_of(query, seen.append).run(lambda: False)
    assert [each.batch for each in seen] == [*range(90), 1_000]
    assert outcome.row_count == 5 + 89 * 2 + 1
    assert (outcome.batch_count, outcome.counts) == (91, {"odd": 91})
    assert seen[-1].total_row_count == outcome.row_count
    assert query.is_awaited
    assert not outcome.was_stopped


def test_all_that_spark_retains_is_asked_for_only_when_several_have_ended(
    without_waits: None,
) -> None:
    """It is a call for each; and a look is due ten times a second, for days."""
    one_by_one: list[list[tuple[int, int]]] = [[(batch, 1)] for batch in range(999)]
    query = FakeQuery(*one_by_one, [], [], [(999, 1)])
    assert run_of(query).run(lambda: False).row_count == 1_001
    # For the first of all.
    assert query.recent_count == 1


def test_one_that_is_told_of_twice_is_one_micro_batch(without_waits: None) -> None:
    outcome = run_of(FakeQuery([(0, 5), (0, 5), (1, 5)])).run(lambda: False)
    assert (outcome.batch_count, outcome.row_count) == (3, 16)


def test_who_is_stopped_before_its_end_was_stopped(without_waits: None) -> None:
    outcome = run_of(FakeQuery([(0, 5)], ends=False)).run(lambda: True)
    assert outcome.was_stopped
    assert outcome.row_count == 6


def test_who_has_ended_when_it_is_to_stop_was_not_stopped(without_waits: None) -> None:
    """Ctrl-C within the last micro-batch: all of it is done."""
    query = FakeQuery([(0, 5)], [(1, 5)])
    outcome = run_of(query).run(lambda: True)
    assert not outcome.was_stopped
    assert query.is_awaited
