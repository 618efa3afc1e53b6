"""Which faults happen to a transactional application and its cluster, as a function of a seed.

They come with progress, not with time: the n-th of N faults when n of N+1 parts of the records are
through, so that a fast machine sees as many of them as a slow one.
"""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.lab.points import Point

# Away for a moment; or for longer than sessions and transactions last.
_SHORT_S: Final = (0.0, 1.0)
_LONG_S: Final = (6.5, 12.0)
_LONG_SHARE: Final = 0.3
_APPLICATION_SHARE: Final = 0.4
_WAITING_SHARE: Final = 0.7


class Deed(StrEnum):
    """What is done to a process."""

    KILL = "kill -9"
    PAUSE = "pause"
    RESTART = "restart"


class Target(StrEnum):
    """To whom."""

    APPLICATION = "application"
    INPUT_LEADER = "leader of input"
    OUTPUT_LEADER = "leader of output"
    GROUP_COORDINATOR = "group coordinator"
    TRANSACTION_COORDINATOR = "transaction coordinator"
    CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """`deed` is done to `target` for `away_s`, when `at_record` records are through.

    `chosen` is any number, to choose among partitions or applications by. `point` is where an
    application is killed; None is wherever it happens to be.
    """

    number: int
    deed: Deed
    target: Target
    chosen: int
    point: Point | None
    at_record: int
    away_s: float
    waits_for_sync: bool

    @property
    def kind(self) -> str:
        where = "" if self.point is None else f" {self.point}"
        return f"{self.deed} {self.target}{where}"


def plan(seed: int, *, fault_count: int, record_count: int) -> tuple[PlannedFault, ...]:
    """The faults of `seed`, in the order in which they happen."""
    chance = random.Random(seed)
    return tuple(
        _fault(chance, number, record_count * number // (fault_count + 1))
        for number in range(1, fault_count + 1)
    )


def _fault(chance: random.Random, number: int, at_record: int) -> PlannedFault:
    target = Target.APPLICATION
    if chance.random() >= _APPLICATION_SHARE:
        target = chance.choice([each for each in Target if each is not Target.APPLICATION])
    is_application = target is Target.APPLICATION
    deed = chance.choice([Deed.KILL, Deed.PAUSE] if is_application else list(Deed))
    # A broker that is killed is noticed at once; only who is paused can be away for long unseen.
    is_long = deed is Deed.PAUSE and chance.random() < _LONG_SHARE
    return PlannedFault(
        number=number,
        deed=deed,
        target=target,
        chosen=chance.randrange(1_000_000),
        point=_point(chance) if is_application and deed is Deed.KILL else None,
        at_record=at_record,
        away_s=0.0 if deed is Deed.RESTART else chance.uniform(*(_LONG_S if is_long else _SHORT_S)),
        waits_for_sync=chance.random() < _WAITING_SHARE,
    )


def _point(chance: random.Random) -> Point | None:
    choices: list[Point | None] = [None, *Point]
    return chance.choice(choices)
