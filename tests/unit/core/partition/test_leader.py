"""R3, R6, R8: what is committed, who is in sync, and when acks=all is refused."""

from collections.abc import Iterable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.effects import ADVANCED, NOTHING, Effects, ProposeIsr
from tidelog.core.partition.leader import (
    ACKS_ALL,
    JOINING_WAIT_MAX_MS,
    NO_BROKER_EPOCH,
    REFUSED_ISR_RETRY_MAX_MS,
    REFUSED_ISR_RETRY_MS,
    PartitionLeader,
    elected,
)

LAG_MAX_MS = 100
HOUR_MS = 3_600_000
LEADER = BrokerId(1)
FOLLOWERS = (BrokerId(2), BrokerId(3))
REPLICAS = (LEADER, *FOLLOWERS)
ALL = frozenset(REPLICAS)
EPOCH = LeaderEpoch(5)
FIRST_BROKER_EPOCH = 100


def brokers(ids: Iterable[int]) -> frozenset[BrokerId]:
    return frozenset(map(BrokerId, ids))


def registered(ids: Iterable[int]) -> dict[BrokerId, int]:
    """Live brokers and their epochs."""
    return {BrokerId(each): FIRST_BROKER_EPOCH + each for each in ids}


def leader_of(
    replicas: tuple[int, ...] = REPLICAS,
    *,
    isr: tuple[int, ...] | None = None,
    log_start: int = 0,
    log_end: int = 0,
    high_watermark: int = 0,
    min_insync_replicas: int = 1,
    now_ms: int = 0,
) -> PartitionLeader:
    return elected(
        broker=LEADER,
        replicas=tuple(map(BrokerId, replicas)),
        leader_epoch=EPOCH,
        isr=brokers(replicas if isr is None else isr),
        isr_version=0,
        live_brokers=registered(replicas),
        log_start_offset=Offset(log_start),
        log_end_offset=Offset(log_end),
        high_watermark=Offset(high_watermark),
        min_insync_replicas=min_insync_replicas,
        replica_lag_time_max_ms=LAG_MAX_MS,
        now_ms=now_ms,
    )


def append(leader: PartitionLeader, count: int, now_ms: int = 0) -> Effects:
    return leader.on_append(Offset(leader.log_end_offset + count), now_ms=now_ms)


def fetch(
    leader: PartitionLeader,
    replica: int,
    offset: int,
    now_ms: int = 0,
    *,
    log_start: int = 0,
    broker_epoch: int | None = None,
) -> Effects:
    return leader.on_follower_fetch(
        BrokerId(replica),
        broker_epoch=FIRST_BROKER_EPOCH + replica if broker_epoch is None else broker_epoch,
        fetch_offset=Offset(offset),
        log_start_offset=Offset(log_start),
        now_ms=now_ms,
    )


def accept(leader: PartitionLeader, now_ms: int = 0) -> Effects:
    """The state node took the proposal."""
    assert leader.isr_in_flight is not None
    return leader.on_isr_changed(
        leader.isr_in_flight, version=leader.isr_version + 1, now_ms=now_ms
    )


def propose(
    isr: tuple[int, ...], version: int = 0, *, unheard_of: tuple[int, ...] = ()
) -> ProposeIsr:
    epochs = registered(isr) | dict.fromkeys(brokers(unheard_of), NO_BROKER_EPOCH)
    del epochs[LEADER]
    return ProposeIsr(brokers(isr), epochs, EPOCH, version)


def test_unreplicated_partition_commits_what_it_appends() -> None:
    leader = leader_of((1,))
    assert append(leader, 3) is ADVANCED
    assert leader.high_watermark == 3


def test_append_alone_commits_nothing_while_followers_are_in_sync() -> None:
    leader = leader_of()
    assert append(leader, 3) == NOTHING
    assert leader.high_watermark == 0


def test_high_watermark_is_the_smallest_end_in_the_isr() -> None:
    leader = leader_of()
    append(leader, 5)
    assert fetch(leader, 2, 5) == NOTHING
    assert fetch(leader, 3, 3) is ADVANCED
    assert leader.high_watermark == 3


def test_follower_outside_the_isr_does_not_hold_back_the_high_watermark() -> None:
    leader = leader_of(isr=(1, 2))
    append(leader, 5)
    fetch(leader, 2, 5)
    assert leader.high_watermark == 5


