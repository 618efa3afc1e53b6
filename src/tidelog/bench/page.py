"""The report: one HTML file that needs nothing else, to keep, to send, to open in ten years."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from tidelog.bench import document, plots
from tidelog.bench.about import QUICK, About
from tidelog.bench.document import CheckedConclusion
from tidelog.bench.judgement import Holding
from tidelog.bench.measured import TIDELOG, Results
from tidelog.bench.page_style import STYLE
from tidelog.bench.tables import DOCUMENT, SENTENCES, Cell, TableView, scenario_tables

_WHAT: Final = {
    1: "One producer, sync, 1 KB records, 12 partitions. How do acks, replicas and "
    "min.insync.replicas change how fast records are sent?",
    2: "The same with one partition and acks=-1, for 2, 3 and 4 replicas.",
    3: "The same with one partition and min.insync.replicas=1, for every acks.",
    4: "Two replicas, both of which must have a record, acks=-1. How does the number of partitions "
    "change how fast records are sent?",
    5: "Four replicas, min.insync.replicas=2, acks=-1, 12 partitions. Brokers are killed while one "
    "producer sends. What becomes of it, and of what it sent?",
    6: "Four replicas, min.insync.replicas=2, acks=-1, 12 partitions. How long does a record take "
    "to be acknowledged, and to reach a consumer?",
}
_BADGES: Final = {Holding.HOLDS: "good", Holding.DOES_NOT: "bad", Holding.UNDECIDED: "open"}
_NUMERIC: Final = frozenset("0123456789,.-x() s%")


def report_html(results: Results, about: About) -> str:
    """The whole page."""
    checked = document.checked_conclusions(results)
    measured = [number for number in document.SCENARIOS if results.has(number)]
    summary = [each for each in checked if each.conclusion.section == "5.3"]
    body = [
        _header(results, about, measured),
        *([_warning(QUICK, "Quick")] if about.is_quick else []),
        _tiles(results, checked),
        *(_warning(problem, "Not measured") for problem in results.problems),
        *(_warning(remark, "Note") for remark in results.remarks),
    ]
    for number in measured:
        body += _scenario(results, number, checked)
    if summary:
        body += ['<h2 id="summary">The document\'s summary (5.3)</h2>', _claims(summary)]
    body += _method(about)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tidelog bench: {escape(_subjects(results))}</title>\n"
        f"<style>\n{STYLE}\n</style></head>\n<body><main>\n"
        + "\n".join(body)
        + f"\n<footer>Written by tidelog bench, {escape(about.date)}.</footer>\n"
        "</main></body></html>\n"
    )


def _header(results: Results, about: About, measured: Sequence[int]) -> str:
    links = "".join(f'<a href="#scenario-{each}">Scenario {each}</a>' for each in measured)
    return (
        f"<header><h1>Replicas, acks, min ISR, partitions and killed brokers: "
        f"{escape(_subjects(results))}</h1>"
        "<p>The six scenarios of section 5 of the document on the reliability of Kafka, measured "
        "again, with its figures beside them and its conclusions checked. The document's figures "
        "are of five machines with 24 cores each, so compare how figures relate to each other, not "
        f"how large they are.</p><p>{escape(about.date)} · {escape(about.environment['cpu'])} · "
        f"{escape(about.environment['memory'])}</p>"
        f'<nav>{links}<a href="#method">How it was measured</a></nav></header>'
    )


def _subjects(results: Results) -> str:
    return " beside ".join(results.subjects)


def _tiles(results: Results, checked: Sequence[CheckedConclusion]) -> str:
    tiles = []
    for subject in results.subjects:
        counts = Counter(each.verdicts[subject].holding for each in checked)
        parts = [
            f"{counts[holding]} {words}"
            for holding, words in (
                (Holding.HOLDS, "hold"),
                (Holding.DOES_NOT, "do not"),
                (Holding.UNDECIDED, "undecided"),
            )
            if counts[holding]
        ]
        if parts:
            tiles.append((", ".join(parts), f"of {len(checked)} conclusions, on {subject}"))
    lost = {
        subject: [each.disk.lost for row in results.deaths for each in row.rounds.of(subject)]
        for subject in results.subjects
    }
    tiles += [
        (f"{sum(counts):,} lost", f"acknowledged records on {subject}, brokers killed")
        for subject, counts in lost.items()
        if counts
    ]
    shown = "".join(
        f'<div class="tile"><b>{escape(figure)}</b><span>{escape(words)}</span></div>'
        for figure, words in tiles
    )
    return f'<div class="tiles">{shown}</div>' if tiles else ""


def _warning(text: str, kind: str) -> str:
    return f'<div class="card warn"><b>{kind}:</b> {escape(text)}.</div>'


# -- one scenario --------------------------------------------------------------------------------


def _scenario(results: Results, number: int, checked: Iterable[CheckedConclusion]) -> list[str]:
    main, *costs = scenario_tables(results, number)
    own = [each for each in checked if each.conclusion.section == f"5.2.{number}"]
    parts = [
        f'<h2 id="scenario-{number}">{escape(main.title)}</h2>',
        f"<p>{escape(_WHAT[number])}</p>",
        *_pictures(results, number),
        _table(main),
    ]
    parts += [
        "<details><summary>What it cost: processor time and memory of brokers and client"
        f"</summary>{_table(table)}</details>"
        for table in costs
    ]
    if own:
        parts += [f"<h3>What the document concludes (5.2.{number})</h3>", _claims(own)]
    if number == 6:
        parts.append('<p class="note">The document draws no conclusion from its table here.</p>')
    return parts


def _pictures(results: Results, number: int) -> list[str]:
    if number == 4:
        drawn = plots.partitions_lines(results, results.throughput[number])
        return [_figure("Records a second by the number of partitions", drawn)]
    if number == 5:
        return _interruptions(results)
    if number == 6:
        assert results.latency is not None, "measured"
        return [_figure("Latency by percentile", plots.latency_curves(results, results.latency))]
    here, there = plots.throughput_bars(results, results.throughput[number])
    return [
        _figure(*here),
        f"<details><summary>{escape(there[0])}</summary>{_figure('', there[1])}</details>",
    ]


def _interruptions(results: Results) -> list[str]:
    """The first round of each row and system; the others are in the table."""
    shown = []
    for row in results.deaths:
        pictures = [
            _figure(
                f"{subject}: {row.case.described}. Records a second, and the in-sync replicas of "
                "each partition",
                plots.interruption(subject, measured[0]),
            )
            for subject in results.subjects
            if (measured := row.rounds.of(subject))
        ]
        if row is results.deaths[0] or not pictures:
            shown += pictures
            continue
        shown.append(
            f"<details{' open' if row.case.are_restarted and not row.case.is_idempotent else ''}>"
            f"<summary>{escape(row.case.described)}</summary>{''.join(pictures)}</details>"
        )
    return shown


def _figure(caption: str, drawing: str) -> str:
    words = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="card">{words}{drawing}</figure>'


def _claims(checked: Iterable[CheckedConclusion]) -> str:
    shown = []
    for each in checked:
        verdicts = "".join(
            f"<b>{escape(subject)}</b>"
            f'<span class="badge {_BADGES[verdict.holding]}">{escape(verdict.holding)}</span>'
            f'<span class="why">{escape(verdict.why)}</span>'
            for subject, verdict in each.verdicts.items()
        )
        conclusion = each.conclusion
        shown.append(
            f'<div class="claim"><small>{conclusion.section}</small>'
            f"<q>{escape(conclusion.text)}</q><div>{verdicts}</div></div>"
        )
    return f'<div class="card">{"".join(shown)}</div>'


# -- tables --------------------------------------------------------------------------------------


def _table(table: TableView) -> str:
    numeric = [_is_numeric(row[index] for row in table.rows) for index in range(len(table.columns))]
    head = "".join(
        f'<th class="number">{escape(name)}</th>' if is_number else f"<th>{escape(name)}</th>"
        for name, is_number in zip(table.columns, numeric, strict=True)
        if name not in SENTENCES
    )
    body = "\n".join(_row(table, row, numeric) for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}\n</table></div>{note}'


def _row(table: TableView, row: Sequence[Cell], numeric: Sequence[bool]) -> str:
    named = list(zip(table.columns, row, numeric, strict=True))
    cells = [
        f'<td class="{_cell_class(column, is_number)}">{_cell_text(cell)}</td>'
        for column, cell, is_number in named
        if column not in SENTENCES
    ]
    sentences = "<br>".join(
        f"{column}: {_cell_text(cell)}" for column, cell, _ in named if column in SENTENCES
    )
    kind = "document" if DOCUMENT in row else ""
    if not sentences:
        return f'<tr class="{kind}">{"".join(cells)}</tr>'
    return (
        f'<tr class="{kind} above">{"".join(cells)}</tr>'
        f'<tr class="{kind}"><td class="wide" colspan="{len(cells)}">{sentences}</td></tr>'
    )


def _cell_class(column: str, is_number: bool) -> str:
    classes = ["number"] if is_number else []
    if column == f"{TIDELOG} TPS":
        classes.append("ours")
    return " ".join(classes)


def _cell_text(cell: Cell) -> str:
    return "-" if cell is None else escape(str(cell))


def _is_numeric(cells: Iterable[Cell]) -> bool:
    known = [str(cell) for cell in cells if cell is not None]
    return bool(known) and all(set(each) <= _NUMERIC or each == "N/A" for each in known)


# -- how it was done -----------------------------------------------------------------------------


def _method(about: About) -> list[str]:
    facts = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
        for name, value in about.environment.items()
    )
    return [
        '<h2 id="method">How it was measured</h2>',
        *(f"<p>{escape(sentence)}</p>" for sentence in about.method),
        "<h3>The machine, and the versions</h3>",
        f'<div class="card"><dl>{facts}</dl></div>',
        f'<p class="note">The document: {escape(document.ENVIRONMENT)}.</p>',
        "<h3>To repeat it</h3>",
        f'<div class="card"><pre>{escape(about.command)}</pre></div>',
    ]
