"""Conclusions hold, do not hold, or cannot be told, by what was measured and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from tests.unit.bench.made_up import around, disk, interruption, row
from tidelog.bench import judgement
from tidelog.bench.judgement import Holding, Verdict
from tidelog.bench.measured import (
    TIDELOG,
    DeathCase,
    DeathRow,
    Interruption,
    Setup,
    ThroughputRow,
)

Rule = Callable[[Sequence[ThroughputRow], str], Verdict]


def by_acks(tps: Mapping[int, float]) -> list[ThroughputRow]:
    return [row(Setup(acks, 4, 1, 12), around(each)) for acks, each in tps.items()]


def by_replicas(tps: Mapping[int, float]) -> list[ThroughputRow]:
    return [row(Setup(-1, replicas, 1, 1), around(each)) for replicas, each in tps.items()]


def by_min_isr(tps: Mapping[int, float]) -> list[ThroughputRow]:
    return [row(Setup(-1, 4, least, 12), around(each)) for least, each in tps.items()]


def by_partitions(tps: Mapping[int, float]) -> list[ThroughputRow]:
    return [row(Setup(-1, 2, 2, partitions), around(each)) for partitions, each in tps.items()]


def one_round(rows: Sequence[ThroughputRow]) -> list[ThroughputRow]:
    return [row(each.setup, [each.rounds.of(TIDELOG)[0].tps]) for each in rows]


min_isr_does_not_matter = partial(
    judgement.alike,
    within=lambda each: each.setup.replicas,
    named=lambda each: f"min ISR {each.setup.min_insync_replicas}",
)


@pytest.mark.parametrize(
    ("rule", "rows", "holding", "words"),
    [
        (
            judgement.acks_order,
            by_acks({0: 300, 1: 200, -1: 100}),
            Holding.HOLDS,
            "4 replicas: 300 / 200 / 100",
        ),
        (judgement.acks_order, by_acks({0: 300, 1: 100, -1: 200}), Holding.DOES_NOT, "300 / 100"),
        (
            judgement.acks_order,
            by_acks({0: 300, 1: 100, -1: 100}),
            Holding.DOES_NOT,
            "no difference beyond the spread of rounds between acks=1 and -1",
        ),
        (judgement.acks_order, by_acks({0: 300, 1: 100}), Holding.UNDECIDED, "not all of"),
        (
            judgement.acks_order,
            one_round(by_acks({0: 300, 1: 200, -1: 100})),
            Holding.UNDECIDED,
            "one round",
        ),
        (
            judgement.falls_with_replicas,
            by_replicas({1: 300, 2: 200, 4: 100}),
            Holding.HOLDS,
            "1, 2, 4 replicas: 300 / 200 / 100",
        ),
        (
            judgement.falls_with_replicas,
            by_replicas({1: 300, 2: 400, 4: 100}),
            Holding.DOES_NOT,
            "300 / 400",
        ),
        (
            judgement.falls_with_replicas,
            by_replicas({1: 300, 4: 300}),
            Holding.DOES_NOT,
            "no difference beyond the spread of rounds",
        ),
        (judgement.falls_with_replicas, by_replicas({1: 300}), Holding.UNDECIDED, "fewer"),
        (
            judgement.falls_slightly_with_replicas,
            by_replicas({2: 100, 4: 90}),
            Holding.HOLDS,
            "10% less",
        ),
        (
            judgement.falls_slightly_with_replicas,
            by_replicas({2: 100, 4: 50}),
            Holding.DOES_NOT,
            "50% less",
        ),
        (
            min_isr_does_not_matter,
            by_min_isr({1: 100, 2: 101, 4: 99.5}),
            Holding.HOLDS,
            "no difference beyond the spread of rounds",
        ),
        (min_isr_does_not_matter, by_min_isr({1: 100, 2: 107}), Holding.HOLDS, "nowhere more than"),
        (
            min_isr_does_not_matter,
            by_min_isr({1: 100, 4: 60}),
            Holding.DOES_NOT,
            "min ISR 1 and min ISR 4 differ",
        ),
        (min_isr_does_not_matter, by_min_isr({1: 100}), Holding.UNDECIDED, "no two rows"),
        (
            judgement.grows_with_partitions,
            by_partitions({1: 100, 4: 200, 12: 180}),
            Holding.HOLDS,
            "100 / 200 / 180",
        ),
        (
            judgement.grows_with_partitions,
            by_partitions({1: 100, 4: 60, 12: 50}),
            Holding.DOES_NOT,
            "one partition is the fastest",
        ),
        (
            judgement.grows_out_of_proportion,
            by_partitions({1: 100, 4: 200, 12: 180}),
            Holding.HOLDS,
            "4 partitions give 2.00 times",
        ),
        (
            judgement.grows_out_of_proportion,
            by_partitions({1: 100, 2: 150, 4: 500}),
            Holding.DOES_NOT,
            "4 partitions give 5.00 times",
        ),
        (
            judgement.falls_beyond_a_point,
            by_partitions({1: 100, 4: 200, 12: 180}),
            Holding.HOLDS,
            "12 give 180, 10% less",
        ),
        (
            judgement.falls_beyond_a_point,
            by_partitions({1: 200, 4: 150, 12: 60}),
            Holding.DOES_NOT,
            "with 1 partition, 12 give 60.0, 70% less: more than a little",
        ),
        (
            judgement.falls_beyond_a_point,
            by_partitions({1: 100, 4: 200, 12: 199}),
            Holding.DOES_NOT,
            "no difference beyond the spread of rounds",
        ),
        (
            judgement.falls_beyond_a_point,
            by_partitions({1: 100, 4: 200, 12: 300}),
            Holding.DOES_NOT,
            "the most measured, are the fastest",
        ),
        (
            judgement.falls_beyond_a_point,
            one_round(by_partitions({1: 100, 4: 200, 12: 300})),
            Holding.UNDECIDED,
            "one round",
        ),
    ],
)
def test_throughput_decides(
    rule: Rule, rows: Sequence[ThroughputRow], holding: Holding, words: str
) -> None:
    verdict = rule(rows, TIDELOG)
    assert verdict.holding is holding
    assert words in verdict.why


def test_falling_at_one_acks_is_not_falling_at_all() -> None:
    rows = [
        row(Setup(acks, replicas, 1, 1), around(tps))
        for acks, figures in ((0, (300, 300)), (1, (200, 100)), (-1, (100, 50)))
        for replicas, tps in zip((1, 4), figures, strict=True)
    ]
    assert judgement.falls_with_replicas_whatever_acks(rows, TIDELOG).holding is Holding.DOES_NOT
    falling = [each for each in rows if each.setup.acks != 0]
    falling += [
        row(Setup(0, replicas, 1, 1), around(tps)) for replicas, tps in ((1, 300), (4, 200))
    ]
    assert judgement.falls_with_replicas_whatever_acks(falling, TIDELOG).holding is Holding.HOLDS


def test_a_conclusion_in_parts_holds_if_all_parts_do() -> None:
    good, bad = Verdict(Holding.HOLDS, "so"), Verdict(Holding.DOES_NOT, "not so")
    open_ = Verdict(Holding.UNDECIDED, "who knows")
    assert judgement.all_of({"a": good, "b": good}).holding is Holding.HOLDS
    assert judgement.all_of({"a": good, "b": open_}).holding is Holding.UNDECIDED
    assert judgement.all_of({"a": bad, "b": open_}) == Verdict(
        Holding.DOES_NOT, "a: does not hold here (not so); b: undecided (who knows)"
    )


def deaths(*rounds: Interruption, is_idempotent: bool = False) -> DeathRow:
    case = DeathCase(killed=(3, 4), are_restarted=False, retries=9, is_idempotent=is_idempotent)
    made = DeathRow(case, None)
    for index, each in enumerate(rounds):
        made.rounds.add(TIDELOG, index, each)
    return made


DeathsRule = Callable[[Sequence[DeathRow], str], Verdict]


@pytest.mark.parametrize(
    ("rule", "rounds", "holding", "words"),
    [
        (
            judgement.goes_on,
            [interruption(whole_after_s=0.2), interruption(whole_after_s=9.5)],
            Holding.HOLDS,
            "0.200 to 9.50 s",
        ),
        (
            judgement.goes_on,
            [interruption(whole_after_s=None), interruption()],
            Holding.DOES_NOT,
            "1 of 2 rounds",
        ),
        (
            judgement.slows_down,
            [interruption(before=100, after=60), interruption(before=110, after=70)],
            Holding.HOLDS,
            "105 records/s before and 65.0 after",
        ),
        (
            judgement.slows_down,
            [interruption(before=100, after=160), interruption(before=110, after=170)],
            Holding.DOES_NOT,
            "165 after",
        ),
        (
            judgement.slows_down,
            [interruption(before=100, after=105), interruption(before=110, after=101)],
            Holding.DOES_NOT,
            "no difference beyond the spread of rounds",
        ),
        (judgement.slows_down, [interruption()], Holding.UNDECIDED, "one round"),
        (judgement.slows_down, [interruption(after=None)], Holding.UNDECIDED, "no round"),
        (
            judgement.waits_for_brokers,
            [interruption(whole_after_s=4.0, restarted_after_s=3.0, retried={"X": 7})],
            Holding.HOLDS,
            "7 batches were sent again",
        ),
        (
            judgement.waits_for_brokers,
            [interruption(acknowledged_while_down=3, restarted_after_s=3.0)],
            Holding.DOES_NOT,
            "3 records were acknowledged while one broker",
        ),
        (
            judgement.waits_for_brokers,
            [interruption(whole_after_s=None, restarted_after_s=3.0)],
            Holding.DOES_NOT,
            "did not go on",
        ),
        (
            judgement.duplicates_by_retries,
            [interruption(verdict=disk(duplicated=13))],
            Holding.HOLDS,
            "13 copies too many without idempotence",
        ),
        (judgement.duplicates_by_retries, [interruption()], Holding.DOES_NOT, "0 copies"),
        (judgement.acknowledged_are_stored, [interruption()], Holding.HOLDS, "0 are missing"),
        (
            judgement.acknowledged_are_stored,
            [interruption(), interruption(verdict=disk(lost=2))],
            Holding.DOES_NOT,
            "of 2,000 acknowledged records 2 are missing",
        ),
        (
            judgement.failed_are_partly_stored,
            [interruption(verdict=disk(failed=5, failed_but_stored=2))],
            Holding.HOLDS,
            "of 5 records that failed 2 are in the logs",
        ),
        (
            judgement.failed_are_partly_stored,
            [interruption(verdict=disk(failed=5))],
            Holding.DOES_NOT,
            "0 are in the logs",
        ),
        (judgement.failed_are_partly_stored, [interruption()], Holding.UNDECIDED, "of 0 records"),
    ],
)
def test_deaths_decide(
    rule: DeathsRule, rounds: Sequence[Interruption], holding: Holding, words: str
) -> None:
    verdict = rule([deaths(*rounds)], TIDELOG)
    assert verdict.holding is holding
    assert words in verdict.why


@pytest.mark.parametrize(
    "rule",
    [
        judgement.goes_on,
        judgement.slows_down,
        judgement.waits_for_brokers,
        judgement.duplicates_by_retries,
        judgement.acknowledged_are_stored,
        judgement.failed_are_partly_stored,
    ],
)
def test_nothing_is_said_of_a_system_whose_brokers_were_not_killed(rule: DeathsRule) -> None:
    assert rule([deaths(interruption())], "10.0.0.1:9092").holding is Holding.UNDECIDED


def test_idempotence_is_told_beside_what_happens_without_it() -> None:
    rows = [
        deaths(interruption(verdict=disk(duplicated=13))),
        deaths(interruption(), is_idempotent=True),
    ]
    assert judgement.duplicates_by_retries(rows, TIDELOG).why.endswith("idempotence, 0 with it")