def test_high_watermark_does_not_move_back_with_a_follower() -> None:
    leader = leader_of((1, 2))
    append(leader, 5)
    fetch(leader, 2, 5)
    assert fetch(leader, 2, 1) == NOTHING
    assert leader.high_watermark == 5


def test_new_leader_commits_nothing_it_has_not_heard_of_from_its_followers() -> None:
    leader = leader_of(log_end=10, high_watermark=6)
    assert leader.high_watermark == 6
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.high_watermark == 10


def test_new_leader_alone_in_its_isr_commits_its_whole_log() -> None:
    assert leader_of(isr=(1,), log_end=10, high_watermark=6).high_watermark == 10


@pytest.mark.parametrize(("checkpointed", "expected"), [(2, 4), (12, 10)])
def test_checkpointed_high_watermark_is_kept_inside_the_log(
    checkpointed: int, expected: int
) -> None:
    leader = leader_of(log_start=4, log_end=10, high_watermark=checkpointed)
    assert leader.high_watermark == expected


def test_log_start_moves_with_retention() -> None:
    leader = leader_of((1,))
    append(leader, 5)
    leader.on_log_start_advanced(Offset(4))
    assert leader.log_start_offset == 4


def test_low_watermark_waits_for_live_followers() -> None:
    leader = leader_of((1, 2))
    append(leader, 5)
    fetch(leader, 2, 5)
    leader.on_log_start_advanced(Offset(4))
    assert leader.low_watermark == 0
    fetch(leader, 2, 5, log_start=4)
    assert leader.low_watermark == 4


def test_low_watermark_does_not_wait_for_the_dead() -> None:
    leader = leader_of((1, 2))
    append(leader, 5)
    fetch(leader, 2, 5)
    leader.on_log_start_advanced(Offset(4))
    leader.on_live_brokers_changed(registered((1,)), now_ms=0)
    assert leader.low_watermark == 4


def test_follower_that_lags_too_long_is_proposed_to_leave() -> None:
    leader = leader_of()
    append(leader, 4)
    fetch(leader, 2, 4)
    assert leader.on_tick(now_ms=LAG_MAX_MS) == NOTHING
    assert leader.on_tick(now_ms=LAG_MAX_MS + 1) == (propose((1, 2)),)


def test_follower_that_lags_leaves_though_the_clock_was_set_back() -> None:
    """It stayed for as long as the clock had been set back by, and acks=all waited for it."""
    leader = leader_of(now_ms=HOUR_MS)
    append(leader, 4, now_ms=HOUR_MS)
    fetch(leader, 2, 4, now_ms=HOUR_MS)
    assert leader.on_tick(now_ms=0) == NOTHING
    assert leader.on_tick(now_ms=LAG_MAX_MS) == NOTHING
    assert leader.on_tick(now_ms=LAG_MAX_MS + 1) == (propose((1, 2)),)


def test_refused_proposal_is_made_again_though_the_clock_was_set_back() -> None:
    leader = out_of_sync()
    fetch(leader, 3, 4, now_ms=HOUR_MS)
    assert leader.on_isr_refused(now_ms=HOUR_MS) == NOTHING
    assert fetch(leader, 3, 4, now_ms=0) == NOTHING
    assert fetch(leader, 3, 4, now_ms=REFUSED_ISR_RETRY_MS) == (propose((1, 2, 3)),)


def test_who_is_refused_again_and_again_is_proposed_less_and_less_often() -> None:
    """A thousand partitions had their say every second, for as long as a disk was broken."""
    leader = out_of_sync()
    fetch(leader, 3, 4)
    refused_at_ms = []
    for now_ms in range(0, 10 * REFUSED_ISR_RETRY_MAX_MS, REFUSED_ISR_RETRY_MS):
        if leader.isr_in_flight is not None:
            leader.on_isr_refused(now_ms=now_ms)
            refused_at_ms.append(now_ms)
        leader.on_tick(now_ms=now_ms)
    assert 10 < len(refused_at_ms) < 20
    fetch(leader, 3, 4, now_ms=now_ms)
    assert leader.propose_from_ms <= now_ms + REFUSED_ISR_RETRY_MS


def test_what_is_committed_moves_on_without_a_follower_that_left() -> None:
    leader = leader_of()
    append(leader, 4)
    fetch(leader, 2, 4)
    leader.on_tick(now_ms=LAG_MAX_MS + 1)
    assert leader.high_watermark == 0
    assert accept(leader, LAG_MAX_MS + 1) is ADVANCED
    assert leader.high_watermark == 4


