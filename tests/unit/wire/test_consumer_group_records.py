"""Records of groups of the consumer protocol: as Kafka 4.3 wrote them, made up, and damaged."""

from contextlib import suppress
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_consumer_group_records
from tests.support.kio_codec import int32s, int64s, names
from tidelog.base.errors import WireError
from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.records.consumer_groups import (
    LEAVING_STATIC_EPOCH,
    ClassicIdentity,
    ConsumerGroupRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    ExpressionRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    PartitionMetadataRecord,
    ResolvedExpression,
    Subscription,
    TargetEpochRecord,
    TargetRecord,
)
from tidelog.records.consumer_protocol import decode_subscription
from tidelog.wire.group_records import decode_group_record, encode_group_record
from tidelog.wire.primitives import ELEMENTS_MAX

_partitions = st.builds(TopicIdPartition, st.uuids().map(TopicId), int32s)
_owned = st.dictionaries(_partitions, int32s, max_size=4)
_classic = st.builds(
    ClassicIdentity,
    int32s,
    st.lists(st.tuples(names, st.binary(max_size=9)), max_size=2).map(tuple),
)
_subscriptions = st.builds(
    Subscription,
    instance_id=st.none() | names,
    rack_id=st.none() | names,
    client_id=names,
    client_host=names,
    topics=st.frozensets(names, max_size=3),
    expression=names,
    rebalance_timeout_ms=int32s,
    assignor=st.none() | names,
    classic=st.none() | _classic,
)
_current = st.builds(
    CurrentAssignment,
    epoch=int32s,
    previous_epoch=int32s,
    state=st.sampled_from(MemberState),
    assigned=_owned,
    revoking=_owned,
)
_resolved = st.builds(ResolvedExpression, st.frozensets(names, max_size=3), int64s, int64s)
_targets = st.frozensets(_partitions, max_size=4)
_records: st.SearchStrategy[ConsumerGroupRecord] = st.one_of(
    st.builds(GroupEpochRecord, names, int32s, int64s),
    st.builds(GroupEpochRecord, names, st.none()),
    st.builds(PartitionMetadataRecord, names),
    st.builds(MemberRecord, names, names, st.none() | _subscriptions),
    st.builds(TargetEpochRecord, names, int32s, int64s),
    st.builds(TargetEpochRecord, names, st.none()),
    st.builds(TargetRecord, names, names, st.none() | _targets),
    st.builds(CurrentAssignmentRecord, names, names, st.none() | _current),
    st.builds(ExpressionRecord, names, names, st.none() | _resolved),
)


def _golden() -> list[ConsumerGroupRecord]:
    records = []
    for key, value in kafka_consumer_group_records():
        record = decode_group_record(key, value)
        assert isinstance(record, ConsumerGroupRecord)
        records.append(record)
    return records


def test_what_kafka_wrote_is_written_in_the_same_bytes() -> None:
    for key, value in kafka_consumer_group_records():
        record = decode_group_record(key, value)
        assert record is not None
        assert encode_group_record(record) == (key, value), record


def test_what_kafka_wrote_is_understood() -> None:
    records = _golden()
    first = records[0]
    assert isinstance(first, MemberRecord)
    assert first.subscription == Subscription(
        client_id="golden",
        client_host="/127.0.0.1",
        topics=frozenset(("orders",)),
        rebalance_timeout_ms=300_000,
    )
    states = {
        record.current.state
        for record in records
        if isinstance(record, CurrentAssignmentRecord) and record.current is not None
    }
    assert states == set(MemberState)
    released = [
        record.current.assigned.values()
        for record in records
        if isinstance(record, CurrentAssignmentRecord)
        and record.current is not None
        and record.current.epoch == LEAVING_STATIC_EPOCH
    ]
    assert [set(epochs) for epochs in released] == [{0}]
    kinds = {type(record) for record in records}
    assert len(kinds) == 7


def test_a_classic_member_in_a_group_of_kafka_is_understood() -> None:
    classic = next(
        record.subscription.classic
        for record in _golden()
        if isinstance(record, MemberRecord) and record.subscription and record.subscription.classic
    )
    assert classic.session_timeout_ms == 10_000
    assert [name for name, _ in classic.protocols] == ["range", "roundrobin"]
    embedded = decode_subscription(classic.protocols[0][1])
    assert embedded is not None
    assert (embedded.version, embedded.topics) == (3, frozenset(("orders",)))


@given(record=_records)
def test_a_record_comes_back_as_it_was(record: ConsumerGroupRecord) -> None:
    assert decode_group_record(*encode_group_record(record)) == record


@given(record=_records, cut=st.integers(1, 40), noise=st.binary(max_size=4))
def test_damage_is_noticed_or_harmless(record: ConsumerGroupRecord, cut: int, noise: bytes) -> None:
    key, value = encode_group_record(record)
    with suppress(WireError):
        decode_group_record(key[:-cut] + noise, value)
    if value is not None:
        with suppress(WireError):
            decode_group_record(key, value[:-cut] + noise)


def test_what_kafka_4_0_wrote_of_partitions_is_known_to_be_there() -> None:
    key, _ = encode_group_record(PartitionMetadataRecord("group"))
    record = decode_group_record(key, b"\x00\x00\x01\x00")
    assert record == PartitionMetadataRecord("group", is_there=True)


def test_a_record_may_have_more_elements_than_a_request() -> None:
    """What was written has to be read again, whatever bounds there are for peers."""
    topic_id = TopicId(UUID(int=7))
    owned = {TopicIdPartition(topic_id, number): 5 for number in range(ELEMENTS_MAX + 1)}
    record = CurrentAssignmentRecord("g", "m", CurrentAssignment(assigned=owned))
    assert decode_group_record(*encode_group_record(record)) == record
