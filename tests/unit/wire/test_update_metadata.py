"""R1: UpdateMetadata comes back as it was said."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import int16s, int32s, topic_ids
from tests.support.peer_codec import (
    control_headers,
    entity_settings,
    live_brokers,
    request_body,
    response_body,
    topic_states,
)
from tidelog.wire.api import ApiKey
from tidelog.wire.update_metadata import (
    FailedReplicas,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    decode_update_metadata,
    decode_update_metadata_response,
    encode_update_metadata_request,
    encode_update_metadata_response,
)

_KEY = ApiKey.UPDATE_METADATA


@given(
    request=st.builds(
        UpdateMetadataRequest,
        control_headers,
        st.booleans(),
        st.lists(live_brokers, max_size=3),
        st.lists(topic_states, max_size=3),
        st.lists(entity_settings, max_size=3),
        st.lists(topic_ids, max_size=3),
        st.lists(
            st.builds(
                FailedReplicas,
                int32s,
                st.lists(st.tuples(topic_ids, st.lists(int32s, max_size=3)), max_size=3),
            ),
            max_size=3,
        ),
    )
)
def test_request_comes_back(request: UpdateMetadataRequest) -> None:
    body = request_body(encode_update_metadata_request(0, 7, "peer", request), _KEY, 0)
    assert decode_update_metadata(memoryview(b"h" + body), 1, 0) == request


@given(response=st.builds(UpdateMetadataResponse, int16s))
def test_response_comes_back(response: UpdateMetadataResponse) -> None:
    body = response_body(encode_update_metadata_response(0, 7, response), _KEY, 0)
    assert decode_update_metadata_response(memoryview(b"h" + body), 1, 0) == response
