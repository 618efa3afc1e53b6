"""Readers made from kio's classes: the rare kinds of field."""

import datetime
import struct

import pytest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse

from tests.support.kio_codec import encode, example
from tidelog.base.errors import WireError
from tidelog.wire.message_classes import _NULLABLE_READERS, _READERS, _reader_of
from tidelog.wire.primitives import Reader


def _reader(data: bytes) -> Reader:
    return Reader(memoryview(data), 0, flexible=True)


@pytest.mark.parametrize(
    "message_class",
    [ConsumerGroupDescribeResponse, DescribeTopicPartitionsRequest, OffsetForLeaderEpochResponse],
)
def test_message_comes_back(message_class: type) -> None:
    message = example(message_class)
    assert _reader_of(message_class)(_reader(encode(message))) == message


def test_structure_that_may_be_null_has_a_byte_in_front() -> None:
    without = DescribeTopicPartitionsRequest(topics=(), cursor=None)
    assert encode(without)[-2] == 0xFF
    assert _reader_of(DescribeTopicPartitionsRequest)(_reader(encode(without))) == without


def test_readers_are_made_once() -> None:
    assert _reader_of(DescribeTopicPartitionsRequest) is _reader_of(DescribeTopicPartitionsRequest)


def test_error_code_that_nobody_knows_is_refused() -> None:
    with pytest.raises(WireError, match="error code 9999"):
        _READERS["error_code"](_reader(struct.pack(">h", 9999)))


@pytest.mark.parametrize("kind", ["timedelta_i64", "datetime_i64"])
def test_time_beyond_what_can_be_told_is_refused(kind: str) -> None:
    with pytest.raises(WireError, match="ms"):
        _READERS[kind](_reader(struct.pack(">q", 2**63 - 1)))


def test_time_of_minus_one_is_null() -> None:
    read = _NULLABLE_READERS["datetime_i64"]
    assert read(_reader(struct.pack(">q", -1))) is None
    assert read(_reader(struct.pack(">q", 1_000))) == datetime.datetime(
        1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC
    )


def test_uuid_of_zero_is_null() -> None:
    assert _READERS["uuid"](_reader(bytes(16))) is None
