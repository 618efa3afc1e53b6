"""A group changes its protocol while it has members (KIP-848, `group.consumer.migration.policy`).

classic ──── the first member of the consumer protocol joins ───▶ consumer
        ◀─── the last member of the consumer protocol is gone ───

V1  Everybody stays a member, with what it had last. A member of a classic group that waited for
    a rebalance is told that there is another, and joins again.
V2  Generations and epochs are one count: nobody is told a smaller number than before. Who is in
    the epoch of the last assignment when a group becomes classic is in its generation, and may
    commit before it joins again.
V3  A classic group can only be upgraded if its members are consumers whose subscriptions and
    assignments are understood, and none of its assignors keeps data in assignments: nobody
    would understand those afterwards. Otherwise it stays as it is: GROUP_ID_NOT_FOUND.
V4  What members had last is not always all there is: a rebalance may be under way, or a
    cooperative one half done. Then the group begins a new epoch, also if whoever joins takes a
    static member's place and changes nothing: what was nobody's would stay so without end.
V5  What a member has yet to give back stays its own, whatever the group becomes: nobody else may
    have it before the member has joined again without. In a classic group that is what a
    cooperative member has said that it owns, if it was assigned to nobody.
"""

from collections.abc import Iterator
from typing import Final

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.core.groups.classic_group import ClassicGroup
from tidelog.core.groups.classic_members import ClassicMember
from tidelog.core.groups.classic_membership import ClassicState
from tidelog.core.groups.consumer.classic_guests import to_ids, to_names
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.consumer.members import ConsumerMember
from tidelog.core.groups.context import GroupContext
from tidelog.core.groups.requests import CONSUMER_PROTOCOL_TYPE, JoinProtocol
from tidelog.records.consumer_groups import (
    ClassicIdentity,
    ConsumerGroupRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberRecord,
    MemberState,
    Partitions,
    Subscription,
    TargetEpochRecord,
    TargetRecord,
)
from tidelog.records.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from tidelog.records.groups import GroupMetadata, MemberMetadata

_TOPIC_BYTES_MAX: Final = 257
"""Of a name, its length and a count. What a member gives back it may not subscribe to any more."""


def upgrade_records(group: ClassicGroup, context: GroupContext) -> list[ConsumerGroupRecord]:
    """The group as one of the consumer protocol. Raises GROUP_ID_NOT_FOUND. V3"""
    config = context.consumer_config
    if not config.may_upgrade:
        raise _not_upgraded(group, "online upgrade is disabled")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        raise _not_upgraded(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > config.group_consumer_max_size:
        raise _not_upgraded(group, "the group size exceeds the consumer group maximum size")
    sizes = (sum(len(data) + 64 for _, data in member.protocols) for member in group.members)
    if max(sizes, default=0) > context.record_max_bytes // 2:
        raise _not_upgraded(group, "a subscription is too large")
    return list(_upgrade_records(group, context))


def _upgrade_records(group: ClassicGroup, context: GroupContext) -> Iterator[ConsumerGroupRecord]:
    group_id, epoch = group.group_id, group.generation
    subscriptions = {member.member_id: _subscription(group, member) for member in group.members}
    for member_id, subscription in subscriptions.items():
        yield MemberRecord(group_id, member_id, subscription)
    topics = frozenset[str]().union(*(found.topics for found in subscriptions.values()))
    assignments = _assignments(group, context)
    read = {
        partition
        for member_id, partitions in assignments.items()
        for partition in partitions
        if context.topics.names[partition.topic_id] in subscriptions[member_id].topics
    }
    is_settled = group.state is ClassicState.STABLE and len(read) == _count(topics, context)
    # V4. Whoever finds no more than a part of these records assigns anew as well.
    group_epoch = epoch if is_settled else epoch + 1
    yield GroupEpochRecord(group_id, group_epoch, context.topics.digest(topics))
    for member_id, partitions in assignments.items():
        yield TargetRecord(group_id, member_id, partitions)
    yield TargetEpochRecord(group_id, epoch)
    taken: Partitions = frozenset().union(*assignments.values())
    for member in group.members:
        unreturned = _owned(group, member, context) - taken
        taken |= unreturned
        current = CurrentAssignment(
            epoch=epoch,
            previous_epoch=epoch,
            state=MemberState.UNREVOKED_PARTITIONS if unreturned else MemberState.STABLE,
            assigned=dict.fromkeys(assignments[member.member_id], epoch),
            revoking=dict.fromkeys(unreturned, epoch),
        )
        yield CurrentAssignmentRecord(group_id, member.member_id, current)


def _count(topics: frozenset[str], context: GroupContext) -> int:
    """Of their partitions."""
    return sum(context.topics.counts(context.topics.ids(topics)).values())


def _subscription(group: ClassicGroup, member: ClassicMember) -> Subscription:
    assert group.protocol_name is not None
    embedded = decode_subscription(member.metadata(group.protocol_name))
    if embedded is None:
        raise _not_upgraded(group, "the embedded consumer protocol is malformed")
    return Subscription(
        instance_id=member.group_instance_id,
        rack_id=embedded.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=embedded.topics,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicIdentity(member.session_timeout_ms, _pairs(member.protocols)),
    )


def _pairs(protocols: tuple[JoinProtocol, ...]) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, metadata) for name, metadata in protocols)


