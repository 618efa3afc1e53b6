"""Results as tables in the document's shape, for a terminal and for the report alike.

Columns of the document come first, with its figures; then those of each system measured here, and
how tidelog compares with its peer. A cell is text, a whole number, or None where there is nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.bench.document import (
    LATENCY_COLUMNS,
    LATENCY_CONSUMER,
    LATENCY_PRODUCER,
    TITLES,
)
from tidelog.bench.figures import Figures, number_text, pooled, ratio_text, spread_text
from tidelog.bench.measured import (
    TIDELOG,
    DeathRow,
    DiskVerdict,
    Interruption,
    Latencies,
    LatencyPair,
    Results,
    Rounds,
    Setup,
    Throughput,
    ThroughputRow,
)

Cell: TypeAlias = str | int | None
DOCUMENT: Final = "document"
SENTENCES: Final = ("on disk", "errors")
"""Columns of whole sentences: they are shown under their row rather than in it."""
_MS_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class TableView:
    """Rows under the names of their columns."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Cell]] = field(default_factory=list)
    note: str | None = None


def scenario_tables(results: Results, number: int) -> list[TableView]:
    """What was measured in a scenario, in the document's shape, and what it cost."""
    if number == 5:
        return [_deaths_table(results)]
    if number == 6:
        return [_latency_table(results), *_latency_costs(results)]
    rows = results.throughput[number]
    return [_throughput_table(results, number, rows), _costs_table(results, number, rows)]


# -- scenarios 1 to 4 ----------------------------------------------------------------------------

_Column: TypeAlias = tuple[str, Callable[[Setup], Cell]]
_ACKS: Final[_Column] = ("acks", lambda setup: setup.acks)
_REPLICAS: Final[_Column] = ("replicas", lambda setup: setup.replicas)
_MIN_ISR: Final[_Column] = (
    "min.insync.replicas",
    lambda setup: str(setup.min_insync_replicas or "N/A"),
)
_RETRIES: Final[_Column] = ("retries", lambda _setup: 0)
_PARTITIONS: Final[_Column] = ("partitions", lambda setup: setup.partitions)
_SHAPES: Final[Mapping[int, tuple[_Column, ...]]] = {
    1: (_ACKS, _REPLICAS, _MIN_ISR, _RETRIES),
    2: (_REPLICAS, _MIN_ISR),
    3: (_REPLICAS, _ACKS),
    4: (_PARTITIONS,),
}
_NOTES: Final = {
    4: "The document has a picture here; its figures for 1 and 12 partitions are those of the same "
    "settings in scenarios 2 and 1.",
}


def _throughput_table(results: Results, number: int, rows: Sequence[ThroughputRow]) -> TableView:
    shape = _SHAPES[number]
    columns = [name for name, _ in shape] + [f"{DOCUMENT} TPS"]
    for subject in results.subjects:
        columns += [f"{subject} TPS", "min .. max"]
    columns += [f"{TIDELOG} / {results.peer}"] if results.peer else []
    table = TableView(
        f"Scenario {number}: {TITLES[number]}", tuple(columns), note=_NOTES.get(number)
    )
    for row in rows:
        cells: list[Cell] = [cell(row.setup) for _, cell in shape]
        cells.append(None if row.document_tps is None else f"{row.document_tps:,.1f}")
        for subject in results.subjects:
            cells += _figure_cells(row.tps(subject))
        if results.peer:
            cells.append(ratio_text(row.rounds.ratio(TIDELOG, results.peer, lambda each: each.tps)))
        table.rows.append(cells)
    return table


def _figure_cells(figures: Figures | None) -> list[Cell]:
    if figures is None:
        return [None, None]
    return [number_text(figures.median), spread_text(figures) or None]


# -- what it cost --------------------------------------------------------------------------------


def _costs_table(results: Results, number: int, rows: Sequence[ThroughputRow]) -> TableView:
    partitions = number == 4
    table = _new_costs_table(results, number)
    for row in rows:
        name = f"{row.setup.partitions} partitions" if partitions else row.setup.described
        table.rows.append([name, *_cost_cells(results, row.rounds, _THROUGHPUT_COSTS)])
    return table


def _latency_costs(results: Results) -> list[TableView]:
    if results.latency is None:
        return []
    table = _new_costs_table(results, 6)
    table.rows.append(["", *_cost_cells(results, results.latency, _LATENCY_COSTS)])
    return [table]


