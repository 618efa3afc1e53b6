"""Records of one group as they may be found in a log: any of them, in any order (P3)."""

from uuid import UUID

from hypothesis import strategies as st

from tests.unit.core.groups.consumer.classic_consumers import encode_subscription
from tests.unit.core.groups.hosted import GROUP
from tidelog.base.ids import TopicId, TopicIdPartition, TopicPartition
from tidelog.records.consumer_groups import (
    ClassicIdentity,
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
from tidelog.records.groups import (
    CommittedOffset,
    GroupMetadata,
    GroupMetadataRecord,
    MemberMetadata,
    OffsetCommitRecord,
)

METADATA = encode_subscription(["orders"])
_ORDERS = TopicId(UUID(int=1))

_group_ids = st.just(GROUP)
MEMBERS = st.sampled_from(["ann", "bob", "cat"])
_instances = st.sampled_from([None, "i", "j"])
_epochs = st.integers(-2, 4)
_numbers = st.builds(TopicIdPartition, st.just(_ORDERS), st.integers(0, 5))
_owned = st.dictionaries(_numbers, st.integers(0, 4), max_size=3)
_classic_members = st.builds(
    MemberMetadata,
    MEMBERS,
    _instances,
    st.just("client"),
    st.just("/host"),
    st.just(1_000),
    st.just(1_000),
    st.sampled_from([b"", METADATA]),
    st.just(b""),
)
_classic_groups = st.builds(
    GroupMetadata,
    st.sampled_from(["", "consumer", "connect"]),
    st.integers(0, 4),
    st.sampled_from([None, "range"]),
    st.sampled_from([None, "ann", "nobody"]),
    st.sampled_from([-1, 5]),
    st.lists(_classic_members, max_size=3).map(tuple),
)
_subscriptions = st.builds(
    Subscription,
    instance_id=_instances,
    topics=st.sampled_from([frozenset[str](), frozenset(("orders",))]),
    expression=st.sampled_from(["", "o.*", "("]),
    rebalance_timeout_ms=st.just(1_000),
    classic=st.sampled_from(
        [
            None,
            ClassicIdentity(1_000, (("range", METADATA),)),
            ClassicIdentity(1_000, (("sticky", METADATA),)),
        ]
    ),
)
_currents = st.builds(
    CurrentAssignment,
    epoch=_epochs,
    previous_epoch=_epochs,
    state=st.sampled_from(MemberState),
    assigned=_owned,
    revoking=_owned,
)
_resolved = st.just(ResolvedExpression(frozenset(("orders",)), 3, 4))
FOUND = st.one_of(
    st.builds(GroupMetadataRecord, _group_ids, st.none() | _classic_groups),
    st.builds(
        OffsetCommitRecord,
        _group_ids,
        st.just(TopicPartition("orders", 0)),
        st.none() | st.just(CommittedOffset(1, -1, "", 1)),
    ),
    st.builds(MemberRecord, _group_ids, MEMBERS, st.none() | _subscriptions),
    st.builds(TargetRecord, _group_ids, MEMBERS, st.none() | st.frozensets(_numbers, max_size=3)),
    st.builds(CurrentAssignmentRecord, _group_ids, MEMBERS, st.none() | _currents),
    st.builds(GroupEpochRecord, _group_ids, st.none() | st.integers(1, 4)),
    st.builds(TargetEpochRecord, _group_ids, st.none() | st.integers(1, 4)),
    st.builds(ExpressionRecord, _group_ids, st.sampled_from(["o.*", "("]), st.none() | _resolved),
    st.builds(PartitionMetadataRecord, _group_ids, st.booleans()),
)
