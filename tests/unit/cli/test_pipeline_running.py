"""Options that pipelines share, and how progress reads."""

import logging

import pytest

from tidelog.base.errors import ConfigError
from tidelog.cli.pipeline_running import (
    INTERRUPTED,
    duration_ms,
    exit_code,
    hush_py4j,
    pairs,
    progress_text,
    rate_per_s,
    size_bytes,
    spark_duration,
)
from tidelog.pipeline.running import Outcome, Progress


@pytest.mark.parametrize(
    ("text", "expected"),
    [("128MB", 128 * 1024**2), ("64k", 65_536), ("1.5 GiB", 3 * 1024**3 // 2), ("17", 17)],
)
def test_sizes(text: str, expected: int) -> None:
    assert size_bytes("--target-size", text) == expected


@pytest.mark.parametrize("text", ["", "big", "0", "-1MB", "1TB"])
def test_a_wrong_size_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--target-size is .* a size such as 128MB"):
        size_bytes("--target-size", text)


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 500), ("30 s", 30_000), ("10m", 600_000), ("2h", 7_200_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms("--watermark", text) == expected
    assert spark_duration("--watermark", text) == f"{expected} milliseconds"


@pytest.mark.parametrize("text", ["", "10", "soon", "-1m"])
def test_a_wrong_duration_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--watermark is .* a duration such as"):
        duration_ms("--watermark", text)


@pytest.mark.parametrize(("text", "expected"), [("5000/s", 5000.0), ("120/min", 2.0), ("7", 7.0)])
def test_rates(text: str, expected: float) -> None:
    assert rate_per_s("--rate", text) == expected


@pytest.mark.parametrize("text", ["", "fast", "5/day", "0/s", "inf"])
def test_a_wrong_rate_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--rate is"):
        rate_per_s("--rate", text)


def test_settings_are_pairs() -> None:
    assert pairs("--kafka", ["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    with pytest.raises(ConfigError, match="--kafka is 'a' but must be NAME=VALUE"):
        pairs("--kafka", ["a"])


def test_py4j_has_no_pages_for_whom_ctrl_c_was_typed(caplog: pytest.LogCaptureFixture) -> None:
    hush_py4j()
    logging.getLogger("py4j.clientserver").error("exception while sending command")
    name = "/lib/py4j/java_gateway.py"
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, name, 1, "x", None, None))
    assert caplog.records == []
    logging.getLogger().error("of somebody else")
    assert len(caplog.records) == 1


def test_progress_is_a_line() -> None:
    progress = Progress(
        batch=3,
        row_count=4_000,
        total_row_count=12_000,
        rows_per_s=5_000.4,
        lag=1_200,
        batch_s=0.8,
        counts={"without_id": 3},
    )
    assert progress_text(progress) == "12,000 rows  5,000/s  lag 1,200  batch 0.8 s  3 without id"


@pytest.mark.parametrize(
    ("is_once", "was_stopped", "expected"),
    [(True, True, INTERRUPTED), (True, False, 0), (False, True, 0), (False, False, 0)],
)
def test_only_what_has_an_end_of_its_own_can_be_interrupted(
    is_once: bool, was_stopped: bool, expected: int
) -> None:
    outcome = Outcome(
        batch_count=1, row_count=1, took_s=1.0, lag=0, counts={}, was_stopped=was_stopped
    )
    assert exit_code(outcome, is_once=is_once) == expected
