"""Small drawings as SVG text: scales, and the few shapes that the report's pictures are made of.

Colours are classes, so that the page decides what they are by day and by night. `title` becomes
what a browser shows where the mouse is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Protocol

TICKS_WANTED: Final = 5


class Scale(Protocol):
    """From values to places in the drawing."""

    def __call__(self, value: float) -> float:
        """Where it is."""

    def ticks(self) -> list[float]:
        """Round values to draw lines at."""


@dataclass(frozen=True, slots=True)
class LinearScale:
    """From 0 at `start` to `top` at `end`."""

    top: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * value / self.top

    def ticks(self) -> list[float]:
        step = nice_step(self.top / TICKS_WANTED)
        return [step * index for index in range(int(self.top / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class LogScale:
    """From `bottom` at `start` to `top` at `end`; each power of ten takes the same room."""

    bottom: float
    top: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        kept = min(max(value, self.bottom), self.top)
        share = math.log(kept / self.bottom) / math.log(self.top / self.bottom)
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        first = math.ceil(math.log10(self.bottom) - 1e-9)
        last = math.floor(math.log10(self.top) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]


def nice_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, no smaller than `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)


def drawing(width: float, height: float, parts: Iterable[str], *, label: str) -> str:
    """A whole picture; `label` is for those who do not see it."""
    return (
        f'<svg viewBox="0 0 {_n(width)} {_n(height)}" role="img" aria-label="{escape(label)}" '
        f'style="min-width:{_n(min(width, 640))}px">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, content: str, *, classes: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" class="{classes}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def line(start: tuple[float, float], end: tuple[float, float], *, classes: str) -> str:
    return (
        f'<line x1="{_n(start[0])}" y1="{_n(start[1])}" x2="{_n(end[0])}" y2="{_n(end[1])}" '
        f'class="{classes}"/>'
    )


def rectangle(
    corner: tuple[float, float], size: tuple[float, float], *, classes: str, title: str = ""
) -> str:
    return (
        f'<rect x="{_n(corner[0])}" y="{_n(corner[1])}" width="{_n(max(size[0], 0))}" '
        f'height="{_n(max(size[1], 0))}" class="{classes}">{_title(title)}</rect>'
    )


def bar(corner: tuple[float, float], size: tuple[float, float], *, classes: str, title: str) -> str:
    """A bar that grows to the right, round at its end."""
    (x, y), (width, height) = corner, size
    radius = min(3.0, width)
    path = (
        f"M{_n(x)} {_n(y)}h{_n(width - radius)}q{_n(radius)} 0 {_n(radius)} {_n(radius)}"
        f"v{_n(height - 2 * radius)}q0 {_n(radius)} {_n(-radius)} {_n(radius)}"
        f"h{_n(radius - width)}z"
    )
    return f'<path d="{path}" class="{classes}">{_title(title)}</path>'


def polyline(points: Sequence[tuple[float, float]], *, classes: str) -> str:
    places = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
    return f'<polyline points="{places}" class="{classes}"/>'


def dot(centre: tuple[float, float], *, classes: str, title: str) -> str:
    return (
        f'<circle cx="{_n(centre[0])}" cy="{_n(centre[1])}" r="4" class="{classes}">'
        f"{_title(title)}</circle>"
    )


def legend(
    entries: Sequence[tuple[str, str]], *, x: float, y: float, letter_width: float = 7.2
) -> str:
    """Names beside their colours, in one line; an entry is a name and a class."""
    parts = []
    for name, classes in entries:
        parts.append(rectangle((x, y - 9), (14, 10), classes=classes))
        parts.append(text(x + 20, y, name))
        x += 20 + len(name) * letter_width + 18
    return "".join(parts)


def _title(title: str) -> str:
    return f"<title>{escape(title)}</title>" if title else ""


def _n(number: float) -> str:
    """A number without digits that nobody sees."""
    return f"{number:.2f}".rstrip("0").rstrip(".") or "0"
