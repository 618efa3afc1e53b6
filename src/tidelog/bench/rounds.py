"""Whose turn it is: systems are measured in turns, each round in another order.

All of them run during the whole measurement, so that a disturbance of the machine hits all alike.
Rounds of warming up come first and count for nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """One system's turn at one row in one round."""

    subject: str
    row_index: int
    round_index: int
    counts: bool


def turns(
    subjects: Sequence[str], *, row_count: int, rounds: int, warm_up_rounds: int
) -> Iterator[Turn]:
    """A B, B A, A B ...: neighbours in time are the same row of different systems."""
    for round_index in range(warm_up_rounds + rounds):
        for row_index in range(row_count):
            for subject in rotated(subjects, round_index + row_index):
                yield Turn(subject, row_index, round_index, counts=round_index >= warm_up_rounds)


def rotated(subjects: Sequence[str], by: int) -> list[str]:
    shift = by % len(subjects)
    return [*subjects[shift:], *subjects[:shift]]