_COST_NAMES: Final = ("brokers' CPU us/record", "client's CPU us/record", "brokers' memory MiB")
_THROUGHPUT_COSTS: Final[tuple[Callable[[Throughput], float | None], ...]] = (
    lambda each: each.cost.broker_cpu_us,
    lambda each: each.cost.client_cpu_us,
    lambda each: each.cost.resident_mib,
    lambda each: each.mean_in_flight,
)
_LATENCY_COSTS: Final[tuple[Callable[[LatencyPair], float | None], ...]] = (
    lambda each: each.cost.broker_cpu_us,
    lambda each: each.cost.client_cpu_us,
    lambda each: each.cost.resident_mib,
    lambda each: each.tps * each.producer.avg / 1_000,
)


def _new_costs_table(results: Results, number: int) -> TableView:
    columns = ["row"]
    for name in _COST_NAMES:
        columns += [f"{subject}: {name}" for subject in results.subjects]
        columns += ["ratio"] if results.peer else []
    columns += [f"{subject}: records under way" for subject in results.subjects]
    return TableView(f"What scenario {number} cost", tuple(columns))


def cost_summary(results: Results, number: int) -> TableView | None:
    """The same over all rows of a scenario; None of scenario 5, whose brokers die."""
    if number == 5:
        return None
    columns = ["over all rows", *results.subjects]
    columns += [f"{TIDELOG} / {results.peer}"] if results.peer else []
    table = TableView(f"What scenario {number} cost", tuple(columns))
    for index, name in enumerate((*_COST_NAMES, "records under way")):
        cells: list[Cell] = [name]
        cells += [
            _pooled_cell(_all_figures(results, number, index, each)) for each in results.subjects
        ]
        if results.peer:
            cells.append(
                _pooled_ratio(_all_figures(results, number, index, results.peer, of=TIDELOG))
            )
        table.rows.append(cells)
    return table


def _all_figures(
    results: Results, number: int, index: int, subject: str, *, of: str | None = None
) -> list[Figures]:
    """One figure of each row: the system's own, or its ratio to `subject`."""
    if number == 6:
        rounds = [results.latency] if results.latency is not None else []
        pick = _LATENCY_COSTS[index]
        found = [
            each.figures(subject, pick) if of is None else each.ratio(of, subject, pick)
            for each in rounds
        ]
    else:
        chosen = _THROUGHPUT_COSTS[index]
        found = [
            row.rounds.figures(subject, chosen)
            if of is None
            else row.rounds.ratio(of, subject, chosen)
            for row in results.throughput[number]
        ]
    return [each for each in found if each is not None]


def _pooled_cell(figures: Sequence[Figures]) -> Cell:
    return _median_cell(pooled(*figures)) if figures else None


def _pooled_ratio(figures: Sequence[Figures]) -> Cell:
    return ratio_text(pooled(*figures)) if figures else None


def _cost_cells(
    results: Results,
    rounds: "Rounds[Throughput] | Rounds[LatencyPair]",
    picks: Sequence[Callable[..., float | None]],
) -> list[Cell]:
    *compared, under_way = picks
    cells: list[Cell] = []
    for pick in compared:
        cells += [_median_cell(rounds.figures(subject, pick)) for subject in results.subjects]
        if results.peer:
            cells.append(ratio_text(rounds.ratio(TIDELOG, results.peer, pick)))
    cells += [_median_cell(rounds.figures(subject, under_way)) for subject in results.subjects]
    return cells


def _median_cell(figures: Figures | None) -> Cell:
    return None if figures is None else number_text(figures.median)


# -- scenario 5 ----------------------------------------------------------------------------------


def _deaths_table(results: Results) -> TableView:
    table = TableView(
        f"Scenario 5: {TITLES[5]}",
        (
            "test",
            "retries",
            "idempotent",
            "system",
            "TPS",
            "before",
            "during",
            "after",
            "whole again after",
            *SENTENCES,
        ),
        note="TPS is that of the whole run, as in the document; `during` is from the kill until "
        "every partition has taken a record again.",
    )
    for row in results.deaths:
        case = row.case
        named: list[Cell] = [
            case.method,
            f"{case.retries:,}",
            "yes" if case.is_idempotent else "no",
        ]
        if row.document is not None:
            told = row.document
            tps = None if told.tps is None else f"{told.tps:,.0f}"
            table.rows.append(
                [*named, DOCUMENT, tps, None, None, None, None, told.on_disk, told.errors]
            )
        table.rows.extend(
            [*named, subject, *_interruption_cells(row, subject)]
            for subject in results.subjects
            if row.rounds.of(subject)
        )
    return table