def _assignments(group: ClassicGroup, context: GroupContext) -> dict[str, Partitions]:
    """What everybody had last. If an assignor gave something to two of them, the first has it.

    A rebalance that was interrupted has taken assignments back; a cooperative member still has
    what it said that it owns, unless somebody else has it.
    """
    taken: Partitions = frozenset()
    assignments: dict[str, Partitions] = {}
    for member in group.members:
        embedded = decode_assignment(member.assignment)
        if embedded is None:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed")
        if embedded.user_data:
            raise _not_upgraded(group, "an unsupported custom assignor is in use")
        assignments[member.member_id] = to_ids(embedded.partitions, context.topics) - taken
        taken |= assignments[member.member_id]
    for member in group.members:
        if not member.assignment:
            assignments[member.member_id] = _owned(group, member, context) - taken
            taken |= assignments[member.member_id]
    return assignments


def _owned(group: ClassicGroup, member: ClassicMember, context: GroupContext) -> Partitions:
    assert group.protocol_name is not None
    embedded = decode_subscription(member.metadata(group.protocol_name))
    return frozenset() if embedded is None else to_ids(embedded.owned, context.topics)


def _not_upgraded(group: ClassicGroup, reason: str) -> RequestRefused:
    return RequestRefused(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
    )


def can_downgrade(group: ConsumerGroup, context: GroupContext) -> bool:
    """Only members of the classic protocol are left, and they may be among themselves.

    All of them are in one record then, for which there has to be room (W3).
    """
    members = group.members.by_id.values()
    return (
        0 < len(members) == group.members.classic_count
        and context.consumer_config.may_downgrade
        and len(members) <= context.config.group_max_size
        and _shared_protocol(tuple(members)) is not None
        and sum(map(_record_bytes, members)) <= context.record_max_bytes // 2
    )


def _record_bytes(member: ConsumerMember) -> int:
    """More than its part of the group's record will have."""
    protocols = _membership(member).protocols
    topics = sum(len(topic.encode()) + 8 for topic in member.subscription.topics)
    current = member.current
    topics += _TOPIC_BYTES_MAX * len({partition.topic_id for partition in current.revoking})
    partitions = 4 * (len(current.assigned) + len(current.revoking))
    return max(len(data) for _, data in protocols) + topics + partitions + 1024


def downgraded(group: ConsumerGroup, context: GroupContext) -> ClassicGroup:
    """The group as a classic one, whose members have yet to agree. V1, V2

    Nobody was told of an epoch beyond the target's: the group's own counts who is gone already.
    """
    members = tuple(group.members.by_id.values())
    protocol = _shared_protocol(members)
    assert protocol is not None, "can_downgrade() says so"
    metadata = GroupMetadata(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.members.target_epoch,
        protocol=protocol,
        leader=None,
        current_state_timestamp_ms=context.now_ms,
        members=tuple(_metadata(member, protocol, context) for member in members),
    )
    classic = ClassicGroup.from_record(group.group_id, metadata, context)
    for member in classic.members:
        protocols = _membership(group.members.by_id[member.member_id]).protocols
        known = tuple(JoinProtocol(name, data) for name, data in protocols)
        classic.members.update_protocols(member, known)
    return classic


def _metadata(member: ConsumerMember, protocol: str, context: GroupContext) -> MemberMetadata:
    membership, subscription = _membership(member), member.subscription
    metadata = dict(membership.protocols)[protocol]
    embedded = decode_subscription(metadata)
    version = 0 if embedded is None else embedded.version
    owned = to_names(member.all_partitions(), context.topics)  # V5
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=subscription.instance_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        session_timeout_ms=membership.session_timeout_ms,
        subscription=metadata,
        assignment=encode_assignment(owned, version),
    )


def _shared_protocol(members: tuple[ConsumerMember, ...]) -> str | None:
    """The first of the first member's that all others know. Nobody got in without one, but what
    is found in the log may be nonsense."""
    names = [name for name, _ in _membership(members[0]).protocols]
    known = [{name for name, _ in _membership(member).protocols} for member in members]
    return next((name for name in names if all(name in others for others in known)), None)


def _membership(member: ConsumerMember) -> ClassicIdentity:
    assert member.subscription.classic is not None
    return member.subscription.classic
