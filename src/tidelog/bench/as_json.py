"""Results as JSON objects, one for each scenario: every round, medians, ratios, conclusions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from tidelog.bench.about import About
from tidelog.bench.document import (
    LATENCY_CONSUMER,
    LATENCY_PRODUCER,
    TITLES,
    CheckedConclusion,
    checked_conclusions,
)
from tidelog.bench.measured import (
    TIDELOG,
    DeathRow,
    LatencyPair,
    Results,
    Rounds,
    Throughput,
    ThroughputRow,
)

_COLUMNS = ("avg_ms", "min_ms", "max_ms", "p99_ms", "p9999_ms")


def scenario_as_json(results: Results, number: int) -> dict[str, object]:
    section = f"5.2.{number}"
    return {
        "scenario": number,
        "title": TITLES[number],
        "rows": _rows(results, number),
        "conclusions": conclusions_as_json(
            [each for each in checked_conclusions(results) if each.conclusion.section == section]
        ),
    }


def run_as_json(results: Results, about: About) -> dict[str, object]:
    """What is said once, behind the scenarios."""
    return {
        "date": about.date,
        "command": about.command,
        "environment": dict(about.environment),
        "load": asdict(about.plan),
        "method": about.method,
        "summary": conclusions_as_json(
            [each for each in checked_conclusions(results) if each.conclusion.section == "5.3"]
        ),
        "remarks": results.remarks,
        "problems": results.problems,
    }


def conclusions_as_json(checked: Sequence[CheckedConclusion]) -> list[dict[str, object]]:
    return [
        {
            "section": each.conclusion.section,
            "text": each.conclusion.text,
            "verdicts": {
                subject: {"verdict": verdict.holding.value, "why": verdict.why}
                for subject, verdict in each.verdicts.items()
            },
        }
        for each in checked
    ]


def _rows(results: Results, number: int) -> list[dict[str, object]]:
    if number == 5:
        return [_death_row(results, row) for row in results.deaths]
    if number == 6:
        assert results.latency is not None, "measured"
        return [_latency_row(results, results.latency)]
    return [_throughput_row(results, row) for row in results.throughput[number]]


_THROUGHPUT: Mapping[str, Callable[[Throughput], float | None]] = {
    "tps": lambda each: each.tps,
    "mean_latency_ms": lambda each: each.mean_latency_ms,
    "broker_cpu_us": lambda each: each.cost.broker_cpu_us,
    "client_cpu_us": lambda each: each.cost.client_cpu_us,
    "resident_mib": lambda each: each.cost.resident_mib,
}
_LATENCY: Mapping[str, Callable[[LatencyPair], float | None]] = {
    "tps": lambda each: each.tps,
    "producer_avg_ms": lambda each: each.producer.avg,
    "producer_min_ms": lambda each: each.producer.min,
    "producer_max_ms": lambda each: each.producer.max,
    "producer_p99_ms": lambda each: each.producer.p99,
    "producer_p9999_ms": lambda each: each.producer.p9999,
    "consumer_avg_ms": lambda each: each.consumer.avg,
    "consumer_min_ms": lambda each: each.consumer.min,
    "consumer_max_ms": lambda each: each.consumer.max,
    "consumer_p99_ms": lambda each: each.consumer.p99,
    "consumer_p9999_ms": lambda each: each.consumer.p9999,
    "broker_cpu_us": lambda each: each.cost.broker_cpu_us,
    "client_cpu_us": lambda each: each.cost.client_cpu_us,
    "resident_mib": lambda each: each.cost.resident_mib,
}


def _throughput_row(results: Results, row: ThroughputRow) -> dict[str, object]:
    return {
        **row.setup.to_json(),
        "document_tps": row.document_tps,
        **_measured(results, row.rounds, _THROUGHPUT),
    }


def _latency_row(results: Results, rounds: Rounds[LatencyPair]) -> dict[str, object]:
    return {
        "document": {
            "producer": dict(zip(_COLUMNS, LATENCY_PRODUCER, strict=True)),
            "consumer": dict(zip(_COLUMNS, LATENCY_CONSUMER, strict=True)),
        },
        **_measured(results, rounds, _LATENCY),
    }


def _measured(
    results: Results,
    rounds: Rounds[Throughput] | Rounds[LatencyPair],
    picks: Mapping[str, Callable[..., float | None]],
) -> dict[str, object]:
    measured: dict[str, object] = {
        subject: {
            name: figures.to_json()
            for name, pick in picks.items()
            if (figures := rounds.figures(subject, pick)) is not None
        }
        for subject in results.subjects
    }
    peer = results.peer
    if peer is not None:
        measured["ratios"] = {
            name: ratio.to_json()
            for name, pick in picks.items()
            if (ratio := rounds.ratio(TIDELOG, peer, pick)) is not None
        }
    return measured


def _death_row(results: Results, row: DeathRow) -> dict[str, object]:
    case = row.case
    return {
        "killed": list(case.killed),
        "restarted": case.are_restarted,
        "retries": case.retries,
        "idempotent": case.is_idempotent,
        "document": None if row.document is None else asdict(row.document),
        **{
            subject: [asdict(each) for each in row.rounds.of(subject)]
            for subject in results.subjects
        },
    }
