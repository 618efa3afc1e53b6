"""Figures of several rounds: their median, their spread, and whether two of them differ.

A machine that does other things gives another figure every time. So a difference counts only where
the rounds of one do not overlap those of the other, and one round alone says nothing about spread.
Rounds of two systems are interleaved, so that a ratio is one of neighbours: round by round.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

ROUNDS_MIN: Final = 2
"""Fewer have no spread."""


class Difference(Enum):
    """How one figure lies to another."""

    LARGER = "larger"
    SMALLER = "smaller"
    NONE = "no difference beyond the spread of rounds"
    UNKNOWN = "one round has no spread"


@dataclass(frozen=True, slots=True)
class Figures:
    """One figure of each round; at least one."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.values, "a figure of no round is none"

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def smallest(self) -> float:
        return min(self.values)

    @property
    def largest(self) -> float:
        return max(self.values)

    @property
    def has_spread(self) -> bool:
        return len(self.values) >= ROUNDS_MIN

    def against(self, other: "Figures") -> Difference:
        """How this one lies to the other."""
        if not (self.has_spread and other.has_spread):
            return Difference.UNKNOWN
        if self.smallest > other.largest:
            return Difference.LARGER
        if self.largest < other.smallest:
            return Difference.SMALLER
        return Difference.NONE

    def to_json(self) -> dict[str, object]:
        return {
            "median": round(self.median, 4),
            "min": round(self.smallest, 4),
            "max": round(self.largest, 4),
            "rounds": [round(value, 4) for value in self.values],
        }


def pooled(*figures: Figures) -> Figures:
    """All rounds of several figures that should be the same."""
    return Figures(tuple(value for each in figures for value in each.values))


def ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Figures | None:
    """Ours over theirs in each round that both have; None if there is no such round."""
    shared = [index for index in ours if theirs.get(index)]
    return Figures(tuple(ours[index] / theirs[index] for index in shared)) if shared else None


def number_text(value: float) -> str:
    """Three digits that matter, thousands apart: 0.0123, 1.23, 12.3, 123, 12,345."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def spread_text(figures: Figures) -> str:
    """The smallest and the largest round: `11,800 .. 12,400`; nothing of a single one."""
    if not figures.has_spread:
        return ""
    return f"{number_text(figures.smallest)} .. {number_text(figures.largest)}"


def ratio_text(figures: Figures | None) -> str | None:
    """`1.32x (1.21 .. 1.40)`."""
    if figures is None:
        return None
    spread = spread_text(figures)
    return f"{number_text(figures.median)}x" + (f" ({spread})" if spread else "")
