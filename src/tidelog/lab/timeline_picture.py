"""What happened to a cluster, drawn: a lane for each broker and partition, time to the right.

    faults       o  o     o          each a mark, and a line through all lanes
    broker 1     ──────▓▓▓▓────      what it was, and below it a line while it was the controller
    partition 0  1─────2─────1─      who led; above: nothing acknowledged; below: not all in sync
    records/s    ▂▃▃▁ ▂▃▃▃▃▃▃▃

Values in, SVG text out; nothing here knows what a fault is. Colours are classes that the page
gives a meaning by day and by night (`STYLE`), and a title is what shows under the mouse. Names of
lanes are a drawing of their own, so that they stay where a long time line is scrolled.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH_MIN: Final = 890.0
# A run of an hour is scrolled; one of a day is not drawn any wider.
WIDTH_MAX: Final = 16_000.0
_PIXELS_PER_S: Final = 4.0
_NAMES_WIDTH: Final = 104.0
_TOP: Final = 26.0
_LANE_HEIGHT: Final = 20.0
_LANE_STEP: Final = 26.0
_STRIP_HEIGHT: Final = 3.0
_GROUP_GAP: Final = 10.0
_RATES_HEIGHT: Final = 90.0
_AXIS_HEIGHT: Final = 22.0
_MARK_RADIUS: Final = 4.0
# What a number needs to stand beside the one before.
_LABEL_WIDTH: Final = 18.0
_SPAN_WIDTH_MIN: Final = 1.5
_TICK_WIDTH_WANTED: Final = 90.0
_TICKS_UP: Final = 3

STYLE: Final = """
:root { --lane: #eef1f4; --up: #cfe6d8; --down: #4a5361; --pause: #e2a53b; --cut: #8a63d2;
  --slow: #9fb8ea; --expire: #c2559b; --disk: #8d6748; --damage: #2f3641; --offline: #d3302f;
  --area: #7fa7d8; --l1: #4d8fdc; --l2: #35a491; --l3: #a58be0; --l4: #b3b04c; --l5: #e08fb8;
  --l6: #6fbfd8; --l7: #bb9b78; --l8: #88a76f; --l9: #8f9bab; }
@media (prefers-color-scheme: dark) { :root { --lane: #232a33; --up: #2b4d3b; --down: #aab4c2;
  --pause: #d0973a; --cut: #9a78dc; --slow: #5b77b4; --expire: #cf6aaa; --disk: #a67c59;
  --damage: #d5dbe3; --offline: #ef5350; --area: #4f7bb3; --l1: #3f7cc4; --l2: #2c8a7a;
  --l3: #7d66b8; --l4: #86843a; --l5: #ad648b; --l6: #45899e; --l7: #8b7154; --l8: #64804f;
  --l9: #6b7686; } }
.timeline { display: flex; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 10px 10px 6px; }
.timeline > div { overflow-x: auto; flex: 1; } .timeline svg { display: block; flex: none; }
.timeline text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  fill: var(--ink); }
.timeline text.soft { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.timeline text.in { font-size: 11px; pointer-events: none; }
.timeline text.in.down-text, .timeline text.in.damage-text, .timeline text.in.offline-text {
  fill: var(--card); }
.lane { fill: var(--lane); } .up { fill: var(--up); } .down { fill: var(--down); }
.pause { fill: var(--pause); } .cut { fill: var(--cut); } .slow { fill: var(--slow); }
.expire { fill: var(--expire); } .disk { fill: var(--disk); } .damage { fill: var(--damage); }
.offline, .none { fill: var(--offline); } .unknown { fill: var(--line); }
.controller { fill: var(--ink); } .lacking { fill: var(--pause); } .alone { fill: var(--offline); }
.area { fill: var(--area); } .mark { stroke: var(--soft); stroke-width: 1; opacity: .35;
  stroke-dasharray: 2 3; } .grid { stroke: var(--line); stroke-width: 1; }
.l1 { fill: var(--l1); } .l2 { fill: var(--l2); } .l3 { fill: var(--l3); } .l4 { fill: var(--l4); }
.l5 { fill: var(--l5); } .l6 { fill: var(--l6); } .l7 { fill: var(--l7); } .l8 { fill: var(--l8); }
.l9 { fill: var(--l9); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 10px 2px 0; font-size: 13px;
  color: var(--soft); } .legend svg { width: 14px; height: 10px; margin-right: 6px; }
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From `start_s` to `end_s` something was of `kind`, a class; `label` if there is room."""

    start_s: float
    end_s: float
    kind: str
    title: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row. Strips are thin, above and below it; `kind` is the colour beside its name, or ''."""

    name: str
    kind: str
    spans: Sequence[Span]
    above: Sequence[Span]
    below: Sequence[Span]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at one moment."""

    at_s: float
    kind: str
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second, from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All there is to draw. Groups of lanes stand apart."""

    length_s: float
    marks: Sequence[Mark]
    groups: Sequence[Sequence[Lane]]
    rates: Sequence[Rate]
    rates_name: str


def draw(picture: Picture, *, label: str) -> str:
    """HTML with two drawings side by side; `label` is for those who do not see them."""
    rows = _rows(picture)
    rates_top = (rows[-1][0] + _LANE_STEP if rows else _TOP) + _GROUP_GAP
    height = rates_top + _RATES_HEIGHT + _AXIS_HEIGHT
    width = min(WIDTH_MAX, max(WIDTH_MIN, picture.length_s * _PIXELS_PER_S))
    across = _Across(width - 1, max(picture.length_s, 0.001))
    up = _Up(rates_top, max((rate.per_s for rate in picture.rates), default=0.0) or 1.0)
    names = _svg(
        _NAMES_WIDTH, height, _names(rows, up, picture.rates_name), label=f"Names: {label}"
    )
    bottom = rates_top + _RATES_HEIGHT
    parts = [
        *_axis(across, bottom),
        *(_lane(lane, top, across) for top, lane in rows),
        *_area(picture.rates, across, up),
        *_marks(picture.marks, across, bottom),
    ]
    return (
        f'<div class="timeline">{names}<div>{_svg(width, height, parts, label=label)}</div></div>'
    )


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """What colours mean; an entry is a class and words."""
    shown = "".join(
        f'<span><svg viewBox="0 0 14 10"><rect width="14" height="10" rx="2" class="{kind}"/></svg>'
        f"{escape(words)}</span>"
        for kind, words in entries
    )
    return f'<div class="legend">{shown}</div>'


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, no smaller than `rough`."""
    assert rough > 0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def clock_text(seconds: float) -> str:
    """A time on the axis: 7 s, 1:05, 1:00:05."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:g} s"
    hours, rest = divmod(whole, 3600)
    minutes = f"{rest // 60:02}" if hours else f"{rest // 60}"
    return f"{f'{hours}:' if hours else ''}{minutes}:{rest % 60:02}"


# -- places --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Across:
    """From times to places, left to right."""

    width: float
    length_s: float

    def __call__(self, seconds: float) -> float:
        return self.width * min(max(seconds / self.length_s, 0.0), 1.0)

    def ticks(self) -> list[float]:
        step = nice_step(self.length_s * _TICK_WIDTH_WANTED / self.width)
        return [step * index for index in range(int(self.length_s / step) + 1)]


@dataclass(frozen=True, slots=True)
class _Up:
    """From rates to places, from the bottom of the area up."""

    top: float
    highest: float

    def __call__(self, per_s: float) -> float:
        return self.top + _RATES_HEIGHT * (1 - min(per_s / self.highest, 1.0))

    def ticks(self) -> list[float]:
        step = nice_step(self.highest / _TICKS_UP)
        return [step * index for index in range(1, int(self.highest / step) + 1)]


def _rows(picture: Picture) -> list[tuple[float, Lane]]:
    """Each lane with its upper edge."""
    rows, top = [], _TOP
    for group in picture.groups:
        for lane in group:
            rows.append((top, lane))
            top += _LANE_STEP
        top += _GROUP_GAP
    return rows


# -- parts ---------------------------------------------------------------------------------------


def _names(rows: Sequence[tuple[float, Lane]], up: _Up, rates_name: str) -> Iterable[str]:
    yield _text(0, _TOP - 10, "faults", "soft")
    for top, lane in rows:
        middle = top + _LANE_HEIGHT / 2
        if lane.kind:
            yield (
                f'<rect x="0" y="{_n(middle - 5)}" width="10" height="10" rx="2" '
                f'class="{lane.kind}"/>'
            )
        yield _text(16 if lane.kind else 0, middle + 4, lane.name, "")
    yield _text(0, up.top + 10, rates_name, "")
    for tick in up.ticks():
        yield _text(_NAMES_WIDTH - 8, up(tick) + 4, f"{tick:,.0f}", "soft", anchor="end")


def _axis(across: _Across, bottom: float) -> Iterable[str]:
    for tick in across.ticks():
        x = across(tick)
        yield _line(x, _TOP - 4, bottom, "grid")
        anchor = "start" if x < _LABEL_WIDTH else "end" if x > across.width - _LABEL_WIDTH else ""
        yield _text(x, bottom + 15, clock_text(tick), "soft", anchor=anchor or "middle")


def _lane(lane: Lane, top: float, across: _Across) -> str:
    strips = [
        (lane.spans, top + _STRIP_HEIGHT + 1, _LANE_HEIGHT - 2 * _STRIP_HEIGHT - 2),
        (lane.above, top, _STRIP_HEIGHT),
        (lane.below, top + _LANE_HEIGHT - _STRIP_HEIGHT, _STRIP_HEIGHT),
    ]
    return "".join(_span(span, y, height, across) for spans, y, height in strips for span in spans)


def _span(span: Span, y: float, height: float, across: _Across) -> str:
    x = across(span.start_s)
    width = max(_SPAN_WIDTH_MIN, across(span.end_s) - x)
    drawn = (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
        f'class="{span.kind}"><title>{escape(span.title)}</title></rect>'
    )
    if span.label and width >= 7 * len(span.label) + 6:
        drawn += _text(x + 4, y + height - 2.5, span.label, f"in {span.kind}-text")
    return drawn


def _area(rates: Sequence[Rate], across: _Across, up: _Up) -> Iterable[str]:
    if not rates:
        return
    bottom = _n(up(0))
    steps = "".join(
        f"L{_n(across(rate.start_s))} {_n(up(rate.per_s))}L{_n(across(rate.end_s))} "
        f"{_n(up(rate.per_s))}"
        for rate in rates
    )
    first, last = _n(across(rates[0].start_s)), _n(across(rates[-1].end_s))
    yield f'<path d="M{first} {bottom}{steps}L{last} {bottom}z" class="area"/>'
    for rate in rates:
        x = across(rate.start_s)
        title = f"{clock_text(round(rate.start_s, 1))}: {rate.per_s:,.0f} a second"
        yield (
            f'<rect x="{_n(x)}" y="{_n(up.top)}" width="{_n(across(rate.end_s) - x)}" '
            f'height="{_n(_RATES_HEIGHT)}" fill="transparent"><title>{title}</title></rect>'
        )


def _marks(marks: Sequence[Mark], across: _Across, bottom: float) -> Iterable[str]:
    free_from = 0.0
    for mark in marks:
        x, y = across(mark.at_s), _TOP - 10
        yield _line(x, y, bottom, "mark")
        yield (
            f'<circle cx="{_n(max(x, _MARK_RADIUS))}" cy="{_n(y)}" r="{_n(_MARK_RADIUS)}" '
            f'class="{mark.kind}"><title>{escape(mark.title)}</title></circle>'
        )
        if x >= free_from and x + _LABEL_WIDTH <= across.width:
            yield _text(max(x, _MARK_RADIUS) + 6, y + 4, mark.label, "soft")
            free_from = x + 12 + 7 * len(mark.label)


def _svg(width: float, height: float, parts: Iterable[str], *, label: str) -> str:
    return (
        f'<svg width="{_n(width)}" height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}" '
        f'role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, content: str, classes: str, *, anchor: str = "start") -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" class="{classes}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def _line(x: float, top: float, bottom: float, classes: str) -> str:
    return f'<line x1="{_n(x)}" x2="{_n(x)}" y1="{_n(top)}" y2="{_n(bottom)}" class="{classes}"/>'


def _n(number: float) -> str:
    """A number without digits that nobody sees."""
    return f"{number:.1f}".removesuffix(".0")
