"""Whatever happens to a cluster, and in whatever order, what was acknowledged is not given away.

A model of what no controller can see runs beside the rules: who truly holds everything that was
acknowledged in a partition. Members of an isr do while somebody leads; a power cut takes it from
them; who was not in the isr cannot be known to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.core.controller.clusters import broker, cluster, topic_id
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.core.controller.changes import (
    Change,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.election import (
    Candidates,
    Elections,
    first_state,
    unclean_elections,
)
from tidelog.core.controller.image import BrokerImage, LastStop, PartitionImage, TopicImage
from tidelog.core.controller.isr import IsrProposal, alter_partitions
from tidelog.core.controller.membership import on_brokers_changed, on_loaded, on_replicas_changed
from tidelog.core.controller.preferred import ElectionType, elect_leaders, rebalance
from tidelog.core.controller.reassignment import (
    Reassignment,
    alter_reassignments,
    is_moving,
    target_of,
)
from tidelog.core.controller.shutdown import controlled_shutdown

BROKERS = [BrokerId(number) for number in range(1, 6)]
TOPICS = ["safe", "brave"]

some_brokers = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple)
fates = st.lists(
    st.tuples(
        st.sampled_from(BROKERS), st.sampled_from([None, *LastStop, LastStop.CLEAN, LastStop.LOST])
    ),
    min_size=1,
    max_size=4,
)
"""Who stops, and how it comes back at once; None stays away."""


@dataclass(slots=True)
class Truth:
    """What is so in one partition.

    `reign` is who began the leader epoch, and as what; `target` where it was last to be moved to.
    """

    complete: set[BrokerId]
    reign: tuple[BrokerId, int]
    target: tuple[BrokerId, ...]


class ClusterHistory(RuleBasedStateMachine):
    """One controller after another, with five brokers and two topics."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = 10
        self.registered: dict[BrokerId, BrokerImage] = {}
        self.shutting_down: dict[BrokerId, int] = {}
        self.offline: dict[TopicPartition, set[BrokerId]] = {}
        self.image = cluster({})
        self.written_at: dict[TopicPartition, int] = {}
        self.truth: dict[TopicPartition, Truth] = {}
        self.topics_made = 0
        self.is_brave = False
        self.unheard: dict[BrokerId, LastStop] = {}

    @initialize()
    def start(self) -> None:
        for each in BROKERS:
            self._register(each, LastStop.CLEAN)
        self.image = cluster(dict(self.registered))

    # -- what happens ----------------------------------------------------------------------------

    @rule(fates=fates)
    def brokers_come_and_go(self, fates: list[tuple[BrokerId, LastStop | None]]) -> None:
        self._meet(fates)
        elected = on_brokers_changed(self.image, self._candidates())
        self.image = replace(self.image, brokers=dict(self.registered))
        self._take(elected)

    @rule(fates=fates)
    def a_new_controller_loads(self, fates: list[tuple[BrokerId, LastStop | None]]) -> None:
        self._meet(fates)
        self.shutting_down.clear()  # Nobody told the new one; who is stopping will say so again.
        self.image = replace(self.image, brokers=dict(self.registered))
        self._take(on_loaded(self.image, self.written_at, self._candidates()))

    @rule(broker_id=st.sampled_from(BROKERS))
    def a_broker_says_that_it_stops(self, broker_id: BrokerId) -> None:
        if broker_id not in self.registered:
            return
        epoch = self._epoch(broker_id)
        given_up = controlled_shutdown(
            self.image, self._candidates(), broker_id=broker_id, broker_epoch=epoch
        )
        self.shutting_down[broker_id] = epoch
        self._take(Elections(given_up.changes, given_up.unclean))
        for each in self.truth:
            state, staying = self._state(each), self._candidates().fit(each).staying
            if state.leader == broker_id:
                assert each in given_up.remaining or len(state.replicas) == 1
                assert staying.isdisjoint(state.isr)
            elif broker_id in state.isr:
                assert staying.isdisjoint(state.isr)

    @precondition(lambda self: self.truth)
    @rule(data=st.data(), broker_ids=st.sets(st.sampled_from(BROKERS), max_size=2))
    def log_directories_fail_or_work_again(
        self, data: st.DataObject, broker_ids: set[BrokerId]
    ) -> None:
        each = self._draw_partition(data)
        self.offline[each] = broker_ids
        self._take(on_replicas_changed(self.image, [each], self._candidates()))

    @rule(name=st.sampled_from(TOPICS), assigned=st.lists(some_brokers, min_size=1, max_size=2))
    def a_topic_is_made_or_grows(self, name: str, assigned: list[tuple[BrokerId, ...]]) -> None:
        staying = self._candidates().staying
        live = [replicas for replicas in assigned if set(replicas) <= staying]
        if not live:
            return
        known = self.image.topics.get(name)
        if known is not None and len(known.partitions) > 2:
            return  # Few partitions, so that much happens to each.
        partitions = tuple(first_state(replicas, staying) for replicas in live)
        if known is None:
            self.topics_made += 1
            self._write(
                [TopicCreated(TopicImage(name, topic_id(self.topics_made), partitions), {})]
            )
        else:
            self._write([PartitionsAdded(name, len(known.partitions), partitions)])

    @precondition(lambda self: self.truth)
    @rule(data=st.data())
    def a_topic_is_deleted(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.image.topics)))
        self._write([TopicDeleted(name, self.image.topics[name].topic_id)])

    @precondition(lambda self: self.truth)
    @rule(data=st.data(), late=st.booleans())
    def a_leader_proposes_an_isr(self, data: st.DataObject, late: bool) -> None:
        each = self._draw_partition(data)
        state = self._state(each)
        if state.leader not in self.registered:
            return
        others = [member for member in state.replicas if member != state.leader]
        fit = {member for member in others if member in self._candidates().fit(each).staying}
        some = st.sets(st.sampled_from(others)) if others else st.just(set())
        chosen = data.draw(st.just(fit) | some)
        members = [state.leader, *(member for member in others if member in chosen)]
        proposal = IsrProposal(
            topic_id=self.image.topics[each.topic].topic_id,
            partition=each.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch - late,
            isr=tuple((member, self._epoch(member)) for member in members),
        )
        decision = alter_partitions(
            self.image,
            [proposal],
            self._candidates(),
            sender=state.leader,
            sender_epoch=self._epoch(state.leader),
        )
        if decision.changes:
            assert decision.outcomes[0].error in {ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED}
            assert not late
            # Whoever is let in has fetched everything under the registration it has.
            self.truth[each].complete |= set(members)
        self._write(decision.changes)

    @precondition(lambda self: self.truth)
    @rule(data=st.data(), goal=st.none() | some_brokers)
    def a_partition_is_moved_or_left_where_it_was(
        self, data: st.DataObject, goal: tuple[BrokerId, ...] | None
    ) -> None:
        each = self._draw_partition(data)
        before = self._state(each)
        original = set(before.replicas) - set(before.adding_replicas)
        decision = alter_reassignments(
            self.image,
            [Reassignment(*each, goal)],
            self._candidates(),
            allow_replication_factor_change=True,
        )
        if decision.outcomes[0].error is not ErrorCode.NONE:
            assert decision.changes == []
            return
        if goal is not None:
            self.truth[each].target = goal
        self._take_changes(decision.changes)
        after = self._state(each)
        if is_moving(after):
            assert set(after.adding_replicas) == set(after.replicas) - original
        if goal is None:
            assert set(after.replicas) == original
            self.truth[each].target = after.replicas

    @precondition(lambda self: self.truth)
    @rule(election_type=st.sampled_from(ElectionType))
    def leaders_are_elected_by_request(self, election_type: ElectionType) -> None:
        decision = elect_leaders(self.image, election_type, None, self._candidates())
        self.is_brave = election_type is ElectionType.UNCLEAN
        elected = sum(each.error is ErrorCode.NONE for each in decision.outcomes)
        assert elected == len(decision.changes)
        self._take_changes(decision.changes)
        self.is_brave = False

    @precondition(lambda self: self.truth)
    @rule(percentage=st.sampled_from([0, 10, 50]))
    def leaders_go_back(self, percentage: int) -> None:
        changes = rebalance(self.image, self._candidates(), imbalance_percentage=percentage)
        assert not unclean_elections(self.image, changes)
        self._take_changes(changes)
        if percentage == 0:
            for each in self.truth:
                state, staying = self._state(each), self._candidates().fit(each).staying
                preferred = state.replicas[0]
                if not is_moving(state) and preferred in staying and preferred in state.isr:
                    assert state.leader == preferred

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def whoever_leads_is_alive_and_has_led_since_it_registered(self) -> None:
        for each, truth in self.truth.items():
            state = self._state(each)
            if state.leader != NO_BROKER:
                assert state.leader in self._candidates().fit(each).live
                assert truth.reign == (state.leader, self._epoch(state.leader))

    @invariant()
    def nobody_is_kept_from_leading_without_a_reason(self) -> None:
        for each in self.truth:
            state, staying = self._state(each), self._candidates().fit(each).staying
            if state.leader == NO_BROKER:
                assert staying.isdisjoint(state.isr)
                assert each.topic != "brave" or staying.isdisjoint(state.replicas)

    @invariant()
    def members_of_a_led_isr_are_alive_and_complete(self) -> None:
        for each, truth in self.truth.items():
            state = self._state(each)
            if state.leader != NO_BROKER:
                assert set(state.isr) <= truth.complete
                assert set(state.isr) <= self._candidates().fit(each).live

    @invariant()
    def a_move_ends_where_it_was_to_go(self) -> None:
        for each, truth in self.truth.items():
            state = self._state(each)
            assert target_of(state) == truth.target
            count = len(truth.target)
            assert state.replicas[:count] == truth.target
            assert state.replicas[count:] == state.removing_replicas
            assert set(state.adding_replicas) <= set(truth.target)
            if is_moving(state) and set(truth.target) <= set(state.isr):
                staying = self._candidates().fit(each).staying
                assert state.leader not in truth.target
                assert state.leader == NO_BROKER or staying.isdisjoint(truth.target)

    # -- how it is carried out -------------------------------------------------------------------

    def _register(self, broker_id: BrokerId, stop: LastStop) -> None:
        self.counter += 1
        # A broker owns up to the worst stop since a controller last took notice of it.
        worst = max(stop, self.unheard.get(broker_id, stop), key=list(LastStop).index)
        self.unheard[broker_id] = worst
        self.registered[broker_id] = replace(
            broker(broker_id, broker_epoch=self.counter), stop=worst
        )
        if stop is LastStop.LOST:
            for truth in self.truth.values():
                truth.complete.discard(broker_id)

    def _meet(self, fates: list[tuple[BrokerId, LastStop | None]]) -> None:
        for broker_id, stop in fates:
            self.registered.pop(broker_id, None)
            for offline in self.offline.values():
                offline.discard(broker_id)
            if stop is not None:
                self._register(broker_id, stop)

    def _candidates(self) -> Candidates:
        return Candidates.of(
            self.registered,
            shutting_down=self.shutting_down,
            offline_replicas=self.offline,
            allow_unclean=lambda topic: topic == "brave",
        )

    def _draw_partition(self, data: st.DataObject) -> TopicPartition:
        return data.draw(st.sampled_from(sorted(self.truth)))

    def _state(self, each: TopicPartition) -> PartitionImage:
        state = self.image.partition(*each)
        assert state is not None
        return state

    def _epoch(self, broker_id: BrokerId) -> int:
        known = self.registered.get(broker_id)
        return 0 if known is None else known.broker_epoch

    def _take(self, elected: Elections) -> None:
        unclean = {each.topic_partition for each in elected.unclean}
        assert all(each.topic == "brave" for each in unclean) or self.is_brave
        for change in elected.changes:
            where = TopicPartition(change.topic, change.partition)
            self._assert_safe(where, self._state(where), change.state, unclean=where in unclean)
        self._write(elected.changes)
        for returned in set(self.unheard) & set(self.registered):
            self._assert_trusted(returned, self.unheard.pop(returned))

    def _take_changes(self, changes: Sequence[Change]) -> None:
        """What follows from a request."""
        partitions = [each for each in changes if isinstance(each, PartitionChanged)]
        self._take(Elections(partitions, unclean_elections(self.image, changes)))

    def _assert_trusted(self, returned: BrokerId, stop: LastStop) -> None:
        """Who may have lost something is in sync with nobody but itself (R13)."""
        for state in map(self._state, self.truth):
            if stop is LastStop.LOST and state.leader != NO_BROKER and returned in state.isr:
                assert state.isr == (returned,)

    def _assert_safe(
        self, each: TopicPartition, before: PartitionImage, after: PartitionImage, *, unclean: bool
    ) -> None:
        """No event takes the truth away while a member of the isr has it."""
        complete = self.truth[each].complete & set(before.isr)
        assert set(after.isr) <= set(before.isr) or unclean
        if unclean:
            assert after.isr == (after.leader,)
        elif complete:
            assert complete & set(after.isr)
            if after.leader != NO_BROKER:
                assert set(after.isr) <= complete
        else:
            assert len(after.isr) == 1 or after.isr == before.isr

    def _write(self, changes: Sequence[Change]) -> None:
        before = self.image
        self.counter += 1
        self.image = self.image.apply_all(changes)
        for change in changes:
            if isinstance(change, PartitionChanged):
                each = TopicPartition(change.topic, change.partition)
                known = before.partition(*each)
                assert known is not None
                self._assert_sound(known, change.state)
                self._follow(each, known, change.state)
            elif isinstance(change, TopicDeleted):
                self._forget(change.name)
            elif isinstance(change, TopicCreated):
                self._add(change.topic.name, 0, change.topic.partitions)
            elif isinstance(change, PartitionsAdded):
                self._add(change.topic, change.first_partition, change.partitions)

    def _assert_sound(self, before: PartitionImage, after: PartitionImage) -> None:
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch - before.leader_epoch in {0, 1}
        assert after.leader == before.leader or after.leader_epoch > before.leader_epoch
        assert after.isr
        assert set(after.isr) <= set(after.replicas)
        assert after.leader == NO_BROKER or after.leader in after.isr
        if after.leader != NO_BROKER and not set(before.replicas) <= set(after.replicas):
            assert after.leader_epoch > before.leader_epoch
        original = set(before.replicas) - set(before.adding_replicas)
        if not is_moving(after) and set(after.replicas) != original:
            assert set(after.isr) == set(after.replicas)
        assert after != replace(
            before,
            leader_epoch=after.leader_epoch,
            partition_epoch=after.partition_epoch,
        ) or (after.leader_epoch > before.leader_epoch)

    def _follow(self, each: TopicPartition, before: PartitionImage, after: PartitionImage) -> None:
        truth = self.truth[each]
        self.written_at[each] = self.counter
        if after.leader == NO_BROKER:
            return
        truth.complete = set(after.isr)
        if after.leader_epoch > before.leader_epoch:
            truth.reign = (after.leader, self._epoch(after.leader))

    def _add(self, name: str, first: int, partitions: tuple[PartitionImage, ...]) -> None:
        for number, state in enumerate(partitions, first):
            each = TopicPartition(name, number)
            self.written_at[each] = self.counter
            self.truth[each] = Truth(
                set(state.isr), (state.leader, self._epoch(state.leader)), state.replicas
            )

    def _forget(self, name: str) -> None:
        for each in [each for each in self.truth if each.topic == name]:
            del self.truth[each], self.written_at[each]
            self.offline.pop(each, None)


TestClusterHistory = ClusterHistory.TestCase
TestClusterHistory.settings = settings(stateful_step_count=60, report_multiple_bugs=False)