def test_follower_at_the_end_of_an_idle_log_stays() -> None:
    leader = leader_of()
    append(leader, 1)
    fetch(leader, 2, 1)
    fetch(leader, 3, 1)
    assert leader.on_tick(now_ms=1_000 * LAG_MAX_MS) == NOTHING


def test_burst_of_any_size_does_not_shrink_the_isr() -> None:
    """R6: there is no replica.lag.max.messages."""
    leader = leader_of()
    fetch(leader, 2, 0, now_ms=1_000)
    fetch(leader, 3, 0, now_ms=1_000)
    append(leader, 1_000_000_000, now_ms=1_001)
    assert leader.on_tick(now_ms=1_000 + LAG_MAX_MS) == NOTHING


def test_follower_that_is_always_a_little_behind_stays() -> None:
    leader = leader_of((1, 2))
    now_ms = 0
    for _ in range(20):
        append(leader, 10, now_ms)
        # It asks for what was the end at its last fetch, never for the end of now.
        fetch(leader, 2, leader.log_end_offset - 10, now_ms)
        assert leader.on_tick(now_ms=now_ms) == NOTHING
        now_ms += LAG_MAX_MS // 2


def test_follower_that_falls_further_behind_leaves_although_it_fetches() -> None:
    leader = leader_of((1, 2))
    append(leader, 10)
    fetch(leader, 2, 1, now_ms=0)
    append(leader, 100)
    fetch(leader, 2, 2, now_ms=LAG_MAX_MS)
    assert leader.on_tick(now_ms=LAG_MAX_MS + 1) == (propose((1,)),)


def test_no_second_proposal_while_one_is_unanswered() -> None:
    leader = leader_of()
    append(leader, 4)
    leader.on_tick(now_ms=LAG_MAX_MS + 1)
    assert leader.on_tick(now_ms=LAG_MAX_MS + 2) == NOTHING


def out_of_sync(high_watermark: int = 4) -> PartitionLeader:
    leader = leader_of(isr=(1, 2))
    append(leader, high_watermark)
    fetch(leader, 2, high_watermark)
    return leader


def test_follower_that_reached_the_high_watermark_is_proposed_to_join() -> None:
    leader = out_of_sync()
    assert fetch(leader, 3, 3) == NOTHING
    assert fetch(leader, 3, 4) == (propose((1, 2, 3)),)


def test_follower_has_to_reach_the_start_of_the_epoch() -> None:
    """A new leader's high watermark lags behind what its predecessor committed."""
    leader = leader_of(isr=(1, 2), log_end=10, high_watermark=3)
    assert fetch(leader, 3, 9) == NOTHING
    assert fetch(leader, 3, 10) == (propose((1, 2, 3), unheard_of=(2,)),)


def test_follower_without_a_session_may_not_join() -> None:
    leader = out_of_sync()
    leader.on_live_brokers_changed(registered((1, 2)), now_ms=0)
    assert fetch(leader, 3, 4) == NOTHING


def test_follower_has_to_catch_up_under_the_registration_it_has_now() -> None:
    """What an earlier life of that broker had says nothing about what this one has (KIP-903)."""
    leader = out_of_sync()
    assert fetch(leader, 3, 4, broker_epoch=FIRST_BROKER_EPOCH) == NOTHING
    leader.on_live_brokers_changed({**leader.live_brokers, BrokerId(3): 200}, now_ms=0)
    assert fetch(leader, 3, 4) == NOTHING
    (proposal,) = fetch(leader, 3, 4, broker_epoch=200)
    assert proposal == ProposeIsr(ALL, {**registered((2,)), BrokerId(3): 200}, EPOCH, 0)


def test_follower_of_an_earlier_registration_is_not_waited_for() -> None:
    leader = leader_of((1, 2), isr=(1,))
    fetch(leader, 2, 0)
    leader.on_isr_refused(now_ms=0)
    append(leader, 3)
    assert leader.on_live_brokers_changed({LEADER: 101, BrokerId(2): 200}, now_ms=0) is ADVANCED


def test_no_expansion_while_a_proposal_is_unanswered() -> None:
    leader = leader_of(isr=(1,))
    assert fetch(leader, 2, 0) == (propose((1, 2)),)
    assert fetch(leader, 3, 0) == NOTHING


