"""What is typed after `tidelog groups reset`, and what is refused."""

import re
from pathlib import Path
from typing import Any

import pytest

from tidelog.base.errors import ConfigError
from tidelog.cli.group_reset import (
    chosen_reset,
    parse_datetime,
    parse_duration_ms,
    parse_offsets,
    parse_scope,
)
from tidelog.client.group_values import PartitionKey
from tidelog.client.offset_reset import Reset, ShiftBy, ToEarliest, ToOffset, ToTimestamp

NOTHING: dict[str, Any] = {
    "to_offset": None,
    "to_earliest": False,
    "to_latest": False,
    "to_current": False,
    "to_datetime": None,
    "by_duration": None,
    "shift_by": None,
    "from_file": None,
}


def chosen(**typed: object) -> Reset:
    return chosen_reset(**{**NOTHING, **typed})


def test_one_way_is_chosen() -> None:
    assert chosen(to_offset=0) == ToOffset(0)
    assert chosen(to_earliest=True) == ToEarliest()
    assert chosen(shift_by=-3) == ShiftBy(-3)
    assert chosen(to_datetime="1970-01-01T00:00:01Z") == ToTimestamp(1_000)
    # A duration of more than there has been time leads to the beginning of time.
    assert chosen(by_duration="P99999D") == ToTimestamp(0)


def test_no_way_and_two_ways_are_refused() -> None:
    with pytest.raises(ConfigError, match="say where to go: --to-earliest"):
        chosen()
    with pytest.raises(ConfigError, match="--to-offset and --shift-by both say where to go"):
        chosen(to_offset=1, shift_by=0)


def test_topics_are_named_with_or_without_partitions() -> None:
    assert parse_scope(["a", "b:0,2", "c:1"]) == {"a": None, "b": [0, 2], "c": [1]}


@pytest.mark.parametrize("text", [":1", "a:", "a:x", "a:-1", "a:1,,2", "", "a:\u0661"])
def test_a_topic_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be TOPIC or TOPIC:PARTITION"):
        parse_scope([text])


def test_a_topic_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="names a twice"):
        parse_scope(["a", "a:1"])


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT1S", 1_000), ("P1D", 86_400_000), ("P1DT2H3M4S", 93_784_000), ("PT0S", 0)],
)
def test_durations_are_iso_8601(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "1H", "P1M", "P1Y", "-PT1S", "PT1H2", "PT" + "9" * 19 + "S"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--by-duration is '{text}'")):
        parse_duration_ms(text)


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_datetime("2026-03-01T12:00:00") == parse_datetime("2026-03-01T13:00:00+01:00")
    with pytest.raises(ConfigError, match="--to-datetime is 'soon'"):
        parse_datetime("soon")


def test_a_file_of_offsets_is_that_of_kafkas_tool(tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text('a,0,10\n"b",1,20\n\n', encoding="utf-8")
    assert parse_offsets(file) == {PartitionKey("a", 0): 10, PartitionKey("b", 1): 20}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no partition"),
        ("a,0\n", "line 1: expected topic,partition,offset"),
        ("a,0,1\na,0,2\n", "line 2: a-0 is there twice"),
        ("a,0,-1\n", "line 1: expected"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint):
        parse_offsets(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        parse_offsets(tmp_path / "nowhere")
