"""D3: WriteTxnMarkers, against kio in both directions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import (
    PER_VERSION,
    int8s,
    int16s,
    int32s,
    int64s,
    names,
    request_bytes,
    response_bytes,
)
from tests.support.peer_codec import request_body, response_body
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.write_txn_markers import (
    MarkerResult,
    TransactionMarker,
    decode_write_txn_markers,
    decode_write_txn_markers_response,
    encode_write_txn_markers_request,
    encode_write_txn_markers_response,
)

_KEY = ApiKey.WRITE_TXN_MARKERS

every_version = pytest.mark.parametrize("version", [1, 2])

_topics = st.lists(st.tuples(names, st.lists(int32s, max_size=3)), max_size=3)
_markers = st.lists(
    st.builds(TransactionMarker, int64s, int16s, st.booleans(), _topics, int32s, int8s), max_size=3
)
_codes = st.tuples(int32s, st.sampled_from(ErrorCode))
_results = st.lists(
    st.builds(
        MarkerResult,
        int64s,
        st.lists(st.tuples(names, st.lists(_codes, max_size=3)), max_size=3),
    ),
    max_size=3,
)


@every_version
@PER_VERSION
@given(markers=_markers)
def test_request_is_read_and_written_as_the_message_library_does(
    version: int, markers: list[TransactionMarker]
) -> None:
    expected = request_bytes(
        _KEY,
        version,
        {
            "markers": [
                {
                    **marker._asdict(),
                    "transaction_result": marker.is_commit,
                    "topics": [
                        {"name": name, "partition_indexes": tuple(partitions)}
                        for name, partitions in marker.topics
                    ],
                }
                for marker in markers
            ]
        },
    )
    frame = encode_write_txn_markers_request(version, 7, "peer", markers)
    assert request_body(frame, _KEY, version) == expected
    if version < 2:
        markers = [marker._replace(transaction_version=0) for marker in markers]
    assert decode_write_txn_markers(memoryview(b"h" + expected), 1, version) == markers


@every_version
@PER_VERSION
@given(results=_results)
def test_response_is_read_and_written_as_the_message_library_does(
    version: int, results: list[MarkerResult]
) -> None:
    expected = response_bytes(
        _KEY,
        version,
        {
            "markers": [
                {
                    "producer_id": result.producer_id,
                    "topics": [
                        {
                            "name": name,
                            "partitions": [
                                {"partition_index": partition, "error_code": code}
                                for partition, code in partitions
                            ],
                        }
                        for name, partitions in result.topics
                    ],
                }
                for result in results
            ]
        },
    )
    frame = encode_write_txn_markers_response(version, 7, results)
    assert response_body(frame, _KEY, version) == expected
    assert decode_write_txn_markers_response(memoryview(b"h" + expected), 1, version) == results


def test_codes_are_found_by_partition() -> None:
    result = MarkerResult(7, [("a", [(0, 0), (1, 6)]), ("b", [(0, 3)])])
    assert result.codes() == {
        TopicPartition("a", 0): 0,
        TopicPartition("a", 1): 6,
        TopicPartition("b", 0): 3,
    }