def test_proposed_follower_counts_before_the_answer() -> None:
    leader = out_of_sync()
    fetch(leader, 3, 4)
    append(leader, 1, now_ms=LAG_MAX_MS + 1)
    fetch(leader, 2, 5, now_ms=LAG_MAX_MS + 1)
    assert leader.high_watermark == 4


def test_member_counts_until_its_removal_is_answered() -> None:
    leader = leader_of((1, 2))
    append(leader, 4)
    leader.on_tick(now_ms=LAG_MAX_MS + 1)
    append(leader, 1, now_ms=LAG_MAX_MS + 1)
    assert leader.high_watermark == 0


def test_follower_about_to_join_is_waited_for() -> None:
    """Otherwise the high watermark would run ahead of it for ever."""
    leader = leader_of((1, 2), isr=(1,))
    fetch(leader, 2, 0, now_ms=10)
    assert leader.isr_in_flight is not None
    leader.on_isr_refused(now_ms=10)
    assert append(leader, 3, now_ms=11) == NOTHING
    assert append(leader, 1, now_ms=11 + LAG_MAX_MS) == NOTHING  # It had everything until 11.
    assert append(leader, 1, now_ms=11 + LAG_MAX_MS + 1) is ADVANCED


def test_follower_about_to_join_that_asks_no_more_is_not_waited_for_long() -> None:
    """Its disk filled up as soon as it had caught up, every ten seconds, and nobody could write."""
    leader = out_of_sync()
    leader.replica_lag_time_max_ms = 10 * JOINING_WAIT_MAX_MS
    leader.propose_from_ms = 10 * JOINING_WAIT_MAX_MS
    fetch(leader, 3, 4)
    append(leader, 1)
    fetch(leader, 2, 5)
    assert leader.on_tick(now_ms=JOINING_WAIT_MAX_MS) == NOTHING
    assert leader.on_tick(now_ms=JOINING_WAIT_MAX_MS + 1) is ADVANCED
    assert leader.high_watermark == 5


def test_member_that_the_controller_took_out_is_not_waited_for() -> None:
    """Its disk failed. It had been caught up a moment before, and was waited for as if it still
    were, for `replica.lag.time.max.ms`."""
    leader = leader_of()
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    append(leader, 4)
    fetch(leader, 2, 4)
    assert leader.on_isr_changed(brokers((1, 2)), version=1, now_ms=0) is ADVANCED
    assert leader.high_watermark == 4


def test_dead_follower_is_not_waited_for() -> None:
    leader = leader_of((1, 2), isr=(1,))
    fetch(leader, 2, 0, now_ms=10)
    leader.on_isr_refused(now_ms=10)
    append(leader, 3, now_ms=11)
    assert leader.on_live_brokers_changed(registered((1,)), now_ms=11) is ADVANCED
    assert leader.high_watermark == 3


def test_refused_proposal_may_be_made_again_after_a_while() -> None:
    leader = out_of_sync()
    fetch(leader, 3, 4)
    assert leader.on_isr_refused(now_ms=0) == NOTHING
    assert leader.isr == {1, 2}
    assert fetch(leader, 3, 4, now_ms=REFUSED_ISR_RETRY_MS - 1) == NOTHING
    assert fetch(leader, 3, 4, now_ms=REFUSED_ISR_RETRY_MS) == (propose((1, 2, 3)),)


def test_next_proposal_expects_the_new_version() -> None:
    leader = out_of_sync()
    fetch(leader, 3, 4)
    accept(leader)
    append(leader, 1)
    fetch(leader, 2, 5)
    assert leader.on_tick(now_ms=LAG_MAX_MS + 1) == (propose((1, 2), version=1),)


def test_late_answer_of_an_older_version_is_no_news() -> None:
    leader = out_of_sync()
    leader.on_isr_changed(brokers((1,)), version=7, now_ms=0)
    assert leader.on_isr_changed(brokers((1, 2)), version=6, now_ms=0) == NOTHING
    assert leader.isr == {1}


def test_added_replica_is_copied_to_and_then_joins() -> None:
    """KIP-455: replicas are added to a partition whose leader leads on."""
    leader = leader_of((1, 2))
    append(leader, 4)
    fetch(leader, 2, 4)
    assert leader.on_replicas_changed((LEADER, *FOLLOWERS), now_ms=0) == NOTHING
    leader.on_live_brokers_changed(registered(REPLICAS), now_ms=0)
    append(leader, 1)
    assert fetch(leader, 2, 5) is ADVANCED
    assert fetch(leader, 3, 4) == NOTHING
    assert fetch(leader, 3, 5) == (propose((1, 2, 3)),)


