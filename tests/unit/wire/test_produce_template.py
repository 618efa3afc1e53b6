"""A template says what the decoder would have said, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import PER_VERSION, int32s, int64s, milliseconds, names, request_bytes
from tidelog.wire.api import SUPPORTED, ApiKey, decode_request_header
from tidelog.wire.leaders import LeaderIdAndEpoch
from tidelog.wire.produce import (
    PartitionProduceResult,
    decode_produce,
    encode_produce_response,
)
from tidelog.wire.produce_template import template_of

FLEXIBLE = range(9, SUPPORTED[ApiKey.PRODUCE].highest + 1)
every_flexible_version = pytest.mark.parametrize("version", FLEXIBLE)
topics = st.lists(
    st.tuples(
        names,
        st.lists(st.tuples(int32s, st.none() | st.binary(max_size=400)), min_size=1, max_size=2),
    ),
    min_size=1,
    max_size=2,
)


def frame_of(
    version: int,
    correlation_id: int,
    topics: list[tuple[str, list[tuple[int, bytes | None]]]],
    acks: int,
) -> memoryview:
    header = ApiKey.PRODUCE.to_bytes(2, "big") + version.to_bytes(2, "big")
    header += correlation_id.to_bytes(4, "big", signed=True) + b"\x00\x03abc\x00"
    body = request_bytes(
        ApiKey.PRODUCE,
        version,
        {
            "transactional_id": None,
            "acks": acks,
            "timeout": milliseconds(1_000),
            "topic_data": [
                {
                    "name": name,
                    "topic_id": None,
                    "partition_data": [
                        {"index": index, "records": records} for index, records in partitions
                    ],
                }
                for name, partitions in topics
            ],
        },
    )
    return memoryview(header + body)


@every_flexible_version
@PER_VERSION
@given(first=topics, second=topics, same=st.booleans(), acks=st.sampled_from([-1, 0, 1, 7]))
def test_records_are_those_of_the_decoder_or_none(
    version: int,
    first: list[tuple[str, list[tuple[int, bytes | None]]]],
    second: list[tuple[str, list[tuple[int, bytes | None]]]],
    same: bool,
    acks: int,
) -> None:
    """Also when the second request only looks like the first."""
    if same:
        other = b"other" * 3
        second = [(name, [(index ^ 1, other) for index, _ in parts]) for name, parts in first]
    frame = frame_of(version, 1, first, acks)
    header = decode_request_header(frame)
    template = template_of(frame, header, decode_produce(frame, header.body_position, version))
    simple = len(first) == 1 and len(first[0][1]) == 1 and first[0][1][0][1] is not None
    assert (template is not None) == (simple and acks in (-1, 1))
    if template is None:
        return
    next_frame = frame_of(version, 2, second, acks)
    match = template.match(next_frame)
    if match is None:
        assert not same
        return
    correlation_id, partition, records = match
    assert correlation_id == 2
    decoded = decode_produce(next_frame, header.body_position, version)
    assert decoded.topics == [(template.topic, template.topic_id, [(partition, records)])]


@every_flexible_version
@PER_VERSION
@given(data=st.binary(max_size=80), cut=st.integers(0, 200))
def test_damaged_frames_are_left_to_the_decoder(version: int, data: bytes, cut: int) -> None:
    frame = frame_of(version, 1, [("topic", [(0, b"records")])], 1)
    header = decode_request_header(frame)
    template = template_of(frame, header, decode_produce(frame, header.body_position, version))
    assert template is not None
    damaged = memoryview(bytes(frame[: min(cut, len(frame) - 1)]) + data)
    match = template.match(damaged)
    if match is not None:
        decoded = decode_produce(damaged, header.body_position, version)
        assert decoded.topics[0][2] == [match[1:]]


@every_flexible_version
@PER_VERSION
@given(
    correlation_id=int32s,
    numbers=st.tuples(int32s, st.integers(-1, 133), int64s, int64s, int64s),
)
def test_answer_is_the_encoders(
    version: int, correlation_id: int, numbers: tuple[int, int, int, int, int]
) -> None:
    frame = frame_of(version, 1, [("topic", [(0, b"records")])], 1)
    header = decode_request_header(frame)
    template = template_of(frame, header, decode_produce(frame, header.body_position, version))
    assert template is not None
    result = PartitionProduceResult(*numbers, (), None, None)
    assert template.answer(correlation_id, result) == encode_produce_response(
        version,
        correlation_id,
        [(template.topic, template.topic_id, [result])],
        node_endpoints=(),
        throttle_ms=0,
    )


@pytest.mark.parametrize(
    "more",
    [
        {"record_errors": ((0, "bad"),)},
        {"error_message": "why"},
        {"current_leader": LeaderIdAndEpoch(1, 2)},
    ],
)
def test_an_answer_with_more_to_say_is_left_to_the_encoder(more: dict[str, object]) -> None:
    frame = frame_of(9, 1, [("topic", [(0, b"records")])], 1)
    header = decode_request_header(frame)
    template = template_of(frame, header, decode_produce(frame, header.body_position, 9))
    assert template is not None
    result = PartitionProduceResult(0, 2, -1, -1, -1, (), None, None)
    assert template.answer(1, result._replace(**more)) is None  # type: ignore[arg-type]
