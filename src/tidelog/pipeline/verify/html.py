"""Reports as one HTML file that needs nothing else: to keep, to send, to open in ten years."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final, TypeVar

from tidelog.pipeline.verify.replicas import PartitionComparison, ReplicasReport
from tidelog.pipeline.verify.report import NO_PARTITION, PartitionFindings, Problem, VerifyReport

ROWS_MAX: Final = 1_000
"""Partitions that are shown; those with problems come first."""

T = TypeVar("T")

_REPLICA_COLUMNS: Final = (
    "partition",
    "#replicas",
    "#from",
    "#to",
    "#bytes",
    "#differing batches",
    "#missing offsets",
    "#behind",
)

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #64707f; --line: #e3e7ec; --page: #f5f7f9;
  --card: #fff; --good: #0f7b4f; --good-back: #e5f5ed; --bad: #b3261e; --bad-back: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #98a3b1; --line: #2c343f;
  --page: #12161c; --card: #1a2028; --good: #5fd3a0; --good-back: #11301f; --bad: #ff8a80;
  --bad-back: #3a1714; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
header p, footer { color: var(--soft); }
h1 { font-size: 22px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 36px 0 10px; }
header p { margin: 4px 0 20px; }
.verdict { border-radius: 12px; padding: 18px 22px; font-size: 18px; font-weight: 600; }
.verdict small { display: block; font-size: 14px; font-weight: 400; margin-top: 2px; }
.good { background: var(--good-back); color: var(--good); }
.bad { background: var(--bad-back); color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px;
  margin: 16px 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; line-height: 1.25; }
.tile span { color: var(--soft); font-size: 13px; }
.tile.wrong { border-color: var(--bad); font-weight: 400; } .tile.wrong b { color: var(--bad); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { padding: 8px 12px; text-align: left; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 500; font-size: 12px; text-transform: uppercase;
  letter-spacing: .04em; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.zero { color: var(--soft); opacity: .55; } .wrong { color: var(--bad); font-weight: 600; }
.wide { white-space: normal; min-width: 240px; }
code { font: 13px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, monospace; word-break: break-all; }
footer { margin-top: 40px; font-size: 13px; }
""".strip()


def verify_html(report: VerifyReport, *, about: Mapping[str, str]) -> str:
    """`about`: what was compared, as pairs to show."""
    wrong = {problem: count for problem, count in report.counts.items() if count}
    said = ", ".join(f"{count:,} {problem}" for problem, count in wrong.items())
    said = said or "Nothing is lost, altered, duplicated or out of order"
    body = [
        _verdict(
            "Clean" if report.is_clean else "Not clean",
            f"{report.acknowledged:,} records were acknowledged, {report.stored:,} are stored. "
            f"{said}.",
            is_good=report.is_clean,
        ),
        _tiles(report),
        _heading("Partitions"),
        _partitions_table(report),
    ]
    for problem in Problem:
        if examples := report.examples_of(problem):
            body.append(_heading(f"{problem.capitalize()}: {problem.meaning}"))
            rows = [
                [
                    _text(str(each.partition)),
                    _number(each.offset),
                    _code(each.id or "-"),
                    _wide(each.detail),
                ]
                for each in examples
            ]
            body.append(_table(["partition", "#offset", "id", "what"], rows))
    return _page("Ledger and log", about, body)


def replicas_html(report: ReplicasReport, *, about: Mapping[str, str]) -> str:
    """The same for replicas."""
    wrong = [each for each in report.partitions if not each.is_equal or each.behind]
    compared_bytes = sum(each.compared_bytes for each in report.partitions)
    said = f"{len(report.partitions):,} partitions, {compared_bytes:,} bytes of each replica"
    body = [
        _verdict(
            "Equal, byte for byte" if report.is_clean else "Not equal",
            f"{said}; {len(wrong):,} differ or are behind.",
            is_good=report.is_clean,
        ),
        _heading("Partitions"),
        _table(
            _REPLICA_COLUMNS,
            [
                [
                    _text(str(each.partition)),
                    _number(len(each.replicas)),
                    _number(each.start_offset),
                    _number(each.end_offset),
                    _number(each.compared_bytes),
                    _problem(each.differing_batches),
                    _problem(each.missing_offsets),
                    _problem(each.behind),
                ]
                for each in _worst_first(report.partitions, wrong)
            ],
        ),
    ]
    for each in wrong:
        body += _difference(each)
    return _page("Replica against replica", about, body)


