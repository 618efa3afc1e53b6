"""A run of faults as one HTML file that needs nothing else: to keep, to send, to open in ten years.

The verdict in words, for how long what was not available, the time line, every fault with its
victims, and how to do it again. Values in, text out; the look is that of `pipeline verify`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tidelog.lab import timeline_picture
from tidelog.lab.faults import Outcome, attribute_gaps
from tidelog.lab.injector import BegunFault
from tidelog.lab.timeline_lanes import picture_of
from tidelog.lab.verdict import PartitionVerdict

FAULTS_OPEN_MAX: Final = 40
"""Longer lists of faults are folded up."""
PROBLEMS_MAX: Final = 200

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
@media (max-width: 600px) { main { padding: 20px 12px 40px; } }
header p, footer, .note { color: var(--soft); }
h1 { font-size: 22px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 36px 0 10px; }
header p { margin: 4px 0 20px; } .note { margin: 8px 2px 0; font-size: 13px; max-width: 85ch; }
.verdict { border-radius: 12px; padding: 18px 22px; font-size: 18px; font-weight: 600; }
.verdict small { display: block; font-size: 14px; font-weight: 400; margin-top: 2px; }
.good { background: var(--good-back); color: var(--good); }
.bad { background: var(--bad-back); color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); gap: 12px;
  margin: 16px 0 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; }
.tile b { display: block; font-size: 21px; font-variant-numeric: tabular-nums; line-height: 1.25; }
.tile span { color: var(--soft); font-size: 13px; }
.tile.wrong { border-color: var(--bad); } .tile.wrong b { color: var(--bad); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { padding: 7px 9px; text-align: left; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th { color: var(--soft); font-weight: 500; font-size: 12px; text-transform: uppercase; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
.zero { color: var(--soft); opacity: .55; } td.wrong { color: var(--bad); font-weight: 600; }
.wide { white-space: normal; min-width: 240px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 8px 0;
  padding: 12px 14px; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; font-size: 14px;
  margin: 14px 2px 0; } dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--soft); margin: 0 2px 8px; }
footer { margin-top: 40px; font-size: 13px; }
""".strip()

