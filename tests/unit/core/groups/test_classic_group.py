"""Stories of classic groups, rule by rule: G1 to G9 of `core/groups/classic_membership.py` (P3)."""

import pytest

from tests.unit.core.groups.hosted import (
    REBALANCE_MS,
    SESSION_MS,
    Hosted,
    subscription,
    with_config,
)
from tidelog.base.errors import ErrorCode
from tidelog.core.coordinators import Token
from tidelog.core.groups.classic_membership import PENDING_MEMBERS_MAX
from tidelog.core.groups.requests import JoinProtocol, LeavingMember
from tidelog.records.groups import GroupMetadataRecord

METADATA = subscription("orders")


def joined_together(hosted: Hosted, *member_ids: str) -> int:
    """All of them join a new group, and none has synced. Returns the generation."""
    tokens = [hosted.join(member_id) for member_id in member_ids]
    hosted.advance(0)
    assert {hosted.joined(token).generation for token in tokens} == {1}
    return 1


def protocols(*names: str) -> tuple[JoinProtocol, ...]:
    return tuple(JoinProtocol(name, METADATA) for name in names)


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


# G1: generations


def test_every_rebalance_begins_a_generation_with_a_larger_number() -> None:
    hosted = Hosted()
    assert hosted.stable("ann") == 1
    bob, ann = hosted.join("bob"), hosted.join(member_id="ann")
    assert hosted.joined(ann).generation == hosted.joined(bob).generation == 2


def test_whoever_names_another_generation_is_told() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    assert hosted.heartbeat("ann", 0) is ErrorCode.ILLEGAL_GENERATION
    assert hosted.heartbeat("ann", 2) is ErrorCode.ILLEGAL_GENERATION
    assert hosted.answer(hosted.sync("ann", 2)) is ErrorCode.ILLEGAL_GENERATION


def test_a_group_that_was_empty_goes_on_counting() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    assert hosted.leave(LeavingMember("ann", None)) == [ErrorCode.NONE]
    assert hosted.described().state == "Empty"
    assert hosted.stable("bob") == 3  # The empty one is a generation too.


# G2: the leader


def test_the_leader_alone_is_told_of_everybody() -> None:
    hosted = Hosted()
    ann, bob = hosted.join("ann"), hosted.join("bob")
    hosted.advance(0)
    assert [member.member_id for member in hosted.joined(ann).members] == ["ann", "bob"]
    assert hosted.joined(bob).members == ()
    assert hosted.joined(bob).leader == "ann"


