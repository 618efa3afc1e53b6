"""What brokers say to each other: of everything a valid body and its decoder, and frames undone."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hypothesis import strategies as st

from tests.support.kio_codec import int32s, int64s, names, topic_ids
from tidelog.wire.add_partitions_to_txn import (
    AddedPartitions,
    AddedResult,
    AddPartitionsToTxnResponse,
    decode_add_partitions_to_txn,
    decode_add_partitions_to_txn_response,
    encode_add_partitions_to_txn_request,
    encode_add_partitions_to_txn_response,
)
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
from tidelog.wire.api import ApiKey, decode_request_header, decode_response_header
from tidelog.wire.cluster_states import (
    BrokerEndpoint,
    ControlHeader,
    FailedPartition,
    LiveBroker,
    PartitionState,
    TopicStates,
)
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    decode_controlled_shutdown,
    decode_controlled_shutdown_response,
    encode_controlled_shutdown_request,
    encode_controlled_shutdown_response,
)
from tidelog.wire.envelope import (
    EnvelopeRequest,
    EnvelopeResponse,
    decode_envelope,
    decode_envelope_response,
    encode_envelope_request,
    encode_envelope_response,
)
from tidelog.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    encode_fetch_response,
)
from tidelog.wire.fetch_client import decode_fetch_response
from tidelog.wire.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    decode_leader_and_isr,
    decode_leader_and_isr_response,
    encode_leader_and_isr_request,
    encode_leader_and_isr_response,
)
from tidelog.wire.leaders import LeaderIdAndEpoch
from tidelog.wire.stop_replica import (
    StoppedReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    decode_stop_replica,
    decode_stop_replica_response,
    encode_stop_replica_request,
    encode_stop_replica_response,
)
from tidelog.wire.update_metadata import (
    EntitySettings,
    FailedReplicas,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    decode_update_metadata,
    decode_update_metadata_response,
    encode_update_metadata_request,
    encode_update_metadata_response,
)
from tidelog.wire.write_txn_markers import (
    MarkerResult,
    TransactionMarker,
    decode_write_txn_markers,
    decode_write_txn_markers_response,
    encode_write_txn_markers_request,
    encode_write_txn_markers_response,
)

_ids = st.lists(int32s, max_size=4).map(tuple)
_endpoints = st.builds(BrokerEndpoint, names, names, names, int32s)

control_headers = st.builds(ControlHeader, int32s, int32s, int64s, topic_ids)
partition_states = st.builds(PartitionState, int32s, int32s, int32s, int32s, _ids, _ids, _ids, _ids)
topic_states = st.builds(TopicStates, names, topic_ids, st.lists(partition_states, max_size=3))
entity_settings = st.builds(
    EntitySettings, st.integers(0, 2), names, st.lists(st.tuples(names, names), max_size=3)
)
live_brokers = st.builds(
    LiveBroker, int32s, int64s, st.none() | names, st.lists(_endpoints, max_size=2).map(tuple)
)


def request_body(frame: bytes, api_key: ApiKey, version: int) -> bytes:
    """The body of a request with correlation id 7 of client "peer"."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = decode_request_header(memoryview(frame)[4:])
    assert header[:4] == (api_key, version, 7, "peer")
    return frame[4 + header.body_position :]


