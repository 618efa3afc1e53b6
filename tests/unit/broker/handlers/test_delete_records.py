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
from kio.schema.errors import ErrorCode as MessageErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from tests.unit.broker.handlers.samples import context
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.broker.handlers.delete_records import DeleteRecordsHandler
from tidelog.config.topic import TopicConfig

LOG_START = Offset(0)
HIGH_WATERMARK = Offset(10)


@dataclass
class Held:
    """A partition of which only the offsets matter."""

    config: TopicConfig = field(default_factory=TopicConfig)
    high_watermark: Offset = HIGH_WATERMARK
    log_start_offset: Offset = LOG_START

    async def delete_records(self, before_offset: Offset) -> Offset:
        if before_offset == -1:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise RequestRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log_start_offset = max(self.log_start_offset, before_offset)
        return self.log_start_offset


class Led(dict[tuple[str, int], Held]):
    def led(self, topic: str, partition: int) -> Held:
        try:
            return self[topic, partition]
        except KeyError:
            raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None


Answer = list[tuple[str, list[tuple[int, int, str]]]]


def delete(partitions: Led, *topics: tuple[str, Sequence[tuple[int, int]]]) -> Answer:
    request = DeleteRecordsRequest(
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
        timeout=i32Timedelta.parse(timedelta(0)),
    )
    handler = DeleteRecordsHandler(partitions=partitions)
    response = asyncio.run(handler.handle(request, context()))
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
