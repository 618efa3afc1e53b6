"""Stories of groups of the consumer protocol (P3)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.groups.consumer.consumers import (
    AT_ONCE,
    REVOCATION_MS,
    SESSION_MS,
    Consumer,
    ConsumerHosted,
    beat_until_quiet,
    topic_id,
)
from tests.unit.core.groups.hosted import GROUP, RANGE
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicIdPartition, TopicPartition
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.coordinators import Token
from tidelog.core.groups.consumer import patterns
from tidelog.core.groups.consumer.group import assignment_bytes
from tidelog.core.groups.consumer.requests import (
    AssignmentTooLarge,
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from tidelog.core.groups.group import Committer
from tidelog.core.groups.requests import FetchRequest
from tidelog.records.consumer_groups import (
    NO_PARTITIONS,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    MemberState,
    PartitionMetadataRecord,
    TargetRecord,
)
from tidelog.wire.group_records import decode_group_record, encode_group_record


def _world(config: ConsumerGroupsConfig = AT_ONCE, **counts: int) -> ConsumerHosted:
    world = ConsumerHosted(consumer_config=config)
    world.set_topics(counts or {"orders": 4})
    return world


def _consumers(world: ConsumerHosted, *names: str, topic: str = "orders") -> Sequence[Consumer]:
    return [Consumer(world, name, topics=frozenset((topic,))) for name in names]


def _answered(answer: HeartbeatAnswer | ErrorCode) -> HeartbeatAnswer:
    assert isinstance(answer, HeartbeatAnswer)
    return answer


def _numbers(consumer: Consumer) -> set[int]:
    return {number for _, number in consumer.owned}


def test_the_first_member_has_everything_at_once() -> None:
    world = _world()
    (anna,) = _consumers(world, "anna")
    answer = _answered(anna.beat())
    assert answer == HeartbeatAnswer("anna", 2, 5_000, world.partitions("orders"))
    assert world.describe_consumers().state == "Stable"


def test_who_has_missed_nothing_is_told_nothing() -> None:
    """H5"""
    world = _world()
    (anna,) = _consumers(world, "anna")
    anna.beat()
    assert _answered(anna.beat()).assigned is None
    anna.says_all = True
    assert _answered(anna.beat()).assigned == world.partitions("orders")


def test_a_second_member_gets_a_partition_only_once_the_first_has_given_it_back() -> None:
    """C1, C2"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.is_slow = True
    anna.beat()
    anna.obey()
    first = _answered(bert.beat())
    assert first.assigned == NO_PARTITIONS
    assert first.member_epoch == 3

    asked = _answered(anna.beat())
    assert asked.member_epoch == 2, "whoever gives back stays in its epoch"
    assert asked.assigned is not None
    assert len(asked.assigned) == 2
    assert _answered(bert.beat()).assigned is None
    anna.beat()
    assert anna.epoch == 2, "it has not given anything back yet"

    anna.obey()
    assert _answered(anna.beat()).member_epoch == 3
    given = _answered(bert.beat()).assigned
    assert given == world.partitions("orders") - anna.owned
    assert world.describe_consumers().state == "Stable"


def test_what_is_not_said_is_not_given_back() -> None:
    """C3"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    anna.beat()
    silent = replace(anna.request(), owned=None)
    assert _answered(world.send(silent)).member_epoch == 2
    assert _answered(world.send(replace(silent, owned=anna.owned))).member_epoch == 3


def test_when_a_member_leaves_the_others_have_its_partitions() -> None:
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    beat_until_quiet(anna, bert)
    assert _answered(bert.leave()).member_epoch == -1
    anna.beat()
    assert anna.owned == world.partitions("orders")
    assert anna.epoch == world.describe_consumers().epoch


def test_a_member_that_is_silent_for_its_session_is_removed() -> None:
    """H3"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    beat_until_quiet(anna, bert)
    world.advance(SESSION_MS - 20_001)
    anna.beat()
    world.advance(1)
    anna.beat()
    assert anna.owned == world.partitions("orders")
    assert bert.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_settings_of_the_group_count_from_the_next_heartbeat_on() -> None:
    """H3; also for a coordinator that knows of them when it loads."""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    beat_until_quiet(anna, bert)
    config = ConsumerGroupsConfig(
        group_consumer_min_session_timeout_ms=1, group_consumer_session_timeout_ms=9_000
    )
    world.shard.know_configs(AT_ONCE, {"another": config})
    assert _answered(anna.beat()).heartbeat_interval_ms == 5_000
    own = replace(config, group_consumer_heartbeat_interval_ms=6_000)
    world.shard.know_configs(AT_ONCE, {GROUP: own})
    assert _answered(anna.beat()).heartbeat_interval_ms == 6_000
    world.advance(8_999)
    bert.beat()
    world.advance(1)
    assert anna.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert isinstance(bert.beat(), HeartbeatAnswer)