def response_body(frame: bytes, api_key: ApiKey, version: int) -> bytes:
    """The body of a response with correlation id 7."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = decode_response_header(memoryview(frame)[4:], api_key, version)
    assert correlation_id == 7
    return frame[4 + position :]


class PeerCodec(NamedTuple):
    """The decoder of a request or response, and a body it reads without complaint."""

    decode: Callable[[memoryview, int, int], object]
    version: int
    body: bytes


_ID = bytes(range(16))
_HEADER = ControlHeader(1, 2, 3, bytes(range(16, 32)))
_TOPICS = [
    TopicStates("topic", _ID, [PartitionState(0, 1, 2, 3, (1, 2, 3), (1, 2), (4,), (3,))] * 2)
]
_BROKERS = [LiveBroker(1, 5, "rack", (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", "host", 9092),))]
_SETTINGS = [EntitySettings(0, "topic", [("retention.ms", "1")])]
_FAILED = [FailedPartition(_ID, 0, 3)]
_RESULTS = [
    FetchPartitionResult(0, 0, 9, 9, 0, None, None, None, -1, b"records"),
    FetchPartitionResult(
        1,
        0,
        9,
        9,
        0,
        [AbortedTransaction(1, 2)],
        EpochEndOffset(3, 4),
        LeaderIdAndEpoch(5, 6),
        -1,
        b"",
    ),
]


def _fetch_response(version: int) -> PeerCodec:
    buffers = encode_fetch_response(
        version,
        7,
        [("topic", _ID, _RESULTS)],
        throttle_ms=0,
        error_code=0,
        session_id=3,
        node_endpoints=(),
    )
    body = response_body(b"".join(buffers), ApiKey.FETCH, version)
    return PeerCodec(decode_fetch_response, version, body)


PEER_CODECS: Mapping[str, PeerCodec] = {
    "WriteTxnMarkers request": PeerCodec(
        decode_write_txn_markers,
        2,
        request_body(
            encode_write_txn_markers_request(
                2, 7, "peer", [TransactionMarker(5, 1, True, [("topic", [0, 1])], 3, 2)]
            ),
            ApiKey.WRITE_TXN_MARKERS,
            2,
        ),
    ),
    "WriteTxnMarkers response": PeerCodec(
        decode_write_txn_markers_response,
        2,
        response_body(
            encode_write_txn_markers_response(
                2, 7, [MarkerResult(5, [("topic", [(0, 0), (1, 6)])])]
            ),
            ApiKey.WRITE_TXN_MARKERS,
            2,
        ),
    ),
    "AddPartitionsToTxn request": PeerCodec(
        decode_add_partitions_to_txn,
        5,
        request_body(
            encode_add_partitions_to_txn_request(
                5, 7, "peer", [AddedPartitions("id", 5, 1, False, [("topic", [0, 1])])]
            ),
            ApiKey.ADD_PARTITIONS_TO_TXN,
            5,
        ),
    ),
    "AddPartitionsToTxn response": PeerCodec(
        decode_add_partitions_to_txn_response,
        5,
        response_body(
            encode_add_partitions_to_txn_response(
                5,
                7,
                AddPartitionsToTxnResponse(0, 0, [AddedResult("id", [("topic", [(0, 0)])])]),
            ),
            ApiKey.ADD_PARTITIONS_TO_TXN,
            5,
        ),
    ),
    "Fetch response by name": _fetch_response(12),
    "Fetch response by id": _fetch_response(17),
    "Envelope request": PeerCodec(
        decode_envelope,
        0,
        request_body(
            encode_envelope_request(
                0, 7, "peer", EnvelopeRequest(b"request", b"principal", b"host")
            ),
            ApiKey.ENVELOPE,
            0,
        ),
    ),
    "Envelope response": PeerCodec(
        decode_envelope_response,
        0,
        response_body(
            encode_envelope_response(0, 7, EnvelopeResponse(b"response", 0)), ApiKey.ENVELOPE, 0
        ),
    ),
    "LeaderAndIsr request": PeerCodec(
        decode_leader_and_isr,
        0,
        request_body(
            encode_leader_and_isr_request(
                0, 7, "peer", LeaderAndIsrRequest(_HEADER, True, [(1, 5)], _TOPICS)
            ),
            ApiKey.LEADER_AND_ISR,
            0,
        ),
    ),
    "LeaderAndIsr response": PeerCodec(
        decode_leader_and_isr_response,
        0,
        response_body(
            encode_leader_and_isr_response(0, 7, LeaderAndIsrResponse(0, _FAILED)),
            ApiKey.LEADER_AND_ISR,
            0,
        ),
    ),
    "StopReplica request": PeerCodec(
        decode_stop_replica,
        0,
        request_body(
            encode_stop_replica_request(
                0,
                7,
                "peer",
                StopReplicaRequest(_HEADER, [StoppedReplica("topic", _ID, 0, 5, True)]),
            ),
            ApiKey.STOP_REPLICA,
            0,
        ),
    ),
    "StopReplica response": PeerCodec(
        decode_stop_replica_response,
        0,
        response_body(
            encode_stop_replica_response(0, 7, StopReplicaResponse(0, _FAILED)),
            ApiKey.STOP_REPLICA,
            0,
        ),
    ),
    "UpdateMetadata request": PeerCodec(
        decode_update_metadata,
        0,
        request_body(
            encode_update_metadata_request(
                0,
                7,
                "peer",
                UpdateMetadataRequest(
                    _HEADER,
                    False,
                    _BROKERS,
                    _TOPICS,
                    _SETTINGS,
                    [_ID],
                    [FailedReplicas(1, [(_ID, [0, 7])])],
                ),
            ),
            ApiKey.UPDATE_METADATA,
            0,
        ),
    ),
    "UpdateMetadata response": PeerCodec(
        decode_update_metadata_response,
        0,
        response_body(
            encode_update_metadata_response(0, 7, UpdateMetadataResponse(11)),
            ApiKey.UPDATE_METADATA,
            0,
        ),
    ),
    "ControlledShutdown request": PeerCodec(
        decode_controlled_shutdown,
        0,
        request_body(
            encode_controlled_shutdown_request(0, 7, "peer", ControlledShutdownRequest(1, 5)),
            ApiKey.CONTROLLED_SHUTDOWN,
            0,
        ),
    ),
    "ControlledShutdown response": PeerCodec(
        decode_controlled_shutdown_response,
        0,
        response_body(
            encode_controlled_shutdown_response(
                0, 7, ControlledShutdownResponse(0, [("topic", 3)])
            ),
            ApiKey.CONTROLLED_SHUTDOWN,
            0,
        ),
    ),
    "AlterPartition request": PeerCodec(
        decode_alter_partition,
        3,
        request_body(
            encode_alter_partition_request(
                3,
                7,
                "peer",
                AlterPartitionRequest(1, 5, [(_ID, [IsrProposal(0, 2, (IsrMember(1, 5),), 0, 3)])]),
            ),
            ApiKey.ALTER_PARTITION,
            3,
        ),
    ),
    "AlterPartition response": PeerCodec(
        decode_alter_partition_response,
        3,
        response_body(
            encode_alter_partition_response(
                3,
                7,
                AlterPartitionResponse(0, 0, [(_ID, [IsrResult(0, 0, 1, 2, (1, 2), 0, 4)])]),
            ),
            ApiKey.ALTER_PARTITION,
            3,
        ),
    ),
}
