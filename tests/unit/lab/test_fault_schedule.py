"""Which faults a seed means, at random and where somebody wrote them down (B3)."""

from collections import Counter
from dataclasses import replace

import pytest

from tidelog.lab.fault_kinds import DAMAGE, NETWORK, BrokerNumber, Deed, Others, Role
from tidelog.lab.fault_schedule import Fault, PacedFault, Possible, random_faults, timeline
from tidelog.lab.schedule_language import parse_schedule

SESSION_TIMEOUT_S = 2.0
EVERYTHING = Possible(
    has_ensemble=True,
    has_network=True,
    has_small_disks=True,
    can_expire=True,
    at_once_max=3,
    broker_count=3,
    partition_count=6,
    session_timeout_s=SESSION_TIMEOUT_S,
)
LITTLE = replace(
    EVERYTHING,
    has_ensemble=False,
    has_network=False,
    has_small_disks=False,
    can_expire=False,
    at_once_max=1,
)


def faults_of(seed: int, count: int, possible: Possible = EVERYTHING) -> list[PacedFault]:
    return list(random_faults(seed, fault_count=count, possible=possible))


def test_seed_means_the_same_faults_every_time() -> None:
    assert faults_of(1, 50) == faults_of(1, 50)
    assert faults_of(1, 50) != faults_of(2, 50)


def test_shorter_schedule_is_the_beginning_of_a_longer_one() -> None:
    assert faults_of(1, 50)[:20] == faults_of(1, 20)


def test_a_thousand_faults_hold_every_deed_and_every_role() -> None:
    faults = [each.fault for each in faults_of(1, 1_000)]
    assert {fault.deed for fault in faults} == set(Deed)
    assert {fault.victim for fault in faults} == set(Role)
    assert {fault.partition for fault in faults} == set(range(6))
    assert {fault.others for fault in faults if fault.deed in NETWORK} == set(Others)
    assert [fault.number for fault in faults] == list(range(1, 1_001))


def test_only_what_the_cluster_allows() -> None:
    faults = [each.fault for each in faults_of(1, 500, LITTLE)]
    assert {fault.deed for fault in faults} == {
        Deed.KILL,
        Deed.PAUSE,
        Deed.STOP,
        Deed.TEAR,
        Deed.CORRUPT,
    }
    # Of three brokers, one is a minority.
    assert not {fault.victim for fault in faults} & {Role.MAJORITY, Role.ALL, Role.ZOOKEEPER_LEADER}


def test_a_log_is_damaged_only_while_others_have_everything() -> None:
    damaging = [each for each in faults_of(1, 1_000) if each.fault.deed in DAMAGE]
    assert damaging
    assert all(each.needs_sync and each.waits_for_sync for each in damaging)
    several = {Role.MINORITY, Role.MAJORITY, Role.ALL}
    assert not several & {each.fault.victim for each in damaging}


def test_servers_are_only_killed() -> None:
    deeds = Counter(
        each.fault.deed
        for each in faults_of(1, 1_000)
        if each.fault.victim is Role.ZOOKEEPER_LEADER
    )
    assert set(deeds) == {Deed.KILL}


def test_pauses_are_shorter_or_longer_than_a_session() -> None:
    away = [each.fault.away_s for each in faults_of(1, 500) if each.fault.deed is Deed.PAUSE]
    assert min(away) < SESSION_TIMEOUT_S < max(away)
    assert all(
        each.fault.away_s == 0 for each in faults_of(1, 500) if each.fault.deed is Deed.EXPIRE
    )


def told(text: str, seed: int = 1) -> list[tuple[float, Fault]]:
    found = timeline(parse_schedule(text), seed=seed, possible=EVERYTHING)
    return [(each.at_s, each.fault) for each in found]


def test_sentences_are_told_in_the_order_of_their_times() -> None:
    planned = told("kill leader for 1s every 10s 3 times\nat 15s pause broker 2 for 5s")
    assert [at_s for at_s, _ in planned] == [10, 15, 20, 30]
    assert [fault.number for _, fault in planned] == [1, 2, 3, 4]
    assert planned[1][1].victim == BrokerNumber(2)
    assert planned[1][1].away_s == 5
    assert [fault.kind for _, fault in planned][::2] == ["kill leader", "kill leader"]


def test_a_cut_says_from_whom() -> None:
    ((_, fault),) = told("cut leader from clients for 5s")
    assert fault.kind == "cut leader from clients"
    ((_, fault),) = told("slow controller by 20ms for 5s")
    assert (fault.others, fault.delay_s) == (Others.EVERYBODY, 0.02)


def test_what_is_left_open_is_the_seeds() -> None:
    text = "random every 1s 30 times\nkill random every 1s 3 times"
    assert told(text) == told(text)
    assert told(text) != told(text, seed=2)
    assert len({fault.deed for _, fault in told(text)}) > 3


@pytest.mark.parametrize("first", ["", "kill leader every 7s 3 times\n"])
def test_what_one_sentence_leaves_open_does_not_depend_on_its_times(first: str) -> None:
    random = [fault.deed for _, fault in told(first + "random every 1s 9 times")]
    assert len(random) == 9 + 3 * bool(first)
