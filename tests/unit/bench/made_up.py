"""Results that nobody measured, for tests of what is made of them."""

from collections.abc import Mapping, Sequence

from tidelog.bench.about import About
from tidelog.bench.document import death_rows, throughput_rows
from tidelog.bench.measured import (
    CURVE_PERCENTILES,
    KAFKA,
    TIDELOG,
    Cost,
    DeathCase,
    DiskVerdict,
    Interruption,
    IsrSample,
    Latencies,
    LatencyPair,
    Moment,
    Results,
    Rounds,
    Setup,
    Throughput,
    ThroughputRow,
)
from tidelog.bench.plan import LoadPlan

ABOUT = About(
    date="2026-11-18 07:00 UTC",
    command="tidelog bench all --peer kafka",
    environment={"cpu": "two cores <fast>", "memory": "24 GiB"},
    plan=LoadPlan.of(is_quick=False, scale=1.0, rounds=None, in_flight=50),
    is_quick=False,
)


def cost(cpu_us: float = 20.0) -> Cost:
    return Cost(client_cpu_us=8.0, broker_cpu_us=cpu_us, resident_mib=200.0)


def throughput(tps: float) -> Throughput:
    return Throughput(tps=tps, mean_latency_ms=50_000 / tps, cost=cost())


def row(
    setup: Setup, rounds: Sequence[float], *, subject: str = TIDELOG, document: float | None = None
) -> ThroughputRow:
    """A row of one system, a figure for each round."""
    made = ThroughputRow(setup, document)
    for index, tps in enumerate(rounds):
        made.rounds.add(subject, index, throughput(tps))
    return made


def around(tps: float) -> list[float]:
    """Three rounds within two percent."""
    return [tps, tps * 1.01, tps * 0.99]


def like_the_document(scenario: int) -> list[ThroughputRow]:
    """Rows in which tidelog is as fast as the document says, and Kafka half as fast."""
    rows = throughput_rows(scenario)
    for each in rows:
        tps = each.document_tps or 15_000.0
        for index, value in enumerate(around(tps)):
            each.rounds.add(TIDELOG, index, throughput(value))
            each.rounds.add(KAFKA, index, throughput(value / 2))
    return rows


def disk(**changes: int | str | None) -> DiskVerdict:
    fields: dict[str, int | str | None] = {
        "sent": 1_000,
        "acknowledged": 1_000,
        "failed": 0,
        "unanswered": 0,
        "stored": 1_000,
        "lost": 0,
        "failed_but_stored": 0,
        "duplicated": 0,
        "difference": None,
    }
    return DiskVerdict(**{**fields, **changes})  # type: ignore[arg-type]


def interruption(
    *,
    before: float = 10_000.0,
    after: float | None = 8_000.0,
    whole_after_s: float | None = 0.2,
    restarted_after_s: float | None = None,
    acknowledged_while_down: int = 0,
    failures: Mapping[str, int] | None = None,
    retried: Mapping[str, int] | None = None,
    verdict: DiskVerdict | None = None,
) -> Interruption:
    return Interruption(
        tps_before=before,
        tps_during=100.0,
        tps_after=after,
        whole_after_s=whole_after_s,
        restarted_after_s=restarted_after_s,
        acknowledged_while_down=acknowledged_while_down,
        failures=failures or {},
        retried=retried or {},
        disk=verdict or disk(),
        tps_by_time=(9_000.0, 10_000.0, 10_500.0, 0.0, 0.0, 7_000.0, 8_000.0, 8_100.0),
        moments=(Moment(0.75, "kill 3, 4"), Moment(1.25, "3 is back"), Moment(1.3, "4 is back")),
        isr=(
            IsrSample(0.1, (4,) * 12),
            IsrSample(0.8, (2,) * 6 + (1,) * 6),
            IsrSample(0.9, (2,) * 6 + (0,) * 6),
            IsrSample(1.4, (4,) * 12),
        ),
    )


def interruption_of(case: DeathCase) -> Interruption:
    """One as the document would have it."""
    if case.retries == 0:
        return interruption(
            failures={"NETWORK_EXCEPTION": 14},
            verdict=disk(sent=1_014, failed=14, failed_but_stored=9, stored=1_009),
        )
    doubled = disk(duplicated=0 if case.is_idempotent else 13)
    if not case.are_restarted:
        return interruption(retried={"NETWORK_EXCEPTION": 12}, verdict=doubled)
    return interruption(
        whole_after_s=4.0,
        restarted_after_s=3.5,
        retried={"NOT_ENOUGH_REPLICAS": 64, "NOT_ENOUGH_REPLICAS_AFTER_APPEND": 5},
        verdict=doubled,
    )


def latencies(average: float) -> Latencies:
    curve = tuple(average * (0.5 + index / 4) for index in range(len(CURVE_PERCENTILES)))
    return Latencies(
        count=10_000,
        avg=average,
        min=curve[0],
        max=curve[-1] * 2,
        p99=average * 3,
        p9999=average * 9,
        curve=curve,
    )


def latency_rounds() -> Rounds[LatencyPair]:
    rounds: Rounds[LatencyPair] = Rounds()
    for index in range(3):
        for subject, average in ((TIDELOG, 2.0), (KAFKA, 8.0)):
            rounds.add(
                subject,
                index,
                LatencyPair(
                    producer=latencies(average + index / 10),
                    consumer=latencies(average * 1.2 + index / 10),
                    tps=20_000.0,
                    cost=cost(),
                ),
            )
    return rounds


def whole_results() -> Results:
    """All six scenarios of both systems, like the document's."""
    results = Results((TIDELOG, KAFKA))
    for scenario in (1, 2, 3, 4):
        results.throughput[scenario] = like_the_document(scenario)
    results.deaths = death_rows()
    for death in results.deaths:
        for subject in results.subjects:
            for index in range(2):
                death.rounds.add(subject, index, interruption_of(death.case))
    results.latency = latency_rounds()
    return results
