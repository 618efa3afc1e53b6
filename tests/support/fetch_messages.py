"""Any Fetch, as values of ours and as values for kio."""

import uuid
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from tests.support.kio_codec import (
    int8s,
    int32s,
    int64s,
    milliseconds,
    names,
    topic_ids,
    topic_uuid,
)
from tidelog.base.errors import ErrorCode
from tidelog.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopicResult,
)
from tidelog.wire.leaders import LeaderIdAndEpoch, NodeEndpoint

_partitions = st.builds(FetchPartition, int32s, int32s, int64s, int32s, int64s, int32s)
_topics = st.tuples(names, topic_ids, st.lists(_partitions, max_size=3))
_forgotten = st.tuples(names, topic_ids, st.lists(int32s, max_size=3))
fetch_requests = st.builds(
    FetchRequest,
    replica_id=int32s,
    replica_epoch=int64s,
    max_wait_ms=int32s,
    min_bytes=int32s,
    max_bytes=int32s,
    isolation_level=int8s,
    session_id=int32s,
    session_epoch=int32s,
    topics=st.lists(_topics, max_size=3),
    forgotten=st.lists(_forgotten, max_size=3),
    rack_id=names,
    cluster_id=st.none() | names,
)
fetch_results = st.builds(
    FetchPartitionResult,
    partition=int32s,
    error_code=st.sampled_from(ErrorCode),
    high_watermark=int64s,
    last_stable_offset=int64s,
    log_start_offset=int64s,
    aborted=st.none() | st.lists(st.builds(AbortedTransaction, int64s, int64s), max_size=3),
    diverging_epoch=st.none() | st.builds(EpochEndOffset, st.integers(0, 9), int64s),
    current_leader=st.none() | st.builds(LeaderIdAndEpoch, st.integers(0, 9), int32s),
    preferred_read_replica=int32s,
    records=st.binary(max_size=300),
)
fetched_topics = st.lists(
    st.tuples(names, topic_ids, st.lists(fetch_results, max_size=3)), max_size=3
)
node_endpoints = st.builds(NodeEndpoint, int32s, names, int32s, st.none() | names)


def kio_request(
    request: FetchRequest, directory: uuid.UUID | None, high_watermark: int
) -> Mapping[str, object]:
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {
            "replica_id": request.replica_id,
            "replica_epoch": request.replica_epoch,
        },
        "max_wait": milliseconds(request.max_wait_ms),
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            {
                "topic": name,
                "topic_id": topic_uuid(topic_id),
                "partitions": [
                    {
                        **partition._asdict(),
                        "partition_max_bytes": partition.max_bytes,
                        "replica_directory_id": directory,
                        "high_watermark": high_watermark,
                    }
                    for partition in partitions
                ],
            }
            for name, topic_id, partitions in request.topics
        ],
        "forgotten_topics_data": [
            {"topic": name, "topic_id": topic_uuid(topic_id), "partitions": tuple(partitions)}
            for name, topic_id, partitions in request.forgotten
        ],
        "rack_id": request.rack_id,
    }


def as_of(version: int, request: FetchRequest) -> FetchRequest:
    """What of `request` a version can say."""
    by_id = version >= 13
    return request._replace(
        replica_epoch=request.replica_epoch if version >= 15 else -1,
        session_id=request.session_id if version >= 7 else 0,
        session_epoch=request.session_epoch if version >= 7 else -1,
        topics=[
            (
                None if by_id else name,
                topic_id if by_id else None,
                [_partition_as_of(version, partition) for partition in partitions],
            )
            for name, topic_id, partitions in request.topics
        ],
        forgotten=[
            (None if by_id else name, topic_id if by_id else None, partitions)
            for name, topic_id, partitions in request.forgotten
            if version >= 7
        ],
        rack_id=request.rack_id if version >= 11 else None,
        cluster_id=request.cluster_id if version >= 12 else None,
    )


def _partition_as_of(version: int, partition: FetchPartition) -> FetchPartition:
    return partition._replace(
        current_leader_epoch=partition.current_leader_epoch if version >= 9 else -1,
        last_fetched_epoch=partition.last_fetched_epoch if version >= 12 else -1,
        log_start_offset=partition.log_start_offset if version >= 5 else -1,
    )


def kio_response(
    topics: Sequence[FetchTopicResult],
    *,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> Mapping[str, object]:
    return {
        "throttle_time": milliseconds(throttle_ms),
        "error_code": error_code,
        "session_id": session_id,
        "responses": [
            {
                "topic": name,
                "topic_id": topic_uuid(topic_id),
                "partitions": [_kio_result(result) for result in results],
            }
            for name, topic_id, results in topics
        ],
        "node_endpoints": [endpoint._asdict() for endpoint in node_endpoints],
    }


def _kio_result(result: FetchPartitionResult) -> dict[str, object]:
    values: dict[str, object] = {
        "partition_index": result.partition,
        "error_code": result.error_code,
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "log_start_offset": result.log_start_offset,
        "aborted_transactions": None
        if result.aborted is None
        else [transaction._asdict() for transaction in result.aborted],
        "preferred_read_replica": result.preferred_read_replica,
        "records": result.records,
    }
    if result.diverging_epoch is not None:
        values["diverging_epoch"] = result.diverging_epoch._asdict()
    if result.current_leader is not None:
        values["current_leader"] = result.current_leader._asdict()
    return values