def test_replica_that_stays_keeps_what_is_known_of_it() -> None:
    leader = leader_of()
    append(leader, 4)
    fetch(leader, 2, 3)
    known = leader.followers[BrokerId(2)]
    leader.on_replicas_changed((BrokerId(4), BrokerId(2), BrokerId(3), LEADER), now_ms=0)
    assert leader.followers[BrokerId(2)] is known
    assert leader.followers.keys() == {2, 3, 4}


def test_replica_that_left_the_isr_may_be_taken_away_and_counts_no_more() -> None:
    leader = leader_of(min_insync_replicas=3)
    append(leader, 4)
    fetch(leader, 2, 4)
    leader.on_isr_changed(brokers((1, 2)), version=1, now_ms=0)
    leader.on_replicas_changed((LEADER, BrokerId(2)), now_ms=0)
    assert leader.followers.keys() == {2}
    leader.refuse_before_append(ACKS_ALL)


@pytest.mark.parametrize("replicas", [(2, 3), (1, 2)])
def test_taking_away_the_leader_or_a_member_of_the_isr_is_a_bug(replicas: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        leader_of().on_replicas_changed(tuple(map(BrokerId, replicas)), now_ms=0)


def test_acks_all_is_refused_below_min_isr() -> None:
    leader = leader_of(isr=(1,), min_insync_replicas=2)
    with pytest.raises(RequestRefused, match=r"min\.insync\.replicas asks for 2") as refused:
        leader.refuse_before_append(ACKS_ALL)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_are_served_below_min_isr(acks: int) -> None:
    leader = leader_of(isr=(1,), min_insync_replicas=2)
    leader.refuse_before_append(acks)
    append(leader, 1)
    assert leader.high_watermark == 1


def test_acks_all_is_served_at_min_isr() -> None:
    leader_of(isr=(1, 2), min_insync_replicas=2).refuse_before_append(ACKS_ALL)


def test_min_isr_asks_for_no_more_replicas_than_are_assigned() -> None:
    leader = leader_of((1,), min_insync_replicas=2)
    leader.refuse_before_append(ACKS_ALL)
    append(leader, 1)
    assert leader.acknowledgement(Offset(1)) is ErrorCode.NONE


def test_lowering_min_isr_brings_writes_back() -> None:
    leader = leader_of(isr=(1,), min_insync_replicas=2)
    leader.on_min_insync_replicas_changed(1)
    leader.refuse_before_append(ACKS_ALL)


def test_acks_all_waits_for_the_high_watermark() -> None:
    leader = leader_of((1, 2), min_insync_replicas=2)
    append(leader, 2)
    assert leader.acknowledgement(Offset(2)) is None
    fetch(leader, 2, 2)
    assert leader.acknowledgement(Offset(2)) is ErrorCode.NONE


def test_isr_that_shrank_after_the_append_is_not_success() -> None:
    leader = leader_of((1, 2), min_insync_replicas=2)
    leader.refuse_before_append(ACKS_ALL)
    append(leader, 2)
    leader.on_tick(now_ms=LAG_MAX_MS + 1)
    accept(leader, LAG_MAX_MS + 1)
    assert leader.acknowledgement(Offset(2)) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_log_that_did_not_grow_is_a_bug() -> None:
    leader = leader_of((1,), log_end=3)
    with pytest.raises(AssertionError):
        leader.on_append(Offset(3), now_ms=0)


def test_fetch_beyond_the_log_end_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        fetch(leader_of(), 2, 1)


def test_isr_without_the_leader_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        leader_of().on_isr_changed(brokers((2, 3)), version=1, now_ms=0)


class CommittedIsReplicated(RuleBasedStateMachine):
    """Whatever the order of events, a committed offset is held by the whole isr.

    The state node is modelled with its version, because what counts is the isr that the
    controller would elect from, not the one the leader believes in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leader = leader_of()
        self.now_ms = 0
        self.held = dict.fromkeys(FOLLOWERS, 0)
        self.node_isr = ALL
        self.node_version = 0
        self.proposal: ProposeIsr | None = None
        self.high_watermark = 0

    @initialize(
        out_of_sync=st.frozensets(st.sampled_from(FOLLOWERS)),
        held=st.tuples(*[st.integers(0, 4)] * 2),
    )
    def elect(self, out_of_sync: frozenset[BrokerId], held: tuple[int, int]) -> None:
        self.node_isr = ALL - out_of_sync
        self.held = dict(zip(FOLLOWERS, held, strict=True))
        committed = min([4, *(self.held[r] for r in self.node_isr - {LEADER})])
        self.leader = leader_of(
            isr=tuple(self.node_isr), log_end=4, high_watermark=min(committed, 2)
        )
        self.high_watermark = self.leader.high_watermark

    def perform(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                assert self.proposal is None
                self.proposal = effect
        assert (ADVANCED[0] in effects) == (self.leader.high_watermark > self.high_watermark)
        self.high_watermark = self.leader.high_watermark

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        self.perform(append(self.leader, count, self.now_ms))

    @rule(replica=st.sampled_from(FOLLOWERS), data=st.data())
    def fetch(self, replica: BrokerId, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.held[replica], self.leader.log_end_offset))
        self.held[replica] = offset
        self.perform(fetch(self.leader, replica, offset, self.now_ms))

    @rule(replica=st.sampled_from(FOLLOWERS))
    def catch_up(self, replica: BrokerId) -> None:
        self.held[replica] = self.leader.log_end_offset
        self.perform(fetch(self.leader, replica, self.held[replica], self.now_ms))

    @rule(replica=st.sampled_from(FOLLOWERS))
    def reach_the_high_watermark(self, replica: BrokerId) -> None:
        self.held[replica] = max(self.held[replica], self.leader.high_watermark)
        self.perform(fetch(self.leader, replica, self.held[replica], self.now_ms))

    @rule(elapsed_ms=st.integers(0, 2 * LAG_MAX_MS))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.perform(self.leader.on_tick(now_ms=self.now_ms))

    @precondition(lambda self: self.proposal is not None)
    @rule()
    def write_proposal_and_lose_the_answer(self) -> None:
        assert self.proposal is not None
        if self.proposal.expected_version == self.node_version:
            self.node_isr = self.proposal.isr
            self.node_version += 1

    @precondition(lambda self: self.proposal is not None)
    @rule()
    def answer_proposal(self) -> None:
        self.write_proposal_and_lose_the_answer()
        self.proposal = None
        self.hear_of_the_state_node()

    @precondition(lambda self: self.proposal is not None)
    @rule()
    def refuse_proposal(self) -> None:
        assert self.proposal is not None
        if self.proposal.expected_version != self.node_version:
            return  # It may have been written already; only reading the node can tell.
        self.proposal = None
        self.perform(self.leader.on_isr_refused(now_ms=self.now_ms))

    @precondition(lambda self: self.proposal is None)
    @rule()
    def hear_of_the_state_node(self) -> None:
        self.perform(
            self.leader.on_isr_changed(self.node_isr, version=self.node_version, now_ms=self.now_ms)
        )

    @rule(replica=st.sampled_from(FOLLOWERS))
    def controller_removes(self, replica: BrokerId) -> None:
        self.node_isr -= {replica}
        self.node_version += 1

    @rule(live=st.frozensets(st.sampled_from(FOLLOWERS)))
    def sessions_change(self, live: frozenset[BrokerId]) -> None:
        brokers = registered(live | {LEADER})
        self.perform(self.leader.on_live_brokers_changed(brokers, now_ms=self.now_ms))

    @invariant()
    def committed_is_held_by_every_in_sync_follower(self) -> None:
        for replica in self.node_isr - {LEADER}:
            assert self.leader.high_watermark <= self.held[replica]

    @invariant()
    def committed_is_held_by_whom_the_leader_believes_in_sync(self) -> None:
        for replica in self.leader.isr - {LEADER}:
            assert self.leader.high_watermark <= self.held[replica]

    def teardown(self) -> None:
        """Once faults have stopped, everybody joins and everything is committed."""
        self.sessions_change(frozenset(FOLLOWERS))
        self.now_ms += REFUSED_ISR_RETRY_MS
        for _ in range(3):
            if self.proposal is not None:
                self.answer_proposal()
            self.hear_of_the_state_node()
            for replica in FOLLOWERS:
                self.catch_up(replica)
                if self.proposal is not None:
                    self.answer_proposal()
        assert self.leader.isr == ALL
        assert self.leader.high_watermark == self.leader.log_end_offset


TestCommittedIsReplicated = CommittedIsReplicated.TestCase
