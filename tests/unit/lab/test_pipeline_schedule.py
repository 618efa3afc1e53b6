"""Which processes of a Spark job a seed kills (X2, B3)."""

from collections import Counter

from tidelog.lab.pipeline_schedule import Victim, plan_kills


def test_a_seed_means_the_same_kills_every_time() -> None:
    assert plan_kills(7, kill_count=20, record_count=900) == plan_kills(
        7, kill_count=20, record_count=900
    )
    assert plan_kills(7, kill_count=20, record_count=900) != plan_kills(
        8, kill_count=20, record_count=900
    )


def test_as_many_as_were_asked_for_hit_the_job_and_brokers_come_on_top() -> None:
    kills = plan_kills(1, kill_count=40, record_count=4_900)
    victims = Counter(kill.victim for kill in kills)
    assert set(victims) == set(Victim)
    assert victims.total() - victims[Victim.BROKER] == 40
    assert victims[Victim.BROKER] == 8
    assert [kill.at_record for kill in kills] == [100 * n for n in range(1, 49)]


def test_no_kills_are_none() -> None:
    assert plan_kills(1, kill_count=0, record_count=100) == ()