def _difference(comparison: PartitionComparison) -> list[str]:
    found = []
    if comparison.first_difference is not None:
        difference = comparison.first_difference
        found.append(_heading(f"{comparison.partition} differs from offset {difference.offset} on"))
        rows = [
            [
                _code(str(place.file or place.folder)),
                _number(place.position),
                _wide(place.what),
            ]
            for place in difference.places
        ]
        found.append(_table(["file", "#position", "what is there"], rows))
    if comparison.missing:
        found.append(_heading(f"{comparison.partition}: what is missing"))
        rows = [
            [_code(str(each.folder)), _number(each.start_offset), _number(each.end_offset)]
            for each in comparison.missing
        ]
        found.append(_table(["replica", "#from offset", "#to, not included"], rows))
    behind = [each for each in comparison.replicas if each.behind]
    if behind:
        found.append(_heading(f"{comparison.partition}: who is behind"))
        rows = [
            [
                _code(str(each.folder)),
                _number(each.end_offset),
                _problem(each.behind),
                _number(each.excess_bytes),
            ]
            for each in behind
        ]
        found.append(_table(["replica", "#ends at", "#behind", "#bytes that are no batch"], rows))
    return found


def _tiles(report: VerifyReport) -> str:
    tiles = [
        ("stored", report.stored, False),
        ("acknowledged", report.acknowledged, False),
        *((each.value, count, each not in report.allowed) for each, count in report.counts.items()),
        ("not acknowledged", report.unacknowledged, False),
        ("expired", report.expired, False),
        ("unreadable lines", report.unreadable_lines, False),
    ]
    shown = "".join(
        f'<div class="tile{" wrong" if is_problem and count else ""}"><b>{count:,}</b>'
        f"<span>{escape(name)}</span></div>"
        for name, count, is_problem in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _partitions_table(report: VerifyReport) -> str:
    wrong = [each for each in report.partitions if any(each.problems.values())]
    columns = ["partition", "#stored", "#acknowledged", *(f"#{each}" for each in Problem)]
    rows = [
        [
            _text(_partition_name(each)),
            _number(each.stored),
            _number(each.acknowledged),
            *(_problem(each.count(problem)) for problem in Problem),
        ]
        for each in _worst_first(report.partitions, wrong)
    ]
    return _table(columns, rows)


def _partition_name(findings: PartitionFindings) -> str:
    partition = findings.partition
    return f"{partition.topic}, anywhere" if partition.partition == NO_PARTITION else str(partition)


def _worst_first(all_: Sequence[T], wrong: Sequence[T]) -> list[T]:
    if len(all_) <= ROWS_MAX:
        return list(all_)
    return [*wrong, *(each for each in all_ if each not in wrong)][:ROWS_MAX]


def _page(title: str, about: Mapping[str, str], body: Iterable[str]) -> str:
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = " · ".join(f"{escape(name)} {escape(value)}" for name, value in about.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tidelog verify: {escape(title)}</title>\n<style>\n{_STYLE}\n</style></head>\n"
        f"<body><main>\n<header><h1>{escape(title)}</h1><p>{facts}</p></header>\n"
        + "\n".join(body)
        + f"\n<footer>Written by tidelog pipeline verify, {made}.</footer>\n</main></body></html>\n"
    )


def _verdict(words: str, sentence: str, *, is_good: bool) -> str:
    kind = "good" if is_good else "bad"
    return f'<div class="verdict {kind}">{words}<small>{escape(sentence)}</small></div>'


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that begin with # are numbers."""
    head = "".join(
        f'<th class="number">{escape(each[1:])}</th>'
        if each.startswith("#")
        else f"<th>{escape(each)}</th>"
        for each in columns
    )
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}\n</table></div>'


def _text(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _code(text: str) -> str:
    return f'<td class="wide"><code>{escape(text)}</code></td>'


def _wide(text: str) -> str:
    return f'<td class="wide">{escape(text)}</td>'


def _number(number: int) -> str:
    return f'<td class="number">{number:,}</td>'


def _problem(count: int) -> str:
    return f'<td class="number {"wrong" if count else "zero"}">{count:,}</td>'
