"""R1: StopReplica comes back as it was said."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import int16s, int32s, names, topic_ids
from tests.support.peer_codec import control_headers, request_body, response_body
from tidelog.wire.api import ApiKey
from tidelog.wire.cluster_states import ControlHeader, FailedPartition
from tidelog.wire.stop_replica import (
    StoppedReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    decode_stop_replica,
    decode_stop_replica_response,
    encode_stop_replica_request,
    encode_stop_replica_response,
)

_KEY = ApiKey.STOP_REPLICA
_ID = bytes(range(16))


@given(
    request=st.builds(
        StopReplicaRequest,
        control_headers,
        st.lists(
            st.builds(
                StoppedReplica,
                names | st.just("t"),
                topic_ids | st.just(_ID),
                int32s,
                int32s,
                st.booleans(),
            ),
            max_size=6,
        ),
    )
)
def test_request_comes_back(request: StopReplicaRequest) -> None:
    body = request_body(encode_stop_replica_request(0, 7, "peer", request), _KEY, 0)
    assert decode_stop_replica(memoryview(b"h" + body), 1, 0) == request


@given(
    response=st.builds(
        StopReplicaResponse,
        int16s,
        st.lists(st.builds(FailedPartition, topic_ids, int32s, int16s), max_size=3),
    )
)
def test_response_comes_back(response: StopReplicaResponse) -> None:
    body = response_body(encode_stop_replica_response(0, 7, response), _KEY, 0)
    assert decode_stop_replica_response(memoryview(b"h" + body), 1, 0) == response


def test_partitions_of_a_topic_share_its_name() -> None:
    request = StopReplicaRequest(
        ControlHeader(1, 2, 3, _ID),
        [StoppedReplica("t", _ID, 0, 5, False), StoppedReplica("t", _ID, 1, 6, True)],
    )
    body = request_body(encode_stop_replica_request(0, 7, "peer", request), _KEY, 0)
    assert body == (
        struct.pack(">iiq", 1, 2, 3) + _ID + b"\x02"
        b"\x02t" + _ID + b"\x03"
        b"\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00"
        b"\x00\x00\x00\x01\x00\x00\x00\x06\x01\x00"
        b"\x00\x00"
    )
