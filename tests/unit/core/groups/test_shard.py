"""A shard and the offsets of its groups: S1 to S4 of `core/groups/shard.py` (P3)."""

from uuid import UUID

import pytest

from tests.unit.core.groups.hosted import (
    ANYBODY,
    CONFIG,
    GROUP,
    SESSION_MS,
    Hosted,
    subscription,
    with_config,
)
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_TIMESTAMP, TopicId, TopicPartition
from tidelog.core.groups.group import Committer, GroupType
from tidelog.core.groups.requests import JoinProtocol, LeavingMember
from tidelog.core.groups.shard import GROUPS_PER_CLEAN_UP, GROUPS_PER_TURN
from tidelog.core.groups.topics import TopicFacts, Topics
from tidelog.records.groups import GroupMetadata, GroupMetadataRecord

ORDERS = TopicPartition("orders", 0)
INVOICES = TopicPartition("invoices", 3)
PRODUCER = 7
CHECK_MS = CONFIG.offsets_retention_check_interval_ms
RETENTION_MS = CONFIG.offsets_retention_minutes * 60_000


# Committing


def test_who_claims_no_membership_commits_for_a_group_without_members() -> None:
    hosted = Hosted()
    assert hosted.commit(5, ORDERS) is ErrorCode.NONE
    assert hosted.offset(ORDERS) == 5
    listing = hosted.listed()[GROUP]
    assert (listing.state, listing.protocol_type) == ("Empty", "")
    assert listing.group_type is GroupType.CLASSIC


def test_a_commit_is_known_to_another_coordinator() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS, metadata="note")
    hosted.restart()
    (fetched,) = hosted.fetch(ORDERS)
    assert fetched.value is not None
    assert (fetched.value.offset, fetched.value.metadata) == (5, "note")
    assert GROUP in hosted.listed()