def test_a_member_that_does_not_give_back_in_time_is_removed() -> None:
    """H3"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    anna.is_slow = True
    bert.beat()
    for _ in range(6):
        anna.beat()
        bert.beat()
        world.advance(REVOCATION_MS // 6)
    bert.beat()
    assert bert.owned == world.partitions("orders")
    assert anna.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_answer_was_lost_goes_on() -> None:
    """H1: it is one epoch behind and has nothing that it should not have."""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat(is_answer_lost=True)
    bert.epoch = 0
    anna.beat()
    anna.beat()
    assert _answered(bert.beat()).assigned == world.partitions("orders") - anna.owned
    third = Consumer(world, "carl", topics=frozenset(("orders",)))
    third.beat()
    anna.beat(is_answer_lost=True)
    assert isinstance(anna.beat(), HeartbeatAnswer)


@pytest.mark.parametrize("epoch", [1, 99])
def test_a_member_of_another_epoch_is_fenced(epoch: int) -> None:
    """H1"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    beat_until_quiet(anna, bert)
    bert.leave()
    anna.beat()
    anna.epoch = epoch
    assert anna.beat() is ErrorCode.FENCED_MEMBER_EPOCH
    assert isinstance(anna.beat(), HeartbeatAnswer), "it may join again"


def test_who_is_one_epoch_behind_but_has_too_much_is_fenced() -> None:
    """H1"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    had = anna.owned
    bert.beat()
    anna.beat()
    anna.beat()
    behind = replace(anna.request(), member_epoch=2, owned=had)
    assert world.send(behind) is ErrorCode.FENCED_MEMBER_EPOCH
    assert isinstance(world.send(replace(behind, owned=anna.owned)), HeartbeatAnswer)


def test_strangers_and_unknown_groups_are_told_so() -> None:
    world = _world()
    (anna,) = _consumers(world, "anna")
    anna.epoch = 3
    assert anna.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    anna.epoch = 0
    anna.beat()
    stranger = Consumer(world, "stranger", topics=frozenset(("orders",)), epoch=1)
    assert stranger.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_has_room_for_so_many() -> None:
    world = _world(replace(AT_ONCE, group_consumer_max_size=1))
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    assert bert.beat() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(anna.beat(), HeartbeatAnswer)


def test_a_static_member_is_back_before_anybody_noticed() -> None:
    """H2"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.instance_id = "a"
    beat_until_quiet(anna, bert)
    had, epoch = anna.owned, world.describe_consumers().epoch
    early = Consumer(world, "anna-2", topics=anna.topics, instance_id="a")
    assert early.beat() is ErrorCode.UNRELEASED_INSTANCE_ID

    assert _answered(anna.leave(-2)).member_epoch == -2
    bert.beat()
    back = Consumer(world, "anna-2", topics=anna.topics, instance_id="a")
    assert _answered(back.beat()).assigned == had
    assert world.describe_consumers().epoch == epoch, "nobody else has to move"
    assert world.describe_consumers().state == "Stable"
    anna.epoch = epoch
    assert anna.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_what_a_static_member_had_to_give_back_is_free_once_it_goes() -> None:
    """H2: its place is kept, but not what it should not have had any more."""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.instance_id = "a"
    anna.beat()
    bert.beat()
    anna.is_slow = True
    anna.beat()
    anna.leave(-2)
    bert.beat()
    assert len(bert.owned) == 2


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    """H3"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.instance_id = "a"
    beat_until_quiet(anna, bert)
    anna.leave(-2)
    world.advance(20_000)
    bert.beat()
    assert len(bert.owned) == 2
    world.advance(SESSION_MS - 20_000)
    bert.beat()
    assert bert.owned == world.partitions("orders")


def test_a_static_member_may_leave_for_good() -> None:
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.instance_id = "a"
    beat_until_quiet(anna, bert)
    assert _answered(anna.leave()).member_epoch == -1
    bert.beat()
    assert bert.owned == world.partitions("orders")
    anna.epoch = 1
    assert anna.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_partitions_and_topics_are_assigned() -> None:
    """H4"""
    world = _world(orders=1)
    anna = Consumer(world, "anna", topics=frozenset(("orders", "returns")))
    anna.beat()
    world.set_topics({"orders": 3, "returns": 2, "other": 1})
    anna.beat()
    assert anna.owned == world.partitions("orders") | world.partitions("returns")
    epoch = anna.epoch
    world.set_topics({"orders": 3, "returns": 2, "other": 2})
    anna.beat()
    assert anna.epoch == epoch, "what nobody subscribes to changes nothing"


def test_a_deleted_topic_is_given_back() -> None:
    """H4"""
    world = _world(orders=1, returns=1)
    anna = Consumer(world, "anna", topics=frozenset(("orders", "returns")))
    anna.beat()
    world.set_topics({"orders": 1})
    anna.beat()
    anna.beat()
    assert anna.owned == world.partitions("orders")
    world.set_topics({"orders": 1, "returns": 1})
    anna.beat()
    assert anna.owned == world.partitions("orders") | world.partitions("returns")


def test_who_subscribes_to_something_else_gives_up_what_it_had() -> None:
    """C4, H4"""
    world = _world(orders=2, returns=2)
    (anna,) = _consumers(world, "anna")
    anna.beat()
    anna.subscribe("returns")
    asked = _answered(anna.beat())
    assert asked.assigned == NO_PARTITIONS
    assert _answered(anna.beat()).assigned == world.partitions("returns")


def test_nobody_gets_back_what_it_no_longer_subscribes_to() -> None:
    """C4: not even while the target is older than the subscription."""
    world = _world(replace(AT_ONCE, group_consumer_assignment_interval_ms=1_000), a=2, b=2)
    anna = Consumer(world, "anna", topics=frozenset(("a",)))
    anna.beat()
    anna.subscribe("b")
    for _ in range(3):
        anna.beat()
        assert not anna.owned
    world.advance(1_000)
    anna.beat()
    assert anna.owned == world.partitions("b")


def test_assignments_are_made_no_more_often_than_the_interval() -> None:
    """Those who join in the meantime are assigned together."""
    world = _world(replace(AT_ONCE, group_consumer_assignment_interval_ms=1_000))
    anna, bert, carl = _consumers(world, "anna", "bert", "carl")
    anna.beat()
    bert.beat()
    carl.beat()
    described = world.describe_consumers()
    assert (described.epoch, described.assignment_epoch) == (4, 2)
    assert described.state == "Assigning"
    assert bert.epoch == 2
    world.advance(999)
    bert.beat()
    assert world.describe_consumers().assignment_epoch == 2
    world.advance(1)
    assert world.describe_consumers().assignment_epoch == 4
    beat_until_quiet(anna, bert, carl)
    assert sorted(len(one.owned) for one in (anna, bert, carl)) == [1, 1, 2]


@pytest.mark.parametrize("is_succeeded", [False, True])
def test_what_had_to_wait_is_assigned_when_it_may_be_though_nobody_is_heard(
    is_succeeded: bool,
) -> None:
    """H8, also by a coordinator that has found it so."""
    world = _world(replace(AT_ONCE, group_consumer_assignment_interval_ms=1_000))
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    world.advance(1_000)
    bert.beat()
    anna.beat()
    bert.leave()
    assert world.describe_consumers().state == "Assigning"
    if is_succeeded:
        world.restart()
    world.advance(999)
    assert world.describe_consumers().assignment_epoch == 3
    world.advance(1)
    assert world.describe_consumers().assignment_epoch == 4
    anna.beat()
    assert anna.owned == world.partitions("orders")


def test_nothing_is_assigned_to_a_group_that_everybody_has_left() -> None:
    world = _world(replace(AT_ONCE, group_consumer_assignment_interval_ms=1_000))
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    bert.leave()
    anna.leave()
    world.advance(2_000)
    described = world.describe_consumers()
    assert (described.state, described.assignment_epoch) == ("Empty", 2)
    world.shard.on_delete(GROUP, Token(1), world.now_ms)
    world.advance(2_000)


def test_an_interval_that_grows_counts_for_what_waits() -> None:
    world = _world(replace(AT_ONCE, group_consumer_assignment_interval_ms=1_000))
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    world.shard.know_configs(replace(AT_ONCE, group_consumer_assignment_interval_ms=3_000), {})
    world.advance(2_999)
    assert world.describe_consumers().assignment_epoch == 2
    world.advance(1)
    assert world.describe_consumers().assignment_epoch == 3


def test_an_interval_that_changes_counts_from_the_next_heartbeat_on() -> None:
    world = _world(replace(AT_ONCE, group_consumer_assignment_interval_ms=15_000))
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    assert world.describe_consumers().assignment_epoch == 2
    world.shard.know_configs(AT_ONCE, {})
    bert.beat()
    assert world.describe_consumers().assignment_epoch == 3


def test_most_members_choose_the_assignor() -> None:
    world = _world(orders=2, returns=2)
    members = [
        Consumer(world, name, topics=frozenset(("orders", "returns")), assignor=assignor)
        for name, assignor in (("anna", "range"), ("bert", None))
    ]
    beat_until_quiet(*members)
    assert world.describe_consumers().assignor == "range"
    assert [_numbers(member) for member in members] in ([{0}, {1}], [{1}, {0}])


def test_an_expression_stands_for_topics_as_they_come() -> None:
    """X1, X2"""
    world = _world(orders_eu=1, returns=1)
    anna = Consumer(world, "anna", expression="orders_.*")
    anna.beat()
    assert anna.owned == world.partitions("orders_eu")
    world.set_topics({"orders_eu": 1, "orders_us": 1, "returns": 1})
    anna.beat()
    assert anna.owned == world.partitions("orders_eu"), "not again so soon"
    world.advance(10_001)
    anna.beat()
    assert anna.owned == world.partitions("orders_eu") | world.partitions("orders_us")


def test_an_expression_that_nobody_has_any_more_is_forgotten() -> None:
    world = _world(orders=1, returns=1)
    anna = Consumer(world, "anna", expression="orders")
    bert = Consumer(world, "bert", expression="re.*", topics=frozenset(("orders",)))
    beat_until_quiet(anna, bert)
    assert set(world.group().members.expressions) == {"orders", "re.*"}
    anna.expression = ""
    anna.subscribe("returns")
    anna.beat()
    assert set(world.group().members.expressions) == {"re.*"}
    bert.leave()
    assert not world.group().members.expressions
    beat_until_quiet(anna)
    assert anna.owned == world.partitions("returns")


def test_an_expression_for_more_topics_than_a_record_holds_stays_as_it_was() -> None:
    """X4"""
    world = ConsumerHosted(record_max_bytes=2_000)
    world.set_topics({"a-1": 1})
    anna = Consumer(world, "anna", expression="a.*")
    anna.beat()
    world.set_topics({f"a-{number}": 1 for number in range(1, 400)})
    world.advance(10_001)
    anna.beat()
    assert anna.owned == world.partitions("a-1")
    bert = Consumer(world, "bert", expression="a-.*")
    bert.beat()
    assert bert.owned == NO_PARTITIONS


def test_an_expression_that_takes_too_long_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """X4"""
    world = _world(orders=1)
    anna = Consumer(world, "anna", expression="ord.*")
    anna.beat()
    monkeypatch.setattr(patterns, "VISITS_MAX", 3)
    world.set_topics({"orders": 1, "ordnance": 1})
    world.advance(10_001)
    anna.beat()
    assert anna.owned == world.partitions("orders")
    bert = Consumer(world, "bert", expression="or.*")
    assert bert.beat() is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_many_expressions_are_looked_up_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """X5: each heartbeat goes on where the one before stopped, until all are up to date."""
    world = _world(orders=1)
    members = [Consumer(world, f"m{number}", expression=f"orde{number}|o.*") for number in range(9)]
    beat_until_quiet(*members)
    world.set_topics({"orders": 1, "others": 1})
    one = patterns.Pattern("orde0|o.*")
    one.matching(world.topics.by_name)
    monkeypatch.setattr(patterns, "VISITS_MAX", one.visits * 2)
    world.advance(10_001)

    def resolved_count() -> int:
        resolved = world.group().members.expressions.values()
        return sum(found.topics == {"orders", "others"} for found in resolved)

    counts = []
    for _ in range(5):
        members[0].beat()
        counts.append(resolved_count())
    assert counts == [2, 4, 6, 8, 9]


def test_an_expression_of_a_clock_that_was_ahead_is_looked_up_again() -> None:
    """X2"""
    world = _world(orders=1)
    anna = Consumer(world, "anna", expression="o.*")
    anna.beat()
    world.now_ms -= 3_600_000
    world.set_topics({"orders": 1, "others": 1})
    beat_until_quiet(anna)
    assert anna.owned == world.all_partitions()


def test_a_member_that_releases_its_place_has_nothing_to_give_back() -> None:
    """H2, H3: its place is kept until its session ends, not its time to give back."""
    world = _world(orders=2)
    anna = Consumer(world, "anna", topics=frozenset(("orders",)), instance_id="a")
    anna.beat()
    anna.is_slow = True
    bert = Consumer(world, "bert", topics=frozenset(("orders",)))
    bert.beat()
    anna.beat()
    for _ in range(2):
        world.advance(REVOCATION_MS // 2 - 1_000)
        bert.beat()
        anna.beat()
    anna.leave(-2)
    world.advance(3_000)
    assert "anna" in world.group().members.by_id


@pytest.mark.parametrize(
    ("member_id", "is_ahead", "code"),
    [
        ("anna", False, ErrorCode.NONE),
        ("anna", True, ErrorCode.STALE_MEMBER_EPOCH),
        ("nobody", False, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_asks_for_offsets_as_a_member_has_to_be_one(
    member_id: str, is_ahead: bool, code: ErrorCode
) -> None:
    world = _world(orders=1)
    anna = Consumer(world, "anna", topics=frozenset(("orders",)))
    anna.beat()
    committer = Committer(anna.epoch + is_ahead, member_id, None)
    request = FetchRequest(GROUP, committer, None, requires_stable=False)
    answer = world.answer(
        world.ask(lambda token: world.shard.on_fetch(request, token, world.now_ms))
    )
    assert answer == ([] if code is ErrorCode.NONE else code)


@pytest.mark.parametrize(
    ("committer", "code"),
    [
        (None, ErrorCode.NONE),
        (Committer(-1, "", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer(-1, "anna", None), ErrorCode.STALE_MEMBER_EPOCH),
        (Committer(1, "", None), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_who_gives_no_member_id_at_all_may_ask_for_offsets_as_nobody(
    committer: Committer | None, code: ErrorCode
) -> None:
    """P3: an empty id is one that nobody has, as in Kafka."""
    world = _world(orders=1)
    anna = Consumer(world, "anna", topics=frozenset(("orders",)))
    anna.beat()
    request = FetchRequest(GROUP, committer, None, requires_stable=False)
    answer = world.answer(
        world.ask(lambda token: world.shard.on_fetch(request, token, world.now_ms))
    )
    assert answer == ([] if code is ErrorCode.NONE else code)


def test_what_is_no_expression_is_refused_and_changes_nothing() -> None:
    world = _world()
    bad = Consumer(world, "anna", expression="(")
    assert bad.beat() is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not world.written
    assert GROUP not in world.listed()


def test_a_subscription_that_no_record_can_hold_is_refused() -> None:
    """W3"""
    world = _world()
    many = Consumer(world, "anna", topics=frozenset(f"{n:0200}" for n in range(5_000)))
    assert many.beat() is ErrorCode.INVALID_REQUEST
    assert not world.written


def test_an_assignment_that_no_record_can_hold_is_not_made() -> None:
    """W3, H7: everybody is told, an administrator is told once, and who comes may help."""
    world = ConsumerHosted(record_max_bytes=2_000)
    world.set_topics({"orders": 1_000})
    (anna,) = _consumers(world, "anna")
    assert [anna.beat(), anna.beat()] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert world.describe_consumers().state == "Assigning"
    assert anna.owned == NO_PARTITIONS
    (told,) = world.deeds
    assert isinstance(told, AssignmentTooLarge)
    assert (told.group_id, told.member_id, told.partition_count) == (GROUP, "anna", 1_000)
    assert "max.message.bytes" in (told.refusal().message or "")
    others = _consumers(world, *(f"member-{number}" for number in range(20)))
    beat_until_quiet(anna, *others)
    assert world.describe_consumers().state == "Stable"
    assert anna.last_error is ErrorCode.NONE


def test_a_guest_for_whom_there_is_no_room_in_a_record_is_told_as_well() -> None:
    """H7"""
    world = ConsumerHosted(record_max_bytes=2_000)
    world.set_topics({"orders": 1_000})
    (anna,) = _consumers(world, "anna")
    anna.beat()
    bert = world.join("bert", protocols=RANGE)
    assert world.joined(bert).error_code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("topic_count", [1, 7, 3_600])
def test_a_member_may_have_as_many_partitions_as_a_record_holds(topic_count: int) -> None:
    """H7"""
    partition_count = 36_000 // topic_count
    world = ConsumerHosted(record_max_bytes=1_048_576)
    world.set_topics({f"topic-{number}": partition_count for number in range(topic_count)})
    anna = Consumer(world, "anna", expression="topic-.*", is_slow=True)
    anna.beat()
    world.advance(1)
    anna.beat()
    assert len(anna.assigned) == partition_count * topic_count
    for record, _ in world.written:
        key, value = encode_group_record(record)
        assert len(key) + len(value or b"") <= world.record_max_bytes
        assert decode_group_record(key, value) == record


@given(
    kept=st.dictionaries(st.integers(1, 9), st.integers(0, 300)),
    revoked=st.dictionaries(st.integers(1, 9), st.integers(0, 300)),
)
def test_no_record_about_an_assignment_is_larger_than_foreseen(
    kept: dict[int, int], revoked: dict[int, int]
) -> None:
    """H7"""
    assigned = {
        TopicIdPartition(topic_id(topic), number): 1 << 30
        for topic, count in kept.items()
        for number in range(count)
    }
    revoking = {
        TopicIdPartition(topic_id(topic), 1_000 + number): 1 << 30
        for topic, count in revoked.items()
        for number in range(count)
    }
    both = frozenset((*assigned, *revoking))
    current = CurrentAssignment(epoch=1 << 30, assigned=assigned, revoking=revoking)
    for record in (CurrentAssignmentRecord("g", "m", current), TargetRecord("g", "m", both)):
        key, value = encode_group_record(record)
        assert len(key) + len(value or b"") <= assignment_bytes(both) + len("gm")


def test_a_new_coordinator_knows_the_group_and_gives_everybody_a_new_session() -> None:
    """W1"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    beat_until_quiet(anna, bert)
    world.advance(24_999)
    world.restart()
    world.advance(SESSION_MS - 1)
    assert _answered(anna.beat()).assigned is None
    world.advance(1)
    assert bert.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_coordinator_still_waits_for_what_is_to_be_given_back() -> None:
    """H3, W1"""
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    anna.is_slow = True
    anna.beat()
    world.restart()
    for _ in range(4):
        world.advance(REVOCATION_MS // 4)
        bert.beat()
        anna.beat()
    assert bert.owned == world.partitions("orders")


def test_what_kafka_4_0_wrote_is_taken_back() -> None:
    world = _world()
    (anna,) = _consumers(world, "anna")
    anna.beat()
    world.shard.replay(PartitionMetadataRecord(GROUP, is_there=True))
    world.set_topics({"orders": 5})
    anna.beat()
    assert (PartitionMetadataRecord(GROUP), None) in world.written


# Offsets


def _committer(consumer: Consumer, epoch: int | None = None) -> Committer:
    return Committer(consumer.epoch if epoch is None else epoch, consumer.member_id, None)


def test_members_commit_in_their_epoch_and_others_do_not() -> None:
    world = _world()
    (anna,) = _consumers(world, "anna")
    anna.beat()
    partition = TopicPartition("orders", 0)
    assert world.commit(7, partition, committer=_committer(anna)) is ErrorCode.NONE
    assert world.commit(8, partition, committer=_committer(anna, 3)) is ErrorCode.STALE_MEMBER_EPOCH
    stranger = Committer(1, "stranger", None)
    assert world.commit(8, partition, committer=stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(8, partition) is ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    old = replace(_committer(anna), knows_epochs=False)
    assert world.commit(8, partition, committer=old) is ErrorCode.UNSUPPORTED_VERSION
    assert world.offset(partition) == 7
    anna.leave()
    assert world.commit(9, partition) is ErrorCode.NONE, "an administrator, once it is empty"


def test_a_commit_of_an_older_epoch_holds_for_what_the_member_had_then() -> None:
    """KIP-1251"""
    world = _world(orders=2, returns=1, other=1)
    anna = Consumer(world, "anna", topics=frozenset(("orders",)))
    anna.beat()
    bert = Consumer(world, "bert", topics=frozenset(("returns",)))
    bert.beat()
    anna.subscribe("orders", "returns")
    bert.leave()
    anna.beat()
    assert anna.epoch > 2
    old = _committer(anna, 2)

    def commit(topic: str) -> object:
        topic_id = world.topics.by_name[topic].topic_id
        return world.commit(1, TopicPartition(topic, 0), committer=old, topic_id=topic_id)

    assert commit("orders") is ErrorCode.NONE
    assert commit("returns") is ErrorCode.STALE_MEMBER_EPOCH
    assert commit("other") is ErrorCode.STALE_MEMBER_EPOCH


def test_a_transaction_that_does_not_say_who_commits_is_let_through() -> None:
    world = _world()
    (anna,) = _consumers(world, "anna")
    anna.beat()
    assert world.commit(1, TopicPartition("orders", 0), producer_id=1) is ErrorCode.NONE


def test_offsets_of_subscribed_topics_stay() -> None:
    world = _world(orders=1, returns=1)
    (anna,) = _consumers(world, "anna")
    anna.beat()
    for topic in ("orders", "returns"):
        world.commit(1, TopicPartition(topic, 0), committer=_committer(anna))
    codes = world.delete_offsets(TopicPartition("orders", 0), TopicPartition("returns", 0))
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


# Groups


def test_a_group_is_listed_with_its_type_and_state() -> None:
    world = _world()
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    assert world.listed(types=["consumer"])[GROUP].state == "Reconciling"
    assert not world.listed(types=["classic"])
    assert set(world.listed(states=["reconciling"])) == {GROUP}
    anna.leave()
    bert.leave()
    assert world.listed()[GROUP].state == "Empty"


def test_a_group_with_members_is_not_deleted_and_an_empty_one_leaves_nothing() -> None:
    world = _world()
    anna = Consumer(world, "anna", expression="orders")
    anna.beat()
    world.commit(1, TopicPartition("orders", 0), committer=_committer(anna))
    assert world.delete() is ErrorCode.NON_EMPTY_GROUP
    anna.leave()
    assert world.delete() is ErrorCode.NONE
    assert not world.listed()
    assert not world.replayed()._groups
    assert world.written[-1][0] == GroupEpochRecord(GROUP, None)


def test_members_are_described_with_what_they_have_and_shall_have() -> None:
    world = _world(orders=2)
    anna, bert = _consumers(world, "anna", "bert")
    anna.beat()
    bert.beat()
    anna.is_slow = True
    anna.beat()
    described = {one.member.member_id: one for one in world.describe_consumers().members}
    assert len(described["anna"].target) == 1
    assert described["anna"].member.current.state is MemberState.UNREVOKED_PARTITIONS
    assert described["bert"].member.current.state is MemberState.UNRELEASED_PARTITIONS
    assert described["anna"].target | described["bert"].target == world.partitions("orders")


def test_a_member_that_joins_anew_is_the_same_member() -> None:
    """Who was fenced, or has lost its epoch, joins with 0 and owns nothing."""
    world = _world()
    (anna,) = _consumers(world, "anna")
    anna.beat()
    anna.drop_all()
    anna.says_all = True
    assert _answered(anna.beat()).assigned == world.partitions("orders")
    assert len(world.describe_consumers().members) == 1


def test_a_request_of_a_consumer_says_when_it_is_complete() -> None:
    full = ConsumerHeartbeat(
        group_id=GROUP,
        member_id="anna",
        member_epoch=1,
        rebalance_timeout_ms=1,
        expression="",
        owned=frozenset((TopicIdPartition(next(iter(_world().topics.names)), 0),)),
    )
    assert full.is_full
    assert not replace(full, owned=None).is_full
    assert not replace(full, expression=None).is_full
    assert not replace(full, rebalance_timeout_ms=-1).is_full
