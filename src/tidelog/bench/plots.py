"""The report's pictures: throughput as bars, over partitions and over time, latencies, the ISR.

Every picture has one axis of values. tidelog has one colour in all of them, its peer another, and
the document's figures, which are of other machines, a scale of their own.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.bench import svg
from tidelog.bench.figures import Figures, number_text, spread_text
from tidelog.bench.measured import (
    CURVE_PERCENTILES,
    SLICE_S,
    TIDELOG,
    Interruption,
    IsrSample,
    Latencies,
    LatencyPair,
    Results,
    Rounds,
    ThroughputRow,
)

_WIDTH: Final = 860.0
_LABELS: Final = 210.0
_BAR: Final = 12.0
_LINE_HEIGHT: Final = 260.0
_STRIP_ROW: Final = 7.0
_RIGHT: Final = 84.0
_DOCUMENT_CLASS: Final = "s0"
# Curves begin where half of all records are slower: below, all look alike.
_PERCENT_TICKS: Final = (0, 50, 90, 99, 99.9, 99.99)


@dataclass(frozen=True, slots=True)
class _Series:
    name: str
    classes: str
    values: tuple[Figures | None, ...]


def series_class(subject: str) -> str:
    return "s1" if subject == TIDELOG else "s2"


# -- scenarios 1 to 3 ----------------------------------------------------------------------------


def throughput_bars(results: Results, rows: Sequence[ThroughputRow]) -> list[tuple[str, str]]:
    """Pictures with their captions: what was measured here, and the document's figures."""
    labels = [row.setup.described for row in rows]
    measured = [
        _Series(subject, series_class(subject), tuple(row.tps(subject) for row in rows))
        for subject in results.subjects
    ]
    document = _Series(
        "document",
        _DOCUMENT_CLASS,
        tuple(Figures((row.document_tps,)) if row.document_tps else None for row in rows),
    )
    return [
        ("Records a second, here", _bars(labels, measured)),
        ("Records a second in the document, on its machines", _bars(labels, [document])),
    ]


def _bars(labels: Sequence[str], series: Sequence[_Series]) -> str:
    known = [each for one in series for each in one.values if each is not None]
    top = max((each.largest for each in known), default=1.0)
    scale = svg.LinearScale(top * 1.02, _LABELS, _WIDTH - _RIGHT)
    head = 26.0 if len(series) > 1 else 4.0
    group = len(series) * (_BAR + 2) + 8
    bottom = head + group * len(labels)
    parts = [svg.legend([(one.name, one.classes) for one in series], x=_LABELS, y=14)]
    parts = parts if len(series) > 1 else []
    parts += _vertical_grid(scale, head, bottom)
    for index, label in enumerate(labels):
        y = head + index * group + 4
        middle = y + len(series) * (_BAR + 2) / 2 + 3
        parts.append(svg.text(_LABELS - 10, middle, label, anchor="end"))
        for one in series:
            parts += _bar(scale, y, one, one.values[index], label)
            y += _BAR + 2
    return svg.drawing(_WIDTH, bottom + 22, parts, label="bars of records a second")


def _bar(
    scale: svg.Scale, y: float, series: _Series, figures: Figures | None, label: str
) -> list[str]:
    if figures is None:
        return [svg.text(_LABELS + 4, y + _BAR - 2, "not measured", classes="soft")]
    end = scale(figures.median)
    title = f"{series.name}, {label}: {number_text(figures.median)} {spread_text(figures)}"
    parts = [
        svg.bar((_LABELS, y), (end - _LABELS, _BAR), classes=series.classes, title=title.strip())
    ]
    rightmost = end
    if figures.has_spread:
        middle = y + _BAR / 2
        low, high = scale(figures.smallest), scale(figures.largest)
        parts.append(svg.line((low, middle), (high, middle), classes="spread"))
        rightmost = high
    parts.append(
        svg.text(rightmost + 6, y + _BAR - 2, number_text(figures.median), classes="value")
    )
    return parts


def _vertical_grid(scale: svg.Scale, top: float, bottom: float) -> list[str]:
    parts = []
    for tick in scale.ticks():
        x = scale(tick)
        parts.append(svg.line((x, top), (x, bottom), classes="grid"))
        parts.append(svg.text(x, bottom + 16, f"{tick:,.0f}", classes="soft", anchor="middle"))
    return parts


# -- scenario 4 ----------------------------------------------------------------------------------


