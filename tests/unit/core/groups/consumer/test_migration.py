"""Stories of groups that change their protocol while they have members, and of who is in both."""

from dataclasses import replace

import pytest

from tests.unit.core.groups.consumer.classic_consumers import (
    COOPERATIVE,
    EAGER,
    ClassicConsumer,
    encode_subscription,
)
from tests.unit.core.groups.consumer.consumers import (
    AT_ONCE,
    Consumer,
    ConsumerHosted,
)
from tests.unit.core.groups.hosted import GROUP, REBALANCE_MS, SESSION_MS
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.groups.classic_group import ClassicGroup
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.consumer.requests import HeartbeatAnswer
from tidelog.core.groups.context import Timer, TimerName
from tidelog.core.groups.group import Committer
from tidelog.core.groups.requests import JoinProtocol, LeavingMember
from tidelog.records.consumer_protocol import encode_assignment

_ORDERS = frozenset(("orders",))


def _world(config: ConsumerGroupsConfig = AT_ONCE) -> ConsumerHosted:
    world = ConsumerHosted(consumer_config=config)
    world.set_topics({"orders": 4})
    return world


def _guest(world: ConsumerHosted, name: str, style: str = EAGER) -> ClassicConsumer:
    return ClassicConsumer(world, name, _ORDERS, style)


def _settle(*members: Consumer | ClassicConsumer, rounds: int = 12) -> None:
    for _ in range(rounds):
        for member in members:
            if isinstance(member, Consumer):
                member.beat()
            else:
                member.step()
            owned = [partition for one in members for partition in one.owned]
            assert len(owned) == len(set(owned)), "nobody shares a partition"
        members[0].world.advance(1_000)


def _types(world: ConsumerHosted) -> str:
    return world.listed()[GROUP].group_type.value


@pytest.mark.parametrize("style", [EAGER, COOPERATIVE])
def test_a_classic_group_is_upgraded_and_everybody_stays(style: str) -> None:
    """V1, V2, S5"""
    world = _world()
    old = _guest(world, "old", style)
    _settle(old)
    assert old.owned == world.partitions("orders")
    generation = old.generation
    new = Consumer(world, "new", topics=_ORDERS)
    answer = new.beat()
    assert isinstance(answer, HeartbeatAnswer)
    assert answer.member_epoch > generation
    assert answer.assigned == frozenset(), "the other has yet to give back"
    assert _types(world) == "consumer"
    _settle(old, new)
    assert {len(old.owned), len(new.owned)} == {2}
    assert old.owned | new.owned == world.partitions("orders")
    assert ErrorCode.UNKNOWN_MEMBER_ID not in old.seen, "it was never thrown out"


def test_a_group_is_downgraded_when_its_last_consumer_is_gone() -> None:
    """V1, V2, S5"""
    world = _world()
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    _settle(old, new)
    epoch = world.describe_consumers().epoch
    new.leave()
    assert _types(world) == "classic"
    _settle(old)
    assert old.owned == world.partitions("orders")
    assert old.generation > epoch
    assert ErrorCode.UNKNOWN_MEMBER_ID not in old.seen


def test_a_coordinator_that_dies_while_a_group_changes_loses_no_member() -> None:
    """V1: what takes the group back and what it becomes are one write."""
    world = _world()
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    before_upgrade = world.write_ends[-1]
    _settle(old, new)
    new.leave()
    _settle(old)
    assert _types(world) == "classic"
    for count in world.write_ends:
        if count >= before_upgrade:
            group = world.replayed(count)._groups[GROUP]
            assert isinstance(group, ClassicGroup | ConsumerGroup)
            known = group.members if isinstance(group, ClassicGroup) else group.members.by_id
            assert old.given_id in known


@pytest.mark.parametrize("style", [EAGER, COOPERATIVE])
def test_a_downgraded_group_agrees_anew_whoever_coordinates_it(style: str) -> None:
    """G10: what the last consumer had would be nobody's as long as nobody joins or leaves."""
    world = _world()
    old, other = _guest(world, "old", style), _guest(world, "other", style)
    new = Consumer(world, "new", topics=_ORDERS)
    _settle(old, other)
    _settle(old, other, new)
    new.leave()
    assert _types(world) == "classic"
    world.restart()
    _settle(old, other)
    assert old.owned | other.owned == world.partitions("orders")
    lost = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
    assert not lost.intersection((*old.seen, *other.seen)), "they gave up what they had in time"


