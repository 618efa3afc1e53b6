"""DeleteRecords: forget what is below an offset (P1)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from tests.unit.broker.handlers.samples import context
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.broker.dispatch import Postponed
from tidelog.broker.handlers.delete_records import DeleteRecordsHandler
from tidelog.broker.waiters import OffsetFutures
from tidelog.config.topic import TopicConfig

LOG_START = Offset(0)
HIGH_WATERMARK = Offset(10)


@dataclass
class Held:
    """A partition of which only the offsets matter."""

    config: TopicConfig = field(default_factory=TopicConfig)
    high_watermark: Offset = HIGH_WATERMARK
    log_start_offset: Offset = LOG_START

    follower_start: Offset | None = None
    """Where a follower's log starts; None if there is no follower."""
    waiting: OffsetFutures = field(default_factory=OffsetFutures)
    is_led: bool = True

    async def delete_records(self, before_offset: Offset) -> Offset:
        if before_offset == -1:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise RequestRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, before_offset)
        return before_offset

    @property
    def low_watermark(self) -> Offset:
        if not self.is_led:
            raise RequestRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.follower_start is None:
            return self.log_start_offset
        return min(self.log_start_offset, self.follower_start)

    def until_deleted(self, before_offset: Offset) -> "asyncio.Future[None]":
        return self.waiting.add(before_offset)

    def follow(self, log_start_offset: int) -> None:
        self.follower_start = Offset(log_start_offset)
        self.waiting.wake(self.low_watermark)

    def resign(self) -> None:
        self.is_led = False
        self.waiting.wake_all()


class Led(dict[tuple[str, int], Held]):
    def led(self, topic: str, partition: int) -> Held:
        try:
            return self[topic, partition]
        except KeyError:
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None


Answer = list[tuple[str, list[tuple[int, int, str]]]]


def request_of(
    topics: Sequence[tuple[str, Sequence[tuple[int, int]]]], *, timeout_s: float
) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=tuple(
            DeleteRecordsTopic(
                name=TopicName(name),
                partitions=tuple(
                    DeleteRecordsPartition(partition_index=i32(index), offset=i64(offset))
                    for index, offset in offsets
                ),
            )
            for name, offsets in topics
        ),
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
    )


async def answer_to(partitions: Led, request: DeleteRecordsRequest) -> Answer:
    response = await DeleteRecordsHandler(partitions=partitions).handle(request, context())
    if isinstance(response, Postponed):
        waited = await response.wait()
        assert isinstance(waited, DeleteRecordsResponse)
        response = waited
    return [
        (
            topic.name,
            [
                (one.partition_index, one.low_watermark, MessageErrorCode(one.error_code).name)
                for one in topic.partitions
            ],
        )
        for topic in response.topics
    ]


def delete(partitions: Led, *topics: tuple[str, Sequence[tuple[int, int]]]) -> Answer:
    return asyncio.run(answer_to(partitions, request_of(topics, timeout_s=0)))


def test_the_answer_is_the_first_offset_left() -> None:
    assert delete(Led({("t", 0): Held()}), ("t", [(0, 3)])) == [("t", [(0, 3, "none")])]


def test_what_is_deleted_already_stays_so() -> None:
    partitions = Led({("t", 0): Held(log_start_offset=Offset(7))})
    assert delete(partitions, ("t", [(0, 3)])) == [("t", [(0, 7, "none")])]


def test_minus_one_is_the_high_watermark() -> None:
    assert delete(Led({("t", 0): Held()}), ("t", [(0, -1)])) == [("t", [(0, 10, "none")])]


def test_an_offset_beyond_the_high_watermark_is_out_of_range() -> None:
    answer = delete(Led({("t", 0): Held()}), ("t", [(0, 11)]))
    assert answer == [("t", [(0, -1, "offset_out_of_range")])]


def test_a_refusal_stays_inside_its_partition() -> None:
    partitions = Led({("t", 0): Held(), ("u", 0): Held()})
    assert delete(partitions, ("t", [(0, 99), (7, 1)]), ("u", [(0, 1)])) == [
        ("t", [(0, -1, "offset_out_of_range"), (7, -1, "unknown_topic_or_partition")]),
        ("u", [(0, 1, "none")]),
    ]


