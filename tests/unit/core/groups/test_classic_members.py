"""The members of one classic group by themselves: M1 to M5 of `core/groups/classic_members.py`."""

from tidelog.core.coordinators import Token
from tidelog.core.groups.classic_members import ClassicMember, ClassicMembers
from tidelog.core.groups.requests import JoinProtocol


def member(member_id: str, *protocols: str, instance: str | None = None) -> ClassicMember:
    return ClassicMember(
        member_id=member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/host",
        session_timeout_ms=10,
        rebalance_timeout_ms=len(member_id),
        protocols=tuple(JoinProtocol(name, name.encode()) for name in protocols),
        assignment=b"",
    )


def test_the_first_leads_and_then_the_eldest() -> None:
    members = ClassicMembers()
    for member_id in ("ann", "bob", "cyd"):
        members.add(member(member_id, "range"))
    assert members.leader == "ann"
    members.remove("bob")
    assert members.leader == "ann"
    members.remove("ann")
    assert members.leader == "cyd"
    members.remove("cyd")
    assert members.leader is None
    assert members.remove("cyd") is None


def test_protocols_are_counted_as_members_come_change_and_go() -> None:
    members = ClassicMembers()
    ann, bob = member("ann", "range", "sticky", "range"), member("bob", "sticky")
    members.add(ann)
    members.add(bob)
    assert members.support_one_of([JoinProtocol("sticky", b"")])
    assert not members.support_one_of([JoinProtocol("range", b""), JoinProtocol("none", b"")])
    members.update_protocols(bob, (JoinProtocol("range", b""),))
    assert members.selected_protocol() == "range"
    members.remove("ann")
    assert not members.support_one_of([JoinProtocol("sticky", b"")])


def test_a_tie_is_decided_by_the_eldest_voter() -> None:
    members = ClassicMembers()
    members.add(member("ann", "b", "a"))
    members.add(member("bob", "a", "b"))
    assert members.selected_protocol() == "b"


def test_an_instance_leads_to_its_member_and_to_no_other() -> None:
    members = ClassicMembers()
    members.add(member("ann", "range", instance="left"))
    members.add(member("bob", "range"))
    replaced = members.replace_static("ann", "ann-2")
    assert (replaced.member_id, members.static_member_id("left")) == ("ann-2", "ann-2")
    assert members.leader == "ann-2"
    assert [known.member_id for known in members] == ["ann-2", "bob"]
    assert "ann" not in members
    members.remove("ann-2")
    assert members.static_member_id("left") is None


def test_who_becomes_a_member_is_not_pending_any_more() -> None:
    members = ClassicMembers()
    members.pending.add("ann")
    members.add(member("ann", "range"))
    assert not members.pending


def test_those_who_have_joined_are_counted() -> None:
    members = ClassicMembers()
    ann, bob = member("ann", "range"), member("bob", "range")
    members.add(ann)
    members.add(bob)
    members.begin_join(ann, Token(1))
    assert not members.have_all_joined
    members.begin_join(bob, Token(2))
    assert members.have_all_joined
    members.pending.add("cyd")
    assert not members.have_all_joined
    members.pending.clear()
    members.remove("bob")
    assert members.end_join(bob) == Token(2)
    assert members.end_join(bob) is None
    assert members.joined_count == 1
    assert members.have_all_joined


def test_the_slowest_decides_how_long_a_rebalance_may_take() -> None:
    members = ClassicMembers()
    assert members.rebalance_timeout_ms == 0
    members.add(member("a", "range"))
    members.add(member("longer", "range"))
    assert members.rebalance_timeout_ms == 6


def test_the_leader_is_one_who_has_joined() -> None:
    members = ClassicMembers()
    ann, bob = member("ann", "range"), member("bob", "range")
    members.add(ann)
    members.add(bob)
    assert not members.elect_joined_leader()
    members.begin_join(bob, Token(1))
    assert members.elect_joined_leader()
    assert members.leader == "bob"
    members.begin_join(ann, Token(2))
    assert members.elect_joined_leader()
    assert members.leader == "bob"
