"""What Spark says, brought down to what matters."""

import pytest

from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.running import failure_of, lag_of, observed_count, state_count

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