def test_a_downgraded_group_that_has_agreed_stays_as_it_is() -> None:
    """G10: another coordinator has no reason to have it agree again."""
    world = _world()
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    _settle(old, new)
    new.leave()
    _settle(old)
    generation = old.generation
    world.restart()
    _settle(old)
    assert old.generation == generation


def test_a_group_is_downgraded_when_its_last_consumer_is_silent() -> None:
    """S5"""
    world = _world()
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    new.beat()
    _settle(old, rounds=44)
    assert _types(world) == "consumer"
    world.advance(1_000)
    assert _types(world) == "classic"
    _settle(old)
    assert old.owned == world.partitions("orders")


def test_an_empty_group_becomes_whatever_joins_it() -> None:
    """S5: and what it has committed stays."""
    world = _world()
    partition = TopicPartition("orders", 0)
    world.commit(7, partition)
    new = Consumer(world, "new", topics=_ORDERS)
    new.beat()
    assert _types(world) == "consumer"
    new.leave()
    old = _guest(world, "old")
    _settle(old)
    assert _types(world) == "classic"
    old.leave()
    again = Consumer(world, "again", topics=_ORDERS)
    again.beat()
    assert again.owned == world.partitions("orders")
    assert world.offset(partition) == 7
    assert world.replayed()._groups.keys() == {GROUP}


def test_who_waited_for_a_rebalance_is_told_of_another() -> None:
    """V1"""
    world = _world()
    old, second = _guest(world, "old"), _guest(world, "second")
    _settle(old)
    second.step()
    new = Consumer(world, "new", topics=_ORDERS)
    new.beat()
    second.step()
    assert second.seen == [ErrorCode.REBALANCE_IN_PROGRESS]
    _settle(old, second, new, rounds=20)
    owned = [old.owned, second.owned, new.owned]
    assert frozenset().union(*owned) == world.partitions("orders")
    assert sum(map(len, owned)) == 4


def test_an_interrupted_rebalance_takes_nothing_from_a_cooperative_member() -> None:
    """V1: its assignment was taken back, but it has not stopped reading."""
    world = _world()
    old = _guest(world, "old", COOPERATIVE)
    _settle(old)
    old.on_topics()
    old.step()
    _guest(world, "second", COOPERATIVE).step()
    new = Consumer(world, "new", topics=_ORDERS)
    new.beat()
    assert old.owned == world.partitions("orders")
    assert not new.owned


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_may_forbid_upgrades(policy: str) -> None:
    """V3"""
    world = _world(replace(AT_ONCE, group_consumer_migration_policy=policy))
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    assert new.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert _types(world) == "classic"


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_a_policy_may_forbid_downgrades(policy: str) -> None:
    world = _world()
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    _settle(old, new)
    world.consumer_config = replace(AT_ONCE, group_consumer_migration_policy=policy)
    world.restart()
    new.leave()
    assert _types(world) == "consumer"
    _settle(old)
    assert old.owned == world.partitions("orders"), "guests alone go on as members"


def test_a_group_that_is_too_large_is_not_upgraded() -> None:
    """V3"""
    world = _world(replace(AT_ONCE, group_consumer_max_size=1))
    members = [_guest(world, "old"), _guest(world, "other")]
    _settle(*members)
    new = Consumer(world, "new", topics=_ORDERS)
    assert new.beat() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_no_record_can_hold_is_not_downgraded() -> None:
    """W3"""
    world, old, new = _mixed()
    world.record_max_bytes = 2_000
    world.restart()
    new.leave()
    assert _types(world) == "consumer"
    _settle(old)
    assert old.owned == world.partitions("orders")


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "assignment"),
    [
        ("connect", encode_subscription(["orders"]), b""),
        ("consumer", b"\x00", b""),
        ("consumer", encode_subscription(["orders"]), b"\x00"),
        (
            "consumer",
            encode_subscription(["orders"]),
            encode_assignment([], 0)[:-4] + b"\x00\x00\x00\x01x",
        ),
    ],
    ids=["not consumers", "subscription", "assignment", "user data"],
)
def test_what_is_not_understood_is_not_upgraded(
    protocol_type: str, metadata: bytes, assignment: bytes
) -> None:
    """V3"""
    world = _world()
    protocols = (JoinProtocol("range", metadata),)
    token = world.join("old", protocols=protocols, protocol_type=protocol_type)
    world.advance(0)
    joined = world.joined(token)
    world.sync("old", joined.generation, [("old", assignment)])
    before = list(world.written)
    new = Consumer(world, "new", topics=_ORDERS)
    assert new.beat() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.written == before
    assert world.heartbeat("old", joined.generation) is ErrorCode.NONE


