"""Where a group goes on after a reset (P1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.client.group_values import PartitionKey
from tidelog.client.offset_reset import (
    PlannedOffset,
    Reset,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToGiven,
    ToLatest,
    ToOffset,
    ToTimestamp,
    plan_reset,
)
from tidelog.client.values import OffsetBounds

KEY = PartitionKey("t", 0)
OTHER = PartitionKey("t", 1)


def planned(reset: Reset, *, committed: int | None = 50, found: int | None = None) -> PlannedOffset:
    (only,) = plan_reset(
        reset,
        bounds={KEY: OffsetBounds(start_offset=10, end_offset=100)},
        committed={} if committed is None else {KEY: committed},
        at_timestamp={KEY: found},
    )
    return only


@pytest.mark.parametrize(
    ("reset", "after"),
    [
        (ToEarliest(), 10),
        (ToLatest(), 100),
        (ToCurrent(), 50),
        (ToOffset(70), 70),
        (ShiftBy(5), 55),
        (ShiftBy(-5), 45),
        (ToGiven({KEY: 33}), 33),
    ],
)
def test_each_way_leads_where_it_says(reset: Reset, after: int) -> None:
    assert planned(reset) == PlannedOffset(key=KEY, before=50, after=after, asked_for=after)


@pytest.mark.parametrize(
    ("reset", "after"), [(ToOffset(3), 10), (ToOffset(500), 100), (ShiftBy(-500), 10)]
)
def test_an_offset_outside_the_log_is_moved_to_its_nearer_end(reset: Reset, after: int) -> None:
    plan = planned(reset)
    assert plan.after == after
    assert plan.asked_for != after


def test_a_time_is_the_first_record_since_or_the_end_if_there_is_none() -> None:
    assert planned(ToTimestamp(1), found=42).after == 42
    assert planned(ToTimestamp(1), found=None).after == 100


def test_where_nothing_was_committed_there_is_nothing_to_shift_from() -> None:
    with pytest.raises(ConfigError, match="no offset in t-0"):
        planned(ShiftBy(1), committed=None)


def test_the_current_offset_of_a_group_without_one_is_the_end() -> None:
    assert planned(ToCurrent(), committed=None).after == 100


@given(st.integers(), st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 2_000))
def test_no_reset_leads_out_of_the_log(count: int, start: int, size: int, committed: int) -> None:
    (plan,) = plan_reset(
        ShiftBy(count),
        bounds={KEY: OffsetBounds(start_offset=start, end_offset=start + size)},
        committed={KEY: committed},
        at_timestamp={},
    )
    assert start <= plan.after <= start + size


def test_partitions_are_planned_in_order() -> None:
    bounds = OffsetBounds(start_offset=0, end_offset=1)
    plan = plan_reset(
        ToLatest(), bounds={OTHER: bounds, KEY: bounds}, committed={}, at_timestamp={}
    )
    assert [each.key for each in plan] == [KEY, OTHER]
