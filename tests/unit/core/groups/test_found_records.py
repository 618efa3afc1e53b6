"""Whatever a coordinator finds in its log, it leads: one record must not stop a broker (P3).

Clients may not write to `__consumer_offsets`, but administrators may, and Kafka's folders are
adopted with what is in them. Records that are read one by one need not make sense together.
"""

from contextlib import suppress
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.groups.consumer.classic_consumers import encode_subscription
from tests.unit.core.groups.consumer.consumers import ConsumerHosted
from tests.unit.core.groups.hosted import GROUP
from tidelog.base.errors import RequestRefused
from tidelog.base.ids import TopicId, TopicIdPartition, TopicPartition
from tidelog.core.groups.consumer.requests import ConsumerHeartbeat
from tidelog.core.groups.requests import JoinProtocol, LeavingMember
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

_FOREVER_MS = 10**8
_METADATA = encode_subscription(["orders"])
_ORDERS = TopicId(UUID(int=1))

_group_ids = st.just(GROUP)
_members = st.sampled_from(["ann", "bob", "cat"])
_instances = st.sampled_from([None, "i", "j"])
_epochs = st.integers(-2, 4)
_numbers = st.builds(TopicIdPartition, st.just(_ORDERS), st.integers(0, 5))
_owned = st.dictionaries(_numbers, st.integers(0, 4), max_size=3)
_classic_members = st.builds(
    MemberMetadata,
    _members,
    _instances,
    st.just("client"),
    st.just("/host"),
    st.just(1_000),
    st.just(1_000),
    st.sampled_from([b"", _METADATA]),
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
            ClassicIdentity(1_000, (("range", _METADATA),)),
            ClassicIdentity(1_000, (("sticky", _METADATA),)),
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
_records = st.one_of(
    st.builds(GroupMetadataRecord, _group_ids, st.none() | _classic_groups),
    st.builds(
        OffsetCommitRecord,
        _group_ids,
        st.just(TopicPartition("orders", 0)),
        st.none() | st.just(CommittedOffset(1, -1, "", 1)),
    ),
    st.builds(MemberRecord, _group_ids, _members, st.none() | _subscriptions),
    st.builds(TargetRecord, _group_ids, _members, st.none() | st.frozensets(_numbers, max_size=3)),
    st.builds(CurrentAssignmentRecord, _group_ids, _members, st.none() | _currents),
    st.builds(GroupEpochRecord, _group_ids, st.none() | st.integers(1, 4)),
    st.builds(TargetEpochRecord, _group_ids, st.none() | st.integers(1, 4)),
    st.builds(ExpressionRecord, _group_ids, st.sampled_from(["o.*", "("]), st.none() | _resolved),
    st.builds(PartitionMetadataRecord, _group_ids, st.booleans()),
)


def _ask_everything(world: ConsumerHosted, member_id: str) -> None:
    world.listed()
    world.ask(lambda token: world.shard.on_describe(GROUP, token, world.now_ms))
    world.ask(lambda token: world.shard.on_consumer_describe(GROUP, token, world.now_ms))
    world.heartbeat(member_id, 1)
    with suppress(RequestRefused):
        world.send(
            ConsumerHeartbeat(
                group_id=GROUP,
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=1_000,
                topics=frozenset(("orders",)),
                owned=frozenset(),
            )
        )
    world.join("new", member_id=member_id, protocols=[JoinProtocol("range", _METADATA)])
    world.leave(LeavingMember(member_id, None))


@given(records=st.lists(_records, max_size=8), member_id=_members, is_asked=st.booleans())
def test_a_coordinator_leads_whatever_it_finds(
    records: list[object], member_id: str, is_asked: bool
) -> None:
    world = ConsumerHosted()
    world.set_topics({"orders": 3})
    world.written = [(record, None) for record in records]  # type: ignore[misc]
    world.restart()
    if is_asked:
        _ask_everything(world, member_id)
    world.advance(_FOREVER_MS)
    world.restart()
