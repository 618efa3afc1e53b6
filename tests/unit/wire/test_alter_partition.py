"""R4: AlterPartition, against kio in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    int8s,
    int32s,
    int64s,
    milliseconds,
    request_bytes,
    response_bytes,
    topic_ids,
    topic_uuid,
)
from tests.support.peer_codec import request_body, response_body
from tidelog.base.errors import ErrorCode, WireError
from tidelog.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    IsrProposal,
    IsrResult,
    decode_alter_partition,
    decode_alter_partition_response,
    encode_alter_partition_request,
    encode_alter_partition_response,
)
from tidelog.wire.api import ApiKey
from tidelog.wire.cluster_states import PARTITIONS_MAX, REPLICAS_MAX
from tidelog.wire.primitives import uvarint

_KEY = ApiKey.ALTER_PARTITION
_VERSION = 3

_members = st.lists(st.builds(IsrMember, int32s, int64s), max_size=3).map(tuple)
_proposal = st.builds(IsrProposal, int32s, int32s, _members, int8s, int32s)
_request = st.builds(
    AlterPartitionRequest,
    int32s,
    int64s,
    st.lists(st.tuples(topic_ids, st.lists(_proposal, max_size=3)), max_size=3),
)
_result = st.builds(
    IsrResult,
    int32s,
    st.sampled_from(ErrorCode),
    int32s,
    int32s,
    st.lists(int32s, max_size=3).map(tuple),
    int8s,
    int32s,
)
_response = st.builds(
    AlterPartitionResponse,
    int32s,
    st.sampled_from(ErrorCode),
    st.lists(st.tuples(topic_ids, st.lists(_result, max_size=3)), max_size=3),
)


@given(request=_request)
def test_request_is_read_and_written_as_the_message_library_does(
    request: AlterPartitionRequest,
) -> None:
    expected = request_bytes(
        _KEY,
        _VERSION,
        {
            "broker_id": request.broker_id,
            "broker_epoch": request.broker_epoch,
            "topics": [
                {
                    "topic_id": topic_uuid(topic_id),
                    "partitions": [_kio_proposal(proposal) for proposal in proposals],
                }
                for topic_id, proposals in request.topics
            ],
        },
    )
    frame = encode_alter_partition_request(_VERSION, 7, "peer", request)
    assert request_body(frame, _KEY, _VERSION) == expected
    assert decode_alter_partition(memoryview(b"h" + expected), 1, _VERSION) == request


def _kio_proposal(proposal: IsrProposal) -> dict[str, object]:
    return {
        **proposal._asdict(),
        "partition_index": proposal.partition,
        "new_isr_with_epochs": [member._asdict() for member in proposal.new_isr_with_epochs],
    }


@given(response=_response)
def test_response_is_read_and_written_as_the_message_library_does(
    response: AlterPartitionResponse,
) -> None:
    expected = response_bytes(
        _KEY,
        _VERSION,
        {
            "throttle_time": milliseconds(response.throttle_ms),
            "error_code": response.error_code,
            "topics": [
                {
                    "topic_id": topic_uuid(topic_id),
                    "partitions": [
                        {**result._asdict(), "partition_index": result.partition}
                        for result in results
                    ],
                }
                for topic_id, results in response.topics
            ],
        },
    )
    frame = encode_alter_partition_response(_VERSION, 7, response)
    assert response_body(frame, _KEY, _VERSION) == expected
    assert decode_alter_partition_response(memoryview(b"h" + expected), 1, _VERSION) == response


_START = bytes(12)
_HUGE = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    "body",
    [
        _START + b"\x00",
        _START + _HUGE,
        _START + b"\x02" + bytes(16) + b"\x00",
        _START + b"\x02" + bytes(16) + _HUGE,
        _START + b"\x02" + bytes(16) + b"\x02" + bytes(8) + b"\x00" + bytes(20),
        _START + b"\x02" + bytes(16) + b"\x02" + bytes(8) + _HUGE + bytes(20),
    ],
)
def test_lengths_that_lie_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_alter_partition(memoryview(body), 0, _VERSION)


def test_partitions_of_all_topics_share_one_bound() -> None:
    half = PARTITIONS_MAX // 2 + 1
    proposal = bytes(8) + b"\x01" + bytes(6)
    topic = bytes(16) + uvarint(half + 1) + proposal * half + b"\x00"
    with pytest.raises(WireError, match="partitions"):
        decode_alter_partition(memoryview(_START + b"\x03" + topic * 2 + b"\x00"), 0, _VERSION)


def test_replicas_of_all_partitions_share_one_bound() -> None:
    half = REPLICAS_MAX // 2 + 1
    result = bytes(14) + uvarint(half + 1) + bytes(4 * half) + bytes(6)
    topic = bytes(16) + b"\x03" + result * 2 + b"\x00"
    body = bytes(6) + b"\x02" + topic + b"\x00"
    with pytest.raises(WireError, match="replicas"):
        decode_alter_partition_response(memoryview(body), 0, _VERSION)
