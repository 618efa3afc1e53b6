"""FindCoordinator, against kio in both directions and in every version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int32s,
    milliseconds,
    names,
    request_bytes,
    response_bytes,
)
from tidelog.base.errors import ErrorCode
from tidelog.wire.api import SUPPORTED, ApiKey, encode_response_header
from tidelog.wire.find_coordinator import (
    CoordinatorResult,
    FindCoordinatorRequest,
    decode_find_coordinator,
    encode_find_coordinator_response,
)

VERSIONS = range(SUPPORTED[ApiKey.FIND_COORDINATOR].highest + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)
results = st.builds(
    CoordinatorResult, names, int32s, names, int32s, st.sampled_from(ErrorCode), st.none() | names
)


@every_version
@PER_VERSION
@given(key_type=st.integers(-128, 127), keys=st.lists(names, min_size=1, max_size=4))
def test_request_of_the_message_library_is_read(
    version: int, key_type: int, keys: list[str]
) -> None:
    body = request_bytes(
        ApiKey.FIND_COORDINATOR,
        version,
        {"key_type": key_type, "key": keys[0], "coordinator_keys": tuple(keys)},
    )
    expected = FindCoordinatorRequest(
        key_type if version >= 1 else 0, keys if version >= 4 else keys[:1]
    )
    assert decode_find_coordinator(memoryview(b"h" + body), 1, version) == expected


@every_version
@PER_VERSION
@given(found=st.lists(results, min_size=1, max_size=3), throttle_ms=int32s, correlation_id=int32s)
def test_answer_is_what_the_message_library_writes(
    version: int, found: list[CoordinatorResult], throttle_ms: int, correlation_id: int
) -> None:
    answered = found if version >= 4 else found[:1]
    body = response_bytes(
        ApiKey.FIND_COORDINATOR,
        version,
        {
            "throttle_time": milliseconds(throttle_ms),
            "coordinators": [result._asdict() for result in answered],
            **answered[0]._asdict(),
        },
    )
    frame = encode_find_coordinator_response(
        version, correlation_id, answered, throttle_ms=throttle_ms
    )
    header = encode_response_header(ApiKey.FIND_COORDINATOR, version, correlation_id)
    assert frame[4:] == header + body
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
