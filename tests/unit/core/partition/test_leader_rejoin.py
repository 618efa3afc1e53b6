"""A follower that has everything joins the isr although it has nothing to ask for (R6).

In an incremental session a follower does not name a partition without news. What stood in its way
when it last did - a proposal that was outdated, a member that was not eligible yet - may be over.
"""

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.effects import NOTHING, Effects, ProposeIsr
from tidelog.core.partition.leader import REFUSED_ISR_RETRY_MS, PartitionLeader, elected

LEADER, OTHER, THIRD = map(BrokerId, (1, 2, 3))
EPOCHS = {LEADER: 11, OTHER: 12, THIRD: 13}
LAG_MAX_MS = 100


def leader_with_isr(*isr: BrokerId) -> PartitionLeader:
    return elected(
        broker=LEADER,
        replicas=(LEADER, OTHER, THIRD),
        leader_epoch=LeaderEpoch(5),
        isr=frozenset(isr),
        isr_version=0,
        live_brokers=EPOCHS,
        log_start_offset=Offset(0),
        log_end_offset=Offset(10),
        high_watermark=Offset(10),
        min_insync_replicas=1,
        replica_lag_time_max_ms=LAG_MAX_MS,
        now_ms=0,
    )


def fetch(leader: PartitionLeader, replica: BrokerId, offset: int) -> Effects:
    return leader.on_follower_fetch(
        replica,
        broker_epoch=EPOCHS[replica],
        fetch_offset=Offset(offset),
        log_start_offset=Offset(0),
        now_ms=0,
    )


def proposed(effects: Effects) -> list[frozenset[BrokerId]]:
    return [effect.isr for effect in effects if isinstance(effect, ProposeIsr)]


def test_who_waited_for_another_change_of_the_isr_is_proposed_after_it() -> None:
    leader = leader_with_isr(LEADER, OTHER)
    fetch(leader, OTHER, 10)
    assert proposed(fetch(leader, THIRD, 10)) == [frozenset({LEADER, OTHER, THIRD})]
    # The controller has taken out the second in the meantime, and the proposal is void.
    effects = leader.on_isr_changed(frozenset({LEADER, OTHER}), version=2, now_ms=1)
    assert proposed(effects) == [frozenset({LEADER, OTHER, THIRD})]


def test_who_was_refused_is_proposed_again_by_and_by() -> None:
    leader = leader_with_isr(LEADER)
    fetch(leader, THIRD, 10)
    leader.on_isr_refused(now_ms=1)
    assert leader.on_tick(now_ms=2) == NOTHING
    effects = leader.on_tick(now_ms=1 + REFUSED_ISR_RETRY_MS)
    assert proposed(effects) == [frozenset({LEADER, THIRD})]


def test_all_that_have_everything_are_proposed_at_once() -> None:
    leader = leader_with_isr(LEADER)
    fetch(leader, THIRD, 10)
    fetch(leader, OTHER, 10)
    leader.on_isr_refused(now_ms=1)
    effects = leader.on_tick(now_ms=1 + REFUSED_ISR_RETRY_MS)
    assert proposed(effects) == [frozenset({LEADER, OTHER, THIRD})]


def test_who_lags_is_not_proposed_by_time_alone() -> None:
    leader = leader_with_isr(LEADER)
    fetch(leader, THIRD, 9)
    assert leader.on_tick(now_ms=1) == NOTHING


def test_what_an_earlier_life_of_a_broker_had_does_not_count() -> None:
    leader = leader_with_isr(LEADER)
    fetch(leader, THIRD, 10)
    leader.on_isr_refused(now_ms=1)
    leader.on_live_brokers_changed({**EPOCHS, THIRD: 99}, now_ms=2)
    assert leader.on_tick(now_ms=1 + REFUSED_ISR_RETRY_MS) == NOTHING


def test_who_is_known_to_live_only_now_is_proposed_then() -> None:
    leader = leader_with_isr(LEADER)
    leader.on_live_brokers_changed({LEADER: 11}, now_ms=1)
    assert fetch(leader, THIRD, 10) == NOTHING
    effects = leader.on_live_brokers_changed(EPOCHS, now_ms=2)
    assert proposed(effects) == [frozenset({LEADER, THIRD})]
