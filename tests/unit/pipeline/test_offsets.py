"""Offsets as options and checkpoints spell them, and how many a trigger takes (X1)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.offsets import (
    count_between,
    from_checkpoint,
    limited,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    text_of,
    to_checkpoint,
)

ORDERS = [TopicPartition("orders", number) for number in range(4)]

partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=5), st.integers(0, 100))
ends = st.dictionaries(partitions, st.integers(0, 10**12), max_size=6)


def test_offsets_are_read_as_spark_writes_them() -> None:
    text = '{"orders": {"0": 23, "1": -2}, "bills": {"0": -1}}'
    assert parse_offsets("startingOffsets", text) == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): -2,
        TopicPartition("bills", 0): -1,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "latest?",
        "[]",
        "3",
        '{"orders": 3}',
        '{"orders": {"x": 3}}',
        '{"orders": {"-1": 3}}',
        '{"orders": {"0": "3"}}',
        '{"orders": {"0": 3.5}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": -3}}',
        '{"orders": {"0": 9223372036854775808}}',
        '{"orders": {"99999999999": 3}}',
        "[" * 100_000,
    ],
)
def test_what_is_no_offset_is_refused_by_name(text: str) -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        parse_offsets("startingOffsets", text)


def test_timestamps_are_not_before_1970() -> None:
    assert parse_timestamps("startingOffsetsByTimestamp", '{"orders": {"0": 5}}') == {ORDERS[0]: 5}
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp has -1 for orders-0"):
        parse_timestamps("startingOffsetsByTimestamp", '{"orders": {"0": -1}}')


def test_partitions_are_assigned_by_number() -> None:
    assert parse_partitions("assign", '{"orders": [0, 2]}') == {ORDERS[0], ORDERS[2]}


@pytest.mark.parametrize(
    "text", ["", "{}", '{"orders": []}', '{"orders": 3}', '{"orders": ["0"]}', '{"orders": [-1]}']
)
def test_what_assigns_nothing_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="assign"):
        parse_partitions("assign", text)


@given(ends)
def test_a_checkpoint_means_what_was_meant(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_checkpoint(offsets))
    assert from_checkpoint(json.loads(text)) == offsets


def test_a_checkpoint_is_in_order() -> None:
    offsets = {ORDERS[2]: 5, ORDERS[0]: 4, TopicPartition("bills", 10): 3}
    assert json.dumps(to_checkpoint(offsets)) == (
        '{"bills": {"10": 3}, "orders": {"0": 4, "2": 5}}'
    )


def test_a_limit_is_shared_by_how_much_there_is() -> None:
    start = dict.fromkeys(ORDERS[:3], 100)
    end = {ORDERS[0]: 1_100, ORDERS[1]: 3_100, ORDERS[2]: 100}
    assert limited(start, end, 400) == {ORDERS[0]: 200, ORDERS[1]: 400, ORDERS[2]: 100}


def test_a_small_partition_does_not_starve() -> None:
    start = dict.fromkeys(ORDERS[:2], 0)
    end = {ORDERS[0]: 1_000_000, ORDERS[1]: 1}
    assert limited(start, end, 10) == {ORDERS[0]: 9, ORDERS[1]: 1}


@given(ends, st.integers(1, 10**12))
def test_a_limit_holds_and_makes_progress(end: dict[TopicPartition, int], limit: int) -> None:
    start = {partition: offset // 2 for partition, offset in end.items()}
    taken = limited(start, end, limit)
    assert taken.keys() == end.keys()
    assert all(start[each] <= taken[each] <= end[each] for each in end)
    waiting = [each for each in end if end[each] > start[each]]
    assert all(taken[each] > start[each] for each in waiting)
    assert count_between(start, taken) <= max(limit, 0) + len(waiting)
    if count_between(start, end) <= limit:
        assert taken == end


def test_few_are_named_in_a_message() -> None:
    assert text_of(ORDERS[:2]) == "orders-0, orders-1"
    many = [TopicPartition("orders", number) for number in range(9)]
    assert text_of(many) == "orders-0, orders-1, orders-2, orders-3, orders-4 and 4 more"
