"""What is typed after --from and --to means the offsets it says (O1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.cli.positions import (
    TIMESTAMP_MS_MIN,
    AtBeginning,
    AtEnd,
    AtOffset,
    AtTimestamp,
    Position,
    offsets_of,
    parse_position,
    resolve_ranges,
)
from tidelog.client.values import OffsetBounds

BOUNDS = {
    0: OffsetBounds(start_offset=10, end_offset=20),
    1: OffsetBounds(start_offset=0, end_offset=0),
}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", AtBeginning()),
        ("end", AtEnd()),
        ("0", AtOffset(0)),
        ("4711", AtOffset(4711)),
        ("999999999999", AtOffset(999_999_999_999)),
        ("1000000000000", AtTimestamp(1_000_000_000_000)),
        ("1741000000000", AtTimestamp(1_741_000_000_000)),
        ("@4711", AtTimestamp(4711)),
        ("1970-01-01T00:00:01Z", AtTimestamp(1000)),
        ("1970-01-01T01:00:00+01:00", AtTimestamp(0)),
        ("1970-01-01T00:00:00.250", AtTimestamp(250)),
        ("1970-01-02", AtTimestamp(86_400_000)),
    ],
)
def test_position_is_understood(text: str, position: Position) -> None:
    assert parse_position("--from", text) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "start",
        "-1",
        "1.5",
        "@",
        "@x",
        "2026-13-01",
        "\uff11\uff12",
        str(2**63),
        f"@{2**63}",
        "9" * 5_000,
        "1969-12-31",
    ],
)
def test_what_is_no_position_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--to is"):
        parse_position("--to", text)


@given(st.integers(min_value=TIMESTAMP_MS_MIN, max_value=2**62))
def test_large_numbers_are_times_with_and_without_a_sign(timestamp_ms: int) -> None:
    plain = parse_position("--from", str(timestamp_ms))
    assert plain == parse_position("--from", f"@{timestamp_ms}") == AtTimestamp(timestamp_ms)


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (AtBeginning(), {0: 10, 1: 0}),
        (AtEnd(), {0: 20, 1: 0}),
        (AtOffset(15), {0: 15, 1: 15}),
        (AtTimestamp(1), {0: 13, 1: 0}),
    ],
)
def test_position_is_an_offset_in_every_partition(
    position: Position, offsets: dict[int, int]
) -> None:
    assert offsets_of(position, BOUNDS, at_timestamp={0: 13, 1: None}) == offsets


def test_without_follow_reading_ends_where_the_log_ends() -> None:
    ranges = resolve_ranges(BOUNDS, starts={0: 12, 1: 0}, ends={0: 99, 1: 99}, is_following=False)
    assert ranges[0].start_offset == 12
    assert ranges[0].end_offset == 20
    assert ranges[1].is_empty


def test_follow_waits_for_offsets_that_are_not_there_yet() -> None:
    ranges = resolve_ranges(BOUNDS, starts={0: 12, 1: 0}, ends={0: 99, 1: 99}, is_following=True)
    assert ranges[0].end_offset == 99
    assert not ranges[1].is_empty


def test_follow_without_an_end_has_none() -> None:
    ranges = resolve_ranges(BOUNDS, starts={0: 12, 1: 0}, ends=None, is_following=True)
    assert ranges[0].end_offset is None
    assert not ranges[1].is_empty


@given(start=st.integers(0, 40), end=st.none() | st.integers(0, 40), is_following=st.booleans())
def test_start_lies_within_the_log(start: int, end: int | None, is_following: bool) -> None:
    ends = None if end is None else dict.fromkeys(BOUNDS, end)
    ranges = resolve_ranges(
        BOUNDS, starts=dict.fromkeys(BOUNDS, start), ends=ends, is_following=is_following
    )
    for partition, bound in BOUNDS.items():
        assert bound.start_offset <= ranges[partition].start_offset <= bound.end_offset
