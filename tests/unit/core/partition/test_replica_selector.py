"""Whom a consumer is told to read from (KIP-392)."""

import pytest

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.leader import PartitionLeader, elected
from tidelog.core.partition.replica_selector import preferred_read_replica

LEADER, NEAR, ALSO_NEAR, FAR = map(BrokerId, (1, 2, 3, 4))
REPLICAS = (LEADER, NEAR, ALSO_NEAR, FAR)
BROKER_EPOCH = 7
LOG_END = 10


def leader_of(isr: tuple[BrokerId, ...] = REPLICAS) -> PartitionLeader:
    """Nobody has fetched yet."""
    return elected(
        broker=LEADER,
        replicas=REPLICAS,
        leader_epoch=LeaderEpoch(1),
        isr=frozenset(isr),
        isr_version=0,
        live_brokers=dict.fromkeys(REPLICAS, BROKER_EPOCH),
        log_start_offset=Offset(0),
        log_end_offset=Offset(LOG_END),
        high_watermark=Offset(0),
        min_insync_replicas=1,
        replica_lag_time_max_ms=1_000,
        now_ms=0,
    )


def fetch(
    leader: PartitionLeader,
    replica: BrokerId,
    offset: int,
    *,
    log_start: int = 0,
    now_ms: int = 1,
    broker_epoch: int = BROKER_EPOCH,
) -> None:
    leader.on_follower_fetch(
        replica,
        broker_epoch=broker_epoch,
        fetch_offset=Offset(offset),
        log_start_offset=Offset(log_start),
        now_ms=now_ms,
    )


def preferred(leader: PartitionLeader, offset: int, *near: BrokerId) -> BrokerId | None:
    return preferred_read_replica(leader, Offset(offset), near.__contains__)


def test_a_follower_that_is_near_is_preferred_to_a_leader_that_is_not() -> None:
    leader = leader_of()
    fetch(leader, NEAR, 5)
    assert preferred(leader, 5, NEAR) == NEAR


def test_a_leader_that_is_near_is_preferred_to_all() -> None:
    leader = leader_of()
    fetch(leader, NEAR, LOG_END)
    assert preferred(leader, 0, NEAR, LEADER) is None


def test_nobody_near_leaves_the_leader() -> None:
    leader = leader_of()
    fetch(leader, FAR, LOG_END)
    assert preferred(leader, 0) is None
    assert preferred(leader, 0, BrokerId(99)) is None


@pytest.mark.parametrize(("offset", "holds"), [(2, False), (3, True), (6, True), (7, False)])
def test_it_has_to_hold_what_is_asked_for(offset: int, holds: bool) -> None:
    leader = leader_of()
    fetch(leader, NEAR, 6, log_start=3)
    assert preferred(leader, offset, NEAR) == (NEAR if holds else None)


def test_who_has_not_fetched_is_not_known_to_hold_anything() -> None:
    assert preferred(leader_of(), 0, NEAR) is None


def test_it_has_to_be_in_sync() -> None:
    leader = leader_of(isr=(LEADER, FAR))
    fetch(leader, NEAR, 5)
    assert preferred(leader, 0, NEAR) is None
    leader.on_isr_changed(frozenset({LEADER, NEAR}), version=1, now_ms=2)
    assert preferred(leader, 0, NEAR) == NEAR
    leader.on_isr_changed(frozenset({LEADER}), version=2, now_ms=3)
    assert preferred(leader, 0, NEAR) is None


def test_it_has_to_be_alive_and_to_have_fetched_in_this_life() -> None:
    leader = leader_of()
    fetch(leader, NEAR, 5)
    leader.on_live_brokers_changed({LEADER: BROKER_EPOCH}, now_ms=2)
    assert preferred(leader, 0, NEAR) is None
    leader.on_live_brokers_changed({LEADER: BROKER_EPOCH, NEAR: BROKER_EPOCH + 1}, now_ms=3)
    assert preferred(leader, 0, NEAR) is None
    fetch(leader, NEAR, 5, broker_epoch=BROKER_EPOCH + 1)
    assert preferred(leader, 0, NEAR) == NEAR


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((9, 1), (8, 2), NEAR),
        ((8, 1), (9, 2), ALSO_NEAR),
        ((LOG_END, 5), (LOG_END, 1), NEAR),
        ((LOG_END, 1), (LOG_END, 5), ALSO_NEAR),
        ((LOG_END, 1), (LOG_END, 1), ALSO_NEAR),
    ],
    ids=["longer", "longer", "caught up last", "caught up last", "larger id"],
)
def test_the_most_caught_up_is_preferred(
    first: tuple[int, int], second: tuple[int, int], expected: BrokerId
) -> None:
    leader = leader_of()
    for replica, (offset, now_ms) in ((NEAR, first), (ALSO_NEAR, second)):
        fetch(leader, replica, offset, now_ms=now_ms)
    assert preferred(leader, 0, NEAR, ALSO_NEAR) == expected
