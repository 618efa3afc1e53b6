"""Members of classic groups as their records have them, and back."""

from typing import Final

from tidelog.core.groups.classic_members import ClassicMember
from tidelog.core.groups.requests import JoinProtocol
from tidelog.records.groups import MemberMetadata

_MEMBER_OVERHEAD_BYTES: Final = 64


def member_from_record(member: MemberMetadata, protocol: str) -> ClassicMember:
    """The member that was written; of its protocols the one that was chosen."""
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=(JoinProtocol(protocol, member.subscription),),
        assignment=member.assignment,
    )


def member_to_record(member: ClassicMember, protocol: str) -> MemberMetadata:
    """What is written of `member`, who has agreed to `protocol`."""
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def member_bytes(member: ClassicMember, protocol: str) -> int:
    """No fewer than its part of the group's record will have; text counts four bytes each."""
    texts = (member.member_id, member.group_instance_id or "", member.client_id, member.client_host)
    payload = len(member.metadata(protocol)) + len(member.assignment)
    return _MEMBER_OVERHEAD_BYTES + 4 * sum(map(len, texts)) + payload
