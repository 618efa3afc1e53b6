"""R1: states of partitions and brokers, as the controller sends them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kio_codec import int16s, int32s, int64s, topic_ids
from tests.support.peer_codec import control_headers, live_brokers, topic_states
from tidelog.base.errors import WireError
from tidelog.wire import cluster_states
from tidelog.wire.cluster_states import (
    PARTITIONS_MAX,
    REPLICAS_MAX,
    BrokerEndpoint,
    ControlHeader,
    FailedPartition,
    LiveBroker,
    PartitionState,
    TopicStates,
)
from tidelog.wire.primitives import Reader, uvarint

_ID = bytes(range(16))


def _reader(data: bytes) -> Reader:
    return Reader(memoryview(data), 0, flexible=True)


@given(header=control_headers)
def test_control_header_comes_back(header: ControlHeader) -> None:
    reader = _reader(cluster_states.encode_control_header(header))
    assert cluster_states.decode_control_header(reader) == header
    assert reader.position == len(reader.view)


@given(brokers=st.lists(st.tuples(int32s, int64s), max_size=4))
def test_broker_epochs_come_back(brokers: list[tuple[int, int]]) -> None:
    reader = _reader(cluster_states.encode_broker_epochs(brokers))
    assert cluster_states.decode_broker_epochs(reader) == brokers
    assert reader.position == len(reader.view)


@given(brokers=st.lists(live_brokers, max_size=3))
def test_live_brokers_come_back(brokers: list[LiveBroker]) -> None:
    reader = _reader(cluster_states.encode_live_brokers(brokers))
    assert cluster_states.decode_live_brokers(reader) == brokers
    assert reader.position == len(reader.view)


@given(topics=st.lists(topic_states, max_size=3))
def test_topic_states_come_back(topics: list[TopicStates]) -> None:
    reader = _reader(cluster_states.encode_topic_states(topics))
    decoded = cluster_states.decode_topic_states(reader)
    assert decoded == topics
    assert all(type(state) is PartitionState for topic in decoded for state in topic.partitions)
    assert reader.position == len(reader.view)


@given(
    error_code=int16s,
    partitions=st.lists(st.builds(FailedPartition, topic_ids, int32s, int16s), max_size=3),
)
def test_failures_come_back(error_code: int, partitions: list[FailedPartition]) -> None:
    reader = _reader(cluster_states.encode_failures(error_code, partitions))
    assert cluster_states.decode_failures(reader) == (error_code, partitions)
    assert reader.position == len(reader.view)


@pytest.mark.parametrize("replica_count", [0, 1, 31, 32, 33, 1_000])
def test_partition_may_have_any_number_of_replicas(replica_count: int) -> None:
    state = PartitionState(0, 1, 2, 3, tuple(range(replica_count)), (1,), (), (7, 8))
    topics = [TopicStates("t", _ID, [state])]
    assert (
        cluster_states.decode_topic_states(_reader(cluster_states.encode_topic_states(topics)))
        == topics
    )


def test_bytes_are_those_that_other_versions_of_tidelog_read() -> None:
    state = PartitionState(1, 2, 3, 4, (2, 5), (2,), (6,), ())
    assert cluster_states.encode_topic_states([TopicStates("t", _ID, [state])]) == (
        b"\x02"
        + b"\x02t"
        + _ID
        + b"\x02"
        + struct.pack(">iiii", 1, 2, 3, 4)
        + struct.pack(">HHHH", 2, 1, 1, 0)
        + struct.pack(">iiii", 2, 5, 2, 6)
        + b"\x00"
        + b"\x00"
    )
    broker = LiveBroker(1, 9, None, (BrokerEndpoint("L", "P", "h", 9092),))
    assert cluster_states.encode_live_brokers([broker]) == (
        b"\x02" + struct.pack(">iq", 1, 9) + b"\x00" + b"\x02"
        b"\x02L\x02P\x02h" + struct.pack(">i", 9092) + b"\x00" + b"\x00"
    )
    assert cluster_states.encode_control_header(ControlHeader(1, 2, 3, _ID)) == (
        struct.pack(">iiq", 1, 2, 3) + _ID
    )


def test_partition_of_three_replicas_is_small() -> None:
    state = PartitionState(1, 2, 3, 4, (1, 2, 3), (1, 2, 3), (), ())
    one = cluster_states.encode_topic_states([TopicStates("t", _ID, [state])])
    two = cluster_states.encode_topic_states([TopicStates("t", _ID, [state, state])])
    assert len(two) - len(one) == 49


_EMPTY_STATE = struct.pack(">4i4H", 1, 2, 3, 4, 0, 0, 0, 0) + b"\x00"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        uvarint(PARTITIONS_MAX + 2),
        b"\x02\x00",
        b"\x02\x02\xff" + _ID + b"\x01\x00",
        b"\x02\x01" + _ID + b"\x00",
        b"\x02\x01" + _ID + b"\xff\xff\xff\xff\x0f" + _EMPTY_STATE,
        b"\x02\x01" + _ID + b"\x02" + struct.pack(">4i4H", 1, 2, 3, 4, 65535, 0, 0, 0) + bytes(9),
    ],
)
def test_lengths_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        cluster_states.decode_topic_states(_reader(data))


def test_partitions_of_all_topics_share_one_bound() -> None:
    half = PARTITIONS_MAX // 2 + 1
    topic = b"\x01" + _ID + uvarint(half + 1) + _EMPTY_STATE * half + b"\x00"
    with pytest.raises(WireError, match="partitions"):
        cluster_states.decode_topic_states(_reader(b"\x03" + topic * 2))


def test_replicas_of_all_partitions_share_one_bound() -> None:
    state = PartitionState(1, 2, 3, 4, tuple(range(60_000)), (), (), ())
    count = REPLICAS_MAX // 60_000
    fits = cluster_states.encode_topic_states([TopicStates("t", _ID, [state] * count)])
    assert len(cluster_states.decode_topic_states(_reader(fits))[0].partitions) == count
    excess = cluster_states.encode_topic_states([TopicStates("t", _ID, [state] * (count + 1))])
    with pytest.raises(WireError, match="replicas"):
        cluster_states.decode_topic_states(_reader(excess))
