"""Records that take back what was written of a member, or of a whole group, in Kafka's order."""

from collections.abc import Iterator

from tidelog.core.groups.consumer.members import ConsumerMembers
from tidelog.records.consumer_groups import (
    ConsumerGroupRecord,
    CurrentAssignmentRecord,
    ExpressionRecord,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    TargetEpochRecord,
    TargetRecord,
)


def member_tombstones(group_id: str, member_id: str) -> tuple[ConsumerGroupRecord, ...]:
    return (
        CurrentAssignmentRecord(group_id, member_id, None),
        TargetRecord(group_id, member_id, None),
        MemberRecord(group_id, member_id, None),
    )


def group_tombstones(group_id: str, members: ConsumerMembers) -> Iterator[ConsumerGroupRecord]:
    """Everything that the group is made of, what each part rests upon after it."""
    for member_id in members.by_id:
        yield CurrentAssignmentRecord(group_id, member_id, None)
    for member_id in members.targets:
        yield TargetRecord(group_id, member_id, None)
    yield TargetEpochRecord(group_id, None)
    for member_id in members.by_id:
        yield MemberRecord(group_id, member_id, None)
    for expression in members.expressions:
        yield ExpressionRecord(group_id, expression, None)
    if members.has_partition_metadata:
        yield PartitionMetadataRecord(group_id)
    yield GroupEpochRecord(group_id, None)