def test_a_member_of_a_group_that_is_not_here_cannot_commit() -> None:
    hosted = Hosted()
    member = Committer(1, "ann", None)
    assert hosted.commit(5, ORDERS, committer=member) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not hosted.listed()
    assert not hosted.written


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        (Committer(1, "ann", None), ErrorCode.NONE),
        (Committer(1, "ann", "ann's"), ErrorCode.NONE),
        (Committer(1, "old", "ann's"), ErrorCode.FENCED_INSTANCE_ID),
        (Committer(1, "bob", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(0, "ann", None), ErrorCode.ILLEGAL_GENERATION),
        (Committer(-1, "ann", None), ErrorCode.ILLEGAL_GENERATION),
        (ANYBODY, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_this_generation_commit(committer: Committer, code: ErrorCode) -> None:
    hosted = Hosted()
    assert hosted.stable(ann="ann's") == 1
    assert hosted.commit(5, ORDERS, committer=committer) is code
    assert hosted.offset(ORDERS) == (5 if code is ErrorCode.NONE else None)


def test_nobody_commits_between_joining_and_the_assignment() -> None:
    hosted = Hosted()
    hosted.join("ann")
    hosted.advance(0)
    member = Committer(1, "ann", None)
    assert hosted.commit(5, ORDERS, committer=member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_has_not_rejoined_yet_may_commit_what_it_has_read() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.join("bob")
    assert hosted.commit(5, ORDERS, committer=Committer(1, "ann", None)) is ErrorCode.NONE


def test_a_commit_is_a_sign_of_life() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    for offset in range(5):
        hosted.advance(SESSION_MS - 1)
        code = hosted.commit(offset, ORDERS, committer=Committer(1, "ann", None))
        assert code is ErrorCode.NONE


def test_a_note_that_is_too_long_is_refused() -> None:
    hosted = with_config(offset_metadata_max_bytes=4)
    assert hosted.commit(5, ORDERS, metadata="12345") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not hosted.listed()
    assert hosted.commit(5, ORDERS, metadata="1234") is ErrorCode.NONE
    face = "\N{GRINNING FACE}"  # Two characters to Java.
    assert hosted.commit(5, ORDERS, metadata=face * 3) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert hosted.commit(5, ORDERS, metadata=face * 2) is ErrorCode.NONE
    assert hosted.commit(5, ORDERS, metadata="üüüü") is ErrorCode.NONE


def test_a_commit_that_no_record_has_room_for_is_refused() -> None:
    hosted = Hosted(record_max_bytes=1_000)
    assert hosted.commit(5, ORDERS, metadata="x" * 300) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert hosted.commit(5, ORDERS, metadata="x" * 100) is ErrorCode.NONE
    assert len(hosted.written) == 1


# Fetching


def test_what_nobody_committed_is_not_there() -> None:
    hosted = Hosted()
    assert hosted.offset(ORDERS) is None
    assert hosted.fetch() == []
    assert not hosted.listed()  # Asking does not make a group.


def test_all_offsets_of_a_group_are_told() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS)
    hosted.commit(6, INVOICES)
    hosted.commit(7, ORDERS, group_id="another")
    assert {fetched.partition for fetched in hosted.fetch()} == {ORDERS, INVOICES}


def test_an_offset_in_a_transaction_is_pending() -> None:
    hosted = Hosted()
    hosted.commit(4, ORDERS)
    assert hosted.commit(5, ORDERS, producer_id=PRODUCER) is ErrorCode.NONE
    assert hosted.offset(ORDERS) == 4
    (fetched,) = hosted.fetch(ORDERS, requires_stable=True)
    assert (fetched.value, fetched.error_code) == (None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    hosted.mark(PRODUCER, is_commit=True)
    (fetched,) = hosted.fetch(ORDERS, requires_stable=True)
    assert fetched.value is not None
    assert fetched.value.offset == 5


def test_what_is_pending_is_known_to_another_coordinator() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS, producer_id=PRODUCER)
    hosted.restart()
    assert hosted.offset(ORDERS) is None
    hosted.mark(PRODUCER, is_commit=True)
    assert hosted.offset(ORDERS) == 5
    hosted.restart()
    assert hosted.offset(ORDERS) == 5


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        (ANYBODY, ErrorCode.NONE),
        (Committer(1, "ann", None), ErrorCode.NONE),
        (Committer(2, "ann", None), ErrorCode.ILLEGAL_GENERATION),
        (Committer(1, "bob", None), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_old_transactional_clients_do_not_say_who_they_are(
    committer: Committer, code: ErrorCode
) -> None:
    hosted = Hosted()
    hosted.stable("ann")
    assert hosted.commit(5, ORDERS, committer=committer, producer_id=PRODUCER) is code


def test_a_transaction_may_commit_while_members_rebalance() -> None:
    hosted = Hosted()
    hosted.join("ann")
    hosted.advance(0)
    member = Committer(1, "ann", None)
    assert hosted.commit(5, ORDERS, committer=member, producer_id=PRODUCER) is ErrorCode.NONE


# S2: expiry


def test_an_offset_of_nobody_expires_by_its_age() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS)
    hosted.advance(RETENTION_MS - CHECK_MS)
    assert hosted.offset(ORDERS) == 5
    hosted.advance(CHECK_MS)
    assert hosted.offset(ORDERS) is None
    assert hosted.tombstones() == [ORDERS, GROUP]
    assert not hosted.listed()


def test_an_offset_that_was_given_a_time_expires_then() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS, expire_ms=hosted.now_ms + 1)
    hosted.advance(CHECK_MS)
    assert hosted.offset(ORDERS) is None


def test_offsets_of_a_group_with_members_are_kept() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.commit(5, ORDERS, committer=Committer(1, "ann", None))
    for _ in range((RETENTION_MS + 2 * CHECK_MS) // (SESSION_MS - 1)):
        hosted.advance(SESSION_MS - 1)
        hosted.heartbeat("ann", 1)
    assert hosted.offset(ORDERS) == 5


def test_an_offset_of_a_topic_that_the_members_left_expires() -> None:
    hosted = with_config(offsets_retention_minutes=30, group_max_session_timeout_ms=10**9)
    member = Committer(1, "ann", None)
    hosted.join("ann", session_ms=10**8)
    hosted.advance(0)
    hosted.sync("ann", 1)
    hosted.commit(5, ORDERS, committer=member)
    hosted.commit(6, INVOICES, committer=member)
    hosted.advance(30 * 60_000 + CHECK_MS)
    assert hosted.offset(INVOICES) is None  # It subscribes to orders alone.
    assert hosted.offset(ORDERS) == 5
    assert hosted.described().state == "Stable"


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_members_whose_topics_are_unknown_keep_everything(protocol_type: str) -> None:
    hosted = with_config(offsets_retention_minutes=30, group_max_session_timeout_ms=10**9)
    hosted.join(
        "ann",
        session_ms=10**8,
        protocols=[JoinProtocol("range", b"?")],
        protocol_type=protocol_type,
    )
    hosted.advance(0)
    hosted.sync("ann", 1)
    hosted.commit(5, ORDERS, committer=Committer(1, "ann", None))
    hosted.advance(30 * 60_000 + CHECK_MS)
    assert hosted.offset(ORDERS) == 5


def test_offsets_expire_when_the_last_member_has_been_gone_for_long() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.commit(5, ORDERS, committer=Committer(1, "ann", None))
    for _ in range(RETENTION_MS // 2 // (SESSION_MS - 1)):
        hosted.advance(SESSION_MS - 1)
        hosted.heartbeat("ann", 1)
    hosted.leave(LeavingMember("ann", None))
    hosted.restart()
    hosted.advance(RETENTION_MS - CHECK_MS)
    assert hosted.offset(ORDERS) == 5
    hosted.advance(2 * CHECK_MS)
    assert hosted.offset(ORDERS) is None
    assert not hosted.listed()


def test_groups_of_old_brokers_do_not_say_since_when_they_are_empty() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS)
    empty = GroupMetadata("consumer", 3, None, None, NO_TIMESTAMP, ())
    hosted.written.append((GroupMetadataRecord(GROUP, empty), None))
    hosted.restart()
    hosted.advance(RETENTION_MS - CHECK_MS)
    assert hosted.offset(ORDERS) == 5
    hosted.advance(CHECK_MS)
    assert hosted.offset(ORDERS) is None


def test_a_pending_offset_keeps_its_group() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS, producer_id=PRODUCER)
    hosted.advance(RETENTION_MS + 2 * CHECK_MS)
    assert GROUP in hosted.listed()
    hosted.mark(PRODUCER, is_commit=False)
    hosted.advance(CHECK_MS)
    assert not hosted.listed()


def test_a_group_that_nobody_joined_after_all_is_forgotten() -> None:
    hosted = Hosted()
    hosted.join("ann", requires_id=True)
    hosted.advance(CHECK_MS)
    assert not hosted.listed()
    assert hosted.tombstones() == [GROUP]
    hosted.restart()
    assert not hosted.listed()


def test_many_groups_are_cleaned_up_in_several_turns() -> None:
    hosted = Hosted()
    count = GROUPS_PER_CLEAN_UP + 1
    for number in range(count):
        hosted.commit(1, ORDERS, expire_ms=hosted.now_ms, group_id=f"group-{number}")
    hosted.now_ms += CHECK_MS
    hosted.perform(hosted.shard.on_tick(hosted.now_ms))
    assert len(hosted.listed()) == 1
    assert hosted.shard.next_deadline_ms == hosted.now_ms
    hosted.advance(0)
    assert not hosted.listed()
    assert hosted.shard.next_deadline_ms == hosted.now_ms + CHECK_MS


# Loading


def _with_many_groups() -> tuple[Hosted, int]:
    """A coordinator that has just been loaded; the sessions of GROUP begin after all others."""
    hosted = Hosted()
    generation = hosted.stable("ann")
    record = hosted.written[-1][0]
    assert isinstance(record, GroupMetadataRecord)
    for number in range(GROUPS_PER_TURN):
        hosted.written.append((GroupMetadataRecord(f"group-{number}", record.value), None))
    hosted.restart()
    return hosted, generation


def test_sessions_of_many_groups_begin_in_several_turns() -> None:
    hosted, _ = _with_many_groups()
    assert len(hosted.shard._context.timers) == GROUPS_PER_TURN
    assert hosted.shard.next_deadline_ms == hosted.now_ms
    hosted.advance(0)
    assert len(hosted.shard._context.timers) == GROUPS_PER_TURN + 1
    assert hosted.shard.next_deadline_ms == hosted.now_ms + SESSION_MS
    hosted.advance(SESSION_MS)
    assert {listing.state for listing in hosted.listed().values()} == {"Empty"}


def test_a_group_may_begin_a_rebalance_before_its_sessions_begin() -> None:
    """A newcomer has longer than a session to wait, and keeps it."""
    hosted, generation = _with_many_groups()
    newcomer = hosted.join("bob")
    hosted.advance(0)
    for _ in range(3):
        hosted.advance(SESSION_MS - 1)
        assert hosted.heartbeat("ann", generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert newcomer not in hosted.answers
    hosted.join(member_id="ann")
    assert hosted.joined(newcomer).error_code is ErrorCode.NONE


# S3, S4: deleting


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS)
    hosted.commit(6, INVOICES)
    hosted.commit(7, ORDERS, group_id="another")
    hosted.commit(8, ORDERS, producer_id=PRODUCER, group_id="third")
    hosted.perform(hosted.shard.on_topics_deleted({"orders"}, hosted.now_ms))
    hosted.mark(PRODUCER, is_commit=True)
    assert [hosted.offset(ORDERS, group_id=name) for name in (GROUP, "another", "third")] == [
        None,
        None,
        None,
    ]
    hosted.restart()
    assert hosted.offset(INVOICES) == 6
    assert hosted.offset(ORDERS) is None


def test_a_topic_that_was_made_anew_begins_without_offsets() -> None:
    """Its deletion was missed: another broker led the shard, or nobody did."""
    first, second = TopicId(UUID(int=1)), TopicId(UUID(int=2))
    hosted = Hosted()
    hosted.commit(5, ORDERS, topic_id=first)
    hosted.commit(6, INVOICES)  # By a broker that wrote no ids.
    names = {"orders": TopicFacts(first, 1), "invoices": TopicFacts(second, 4)}
    hosted.shard.know_topics(Topics.of(names))
    assert (hosted.offset(ORDERS), hosted.offset(INVOICES)) == (5, 6)
    hosted.shard.know_topics(Topics.of({**names, "orders": TopicFacts(second, 1)}))
    assert (hosted.offset(ORDERS), hosted.offset(INVOICES)) == (None, 6)
    assert [fetched.partition for fetched in hosted.fetch()] == [INVOICES]
    hosted.commit(1, ORDERS, topic_id=second)
    assert hosted.offset(ORDERS) == 1


def test_a_group_is_deleted_with_its_offsets() -> None:
    hosted = Hosted()
    hosted.commit(5, ORDERS)
    hosted.commit(6, INVOICES, producer_id=PRODUCER)
    assert hosted.delete() is ErrorCode.NONE
    assert hosted.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    hosted.restart()
    assert not hosted.listed()
    assert hosted.offset(ORDERS) is None


def test_a_group_with_members_is_not_deleted() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    assert hosted.delete() is ErrorCode.NON_EMPTY_GROUP
    hosted.leave(LeavingMember("ann", None))
    assert hosted.delete() is ErrorCode.NONE


def test_a_deleted_group_leaves_no_timer_behind() -> None:
    hosted = Hosted()
    hosted.join("ann", requires_id=True)
    assert hosted.delete() is ErrorCode.NONE
    hosted.advance(SESSION_MS)
    assert hosted.answer(hosted.join(member_id="ann")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_nobody_reads_are_deleted() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    member = Committer(1, "ann", None)
    hosted.commit(5, ORDERS, committer=member)
    hosted.commit(6, INVOICES, committer=member)
    codes = hosted.delete_offsets(ORDERS, INVOICES, INVOICES._replace(partition=9))
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
    assert (hosted.offset(ORDERS), hosted.offset(INVOICES)) == (5, None)
    assert hosted.tombstones() == [INVOICES]


def test_offsets_of_a_group_that_is_not_of_consumers_are_deleted_when_it_is_empty() -> None:
    hosted = Hosted()
    assert hosted.delete_offsets(ORDERS) is ErrorCode.GROUP_ID_NOT_FOUND
    hosted.join("ann", protocol_type="connect")
    hosted.advance(0)
    hosted.sync("ann", 1)
    hosted.commit(5, ORDERS, committer=Committer(1, "ann", None))
    assert hosted.delete_offsets(ORDERS) is ErrorCode.NON_EMPTY_GROUP
    hosted.leave(LeavingMember("ann", None))
    assert hosted.delete_offsets(ORDERS) == [ErrorCode.NONE]
    assert hosted.offset(ORDERS) is None


# Listing


def test_groups_are_listed_by_state_and_type() -> None:
    hosted = Hosted()
    hosted.stable("ann")
    hosted.commit(5, ORDERS, group_id="simple")
    assert set(hosted.listed()) == {GROUP, "simple"}
    assert set(hosted.listed(states=["stable"])) == {GROUP}
    assert set(hosted.listed(states=["Empty", "Dead"])) == {"simple"}
    assert set(hosted.listed(types=["Classic"])) == {GROUP, "simple"}
    assert not hosted.listed(types=["consumer"])
    assert not hosted.listed(states=["no such state"])


def test_subscriptions_of_a_stable_group_are_known_after_a_restart() -> None:
    hosted = Hosted()
    token = hosted.join("ann", protocols=[JoinProtocol("range", subscription("invoices"))])
    hosted.advance(0)
    assert hosted.joined(token).generation == 1
    hosted.sync("ann", 1)
    hosted.restart()
    assert hosted.delete_offsets(INVOICES, ORDERS) == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NONE,
    ]


def test_nobody_subscribes_to_anything_once_the_last_member_has_left() -> None:
    """Else its offsets would neither expire nor be deleted, for ever."""
    hosted = Hosted()
    hosted.stable("ann")
    hosted.commit(5, ORDERS, committer=Committer(1, "ann", None))
    hosted.leave(LeavingMember("ann", None))
    assert hosted.delete_offsets(ORDERS) == [ErrorCode.NONE]
    assert hosted.offset(ORDERS) is None