_WRONG: Final = {
    "lost": "acknowledged, and not in the log",
    "duplicated": "stored twice",
    "reordered": "behind one that its producer sent later",
    "unexpected": "sent by nobody",
    "undone": "read by a consumer, and gone",
}
_LEGEND: Final = (
    ("up", "up"),
    ("down", "killed or stopped"),
    ("damage", "killed, and its log damaged"),
    ("pause", "paused"),
    ("cut", "cut off"),
    ("slow", "slow"),
    ("expire", "session expired"),
    ("disk", "disk full"),
    ("controller", "line below a broker: it is the controller"),
    ("none", "line above a partition: no record acknowledged"),
    ("lacking", "line below: not all in sync"),
    ("alone", "red line below: one in sync at most"),
    ("offline", "partition in red: nobody leads"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts about a run that its outcome does not hold."""

    title: str
    date: str
    command: str
    """By which it can be done again."""
    seed: int
    schedule: str | None
    """In the words of the schedule language, where it was written by somebody."""
    setting: Mapping[str, str]
    """What cluster, what load: pairs to show."""
    machine: Mapping[str, str]


def report_html(outcome: Outcome, about: About) -> str:
    """The whole file."""
    body = [
        _verdict(outcome),
        _tiles(outcome),
        *_problems(outcome),
        "<h2>What happened</h2>",
        timeline_picture.draw(picture_of(outcome), label="Brokers and partitions over time"),
        timeline_picture.legend(_LEGEND),
        '<p class="note">Seconds since the load began. A partition has the colour and the number '
        "of the broker that leads it. Everything tells more under the mouse.</p>",
        "<h2>For how long nothing was acknowledged</h2>",
        _kinds_table(outcome),
        '<p class="note">A gap is the time between two acknowledgements in one partition, if it is '
        "longer than 100 ms. It belongs to the first fault within it, or to the last one before, "
        "and includes the time-outs of clients.</p>",
        "<h2>Partitions</h2>",
        _partitions_table(outcome),
        "<h2>Faults</h2>",
        _faults(outcome),
        "<h2>Do it again</h2>",
        *_again(about),
    ]
    return _page(about, body)


# -- verdict -------------------------------------------------------------------------------------


def verdict_words(outcome: Outcome) -> str:
    """One sentence: what became of the records."""
    wrong = {name: _total(outcome, name) for name in _WRONG}
    differing = [each.partition for each in outcome.verdicts if each.difference is not None]
    said = [f"{count:,} {name}" for name, count in wrong.items() if count]
    if differing:
        said.append(f"the replicas of {len(differing)} partitions differ")
    if said:
        return f"{', '.join(said)}."
    if outcome.problems:
        return "No record is wrong, but not everything went as it should."
    if not outcome.verdicts:
        return "There is no verdict: it did not get that far."
    return "Nothing was lost, doubled or out of order, and the replicas are equal byte for byte."


def _verdict(outcome: Outcome) -> str:
    kind, words = ("good", "All is well") if outcome.is_good else ("bad", "Something went wrong")
    sentence = (
        f"{len(outcome.injected):,} faults; {outcome.acknowledged:,} of {outcome.sent:,} records "
        f"were acknowledged. {verdict_words(outcome)}"
    )
    return f'<div class="verdict {kind}">{words}<small>{escape(sentence)}</small></div>'


def _tiles(outcome: Outcome) -> str:
    is_equal = all(each.difference is None for each in outcome.verdicts)
    tiles = [
        ("faults", f"{len(outcome.injected):,}", False),
        ("acknowledged", f"{outcome.acknowledged:,}", False),
        *((name, f"{(n := _total(outcome, name)):,}", n > 0) for name in _WRONG),
        ("replicas", "equal" if is_equal else "differ", not is_equal),
        ("longest gap", gap_text(outcome.longest_gap_s), False),
        ("gaps, per partition", gap_text(outcome.unavailable_s), False),
    ]
    shown = "".join(
        f'<div class="tile{" wrong" if is_wrong else ""}" title="{escape(_WRONG.get(name, ""))}">'
        f"<b>{value}</b><span>{escape(name)}</span></div>"
        for name, value, is_wrong in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _problems(outcome: Outcome) -> list[str]:
    found = [
        *outcome.problems,
        *(
            f"partition {verdict.partition}: {example}"
            for verdict in outcome.verdicts
            for example in (*verdict.examples, verdict.difference)
            if example is not None
        ),
    ]
    if not found:
        return []
    shown = [f"<tr>{_wide(each)}</tr>" for each in found[:PROBLEMS_MAX]]
    if len(found) > PROBLEMS_MAX:
        shown.append(f"<tr>{_wide(f'and {len(found) - PROBLEMS_MAX:,} more')}</tr>")
    return ["<h2>What is wrong</h2>", f'<div class="scroll"><table>{"".join(shown)}</table></div>']


# -- tables --------------------------------------------------------------------------------------


def _kinds_table(outcome: Outcome) -> str:
    rows = [
        [
            _text(kind),
            _number(len(gaps)),
            _gap(sorted(gaps)[len(gaps) // 2]),
            _gap(max(gaps)),
        ]
        for kind, gaps in sorted(outcome.gaps_by_kind().items())
    ]
    return _table(["fault", "#count", "#median gap", "#longest gap"], rows)


def _partitions_table(outcome: Outcome) -> str:
    columns = ["partition", "#stored", "#acknowledged", *(f"#{name}" for name in _WRONG)]
    rows = [_partition_row(outcome, each) for each in outcome.verdicts]
    return _table([*columns, "replicas", "#gaps", "#longest", "#in all"], rows)


def _partition_row(outcome: Outcome, verdict: PartitionVerdict) -> list[str]:
    gaps = [gap.length_s for gap in outcome.gaps if gap.partition == verdict.partition]
    return [
        _number(verdict.partition, classes=""),
        _number(verdict.stored),
        _number(verdict.acknowledged),
        *(_problem(_count(verdict, name)) for name in _WRONG),
        _text("equal") if verdict.difference is None else '<td class="wrong">differ</td>',
        _number(len(gaps)),
        _gap(max(gaps, default=0.0)),
        _gap(sum(gaps)),
    ]


def _faults(outcome: Outcome) -> str:
    longest = attribute_gaps(outcome.gaps, [each.at for each in outcome.injected])
    rows = [
        _fault_row(each, gap_s, outcome.loaded_at)
        for each, gap_s in zip(outcome.injected, longest, strict=True)
    ]
    table = _table(["#", "#at", "fault", "victims", "#until", "#longest gap"], rows)
    if len(rows) <= FAULTS_OPEN_MAX:
        return table
    return f"<details><summary>All {len(rows):,} of them</summary>{table}</details>"


def _fault_row(begun: BegunFault, gap_s: float, zero: float) -> list[str]:
    return [
        _number(begun.fault.number),
        _cell(f"{begun.at - zero:,.1f} s"),
        _text(begun.what),
        _text(", ".join(begun.names) or "nobody is left"),
        _cell("-" if begun.ended_at is None else f"{begun.ended_at - zero:,.1f} s"),
        _gap(gap_s),
    ]


def _again(about: About) -> list[str]:
    facts = {"seed": str(about.seed), **about.setting, **about.machine, "date": about.date}
    pairs = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    schedule = [] if about.schedule is None else [f"<pre>{escape(about.schedule)}</pre>"]
    return [
        f"<pre>{escape(about.command)}</pre>",
        *schedule,
        '<p class="note">The same seed gives the same faults to the same roles; who has the role, '
        "and what becomes of the cluster, is chance, as on any machine.</p>",
        f"<dl>{pairs}</dl>",
    ]


# -- pieces --------------------------------------------------------------------------------------


def gap_text(seconds: float) -> str:
    """Shorter ones than the workload notes down are none."""
    if seconds >= 10:
        return f"{seconds:,.1f} s"
    return f"{1_000 * seconds:,.0f} ms" if seconds else "none"


def _page(about: About, body: Iterable[str]) -> str:
    facts = " · ".join(f"{name} {value}" for name, value in about.setting.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>tidelog lab: {escape(about.title)}</title>\n"
        f"<style>\n{_STYLE}\n{timeline_picture.STYLE}\n</style></head>\n"
        f"<body><main>\n<header><h1>{escape(about.title)}</h1><p>{escape(facts)}</p></header>\n"
        + "\n".join(body)
        + f"\n<footer>Written by tidelog lab, {escape(about.date)}.</footer>\n"
        + "</main></body></html>\n"
    )


def _total(outcome: Outcome, name: str) -> int:
    return sum(_count(each, name) for each in outcome.verdicts)


def _count(verdict: PartitionVerdict, name: str) -> int:
    count = getattr(verdict, name)
    assert isinstance(count, int)
    return count


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that begin with # are numbers."""
    head = "".join(
        f'<th class="number">{escape(each[1:] or "#")}</th>'
        if each.startswith("#")
        else f"<th>{escape(each)}</th>"
        for each in columns
    )
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}\n</table></div>'


def _text(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _wide(text: str) -> str:
    return f'<td class="wide">{escape(text)}</td>'


def _cell(text: str, *, classes: str = "number") -> str:
    return f'<td class="{classes}">{escape(text)}</td>'


def _number(number: int, *, classes: str = "number") -> str:
    return _cell(f"{number:,}", classes=classes)


def _gap(seconds: float) -> str:
    return _cell(gap_text(seconds), classes="number" if seconds else "number zero")


def _problem(count: int) -> str:
    return _cell(f"{count:,}", classes=f"number {'wrong' if count else 'zero'}")
