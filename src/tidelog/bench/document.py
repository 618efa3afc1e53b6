"""Section 5 of the document: its set-up, its six scenarios with their figures, its conclusions.

The document is the third of `seeds/`, on the reliability of Kafka 0.10.1.0: four brokers of 24
cores and 62 GB each, a client on a machine of its own. Its figures are requirements (B1); what it
concludes is checked against what is measured here. Each conclusion is a pure function of results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tidelog.bench import judgement
from tidelog.bench.judgement import Verdict
from tidelog.bench.measured import (
    DeathCase,
    DeathRow,
    DocumentDeath,
    Results,
    Setup,
    ThroughputRow,
)

SCENARIOS: Final = (1, 2, 3, 4, 5, 6)
TITLES: Final = {
    1: "acks, replicas and min ISR, 12 partitions",
    2: "replicas and min ISR, 1 partition",
    3: "acks and replicas, 1 partition",
    4: "partitions",
    5: "brokers killed while sending",
    6: "latency of the producer, and end to end",
}
ENVIRONMENT: Final = (
    "Kafka 0.10.1.0; 4 brokers, each with 24 cores at 2.6 GHz, 62 GB of memory and a network of "
    "4,000 Mb/s; the client on a machine of its own with 24 cores, 3 GB and 1,000 Mb/s"
)
MANY_RETRIES: Final = 100_000_000

# -- figures -------------------------------------------------------------------------------------


def _rows(
    rows: Sequence[tuple[int, int, int | None, float]], *, partitions: int
) -> tuple[tuple[Setup, float], ...]:
    return tuple(
        (Setup(acks, replicas, least, partitions), tps) for acks, replicas, least, tps in rows
    )


# acks, replicas, min.insync.replicas, TPS
_SCENARIO_1: Final = _rows(
    [
        (-1, 1, 1, 28511.3),
        (-1, 2, 1, 22359.5),
        (-1, 2, 2, 22927.4),
        (-1, 4, 1, 16193.9),
        (-1, 4, 2, 16599.9),
        (-1, 4, 4, 16680.3),
        (0, 1, None, 45353.8),
        (0, 2, None, 46426.5),
        (0, 4, None, 46764.2),
        (1, 1, None, 33950.3),
        (1, 2, None, 32192.2),
        (1, 4, None, 32275.9),
    ],
    partitions=12,
)
_SCENARIO_2: Final = _rows(
    [
        (-1, 2, 1, 9738.8),
        (-1, 2, 2, 9701.6),
        (-1, 3, 1, 8999.7),
        (-1, 3, 2, 9243.1),
        (-1, 4, 1, 9005.8),
        (-1, 4, 2, 8216.9),
        (-1, 4, 4, 9092.4),
    ],
    partitions=1,
)
_SCENARIO_3: Final = _rows(
    [
        (0, 1, 1, 76696),
        (0, 2, 1, 57503),
        (0, 4, 1, 59367),
        (1, 1, 1, 19489),
        (1, 2, 1, 20404),
        (1, 4, 1, 18365),
        (-1, 1, 1, 18641),
        (-1, 2, 1, 9739),
        (-1, 4, 1, 9006),
    ],
    partitions=1,
)
# A picture without figures; those of 1 and 12 partitions are in the tables of scenarios 2 and 1.
_SCENARIO_4: Final = tuple(
    (Setup(-1, 2, 2, partitions), known)
    for partitions, known in ((1, 9701.6), (2, None), (4, None), (8, None), (12, 22927.4))
)
_THROUGHPUT: Final = {1: _SCENARIO_1, 2: _SCENARIO_2, 3: _SCENARIO_3, 4: _SCENARIO_4}

DEATHS_SETUP: Final = Setup(-1, 4, 2, 12)
# Broker 1 is never killed: it is the controller of Kafka's brokers.
_TWO: Final = (3, 4)
_THREE: Final = (2, 3, 4)
_DEATHS: Final = (
    (
        _TWO,
        False,
        0,
        DocumentDeath(
            tps=12840,
            on_disk="consistent (some stored, some failed)",
            errors="NETWORK_EXCEPTION, told to the sender",
        ),
    ),
    (
        _TWO,
        False,
        MANY_RETRIES,
        DocumentDeath(
            tps=13870, on_disk="consistent (with duplicates)", errors="NETWORK_EXCEPTION, retried"
        ),
    ),
    (
        _THREE,
        True,
        MANY_RETRIES,
        DocumentDeath(
            tps=None,
            on_disk="consistent (with duplicates)",
            errors="NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, "
            "retried",
        ),
    ),
)

LATENCY_SETUP: Final = Setup(-1, 4, 2, 12)
LATENCY_COLUMNS: Final = ("avg", "min", "max", "99 %", "99.99 %")
LATENCY_PRODUCER: Final = (1.715, 1.0, 157.0, 3.0, 29.0)
LATENCY_CONSUMER: Final = (1.646, 1.0, 288.0, 4.0, 72.0)


def throughput_rows(scenario: int) -> list[ThroughputRow]:
    """The rows of scenario 1, 2, 3 or 4, with nothing measured yet."""
    return [ThroughputRow(setup, tps) for setup, tps in _THROUGHPUT[scenario]]


def death_rows() -> list[DeathRow]:
    """The rows of scenario 5: the document's, and those with retries of an idempotent client.

    An idempotent client without retries is none: librdkafka refuses to be one.
    """
    return [
        DeathRow(
            DeathCase(
                killed=killed,
                are_restarted=are_restarted,
                retries=retries,
                is_idempotent=is_idempotent,
            ),
            None if is_idempotent else document,
        )
        for killed, are_restarted, retries, document in _DEATHS
        for is_idempotent in ((False, True) if retries else (False,))
    ]


# -- conclusions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A sentence of the document, and the rule that decides whether it holds."""

    section: str
    text: str
    scenarios: tuple[int, ...]
    """Those that it rests upon; all of them have to be measured."""
    decide: Callable[[Results, str], Verdict]


