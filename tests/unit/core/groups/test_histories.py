"""Any history of classic groups: whatever members do, and whenever a coordinator changes (P3).

Checked after every step: nobody is answered twice (`Hosted.perform`), generations only grow, each
has one leader, and what was written gives a shard that knows the same. In the end everybody who
waits is answered, once time has passed.
"""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.core.groups.hosted import ANYBODY, CONFIG, GROUP, Hosted, subscription
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.core.coordinators import Effects, Reply, Token
from tidelog.core.groups.group import Committer, GroupListing
from tidelog.core.groups.requests import (
    ClassicDescription,
    FetchedOffset,
    FetchRequest,
    JoinAnswer,
    JoinProtocol,
    LeavingMember,
)
from tidelog.core.groups.shard import GroupShard

PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("notes", 0)]
INSTANCES = ["left", "right"]
PRODUCERS = [7, 8]
PROTOCOLS = [
    (JoinProtocol("range", subscription("orders")),),
    (JoinProtocol("sticky", subscription("orders")), JoinProtocol("range", subscription("notes"))),
]
FOREVER_MS = 20 * 60_000

partitions = st.sampled_from(PARTITIONS)
protocol_lists = st.sampled_from(PROTOCOLS)


class GroupHistory(RuleBasedStateMachine):
    """One group, its members, whoever commits, and coordinators that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.hosted = Hosted()
        self.ids: list[str] = []
        self.instance_of: dict[str, str | None] = {}
        self.joins: dict[Token, str] = {}
        self.life = 0
        """Of the group, under one coordinator: one that was deleted counts from the beginning."""
        self.leaders: dict[tuple[int, int], set[str]] = defaultdict(set)
        self.newest_generation = 0
        self.looked_at = 0

    # What members do

    @rule(
        instance=st.none() | st.sampled_from(INSTANCES),
        protocols=protocol_lists,
        requires_id=st.booleans(),
        skips=st.booleans(),
        slow=st.booleans(),
    )
    def somebody_joins(
        self,
        instance: str | None,
        protocols: tuple[JoinProtocol, ...],
        requires_id: bool,
        skips: bool,
        slow: bool,
    ) -> None:
        member_id = f"member-{len(self.ids)}"
        self.ids.append(member_id)
        self.instance_of[member_id] = instance
        self.hosted.join(
            member_id,
            instance=instance,
            protocols=protocols,
            requires_id=requires_id,
            skips=skips,
            rebalance_ms=60_000 if slow else 5_000,
        )

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), protocols=protocol_lists)
    def a_member_joins_again(
        self, data: st.DataObject, protocols: tuple[JoinProtocol, ...]
    ) -> None:
        member_id = self._some_id(data)
        instance = self.instance_of[member_id]
        self.hosted.join(member_id=member_id, instance=instance, protocols=protocols)

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def a_member_syncs(self, data: st.DataObject) -> None:
        member_id = self._some_id(data)
        assignments = [(known, known.encode()) for known in self.ids]
        generation = self._generation(data)
        self.hosted.sync(member_id, generation, assignments, instance=self.instance_of[member_id])

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def a_member_is_alive(self, data: st.DataObject) -> None:
        member_id = self._some_id(data)
        self.hosted.heartbeat(member_id, self._generation(data), self.instance_of[member_id])

    @precondition(lambda self: self.ids)
    @rule(data=st.data(), by_instance=st.booleans())
    def a_member_leaves(self, data: st.DataObject, by_instance: bool) -> None:
        member_id = self._some_id(data)
        instance = self.instance_of[member_id]
        if by_instance and instance is not None:
            self.hosted.leave(LeavingMember("", instance))
        else:
            self.hosted.leave(LeavingMember(member_id, instance))

    @rule(wait_ms=st.sampled_from([0, 1, 4_000, 9_999, 10_000, 61_000]))
    def time_passes(self, wait_ms: int) -> None:
        self.hosted.advance(wait_ms)

    # Offsets

    @rule(data=st.data(), partition=partitions, offset=st.integers(0, 9))
    def somebody_commits(self, data: st.DataObject, partition: TopicPartition, offset: int) -> None:
        committer = ANYBODY
        is_member: bool = data.draw(st.booleans())
        if self.ids and is_member:
            member_id = self._some_id(data)
            committer = Committer(self._generation(data), member_id, self.instance_of[member_id])
        producer_id = data.draw(st.none() | st.sampled_from(PRODUCERS))
        self.hosted.commit(offset, partition, committer=committer, producer_id=producer_id)

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def a_transaction_ends(self, producer_id: int, is_commit: bool) -> None:
        self.hosted.mark(producer_id, is_commit=is_commit)

    @rule(partition=partitions)
    def offsets_are_deleted(self, partition: TopicPartition) -> None:
        self.hosted.delete_offsets(partition)

    @rule()
    def a_topic_is_deleted(self) -> None:
        self.hosted.perform(self.hosted.shard.on_topics_deleted({"orders"}, self.hosted.now_ms))

    @rule()
    def the_group_is_deleted(self) -> None:
        self.hosted.delete()

    @rule()
    def all_offsets_get_old(self) -> None:
        self.hosted.advance(CONFIG.offsets_retention_minutes * 60_000)

    # Coordinators

    @rule()
    def another_coordinator_takes_over(self) -> None:
        """Whoever waits is sent away by the runner, and comes back to the new one."""
        for number in range(self.hosted.asked):
            self.hosted.answers.setdefault(Token(number), ErrorCode.NOT_COORDINATOR)
        self.hosted.restart()
        self._begin_another_life()

    # What always holds

    @invariant()
    def generations_grow_and_have_one_leader(self) -> None:
        for number in range(self.looked_at, self.hosted.asked):
            self.joins.setdefault(Token(number), "")
        self.looked_at = self.hosted.asked
        for token in [token for token in self.joins if token in self.hosted.answers]:
            del self.joins[token]
            answer = self.hosted.answers[token]
            if isinstance(answer, JoinAnswer) and answer.error_code is ErrorCode.NONE:
                self._look_at(answer)
        if GROUP not in self.hosted.listed():
            self._begin_another_life()

    def _begin_another_life(self) -> None:
        self.life += 1
        self.newest_generation = 0

    def _look_at(self, answer: JoinAnswer) -> None:
        assert answer.generation >= self.newest_generation
        self.newest_generation = answer.generation
        if answer.members:
            assert answer.leader == answer.member_id
            assert answer.member_id in {member.member_id for member in answer.members}
            if not answer.skip_assignment:
                self.leaders[self.life, answer.generation].add(self._who(answer.leader))
        assert len(self.leaders[self.life, answer.generation]) <= 1

    def _who(self, member_id: str) -> str:
        """A static member is the same one under every id."""
        return self.instance_of[member_id] or member_id

    @invariant()
    def what_was_written_gives_the_same_shard(self) -> None:
        live, replayed = observe(self.hosted.shard), observe(self.hosted.replayed())
        assert replayed.offsets == live.offsets
        assert set(replayed.groups) == set(live.groups)
        for group_id, (listing, described) in live.groups.items():
            if listing.state in ("Stable", "Empty"):
                assert replayed.groups[group_id] == (listing, described)

    def teardown(self) -> None:
        self.hosted.advance(FOREVER_MS)
        waiting = [n for n in range(self.hosted.asked) if Token(n) not in self.hosted.answers]
        assert not waiting

    def _some_id(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.ids))

    def _generation(self, data: st.DataObject) -> int:
        return data.draw(st.just(self.newest_generation) | st.integers(-1, 3))


class Observed:
    """All that can be asked of a shard without changing it."""

    def __init__(self) -> None:
        self.groups: dict[str, tuple[GroupListing, ClassicDescription]] = {}
        self.offsets: list[list[FetchedOffset]] = []


def observe(shard: GroupShard) -> Observed:
    seen = Observed()
    for listing in _asked(shard.on_list((), (), Token(0), 0)):
        (described,) = (shard.on_describe(listing.group_id, Token(0), 0),)
        reply = described[0]
        assert isinstance(reply, Reply)
        assert isinstance(reply.answer, ClassicDescription)
        seen.groups[listing.group_id] = listing, reply.answer
    for requires_stable in (False, True):
        request = FetchRequest(GROUP, None, PARTITIONS, requires_stable)
        (reply,) = shard.on_fetch(request, Token(0), 0)
        assert isinstance(reply, Reply)
        assert isinstance(reply.answer, list)
        seen.offsets.append(reply.answer)
    return seen


def _asked(effects: Effects) -> list[GroupListing]:
    (reply,) = effects
    assert isinstance(reply, Reply)
    assert isinstance(reply.answer, list)
    return reply.answer


TestGroupHistory = GroupHistory.TestCase
TestGroupHistory.settings = settings(stateful_step_count=40)