def partitions_lines(results: Results, rows: Sequence[ThroughputRow]) -> str:
    """Records a second by the number of partitions."""
    known = [figures for row in rows for each in results.subjects if (figures := row.tps(each))]
    top = max((each.largest for each in known), default=1.0) * 1.05
    y_scale = svg.LinearScale(top, _LINE_HEIGHT, 30)
    most = max(row.setup.partitions for row in rows)
    x_scale = svg.LinearScale(float(most), 60, _WIDTH - _RIGHT)
    parts = _horizontal_grid(y_scale, right=_WIDTH - _RIGHT, worded=_thousands)
    parts += [
        svg.text(
            x_scale(row.setup.partitions),
            _LINE_HEIGHT + 18,
            str(row.setup.partitions),
            classes="soft",
            anchor="middle",
        )
        for row in rows
    ]
    parts.append(svg.text(_WIDTH - _RIGHT, _LINE_HEIGHT + 34, "partitions", anchor="end"))
    parts.append(svg.legend(_entries(results.subjects), x=60, y=14))
    for subject in results.subjects:
        parts += _partitions_line(rows, subject, x_scale, y_scale)
    return svg.drawing(_WIDTH, _LINE_HEIGHT + 40, parts, label="records a second by partitions")


def _partitions_line(
    rows: Sequence[ThroughputRow], subject: str, x_scale: svg.Scale, y_scale: svg.Scale
) -> list[str]:
    places = []
    spreads, dots = [], []
    for row in rows:
        figures = row.tps(subject)
        if figures is None:
            continue
        x, y = x_scale(row.setup.partitions), y_scale(figures.median)
        places.append((x, y))
        low, high = y_scale(figures.smallest), y_scale(figures.largest)
        spreads.append(svg.line((x, low), (x, high), classes="spread"))
        title = (
            f"{subject}, {row.setup.partitions} partitions: {number_text(figures.median)} "
            f"{spread_text(figures)}"
        )
        dots.append(svg.dot((x, y), classes=series_class(subject), title=title.strip()))
    return [svg.polyline(places, classes=f"{series_class(subject)} curve"), *spreads, *dots]


# -- scenario 5 ----------------------------------------------------------------------------------


def interruption(subject: str, measured: Interruption) -> str:
    """Records a second over time with what was done to brokers, and the ISR under it."""
    end_s = max(len(measured.tps_by_time) * SLICE_S, 0.5)
    x_scale = svg.LinearScale(end_s, 60, _WIDTH - 20)
    height = 170.0
    y_scale = svg.LinearScale(max((*measured.tps_by_time, 1.0)) * 1.05, height, 30)
    parts = _horizontal_grid(y_scale, right=_WIDTH - 20, worded=_thousands)
    points = [
        (x_scale((index + 0.5) * SLICE_S), y_scale(tps))
        for index, tps in enumerate(measured.tps_by_time)
    ]
    parts.append(svg.polyline(points, classes=f"{series_class(subject)} curve"))
    strip_top = height + 26
    strip_bottom = strip_top + _STRIP_ROW * _partition_count(measured.isr)
    parts += _isr_strip(measured.isr, x_scale, strip_top, end_s)
    parts += _moments(measured, x_scale, strip_bottom)
    for tick in x_scale.ticks():
        parts.append(
            svg.text(
                x_scale(tick), strip_bottom + 16, f"{tick:g} s", classes="soft", anchor="middle"
            )
        )
    parts.append(_isr_legend(strip_bottom + 38))
    return svg.drawing(
        _WIDTH, strip_bottom + 46, parts, label="records a second and in-sync replicas over time"
    )


def _moments(measured: Interruption, x_scale: svg.Scale, bottom: float) -> list[str]:
    parts = []
    end_of_last = 0.0
    row = 0
    for moment in measured.moments:
        x = x_scale(moment.at_s)
        # Words that would run into those before them go to the line below.
        row = row + 1 if x < end_of_last else 0
        y = 12.0 + 13 * row
        parts.append(svg.line((x, y + 3), (x, bottom), classes="moment"))
        parts.append(svg.text(x + 4, y, moment.what, classes="moment-text"))
        end_of_last = x + 4 + 6.4 * len(moment.what)
    return parts


def _partition_count(samples: Sequence[IsrSample]) -> int:
    return len(samples[0].sizes) if samples else 0


def _isr_strip(
    samples: Sequence[IsrSample], x_scale: svg.Scale, top: float, end_s: float
) -> list[str]:
    """A row for each partition; runs of samples with the same size are one rectangle."""
    parts = []
    for partition in range(_partition_count(samples)):
        y = top + partition * _STRIP_ROW
        for start_s, stop_s, size in runs_of(samples, partition, end_s):
            left = x_scale(start_s)
            parts.append(
                svg.rectangle(
                    (left, y),
                    (x_scale(stop_s) - left, _STRIP_ROW - 1),
                    classes=f"isr{size}",
                    title=f"partition {partition}: {size} in sync from {start_s:.1f} s",
                )
            )
    if parts:
        middle = top + _partition_count(samples) * _STRIP_ROW / 2 + 4
        parts.append(svg.text(52, middle, "ISR", classes="soft", anchor="end"))
    return parts