def test_a_refused_consumer_leaves_a_classic_group_as_it_was() -> None:
    world = _world()
    old = _guest(world, "old")
    _settle(old)
    before = list(world.written)
    bad = Consumer(world, "bad", expression="(")
    assert bad.beat() is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (world.written, _types(world)) == (before, "classic")


# Guests


def _mixed() -> tuple[ConsumerHosted, ClassicConsumer, Consumer]:
    world = _world()
    old, new = _guest(world, "old"), Consumer(world, "new", topics=_ORDERS)
    _settle(old)
    _settle(old, new)
    return world, old, new


def test_a_guest_is_told_when_what_it_waits_for_is_free() -> None:
    """M1"""
    world = _world()
    new, late = Consumer(world, "new", topics=_ORDERS), _guest(world, "late")
    new.beat()
    late.steps(3)
    assert not late.owned
    assert world.heartbeat(late.given_id, late.generation) is ErrorCode.NONE
    new.beat()
    new.beat()
    assert world.heartbeat(late.given_id, late.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    late.must_join = True
    late.steps(3)
    assert late.owned == world.partitions("orders") - new.owned


def test_a_guest_that_does_not_join_in_time_is_removed() -> None:
    """M2: being told again and again does not give it more time."""
    world, old, new = _mixed()
    third = Consumer(world, "third", topics=_ORDERS)
    third.beat()
    for _ in range(REBALANCE_MS // 5_000 - 1):
        assert world.heartbeat(old.given_id, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        third.beat()
        world.advance(5_000)
    assert world.heartbeat(old.given_id, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(5_000)
    assert world.heartbeat(old.given_id, old.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_guest_that_joins_and_does_not_sync_is_removed() -> None:
    """M2"""
    world, _, new = _mixed()
    metadata = encode_subscription(["orders"])
    joined = world.joined(world.join("late", protocols=(JoinProtocol(EAGER, metadata),)))
    assert joined.error_code is ErrorCode.NONE
    assert joined.leader == ""
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat("late", joined.generation)
        new.beat()
        world.advance(5_000)
    assert world.heartbeat("late", joined.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_guest_that_is_silent_for_its_own_session_is_removed() -> None:
    world, old, new = _mixed()
    world.advance(SESSION_MS)
    new.beat()
    assert new.owned == world.partitions("orders")
    assert world.heartbeat(old.given_id, old.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_guest_of_another_generation_is_told_so() -> None:
    world, old, _ = _mixed()
    assert world.heartbeat(old.given_id, 99) is ErrorCode.ILLEGAL_GENERATION
    assert world.answer(world.sync(old.given_id, 99)) is ErrorCode.ILLEGAL_GENERATION
    partition = TopicPartition("orders", 0)
    ahead = Committer(99, old.given_id, None)
    assert world.commit(1, partition, committer=ahead) is ErrorCode.ILLEGAL_GENERATION
    now = Committer(old.generation, old.given_id, None)
    assert world.commit(1, partition, committer=now) is ErrorCode.NONE


def test_members_of_the_other_protocol_are_no_guests() -> None:
    world, _, new = _mixed()
    assert world.heartbeat(new.member_id, new.epoch) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", (JoinProtocol(EAGER, encode_subscription(["orders"])),)),
        ("consumer", (JoinProtocol("mine", encode_subscription(["orders"])),)),
        ("consumer", (JoinProtocol(EAGER, b""),)),
    ],
)
def test_who_has_nothing_in_common_with_the_guests_stays_out(
    protocol_type: str, protocols: tuple[JoinProtocol, ...]
) -> None:
    """M3"""
    world, _, _ = _mixed()
    token = world.join("late", protocol_type=protocol_type, protocols=protocols)
    assert world.answer(token) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_guest_comes_back_with_the_id_it_was_given() -> None:
    world, _, _ = _mixed()
    protocols = (JoinProtocol(EAGER, encode_subscription(["orders"])),)
    given = world.joined(world.join("late", protocols=protocols, requires_id=True))
    assert (given.error_code, given.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "late")
    joined = world.joined(world.join(member_id="late", protocols=protocols, requires_id=True))
    assert (joined.error_code, joined.member_id) == (ErrorCode.NONE, "late")


def test_a_guest_that_was_removed_is_told_so_though_it_says_what_it_owned() -> None:
    """M4: else it would give up, and commit in its new generation, what is another's by now."""
    world, _, _ = _mixed()
    owned = [TopicPartition("orders", 0)]
    protocols = (JoinProtocol(EAGER, encode_subscription(["orders"], owned)),)
    answer = world.answer(world.join(member_id="gone", protocols=protocols))
    assert answer is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_changes_its_protocol_and_keeps_its_place() -> None:
    world = _world()
    old = _guest(world, "old")
    old.instance_id = "i"
    _settle(old)
    had = old.owned
    new = Consumer(world, "new", topics=_ORDERS, instance_id="i")
    answer = new.beat()
    assert isinstance(answer, HeartbeatAnswer)
    assert answer.assigned == had
    back = _guest(world, "back")
    back.instance_id = "i"
    _settle(back)
    assert _types(world) == "classic", "only guests are left"
    assert back.owned == had


def _successor(world: ConsumerHosted, guest: ClassicConsumer, topics: frozenset[str]) -> Consumer:
    """Who takes the place of a static member, with the other protocol."""
    return Consumer(world, "new", topics=topics, instance_id=guest.instance_id)


def test_a_static_member_changes_its_protocol_while_others_are_being_replaced() -> None:
    """V4: what somebody had who is gone would be nobody's."""
    world = _world()
    old, other = _guest(world, "old"), _guest(world, "other")
    old.instance_id = "i"
    _settle(old, other)
    other.leave()
    new = _successor(world, old, _ORDERS)
    _settle(new)
    assert new.owned == world.partitions("orders")


@pytest.mark.parametrize("lost", range(1, 14))
def test_a_coordinator_that_finds_a_part_of_an_upgrade_leaves_nothing_without_a_reader(
    lost: int,
) -> None:
    """V4: that of a large group is more than one batch, and the last may go with its leader."""
    world = _world()
    old, other = _guest(world, "old"), _guest(world, "other")
    old.instance_id = "i"
    _settle(old, other)
    other.leave()
    before = len(world.written)
    _successor(world, old, _ORDERS).beat()
    assert len(world.written) - before >= lost
    del world.written[-lost:]
    world.restart()
    again = _successor(world, old, _ORDERS)
    _settle(again, rounds=60)  # If it is known already, until the session of that is over (H2).
    assert again.owned == world.partitions("orders")


def test_a_static_member_changes_its_protocol_before_anything_is_assigned() -> None:
    """V4"""
    world = _world()
    old = _guest(world, "old")
    old.instance_id = "i"
    old.step()
    new = _successor(world, old, _ORDERS)
    _settle(new)
    assert new.owned == world.partitions("orders")


def test_a_static_member_changes_its_protocol_between_two_cooperative_rebalances() -> None:
    """V4: what a member has given back has not been given to anybody yet."""
    world = _world()
    old, other = _guest(world, "old", COOPERATIVE), _guest(world, "other", COOPERATIVE)
    other.instance_id = "i"
    _settle(old)
    for _ in range(20):
        if len(old.owned) < 4:
            break
        old.step()
        other.step()
    assert len(old.owned) == 2
    assert not other.owned
    new = _successor(world, other, _ORDERS)
    _settle(old, new)
    assert old.owned | new.owned == world.partitions("orders")


def test_what_belongs_to_who_does_not_want_it_is_given_to_somebody_else() -> None:
    """V4: a static member may come back with another subscription, which its group overlooks."""
    world = _world()
    world.set_topics({"orders": 2, "stock": 1})
    old, other = _guest(world, "old"), _guest(world, "other")
    old.topics = other.topics = frozenset(("orders", "stock"))
    old.instance_id = "i"
    _settle(old, other)
    assert world.partitions("stock") <= old.owned
    back = _guest(world, "back")
    back.instance_id = "i"
    back.steps()
    _settle(_successor(world, back, _ORDERS), other, rounds=20)
    assert world.partitions("stock") <= other.owned


def test_what_a_guest_has_yet_to_give_back_is_its_own_in_the_next_groups_too() -> None:
    """V5"""
    world = _world()
    old, first = _guest(world, "old", COOPERATIVE), Consumer(world, "first", topics=_ORDERS)
    _settle(old)
    first.beat()
    old.steps(2)
    assert world.group().members.by_id[old.given_id].current.revoking
    first.leave()
    assert _types(world) == "classic"
    second = Consumer(world, "second", topics=_ORDERS)
    second.beat()
    assert not second.owned & old.owned
    _settle(old, second)
    assert old.owned | second.owned == world.partitions("orders")


def test_what_a_cooperative_member_has_yet_to_hear_of_is_not_given_to_others() -> None:
    """V5: it was assigned less than it owns, and the answer is on its way."""
    world = _world()
    old, second = _guest(world, "old", COOPERATIVE), _guest(world, "second", COOPERATIVE)
    _settle(old)
    second.step()
    old.steps(3)
    assert world.described().state == "Stable"
    assert old.owned == world.partitions("orders")
    new = Consumer(world, "new", topics=_ORDERS)
    new.beat()
    assert not new.owned
    _settle(old, second, new, rounds=20)
    assert old.owned | second.owned | new.owned == world.partitions("orders")


def test_an_administrator_removes_members_of_either_protocol() -> None:
    world, old, _ = _mixed()
    static = Consumer(world, "static", topics=_ORDERS, instance_id="i")
    static.beat()
    left = world.leave(
        LeavingMember("", "i"), LeavingMember("stranger", None), LeavingMember("other", "i")
    )
    assert left == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
    assert static.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert old.given_id in world.group().members.by_id


def test_a_group_is_downgraded_when_an_administrator_removes_its_last_consumer() -> None:
    """S5"""
    world, _, new = _mixed()
    assert world.leave(LeavingMember(new.member_id, None)) == [ErrorCode.NONE]
    assert _types(world) == "classic"


def test_a_guest_that_syncs_for_another_protocol_is_refused() -> None:
    world, old, _ = _mixed()
    for token in (
        world.sync(old.given_id, old.generation, protocol_type="connect"),
        world.sync(old.given_id, old.generation, protocol_name="mine"),
    ):
        assert world.answer(token) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    token = world.sync(old.given_id, old.generation, protocol_name=EAGER)
    assert world.synced(token).error_code is ErrorCode.NONE


def test_a_guest_whose_subscription_no_record_has_room_for_is_refused() -> None:
    """W3"""
    world, old, _ = _mixed()
    metadata = encode_subscription(["orders"]) + bytes(world.record_max_bytes)
    large = world.join(member_id=old.given_id, protocols=(JoinProtocol(EAGER, metadata),))
    assert world.answer(large) is ErrorCode.INVALID_REQUEST


def test_the_time_of_a_guest_ends_with_the_group_that_it_was_a_guest_of() -> None:
    """M2: what is left of it would end the rebalance of the classic group too early."""
    world, old, new = _mixed()
    another = Consumer(world, "another", topics=_ORDERS)
    another.beat()
    timers = world.shard._context.timers
    name = TimerName(GROUP, Timer.JOIN, old.given_id)
    assert world.heartbeat(old.given_id, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert name in timers
    new.leave()
    another.leave()
    assert _types(world) == "classic"
    assert name not in timers