@dataclass(frozen=True, slots=True)
class CheckedConclusion:
    """A conclusion with what became of it for each system."""

    conclusion: Conclusion
    verdicts: dict[str, Verdict]


def checked_conclusions(results: Results) -> list[CheckedConclusion]:
    """All conclusions that rest upon what was measured."""
    return [
        CheckedConclusion(
            each, {subject: each.decide(results, subject) for subject in results.subjects}
        )
        for each in CONCLUSIONS
        if all(results.has(scenario) for scenario in each.scenarios)
    ]


RowsRule = Callable[[Sequence[ThroughputRow], str], Verdict]
DeathsRule = Callable[[Sequence[DeathRow], str], Verdict]


def _of_rows(
    rule: RowsRule, *scenarios: int, acks: Sequence[int] = judgement.ACKS_BY_SPEED
) -> Callable[[Results, str], Verdict]:
    def decide(results: Results, subject: str) -> Verdict:
        rows = [row for scenario in scenarios for row in results.throughput[scenario]]
        return rule([row for row in rows if row.setup.acks in acks], subject)

    return decide


def _of_deaths(
    rule: DeathsRule, chosen: Callable[[DeathCase], bool]
) -> Callable[[Results, str], Verdict]:
    def decide(results: Results, subject: str) -> Verdict:
        return rule([row for row in results.deaths if chosen(row.case)], subject)

    return decide


def _by_replicas_and_partitions(row: ThroughputRow) -> tuple[int, int]:
    return row.setup.replicas, row.setup.partitions


def _min_isr_named(row: ThroughputRow) -> str:
    partitions = "" if row.setup.partitions == 12 else f" and {row.setup.partitions} partition"
    least = row.setup.min_insync_replicas
    return f"min ISR {least} of {row.setup.replicas} replicas{partitions}"


def _replicas_named(row: ThroughputRow) -> str:
    return f"acks={row.setup.acks} with {row.setup.replicas} replicas".replace(
        "1 replicas", "1 replica"
    )


_MIN_ISR_DOES_NOT_MATTER: Final = partial(
    judgement.alike, within=_by_replicas_and_partitions, named=_min_isr_named
)
_REPLICAS_DO_NOT_MATTER: Final = partial(
    judgement.alike, within=lambda row: row.setup.acks, named=_replicas_named
)


def _is_two(case: DeathCase) -> bool:
    return len(case.killed) == 2


def _is_any(_case: DeathCase) -> bool:
    return True


