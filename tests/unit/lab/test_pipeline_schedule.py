"""Which processes of a Spark job a seed kills, and what brokers do meanwhile (X2, B3)."""

from collections import Counter
from itertools import pairwise

import pytest

from tidelog.lab.pipeline_schedule import Outage, Victim, plan_kills

JOB = {Victim.DRIVER, Victim.JVM, Victim.WORKER}


def test_a_seed_means_the_same_kills_every_time() -> None:
    assert plan_kills(7, kill_count=20, record_count=900) == plan_kills(
        7, kill_count=20, record_count=900
    )
    assert plan_kills(7, kill_count=20, record_count=900) != plan_kills(
        8, kill_count=20, record_count=900
    )


@pytest.mark.parametrize("seed", range(100))
def test_twenty_kills_hit_everybody_and_meet_brokers_that_are_away(seed: int) -> None:
    kills = plan_kills(seed, kill_count=20, record_count=200_000)
    victims = Counter(kill.victim for kill in kills)
    assert victims == {Victim.DRIVER: 5, Victim.JVM: 5, Victim.WORKER: 10, Victim.BROKER: 5}
    outages = Counter(kill.outage for kill in kills if kill.victim is Victim.BROKER)
    assert set(outages) == set(Outage)
    assert outages[Outage.STARTING] + outages[Outage.DOWN] >= 3


@pytest.mark.parametrize("seed", range(100))
def test_a_broker_is_followed_by_two_of_the_job_before_the_next_one(seed: int) -> None:
    """The first may find it away; at the second it is in sync again."""
    kills = plan_kills(seed, kill_count=40, record_count=200_000)
    for before, kill in pairwise(kills):
        assert (before.victim is not Victim.BROKER) or (kill.victim in JOB)
    places = [number for number, kill in enumerate(kills) if kill.victim is Victim.BROKER]
    assert all(later - sooner > 2 for sooner, later in pairwise(places))
    assert all((kill.outage is None) == (kill.victim in JOB) for kill in kills)


def test_they_come_with_progress() -> None:
    kills = plan_kills(1, kill_count=40, record_count=5_100)
    assert [kill.number for kill in kills] == list(range(1, 51))
    assert [kill.at_record for kill in kills] == [100 * n for n in range(1, 51)]


def test_few_kills_hit_everybody_too() -> None:
    assert {kill.victim for kill in plan_kills(1, kill_count=4, record_count=100)} == set(Victim)
    for count in range(1, 9):
        kills = plan_kills(1, kill_count=count, record_count=100)
        assert sum(kill.victim in JOB for kill in kills) == count


def test_no_kills_are_none() -> None:
    assert plan_kills(1, kill_count=0, record_count=100) == ()
