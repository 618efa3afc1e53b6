"""The way from one machine to another: how long bytes take, and whether they arrive at all.

Links have a direction, so that one can be cut while its opposite works. TCP sends again what is
lost, so a loss is a delay here, and what is sent into a cut link waits until it is healed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

# TCP tries again after ever longer pauses, so bytes do not arrive at the moment of healing.
RETRANSMISSION_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a link is like.

    `loss_probability` of a write to arrive late, by up to twice `retransmission_s`;
    `split_probability` of it to arrive in two pieces.
    """

    latency_min_s: float
    latency_max_s: float
    loss_probability: float
    retransmission_s: float
    split_probability: float
    bytes_per_s: float

    def __post_init__(self) -> None:
        assert 0 < self.latency_min_s <= self.latency_max_s
        assert self.bytes_per_s > 0


def same_rack() -> Conditions:
    """A good network: a tenth of a millisecond up to one, a write in a thousand is sent twice."""
    return Conditions(
        latency_min_s=0.000_1,
        latency_max_s=0.001,
        loss_probability=0.001,
        retransmission_s=0.2,
        split_probability=0.02,
        bytes_per_s=1e9,
    )


def same_machine() -> Conditions:
    """Between two processes of one machine."""
    return Conditions(
        latency_min_s=0.000_01,
        latency_max_s=0.000_1,
        loss_probability=0.0,
        retransmission_s=0.2,
        split_probability=0.02,
        bytes_per_s=1e10,
    )


class Link:
    """One direction between two machines."""

    __slots__ = ("_cut_at_s", "_random", "_waiting", "conditions", "is_cut", "source", "target")

    def __init__(self, source: str, target: str, conditions: Conditions, random: Random) -> None:
        self.source = source
        self.target = target
        self.conditions = conditions
        self.is_cut = False
        self._cut_at_s = 0.0
        self._random = random
        self._waiting: list[Callable[[float], None]] = []

    def latency_s(self) -> float:
        """How long the next bytes take."""
        conditions = self.conditions
        random = self._random.random
        latency_s = conditions.latency_min_s + random() * (
            conditions.latency_max_s - conditions.latency_min_s
        )
        if conditions.loss_probability and random() < conditions.loss_probability:
            latency_s += conditions.retransmission_s * (1.0 + random())
        return latency_s

    def piece_bytes(self, size_bytes: int) -> int:
        """How much of a write arrives first; usually all of it."""
        probability = self.conditions.split_probability
        if probability and size_bytes > 1 and self._random.random() < probability:
            return self._random.randrange(1, size_bytes)
        return size_bytes

    def cut(self, now_s: float) -> None:
        if not self.is_cut:
            self.is_cut = True
            self._cut_at_s = now_s

    def heal(self, now_s: float) -> None:
        """Let through what waits, each when it is sent the next time."""
        if not self.is_cut:
            return
        self.is_cut = False
        pause_max_s = min(RETRANSMISSION_MAX_S, now_s - self._cut_at_s)
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on(self.latency_s() + self._random.uniform(0.0, pause_max_s))

    def when_healed(self, go_on: Callable[[float], None]) -> None:
        """Call back when the link is healed, with the time that the bytes then take."""
        assert self.is_cut
        self._waiting.append(go_on)