def test_a_topic_that_is_only_compacted_keeps_its_records() -> None:
    partitions = Led({("t", 0): Held(config=TopicConfig(cleanup_policy=("compact",)))})
    assert delete(partitions, ("t", [(0, 1)])) == [("t", [(0, -1, "policy_violation")])]
    assert partitions["t", 0].log_start_offset == 0


def test_a_topic_that_is_compacted_and_deleted_gives_them_up() -> None:
    config = TopicConfig(cleanup_policy=("compact", "delete"))
    assert delete(Led({("t", 0): Held(config=config)}), ("t", [(0, 1)])) == [
        ("t", [(0, 1, "none")])
    ]


def test_a_topic_without_any_cleanup_gives_them_up() -> None:
    config = TopicConfig(cleanup_policy=())
    assert delete(Led({("t", 0): Held(config=config)}), ("t", [(0, 1)])) == [
        ("t", [(0, 1, "none")])
    ]


def test_internal_topics_are_nobodys_to_delete_from() -> None:
    partitions = Led({("__consumer_offsets", 0): Held()})
    answer = delete(partitions, ("__consumer_offsets", [(0, 1)]))
    assert answer == [("__consumer_offsets", [(0, -1, "invalid_topic_exception")])]


def test_a_partition_named_twice_is_answered_once() -> None:
    partitions = Led({("t", 0): Held(), ("t", 1): Held()})
    assert delete(partitions, ("t", [(0, 5), (0, 2)]), ("t", [(1, 1)])) == [
        ("t", [(0, 2, "none"), (1, 1, "none")])
    ]


# -- followers -----------------------------------------------------------------------------------

LONG_S = 60.0


def replicated() -> Held:
    return Held(follower_start=Offset(0))


@in_virtual_time
async def test_the_answer_waits_until_followers_have_deleted_theirs() -> None:
    held = replicated()
    partitions = Led({("t", 0): held, ("t", 1): Held()})
    request = request_of([("t", [(0, 3), (1, 4)])], timeout_s=LONG_S)
    answer = asyncio.create_task(answer_to(partitions, request))
    await asyncio.sleep(1)
    held.follow(2)
    await asyncio.sleep(1)
    assert not answer.done()
    held.follow(3)
    await asyncio.sleep(0.001)
    assert answer.result() == [("t", [(0, 3, "none"), (1, 4, "none")])]


@in_virtual_time
async def test_the_answer_is_the_least_of_the_replicas() -> None:
    held = Held(log_start_offset=Offset(7), follower_start=Offset(5))
    answer = await answer_to(Led({("t", 0): held}), request_of([("t", [(0, 3)])], timeout_s=LONG_S))
    assert answer == [("t", [(0, 5, "none")])]


@in_virtual_time
async def test_when_time_is_up_each_partition_says_how_far_it_came() -> None:
    slow = replicated()
    partitions = Led({("t", 0): slow, ("t", 1): replicated(), ("t", 2): Held()})
    request = request_of([("t", [(0, 3), (1, 3), (2, 3)])], timeout_s=2)
    answer = asyncio.create_task(answer_to(partitions, request))
    await asyncio.sleep(1)
    slow.follow(2)
    await asyncio.sleep(0.9)
    assert not answer.done()
    await asyncio.sleep(0.2)
    late = "request_timed_out"
    assert answer.result() == [("t", [(0, 2, late), (1, 0, late), (2, 3, "none")])]
    assert len(slow.waiting) == 0


@in_virtual_time
async def test_with_no_time_at_all_nobody_waits() -> None:
    answer = await answer_to(
        Led({("t", 0): replicated()}), request_of([("t", [(0, 3)])], timeout_s=0)
    )
    assert answer == [("t", [(0, 0, "request_timed_out")])]


@in_virtual_time
async def test_whoever_leads_no_more_says_so_at_once() -> None:
    held = replicated()
    request = request_of([("t", [(0, 3)])], timeout_s=LONG_S)
    answer = asyncio.create_task(answer_to(Led({("t", 0): held}), request))
    await asyncio.sleep(1)
    held.resign()
    await asyncio.sleep(0.001)
    assert answer.result() == [("t", [(0, -1, "not_leader_or_follower")])]