def runs_of(
    samples: Sequence[IsrSample], partition: int, end_s: float
) -> list[tuple[float, float, int]]:
    """From when until when a partition had how many replicas in sync, as far as samples know."""
    runs: list[tuple[float, float, int]] = []
    for sample in samples:
        at_s, size = min(sample.at_s, end_s), sample.sizes[partition]
        if runs:
            start_s, _, before = runs[-1]
            runs[-1] = (start_s, at_s, before)
        if not runs or runs[-1][2] != size:
            runs.append((at_s, at_s, size))
    if runs:
        start_s, _, size = runs[-1]
        runs[-1] = (start_s, end_s, size)
    return runs


def _isr_legend(y: float) -> str:
    entries = [
        ("4 in sync", "isr4"),
        ("3", "isr3"),
        ("2 (min ISR)", "isr2"),
        ("1: acks=-1 is refused", "isr1"),
        ("no leader", "isr0"),
    ]
    return svg.legend(entries, x=60, y=y)


# -- scenario 6 ----------------------------------------------------------------------------------


def latency_curves(results: Results, rounds: Rounds[LatencyPair]) -> str:
    """Latencies by percentile: medians of the rounds, both scales by powers."""
    curves = [
        (subject, side, _median_curve(rounds.of(subject), pick))
        for subject in results.subjects
        for side, pick in _SIDES.items()
        if rounds.of(subject)
    ]
    values = [each for _, _, curve in curves for each in curve]
    low, high = min(values, default=1.0), max(values, default=10.0)
    y_scale = svg.LogScale(
        10.0 ** math.floor(math.log10(max(low, 0.001))),
        10.0 ** math.ceil(math.log10(max(high, 0.01)) + 0.001),
        _LINE_HEIGHT,
        30,
    )
    parts = _horizontal_grid(y_scale, right=_WIDTH - _RIGHT, worded=lambda tick: f"{tick:g} ms")
    for percent in _PERCENT_TICKS:
        x = _percent_x(percent)
        parts.append(svg.line((x, 30), (x, _LINE_HEIGHT), classes="grid"))
        parts.append(
            svg.text(x, _LINE_HEIGHT + 18, f"{percent:g} %", classes="soft", anchor="middle")
        )
    parts.append(
        svg.text(_WIDTH - _RIGHT, _LINE_HEIGHT + 36, "of records are faster", anchor="end")
    )
    parts.append(svg.legend(_entries(results.subjects), x=60, y=14))
    parts.append(
        svg.text(
            _WIDTH - _RIGHT,
            14,
            "solid: to the acknowledgement · dashed: to a consumer",
            anchor="end",
        )
    )
    for subject, side, curve in curves:
        points = [
            (_percent_x(percent), y_scale(value))
            for percent, value in zip(CURVE_PERCENTILES, curve, strict=True)
        ]
        dashed = "" if side == "producer" else " dashed"
        parts.append(svg.polyline(points, classes=f"{series_class(subject)} curve{dashed}"))
    return svg.drawing(_WIDTH, _LINE_HEIGHT + 44, parts, label="latencies by percentile")


_SIDES: Final[Mapping[str, Callable[[LatencyPair], Latencies]]] = {
    "producer": lambda pair: pair.producer,
    "consumer": lambda pair: pair.consumer,
}


def _median_curve(
    pairs: Iterable[LatencyPair], pick: Callable[[LatencyPair], Latencies]
) -> list[float]:
    curves = [pick(pair).curve for pair in pairs]
    return [Figures(values).median for values in zip(*curves, strict=True)]


def _percent_x(percent: float) -> float:
    """Each nine takes the same room."""
    nines = -math.log10(max(1 - percent / 100, 0.0001))
    return 60 + (_WIDTH - _RIGHT - 60) * nines / 4


# -- all of them ---------------------------------------------------------------------------------


def _horizontal_grid(
    scale: svg.Scale, *, right: float, worded: Callable[[float], str]
) -> list[str]:
    parts = []
    for tick in scale.ticks():
        y = scale(tick)
        parts.append(svg.line((60, y), (right, y), classes="grid"))
        parts.append(svg.text(54, y + 4, worded(tick), classes="soft", anchor="end"))
    return parts


def _thousands(value: float) -> str:
    return f"{value:,.0f}"


def _entries(subjects: Iterable[str]) -> list[tuple[str, str]]:
    return [(subject, series_class(subject)) for subject in subjects]
