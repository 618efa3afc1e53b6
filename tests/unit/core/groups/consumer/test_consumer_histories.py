"""Groups of the consumer protocol, whatever happens: members of both protocols and their group.

The machine draws what members, topics and brokers do; members act as real clients do. After each
step, what the coordinator knows is compared with what members have:

    - no partition belongs to two members
    - nobody has what its coordinator does not know it to have
    - epochs only grow
    - whoever replays the log has the same group

and once everybody has been heard of for a while, every partition has an owner.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.unit.core.groups.consumer.classic_consumers import COOPERATIVE, EAGER, ClassicConsumer
from tests.unit.core.groups.consumer.consumers import AT_ONCE, Consumer, ConsumerHosted
from tests.unit.core.groups.hosted import GROUP
from tidelog.base.errors import ErrorCode
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.groups.classic_group import ClassicGroup
from tidelog.core.groups.consumer.group import ConsumerGroup
from tidelog.core.groups.context import ASSIGNED_AT_ONCE_MAX
from tidelog.records.consumer_groups import LEAVING_STATIC_EPOCH

_TOPICS = ("orders", "returns", "stock")
_NAMES = st.sampled_from(_TOPICS)
_SUBSCRIPTIONS = st.frozensets(_NAMES, min_size=1)
_COUNTS = st.dictionaries(_NAMES, st.integers(1, 5), min_size=1)


class GroupHistory(RuleBasedStateMachine):
    """One group of one shard."""

    consumers = Bundle("consumers")
    guests = Bundle("guests")

    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumerHosted()
        self.alive: list[Consumer] = []
        self.alive_guests: list[ClassicConsumer] = []
        self.named = 0
        self.style = EAGER
        self.epochs: dict[str, int] = {}

    @initialize(
        counts=_COUNTS,
        style=st.sampled_from([EAGER, COOPERATIVE]),
        config=st.sampled_from([AT_ONCE, ConsumerGroupsConfig()]),
        assigned_at_once_max=st.sampled_from([0, ASSIGNED_AT_ONCE_MAX]),
    )
    def begin(
        self,
        counts: dict[str, int],
        style: str,
        config: ConsumerGroupsConfig,
        assigned_at_once_max: int,
    ) -> None:
        self.world = ConsumerHosted(
            consumer_config=config, assigned_at_once_max=assigned_at_once_max
        )
        self.world.set_topics(counts)
        self.style = style

    def _name(self) -> str:
        self.named += 1
        return f"member-{self.named}"

    # Members

    @rule(target=consumers, topics=_SUBSCRIPTIONS, is_static=st.booleans(), is_slow=st.booleans())
    def join(self, topics: frozenset[str], *, is_static: bool, is_slow: bool) -> Consumer:
        name = self._name()
        instance = f"instance-{name}" if is_static else None
        consumer = Consumer(self.world, name, topics=topics, instance_id=instance, is_slow=is_slow)
        self.alive.append(consumer)
        consumer.beat()
        return consumer

    @rule(target=consumers, expression=st.sampled_from(["o.*", ".*s$", "returns|stock"]))
    def join_by_expression(self, expression: str) -> Consumer:
        consumer = Consumer(self.world, self._name(), expression=expression)
        self.alive.append(consumer)
        consumer.beat()
        return consumer

    @rule(target=guests, topics=_SUBSCRIPTIONS, is_static=st.booleans())
    def join_as_guest(self, topics: frozenset[str], *, is_static: bool) -> ClassicConsumer:
        return self._new_guest(topics, f"instance-{self.named}" if is_static else None)

    def _new_guest(self, topics: frozenset[str], instance_id: str | None) -> ClassicConsumer:
        guest = ClassicConsumer(self.world, self._name(), topics, self.style, instance_id)
        self.alive_guests.append(guest)
        guest.step()
        return guest

    @rule(consumer=consumers, is_answer_lost=st.booleans())
    def beat(self, consumer: Consumer, *, is_answer_lost: bool) -> None:
        consumer.beat(is_answer_lost=is_answer_lost)

    @rule()
    def all_beat(self) -> None:
        for consumer in self.alive:
            consumer.beat()
        for guest in self.alive_guests:
            guest.step()

    @rule(consumer=consumers)
    def obey(self, consumer: Consumer) -> None:
        consumer.obey()

    @rule(guest=guests, count=st.integers(1, 4))
    def step(self, guest: ClassicConsumer, count: int) -> None:
        guest.steps(count)

    @rule(consumer=consumers, topics=_SUBSCRIPTIONS)
    def subscribe(self, consumer: Consumer, topics: frozenset[str]) -> None:
        consumer.subscribe(*topics)
        consumer.beat()

    @rule(consumer=consumes(consumers))
    def leave(self, consumer: Consumer) -> None:
        consumer.leave()
        self.alive.remove(consumer)

    @rule(guest=consumes(guests))
    def leave_as_guest(self, guest: ClassicConsumer) -> None:
        guest.leave()
        self.alive_guests.remove(guest)

    @rule(consumer=consumes(consumers))
    def vanish(self, consumer: Consumer) -> None:
        """It has died without a word."""
        self.alive.remove(consumer)

    @rule(guest=consumes(guests))
    def vanish_as_guest(self, guest: ClassicConsumer) -> None:
        self.alive_guests.remove(guest)

    @rule(target=consumers, consumer=consumes(consumers))
    def bounce(self, consumer: Consumer) -> Consumer:
        """A process is replaced. If it is static, its place is kept for it."""
        consumer.leave(LEAVING_STATIC_EPOCH if consumer.instance_id else -1)
        self.alive.remove(consumer)
        back = Consumer(
            self.world,
            self._name(),
            topics=consumer.topics,
            expression=consumer.expression,
            instance_id=consumer.instance_id,
        )
        self.alive.append(back)
        back.beat()
        return back

    @rule(target=guests, consumer=consumes(consumers))
    def become_a_guest(self, consumer: Consumer) -> ClassicConsumer:
        """A process is replaced by one that speaks the classic protocol."""
        consumer.leave(LEAVING_STATIC_EPOCH if consumer.instance_id else -1)
        self.alive.remove(consumer)
        topics = consumer.topics if consumer.topics is not None else frozenset(("orders",))
        return self._new_guest(topics, consumer.instance_id)

    @rule(target=consumers, guest=consumes(guests))
    def cease_to_be_a_guest(self, guest: ClassicConsumer) -> Consumer:
        """A static member says nothing when it goes."""
        if guest.instance_id is None:
            guest.leave()
        self.alive_guests.remove(guest)
        back = Consumer(
            self.world, self._name(), topics=guest.topics, instance_id=guest.instance_id
        )
        self.alive.append(back)
        back.beat()
        return back

    # The world

    @rule(counts=_COUNTS)
    def set_topics(self, counts: dict[str, int]) -> None:
        """Topics come and go, and get partitions; none loses any."""
        grown = {
            name: max(count, known.partition_count)
            if (known := self.world.topics.by_name.get(name)) is not None
            else count
            for name, count in counts.items()
        }
        self.world.set_topics(grown)
        for guest in self.alive_guests:
            guest.on_topics()

    @rule(duration_ms=st.sampled_from([100, 1_000, 4_000, 11_000, 46_000]))
    def advance(self, duration_ms: int) -> None:
        self.world.advance(duration_ms)

    @rule()
    def make_assignments(self) -> None:
        self.world.make_assignments()

    @rule()
    def lose_the_coordinator(self) -> None:
        self.world.restart()
        for guest in self.alive_guests:
            guest.forget_waiting()

    # What must hold

    def _group(self) -> ConsumerGroup | None:
        group = self.world.shard._groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        group = self._group()
        if group is None:
            return
        owners = Counter(
            partition
            for member in group.members.by_id.values()
            for partition in member.all_partitions()
        )
        assert not owners or max(owners.values()) == 1
        for member in group.members.by_id.values():
            for partition in member.all_partitions():
                assert group.members.owner(partition) == member.member_id

    @invariant()
    def members_have_what_they_are_known_to_have(self) -> None:
        """Not so a guest that was silent for too long: as with Kafka, it may join under the id it
        had, and learns by its assignment what it has lost."""
        self._note_lost_guests()
        group = self._group()
        if group is None:
            return
        owned = {one.member_id: one.owned for one in self.alive if one.epoch > 0}
        owned |= {one.given_id: one.owned for one in self.alive_guests if not one.is_lost}
        for member_id, partitions in owned.items():
            member = group.members.by_id.get(member_id)
            existing = partitions & self.world.all_partitions()
            if member is not None:
                assert existing <= frozenset(member.all_partitions()), member_id

    def _note_lost_guests(self) -> None:
        group = self.world.shard._groups.get(GROUP)
        match group:
            case ConsumerGroup():
                known = set(group.members.by_id)
            case ClassicGroup():
                known = {member.member_id for member in group.members}
            case _:
                known = set()
        for guest in self.alive_guests:
            guest.is_lost |= guest.given_id not in known

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self._group()
        if group is None:
            self.epochs.clear()
            return
        now = {"": group.members.epoch, " target": group.members.target_epoch}
        now |= {
            member_id: member.epoch
            for member_id, member in group.members.by_id.items()
            if member.epoch != LEAVING_STATIC_EPOCH
        }
        if group.members.epoch >= self.epochs.get("", 0) and group.members.target_epoch > 0:
            for name, epoch in now.items():
                assert epoch >= self.epochs.get(name, epoch), name
                assert epoch <= group.members.epoch
        self.epochs = now

    @invariant()
    def who_replays_the_log_has_the_same_group(self) -> None:
        group = self._group()
        if group is None:
            return
        other = self.world.group(self.world.replayed()).members
        for name in ("epoch", "metadata_hash", "target_epoch", "targets", "by_id", "expressions"):
            assert getattr(other, name) == getattr(group.members, name), name

    @precondition(lambda self: self.alive or self.alive_guests)
    @rule()
    def come_to_rest(self) -> None:
        """Everybody who is alive is heard of, and nothing else happens."""
        for consumer in self.alive:
            consumer.is_slow = False
        for _ in range(60):
            for consumer in self.alive:
                consumer.obey()
                consumer.beat()
            for guest in self.alive_guests:
                guest.step()
            self.world.advance(2_500)
        everybody: list[Consumer | ClassicConsumer] = [*self.alive, *self.alive_guests]
        owners = Counter(partition for one in everybody for partition in one.owned)
        assert set(owners) == self._wanted()
        assert not owners or max(owners.values()) == 1
        assert all(one.last_error is ErrorCode.NONE for one in self.alive)

    def _wanted(self) -> set[object]:
        group = self._group()
        if group is not None:
            topics = group.members.all_topics()
            assert group.state == "Stable"
            assert group.members.epoch == group.members.target_epoch
        else:
            topics = frozenset().union(*(guest.topics for guest in self.alive_guests))
        return {
            partition
            for topic in topics & self.world.topics.by_name.keys()
            for partition in self.world.partitions(topic)
        }


def test_whatever_happens_no_partition_has_two_owners_and_in_the_end_each_has_one() -> None:
    run_state_machine_as_test(
        GroupHistory, settings=settings(max_examples=40, stateful_step_count=30)
    )
