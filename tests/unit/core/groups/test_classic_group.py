"""Stories of classic groups, rule by rule: G1 to G9 of `core/groups/classic_group.py`."""

from tests.unit.core.groups.hosted import Hosted
from tidelog.base.errors import ErrorCode


def test_a_member_joins_syncs_and_is_alone() -> None:
    hosted = Hosted()
    joining = hosted.join("ann")
    hosted.advance(0)
    joined = hosted.joined(joining)
    assert (joined.error_code, joined.generation, joined.leader) == (ErrorCode.NONE, 1, "ann")
    assert [member.member_id for member in joined.members] == ["ann"]
    syncing = hosted.sync("ann", 1, [("ann", b"all")])
    assert hosted.synced(syncing).assignment == b"all"
    assert hosted.heartbeat("ann", 1) is ErrorCode.NONE
    assert hosted.described().state == "Stable"
