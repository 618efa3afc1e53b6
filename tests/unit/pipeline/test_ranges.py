"""Offsets are cut into tasks: all of them, none twice, and in the same way each time (X1)."""

from itertools import pairwise
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.ranges import OffsetRange, cut, ranges_between

ORDERS = [TopicPartition("orders", number) for number in range(4)]


def orders(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(ORDERS[partition], start, end)


@st.composite
def many_ranges(draw: st.DrawFn) -> list[OffsetRange]:
    starts = draw(st.dictionaries(st.integers(0, 20), st.integers(0, 10**10), max_size=8))
    return [
        OffsetRange(TopicPartition("t", number), start, start + draw(st.integers(1, 5_000)))
        for number, start in sorted(starts.items())
    ]


def test_a_partition_with_nothing_to_read_is_no_task() -> None:
    start = {ORDERS[0]: 5, ORDERS[1]: 5, ORDERS[2]: 5}
    end = {ORDERS[0]: 9, ORDERS[1]: 5, ORDERS[2]: 4}
    assert ranges_between(start, end) == [orders(0, 5, 9)]


def test_a_partition_is_a_task() -> None:
    ranges = [orders(0, 0, 10), orders(1, 0, 1_000)]
    assert cut(ranges, min_count=None, max_size=None) == ranges
    assert cut(ranges, min_count=2, max_size=None) == ranges


def test_the_larger_is_cut_into_more_pieces() -> None:
    ranges = [orders(0, 0, 10), orders(1, 0, 90)]
    assert cut(ranges, min_count=4, max_size=None) == [
        orders(0, 0, 10),
        orders(1, 0, 30),
        orders(1, 30, 60),
        orders(1, 60, 90),
    ]


def test_no_task_has_more_than_it_may() -> None:
    assert cut([orders(0, 5, 15)], min_count=None, max_size=4) == [
        orders(0, 5, 8),
        orders(0, 8, 11),
        orders(0, 11, 15),
    ]


def test_there_are_no_more_pieces_than_offsets() -> None:
    assert cut([orders(0, 5, 8)], min_count=10, max_size=None) == [
        orders(0, 5, 6),
        orders(0, 6, 7),
        orders(0, 7, 8),
    ]
    assert cut([], min_count=10, max_size=5) == []


def test_many_partitions_are_cut_in_a_moment() -> None:
    """Every micro-batch is planned anew."""
    ranges = [
        OffsetRange(TopicPartition("t", number), 0, 1_000 + number % 7) for number in range(10_000)
    ]
    before_s = process_time()
    assert len(cut(ranges, min_count=19_999, max_size=None)) == 19_999
    assert process_time() - before_s < 3


@given(many_ranges(), st.none() | st.integers(1, 60), st.none() | st.integers(1, 2_000))
def test_pieces_are_the_whole(
    ranges: list[OffsetRange], min_count: int | None, max_size: int | None
) -> None:
    pieces = cut(ranges, min_count=min_count, max_size=max_size)
    assert cut(ranges, min_count=min_count, max_size=max_size) == pieces
    total = sum(each.size for each in ranges)
    assert sum(each.size for each in pieces) == total
    assert all(each.size > 0 for each in pieces)
    for one, next_one in pairwise(pieces):
        assert one.partition != next_one.partition or one.end_offset == next_one.start_offset
    ends = {(each.partition, each.end_offset) for each in pieces}
    assert {(each.partition, each.end_offset) for each in ranges} <= ends
    if min_count is not None:
        assert len(pieces) >= min(min_count, total)
    if max_size is not None:
        assert all(each.size <= max_size for each in pieces)
