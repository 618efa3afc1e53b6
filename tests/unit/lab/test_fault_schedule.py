"""Which faults a seed means."""

from collections import Counter

import pytest

from tidelog.lab.fault_schedule import Deed, Fault, Victim, schedule

SESSION_TIMEOUT_S = 2.0


def faults_of(seed: int, count: int, *, at_once: int = 1, zookeeper: bool = False) -> list[Fault]:
    return list(
        schedule(
            seed,
            fault_count=count,
            partition_count=6,
            at_once_max=at_once,
            session_timeout_s=SESSION_TIMEOUT_S,
            has_ensemble=zookeeper,
        )
    )


def test_seed_means_the_same_faults_every_time() -> None:
    assert faults_of(1, 50) == faults_of(1, 50)
    assert faults_of(1, 50) != faults_of(2, 50)


def test_shorter_schedule_is_the_beginning_of_a_longer_one() -> None:
    assert faults_of(1, 50)[:20] == faults_of(1, 20)


@pytest.mark.parametrize("zookeeper", [False, True])
def test_two_hundred_faults_hold_every_kind(zookeeper: bool) -> None:
    faults = faults_of(1, 200, zookeeper=zookeeper)
    kinds = Counter((fault.deed, fault.victim) for fault in faults)
    of_brokers = {
        (deed, victim) for deed in Deed for victim in Victim if victim != Victim.ENSEMBLE_LEADER
    }
    of_servers = {(Deed.KILL, Victim.ENSEMBLE_LEADER)} if zookeeper else set()
    assert set(kinds) == of_brokers | of_servers
    assert {fault.partition for fault in faults} == set(range(6))
    assert {fault.waits_for_sync for fault in faults} == {False, True}
    assert {fault.broker_count for fault in faults} == {1}


def test_pauses_are_shorter_or_longer_than_a_session() -> None:
    pauses = [fault.away_s for fault in faults_of(1, 200) if fault.deed is Deed.PAUSE]
    assert min(pauses) < SESSION_TIMEOUT_S < max(pauses)
    assert all(fault.away_s == 0 for fault in faults_of(1, 200) if fault.deed is Deed.RESTART)


def test_several_brokers_may_be_taken_at_once() -> None:
    assert {fault.broker_count for fault in faults_of(1, 50, at_once=2)} == {1, 2}