def _interruption_cells(row: DeathRow, subject: str) -> list[Cell]:
    rounds = row.rounds
    again = rounds.figures(subject, lambda each: each.whole_after_s)
    measured = rounds.of(subject)
    return [
        _median_cell(rounds.figures(subject, lambda each: each.tps)),
        _median_cell(rounds.figures(subject, lambda each: each.tps_before)),
        _median_cell(rounds.figures(subject, lambda each: each.tps_during)),
        _median_cell(rounds.figures(subject, lambda each: each.tps_after)),
        None if again is None else f"{number_text(again.median)} s",
        disk_text([each.disk for each in measured]),
        errors_text(measured),
    ]


def disk_text(verdicts: Sequence[DiskVerdict]) -> str:
    """What reached the disk in all rounds, in words."""
    lost = sum(each.lost for each in verdicts)
    failed = sum(each.failed for each in verdicts)
    parts = [f"{sum(each.acknowledged for each in verdicts):,} acknowledged, {lost:,} of them lost"]
    if failed:
        stored = sum(each.failed_but_stored for each in verdicts)
        parts.append(f"{failed:,} failed, {stored:,} of them stored")
    if unanswered := sum(each.unanswered for each in verdicts):
        parts.append(f"{unanswered:,} without an answer")
    parts.append(f"{sum(each.duplicated for each in verdicts):,} duplicates")
    differing = [each.difference for each in verdicts if each.difference is not None]
    parts.append(f"replicas differ: {differing[0]}" if differing else "replicas in sync are equal")
    is_consistent = all(each.is_consistent for each in verdicts)
    return f"{'consistent' if is_consistent else 'NOT consistent'} ({'; '.join(parts)})"


def errors_text(rounds: Iterable[Interruption]) -> str:
    """Errors by Kafka's name, those that senders were told and those that the client retried."""
    told: Counter[str] = Counter()
    retried: Counter[str] = Counter()
    for each in rounds:
        told.update(each.failures)
        retried.update(each.retried)
    parts = [
        f"{words}: " + ", ".join(f"{name} {count:,}" for name, count in errors.most_common())
        for words, errors in (("told to the sender", told), ("retried", retried))
        if errors
    ]
    return "; ".join(parts) or "none"


# -- scenario 6 ----------------------------------------------------------------------------------

_LATENCY_PICKS: Final[tuple[Callable[[Latencies], float], ...]] = (
    lambda each: each.avg,
    lambda each: each.min,
    lambda each: each.max,
    lambda each: each.p99,
    lambda each: each.p9999,
)
_SIDES: Final[tuple[Callable[[LatencyPair], Latencies], ...]] = (
    lambda pair: pair.producer,
    lambda pair: pair.consumer,
)


def _latency_table(results: Results) -> TableView:
    columns = [
        f"{side} ({column})" for side in ("producer", "consumer") for column in LATENCY_COLUMNS
    ]
    table = TableView(
        f"Scenario 6: {TITLES[6]} (ms)",
        ("system", *columns),
        note="Producer: from sending to the acknowledgement. Consumer: from sending to a consumer "
        "having the record.",
    )
    document = [f"{value:g}" for value in (*LATENCY_PRODUCER, *LATENCY_CONSUMER)]
    table.rows.append([DOCUMENT, *document])
    rounds = results.latency
    assert rounds is not None, "measured"
    for subject in results.subjects:
        figures = [rounds.figures(subject, pick) for pick in latency_picks()]
        table.rows.append([subject, *(_ms_cell(each) for each in figures)])
        if any(each is not None and each.has_spread for each in figures):
            spread = [None if each is None else spread_text(each) for each in figures]
            table.rows.append([f"{subject}, min .. max", *spread])
    if results.peer:
        compared = [rounds.ratio(TIDELOG, results.peer, pick) for pick in latency_picks()]
        table.rows.append([f"{TIDELOG} / {results.peer}", *(ratio_text(each) for each in compared)])
    return table


def latency_picks() -> list[Callable[[LatencyPair], float]]:
    """The document's ten columns, in its order."""
    return [_latency_pick(side, pick) for side in _SIDES for pick in _LATENCY_PICKS]


def _latency_pick(
    side: Callable[[LatencyPair], Latencies], pick: Callable[[Latencies], float]
) -> Callable[[LatencyPair], float]:
    return lambda pair: pick(side(pair))


def _ms_cell(figures: Figures | None) -> Cell:
    return None if figures is None else f"{figures.median:,.{_MS_DIGITS}f}"