CONCLUSIONS: Final = (
    Conclusion(
        "5.2.1",
        "The client's acks have a large effect on TPS: acks=0 > acks=1 > acks=-1.",
        (1,),
        _of_rows(judgement.acks_order, 1),
    ),
    Conclusion(
        "5.2.1",
        "The more replicas, the lower the TPS.",
        (1,),
        _of_rows(judgement.falls_with_replicas, 1, acks=(-1,)),
    ),
    Conclusion(
        "5.2.1",
        "With the same number of replicas, min.insync.replicas does not affect TPS.",
        (1,),
        _of_rows(_MIN_ISR_DOES_NOT_MATTER, 1, acks=(-1,)),
    ),
    Conclusion(
        "5.2.1",
        "With acks=0 and acks=1, TPS has nothing to do with min.insync.replicas and the number of "
        "replicas.",
        (1,),
        _of_rows(_REPLICAS_DO_NOT_MATTER, 1, acks=(0, 1)),
    ),
    Conclusion(
        "5.2.2",
        "The more replicas, the lower the TPS; but with one partition the difference is slight.",
        (2,),
        _of_rows(judgement.falls_slightly_with_replicas, 2),
    ),
    Conclusion(
        "5.2.2",
        "min.insync.replicas does not affect TPS.",
        (2,),
        _of_rows(_MIN_ISR_DOES_NOT_MATTER, 2),
    ),
    Conclusion(
        "5.2.3",
        "The more replicas, the lower the TPS.",
        (3,),
        _of_rows(judgement.falls_with_replicas_whatever_acks, 3),
    ),
    Conclusion(
        "5.2.3",
        "The client's acks have a large effect on TPS: acks=0 > acks=1 > acks=-1.",
        (3,),
        _of_rows(judgement.acks_order, 3),
    ),
    Conclusion(
        "5.2.4",
        "With more partitions TPS grows.",
        (4,),
        _of_rows(judgement.grows_with_partitions, 4),
    ),
    Conclusion(
        "5.2.4",
        "TPS does not grow in proportion to the number of partitions.",
        (4,),
        _of_rows(judgement.grows_out_of_proportion, 4),
    ),
    Conclusion(
        "5.2.4",
        "Beyond some number of partitions, more of them lower TPS a little.",
        (4,),
        _of_rows(judgement.falls_beyond_a_point, 4),
    ),
    Conclusion(
        "5.2.5",
        "When two brokers are killed, the client can go on sending.",
        (5,),
        _of_deaths(judgement.goes_on, _is_two),
    ),
    Conclusion(
        "5.2.5",
        "With fewer brokers, leaders are on the two that are left, which lowers TPS.",
        (5,),
        _of_deaths(judgement.slows_down, _is_two),
    ),
    Conclusion(
        "5.2.5",
        "When three brokers are killed, the client cannot go on. Retries take effect: when no "
        "fewer than min.insync.replicas brokers are back, it goes on.",
        (5,),
        _of_deaths(judgement.waits_for_brokers, lambda case: not _is_two(case)),
    ),
    Conclusion(
        "5.2.5",
        "When retries is not 0, records are on disk more than once.",
        (5,),
        _of_deaths(judgement.duplicates_by_retries, lambda case: case.retries > 0),
    ),
    Conclusion(
        "5.2.5",
        "All records that were acknowledged to the client are on disk.",
        (5,),
        _of_deaths(judgement.acknowledged_are_stored, _is_any),
    ),
    Conclusion(
        "5.2.5",
        "Of the records that the client was told have failed, some are on disk.",
        (5,),
        _of_deaths(judgement.failed_are_partly_stored, lambda case: case.retries == 0),
    ),
    Conclusion(
        "5.3",
        "With acks=-1 the producer's TPS is limited by the number of replicas (in the ISR): the "
        "more of them, the lower the TPS.",
        (1,),
        _of_rows(judgement.falls_with_replicas, 1, acks=(-1,)),
    ),
    Conclusion(
        "5.3",
        "TPS is highest with acks=0, then 1, and lowest with -1.",
        (1, 3),
        lambda results, subject: judgement.all_of(
            {
                "12 partitions": judgement.acks_order(results.throughput[1], subject),
                "1 partition": judgement.acks_order(results.throughput[3], subject),
            }
        ),
    ),
    Conclusion(
        "5.3",
        "min.insync.replicas does not affect TPS.",
        (1, 2),
        _of_rows(_MIN_ISR_DOES_NOT_MATTER, 1, 2, acks=(-1,)),
    ),
    Conclusion(
        "5.3",
        "TPS grows with the number of partitions, but not in proportion, and beyond some number "
        "more of them lower it a little.",
        (4,),
        lambda results, subject: judgement.all_of(
            {
                "grows": judgement.grows_with_partitions(results.throughput[4], subject),
                "not in proportion": judgement.grows_out_of_proportion(
                    results.throughput[4], subject
                ),
                "then falls": judgement.falls_beyond_a_point(results.throughput[4], subject),
            }
        ),
    ),
    Conclusion(
        "5.3",
        "With acks=-1 and min.insync.replicas>=1 Kafka is highly reliable: all records that were "
        "acknowledged are on disk.",
        (5,),
        _of_deaths(judgement.acknowledged_are_stored, _is_any),
    ),
)