def test_a_leader_that_comes_back_stays_leader() -> None:
    hosted = Hosted()
    generation = hosted.stable("ann", "bob")
    bob = hosted.join(member_id="bob", protocols=protocols("range", "other"))
    assert hosted.heartbeat("ann", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    ann = hosted.join(member_id="ann")
    assert hosted.joined(ann).leader == hosted.joined(bob).leader == "ann"


def test_the_eldest_who_came_back_leads_in_place_of_one_who_did_not() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's", cyd="cyd's")
    hosted.join(member_id="ann", instance="ann's")  # A leader that rejoins begins a rebalance.
    hosted.restart()
    bob = hosted.join(
        member_id="bob", instance="bob's", protocols=protocols("range", "other"), session_ms=90_000
    )
    hosted.advance(SESSION_MS)
    assert hosted.joined(bob).leader == "bob"


# G3: protocols


def test_the_protocol_is_what_everybody_knows_and_most_like_best() -> None:
    hosted = Hosted()
    tokens = [
        hosted.join("ann", protocols=protocols("all mine", "range", "sticky")),
        hosted.join("bob", protocols=protocols("sticky", "range")),
        hosted.join("cyd", protocols=protocols("sticky", "range")),
    ]
    hosted.advance(0)
    assert {hosted.joined(token).protocol_name for token in tokens} == {"sticky"}


def test_a_newcomer_without_a_common_protocol_stays_out() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    for odd in (
        hosted.join("bob", protocols=protocols("other")),
        hosted.join("bob", protocol_type="connect"),
        hosted.join("bob", protocols=()),
    ):
        assert hosted.answer(odd) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert hosted.described().state == "Stable"


@pytest.mark.parametrize("odd", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_group_does_not_come_to_be_without_a_protocol(odd: dict[str, object]) -> None:
    hosted = Hosted()
    token = hosted.join("ann", **odd)  # type: ignore[arg-type]
    assert hosted.answer(token) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not hosted.listed()
    assert not hosted.written


def test_who_syncs_for_another_protocol_is_refused() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    for token in (
        hosted.sync("ann", 1, protocol_name="other"),
        hosted.sync("ann", 1, protocol_type="other"),
    ):
        assert hosted.answer(token) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# G4: the first rebalance of a group


def test_a_new_group_waits_for_more_members() -> None:
    hosted = with_config(group_initial_rebalance_delay_ms=3_000)
    ann = hosted.join("ann")
    hosted.advance(2_999)
    assert hosted.waits(ann)
    hosted.advance(1)
    assert hosted.joined(ann).generation == 1


def test_each_delay_in_which_a_member_came_is_followed_by_another() -> None:
    hosted = with_config(group_initial_rebalance_delay_ms=3_000)
    ann = hosted.join("ann")
    hosted.advance(2_000)
    bob = hosted.join("bob")
    hosted.advance(3_999)
    assert hosted.waits(ann)
    hosted.advance(1)
    assert len(hosted.joined(ann).members) == 2
    assert hosted.joined(bob).generation == 1


def test_the_delays_together_are_no_longer_than_a_rebalance_may_take() -> None:
    hosted = with_config(group_initial_rebalance_delay_ms=3_000)
    tokens = [hosted.join("first", rebalance_ms=10_000)]
    began_ms = hosted.now_ms
    while hosted.waits(tokens[0]):
        tokens.append(hosted.join(f"member-{len(tokens)}", rebalance_ms=10_000))
        hosted.advance(1_000)
    assert hosted.now_ms - began_ms == 10_000
    assert not any(hosted.waits(token) for token in tokens)


# G5: who does not come back


def test_who_does_not_rejoin_in_time_is_removed() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    cyd = hosted.join("cyd")
    ann = hosted.join(member_id="ann")
    for _ in range(REBALANCE_MS // 5_000):  # Bob is alive, but does not rejoin.
        assert hosted.waits(ann)
        assert hosted.heartbeat("bob", 1) is ErrorCode.REBALANCE_IN_PROGRESS
        hosted.advance(5_000)
    assert [member.member_id for member in hosted.joined(ann).members] == ["ann", "cyd"]
    assert hosted.joined(cyd).generation == 2
    assert hosted.heartbeat("bob", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_kept_until_its_session_ends() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's")
    ann = hosted.join(
        member_id="ann", instance="ann's", session_ms=90_000, protocols=protocols("range", "other")
    )
    hosted.join(
        member_id="bob",
        instance="bob's",
        session_ms=90_000,
        rebalance_ms=5_000,
        protocols=protocols("range", "other"),
    )
    assert len(hosted.joined(ann).members) == 2  # All are back.
    ann = hosted.join(member_id="ann", instance="ann's", session_ms=90_000, rebalance_ms=5_000)
    hosted.advance(5_000)
    assert len(hosted.joined(ann).members) == 2  # Bob is not, and is a member all the same.


def test_static_members_that_need_no_time_are_waited_for_all_the_same() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's")
    for instance in ("ann's", "bob's"):
        hosted.join(f"back-{instance}", instance=instance, rebalance_ms=0)
    assert hosted.leave(LeavingMember("", "ann's")) == [ErrorCode.NONE]
    hosted.advance(SESSION_MS - 1)
    assert hosted.heartbeat("back-bob's", 1, "bob's") is ErrorCode.REBALANCE_IN_PROGRESS
    hosted.join(member_id="back-bob's", instance="bob's")
    assert hosted.described().state == "CompletingRebalance"


def test_who_joins_and_does_not_sync_is_removed() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    hosted.sync("ann", 1, [("ann", b"a"), ("bob", b"b")])
    for _ in range(REBALANCE_MS // 5_000):
        hosted.heartbeat("ann", 1)
        hosted.heartbeat("bob", 1)
        hosted.advance(5_000)
    assert hosted.heartbeat("bob", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_has_not_synced_when_the_next_rebalance_begins_has_time_to_join() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    for _ in range(10):
        hosted.advance(5_000)
        hosted.heartbeat("ann", 1)
        hosted.heartbeat("bob", 1)
    bob = hosted.join(member_id="bob", protocols=protocols("range", "other"))
    hosted.advance(5_000)
    hosted.heartbeat("ann", 1)
    hosted.advance(REBALANCE_MS - 55_000)  # Both would have had to sync by now.
    assert hosted.waits(bob)
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_synced_completely_is_left_in_peace() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    for _ in range(2 * REBALANCE_MS // 5_000):
        hosted.advance(5_000)
        assert hosted.heartbeat("ann", 1) is ErrorCode.NONE
        assert hosted.heartbeat("bob", 1) is ErrorCode.NONE


# G6: sessions


def test_a_member_that_is_not_heard_of_is_removed() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    hosted.advance(SESSION_MS - 1)
    assert hosted.heartbeat("ann", 1) is ErrorCode.NONE
    hosted.advance(1)
    assert hosted.heartbeat("bob", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_when_the_last_one_is_gone_the_group_is_empty() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.advance(SESSION_MS)
    assert hosted.described().state == "Empty"
    assert hosted.listed()["group"].protocol_type == "consumer"


def test_waiting_for_others_is_a_sign_of_life() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    ann = hosted.join(member_id="ann")
    for _ in range(5):
        hosted.advance(SESSION_MS - 1)
        assert hosted.heartbeat("bob", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert hosted.waits(ann)
    bob = hosted.join(member_id="bob")
    assert len(hosted.joined(ann).members) == 2
    assert hosted.joined(bob).generation == 2


def test_a_newcomer_that_waits_for_very_long_is_asked_to_begin_again() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    bob = hosted.join("bob", rebalance_ms=600_000)
    hosted.join(member_id="ann", rebalance_ms=600_000)  # All have joined.
    cyd = hosted.join("cyd", rebalance_ms=600_000)
    for _ in range(300_000 // 5_000):
        assert hosted.waits(cyd)
        hosted.heartbeat("ann", 2)
        hosted.heartbeat("bob", 2)
        hosted.advance(5_000)
    assert hosted.joined(bob).error_code is ErrorCode.NONE
    assert hosted.joined(cyd).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_time_out_beyond_the_bounds_is_refused() -> None:
    hosted = with_config(group_min_session_timeout_ms=6_000)
    for session_ms in (5_999, 100_001):
        token = hosted.join("ann", session_ms=session_ms)
        assert hosted.answer(token) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert not hosted.listed()


# Ids that members have to come back with (KIP-394)


def test_nobody_is_a_member_before_it_comes_back_with_its_id() -> None:
    hosted = Hosted()
    first = hosted.joined(hosted.join("ann", requires_id=True))
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "ann")
    assert hosted.described().members == ()
    second = hosted.join(member_id="ann", requires_id=True)
    hosted.advance(0)
    assert hosted.joined(second).member_id == "ann"
    hosted.advance(SESSION_MS - 1)
    assert len(hosted.described().members) == 1


def test_an_id_that_nobody_comes_back_with_is_forgotten() -> None:
    hosted = Hosted()
    hosted.join("ann", requires_id=True)
    hosted.advance(SESSION_MS)
    token = hosted.join(member_id="ann", requires_id=True)
    assert hosted.answer(token) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_who_was_given_an_id() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.join("bob", requires_id=True)
    ann = hosted.join(member_id="ann")
    assert hosted.waits(ann)
    hosted.advance(SESSION_MS)
    assert hosted.joined(ann).generation == 2


def test_who_claims_an_id_that_nobody_gave_is_unknown() -> None:
    hosted = Hosted()
    assert hosted.answer(hosted.join(member_id="ann")) is ErrorCode.UNKNOWN_MEMBER_ID
    hosted.stable("bob")
    assert hosted.answer(hosted.join(member_id="ann")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert hosted.heartbeat("ann", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert hosted.answer(hosted.sync("ann", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


# Joining again


def test_who_lost_the_answer_is_told_again() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    again = hosted.joined(hosted.join(member_id="ann"))
    assert (again.generation, len(again.members)) == (1, 2)
    hosted.sync("ann", 1)
    hosted.sync("bob", 1)
    again = hosted.joined(hosted.join(member_id="bob"))
    assert (again.generation, again.members) == (1, ())


def test_whoever_asks_twice_is_answered_twice() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    first = hosted.join(member_id="ann")
    second = hosted.join(member_id="ann")
    assert hosted.joined(first).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    hosted.join(member_id="bob")
    assert hosted.joined(second).generation == 2


def test_other_metadata_is_a_reason_to_rebalance() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    changed = (JoinProtocol("range", subscription("invoices")),)
    bob = hosted.join(member_id="bob", protocols=changed)
    assert hosted.waits(bob)
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_other_metadata_while_others_sync_sends_those_back() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    bob = hosted.sync("bob", 1)
    ann = hosted.join(member_id="ann", protocols=protocols("range", "other"))
    assert hosted.synced(bob).error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert hosted.waits(ann)


# Syncing


def test_members_wait_for_the_leaders_assignment() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    bob = hosted.sync("bob", 1)
    assert hosted.waits(bob)
    assert hosted.heartbeat("bob", 1) is ErrorCode.NONE
    ann = hosted.sync("ann", 1, [("bob", b"b"), ("nobody", b"x")])
    assert hosted.synced(bob).assignment == b"b"
    assert hosted.synced(ann).assignment == b""  # Left out by the leader: nothing to read.


def test_who_syncs_late_gets_what_was_assigned() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    hosted.sync("ann", 1, [("bob", b"b")])
    assert hosted.synced(hosted.sync("bob", 1)).assignment == b"b"
    assert hosted.synced(hosted.sync("bob", 1)).assignment == b"b"


def test_who_syncs_while_others_join_has_to_join_too() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    hosted.join("cyd")
    assert hosted.answer(hosted.sync("bob", 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_no_record_has_room_for_is_refused() -> None:
    hosted = Hosted(record_max_bytes=5_000)
    joined_together(hosted, "ann")
    ann = hosted.sync("ann", 1, [("ann", bytes(5_000))])
    assert hosted.synced(ann).error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    hosted.restart()
    assert hosted.described().state == "Empty"


# G7: static members


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    hosted = Hosted()
    generation = hosted.stable(ann="ann's", bob="bob's")
    back = hosted.joined(hosted.join("bob-2", instance="bob's"))
    assert (back.error_code, back.generation, back.member_id) == (
        ErrorCode.NONE,
        generation,
        "bob-2",
    )
    assert (back.leader, back.members, back.skip_assignment) == ("ann", (), False)
    assert hosted.heartbeat("ann", generation, "ann's") is ErrorCode.NONE
    synced = hosted.synced(hosted.sync("bob-2", generation, instance="bob's"))
    assert synced.assignment == b"bob"


def test_a_static_member_that_comes_back_is_shown_where_it_is_now() -> None:
    """G7"""
    hosted = Hosted()
    hosted.stable(ann="i")
    hosted.join("again", instance="i", client_id="moved", client_host="/10.0.0.2")
    (member,) = hosted.described().members
    assert (member.client_id, member.client_host) == ("moved", "/10.0.0.2")


def test_the_old_process_of_a_static_member_is_fenced() -> None:
    hosted = Hosted()
    generation = hosted.stable(ann="ann's", bob="bob's")
    hosted.join("bob-2", instance="bob's")
    assert hosted.heartbeat("bob", generation, "bob's") is ErrorCode.FENCED_INSTANCE_ID
    for token in (
        hosted.join(member_id="bob", instance="bob's"),
        hosted.sync("bob", generation, instance="bob's"),
    ):
        assert hosted.answer(token) is ErrorCode.FENCED_INSTANCE_ID
    assert hosted.leave(LeavingMember("bob", "bob's")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_a_request_of_the_old_process_that_waits_is_fenced_too() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's")
    old = hosted.join(member_id="ann", instance="ann's")
    new = hosted.join("ann-2", instance="ann's")
    assert hosted.joined(old).error_code is ErrorCode.FENCED_INSTANCE_ID
    assert hosted.waits(new)


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's")
    back = hosted.joined(hosted.join("ann-2", instance="ann's"))
    assert (back.leader, back.skip_assignment, len(back.members)) == ("ann-2", True, 2)


def test_a_leader_that_cannot_skip_takes_itself_for_a_follower() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's")
    back = hosted.joined(hosted.join("ann-2", instance="ann's", skips=False))
    assert (back.leader, back.skip_assignment, back.members) == ("ann", False, ())


def test_a_static_member_that_would_change_the_protocol_begins_a_rebalance() -> None:
    hosted = Hosted()
    generation = hosted.stable(ann="ann's")
    both = protocols("other", "range")
    assert hosted.waits(hosted.join("ann-2", instance="ann's", protocols=both)) is False
    assert hosted.joined(Token(hosted.asked - 1)).generation > generation


def test_a_static_member_that_comes_back_while_the_leader_assigns_begins_a_rebalance() -> None:
    hosted = Hosted()
    ann, bob = hosted.join("ann"), hosted.join("bob", instance="bob's")
    hosted.advance(0)
    assert hosted.joined(ann).generation == hosted.joined(bob).generation == 1
    assert hosted.waits(hosted.join("bob-2", instance="bob's"))
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_what_a_static_member_was_replaced_by_is_known_after_a_restart() -> None:
    hosted = Hosted()
    generation = hosted.stable(ann="ann's", bob="bob's")
    hosted.join("ann-2", instance="ann's")
    hosted.restart()
    assert hosted.heartbeat("ann-2", generation, "ann's") is ErrorCode.NONE
    assert hosted.heartbeat("ann", generation, "ann's") is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_that_is_not_a_member_is_unknown() -> None:
    hosted = Hosted()
    generation = hosted.stable(ann="ann's")
    assert hosted.heartbeat("ann", generation, "bob's") is ErrorCode.UNKNOWN_MEMBER_ID


# G8: the size of a group


def test_a_full_group_takes_nobody() -> None:
    hosted = with_config(group_max_size=2)
    hosted.stable("ann", "bob")
    cyd = hosted.joined(hosted.join("cyd"))
    assert (cyd.error_code, cyd.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert hosted.described().state == "Stable"
    assert hosted.joined(hosted.join(member_id="bob")).error_code is ErrorCode.NONE


def test_ids_are_given_to_so_many_who_do_not_come_back() -> None:
    hosted = Hosted()
    for number in range(PENDING_MEMBERS_MAX):
        hosted.join(f"id-{number}", requires_id=True)
    refused = hosted.join("one more", requires_id=True)
    assert hosted.answer(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    hosted.join(member_id="id-0", requires_id=True)
    taken = hosted.joined(hosted.join("another", requires_id=True))
    assert taken.error_code is ErrorCode.MEMBER_ID_REQUIRED


def test_while_members_gather_the_first_ones_are_taken() -> None:
    hosted = with_config(group_max_size=2, group_initial_rebalance_delay_ms=1_000)
    ann, bob, cyd = hosted.join("ann"), hosted.join("bob"), hosted.join("cyd")
    assert hosted.joined(cyd).error_code is ErrorCode.GROUP_MAX_SIZE_REACHED
    hosted.advance(2_000)
    assert len(hosted.joined(ann).members) == 2
    assert hosted.joined(bob).error_code is ErrorCode.NONE


def test_a_group_that_is_too_large_after_a_restart_gathers_anew() -> None:
    hosted = Hosted()
    generation = hosted.stable("ann", "bob", "cyd")
    hosted.config = with_config(group_max_size=2).config
    hosted.restart()
    assert hosted.heartbeat("ann", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [hosted.join(member_id=member_id) for member_id in ("ann", "bob", "cyd")]
    codes = [hosted.joined(token).error_code for token in tokens if not hosted.waits(token)]
    assert ErrorCode.GROUP_MAX_SIZE_REACHED in codes
    hosted.advance(REBALANCE_MS)
    assert len(hosted.described().members) == 2


# G9: what another coordinator finds


def test_a_stable_group_goes_on_under_another_coordinator() -> None:
    hosted = Hosted()
    generation = hosted.stable("ann", "bob")
    before = hosted.described()
    hosted.restart()
    assert hosted.described() == before
    assert hosted.heartbeat("bob", generation) is ErrorCode.NONE
    assert hosted.synced(hosted.sync("bob", generation)).assignment == b"bob"


def test_the_leader_is_the_same_under_another_coordinator() -> None:
    """G2, G9: also if it is not the eldest."""
    hosted = Hosted()
    hosted.join("ann", instance="i", rebalance_ms=1_000)
    hosted.join("bob", instance="j", rebalance_ms=1_000)
    hosted.advance(0)
    hosted.sync("ann", 1)
    hosted.sync("bob", 1)
    changed = [JoinProtocol("range", b"changed")]
    rejoined = hosted.join(member_id="bob", instance="j", protocols=changed, rebalance_ms=1_000)
    hosted.advance(1_000)
    joined = hosted.joined(rejoined)
    assert joined.leader == "bob", "ann is away, and static"
    hosted.sync("bob", joined.generation, instance="j")
    assert [member.member_id for member in hosted.described().members] == ["ann", "bob"]
    hosted.restart()
    again = hosted.join(member_id="bob", instance="j", protocols=changed)
    assert hosted.waits(again), "a leader that joins wants to assign"


def test_sessions_begin_anew_under_another_coordinator() -> None:
    hosted = Hosted()
    generation = hosted.stable("ann")
    hosted.now_ms += 10 * SESSION_MS
    hosted.restart()
    hosted.advance(SESSION_MS - 1)
    assert hosted.heartbeat("ann", generation) is ErrorCode.NONE
    hosted.advance(SESSION_MS)
    assert hosted.described().state == "Empty"


def test_an_empty_group_is_empty_under_another_coordinator() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.leave(LeavingMember("ann", None))
    hosted.restart()
    described = hosted.described()
    assert (described.state, described.protocol_type) == ("Empty", "consumer")
    assert hosted.stable("bob") == 3


def test_a_new_group_is_written_before_it_has_members() -> None:
    hosted = Hosted()
    hosted.join("ann", requires_id=True)
    ((record, _),) = hosted.written
    assert isinstance(record, GroupMetadataRecord)
    assert record.value is not None
    assert (record.value.generation, record.value.members) == (0, ())


# Leaving


def test_who_leaves_is_gone_at_once() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    assert hosted.leave(LeavingMember("bob", None)) == [ErrorCode.NONE]
    assert hosted.heartbeat("bob", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert hosted.heartbeat("ann", 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_many_leave_in_one_request_each_with_an_answer() -> None:
    hosted = Hosted()
    hosted.stable(ann="ann's", bob="bob's", cyd="cyd's")
    codes = hosted.leave(
        LeavingMember("", "ann's"),
        LeavingMember("bob", None),
        LeavingMember("", "nobody's"),
        LeavingMember("nobody", None),
        LeavingMember("", None),
        LeavingMember("else", "cyd's"),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown, unknown, fenced]
    assert [member.member_id for member in hosted.described().members] == ["cyd"]


def test_leaving_an_unknown_group_is_said_to_be_that() -> None:
    assert Hosted().leave(LeavingMember("ann", None)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_was_only_given_an_id_may_leave() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.join("bob", requires_id=True)
    ann = hosted.join(member_id="ann")
    assert hosted.waits(ann)
    assert hosted.leave(LeavingMember("bob", None)) == [ErrorCode.NONE]
    assert hosted.joined(ann).generation == 2


def test_who_waits_and_is_removed_is_told() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    waiting = hosted.join(member_id="ann")
    hosted.leave(LeavingMember("ann", None))
    assert hosted.joined(waiting).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_its_assignment_and_is_removed_is_told() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann", "bob")
    waiting = hosted.sync("bob", 1)
    hosted.leave(LeavingMember("bob", None))
    assert hosted.synced(waiting).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_goes_may_be_the_one_the_others_wait_for() -> None:
    hosted = Hosted()
    hosted.stable("ann", "bob")
    ann = hosted.join(member_id="ann")
    assert hosted.waits(ann)
    hosted.leave(LeavingMember("bob", None))
    assert len(hosted.joined(ann).members) == 1


# What is shown


def test_protocols_are_shown_once_everybody_agrees() -> None:
    hosted = Hosted()
    joined_together(hosted, "ann")
    described = hosted.described()
    assert (described.state, described.protocol) == ("CompletingRebalance", "")
    assert (described.members[0].metadata, described.members[0].assignment) == (b"", b"")
    hosted.sync("ann", 1, [("ann", b"a")])
    described = hosted.described()
    assert (described.state, described.protocol) == ("Stable", "range")
    assert described.members[0] == ("ann", None, "client", "/127.0.0.1", METADATA, b"a")


def test_a_group_whose_members_gather_is_preparing() -> None:
    hosted = with_config(group_initial_rebalance_delay_ms=1_000)
    hosted.join("ann")
    assert hosted.described().state == "PreparingRebalance"
