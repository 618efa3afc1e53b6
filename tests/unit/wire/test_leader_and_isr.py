"""R1: LeaderAndIsr comes back as it was said."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import int16s, int32s, int64s, topic_ids
from tests.support.peer_codec import control_headers, request_body, response_body, topic_states
from tidelog.wire.api import ApiKey
from tidelog.wire.cluster_states import FailedPartition
from tidelog.wire.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    decode_leader_and_isr,
    decode_leader_and_isr_response,
    encode_leader_and_isr_request,
    encode_leader_and_isr_response,
)

_KEY = ApiKey.LEADER_AND_ISR


@given(
    request=st.builds(
        LeaderAndIsrRequest,
        control_headers,
        st.booleans(),
        st.lists(st.tuples(int32s, int64s), max_size=3),
        st.lists(topic_states, max_size=3),
    )
)
def test_request_comes_back(request: LeaderAndIsrRequest) -> None:
    body = request_body(encode_leader_and_isr_request(0, 7, "peer", request), _KEY, 0)
    assert decode_leader_and_isr(memoryview(b"h" + body), 1, 0) == request


@given(
    response=st.builds(
        LeaderAndIsrResponse,
        int16s,
        st.lists(st.builds(FailedPartition, topic_ids, int32s, int16s), max_size=3),
    )
)
def test_response_comes_back(response: LeaderAndIsrResponse) -> None:
    body = response_body(encode_leader_and_isr_response(0, 7, response), _KEY, 0)
    assert decode_leader_and_isr_response(memoryview(b"h" + body), 1, 0) == response
