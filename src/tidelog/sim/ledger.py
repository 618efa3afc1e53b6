"""What producers were told and consumers were given: the outside's view of a simulated cluster.

Checkers compare it with what the cluster holds. A record's value says who sent it and as which of
its own: `<producer>:<number>`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Acknowledged(NamedTuple):
    """A producer was told that its record has this offset."""

    value: bytes
    partition: int
    offset: int
    acks: int
    at_s: float


class Consumed(NamedTuple):
    """A consumer was given this record."""

    consumer: str
    partition: int
    offset: int
    value: bytes
    at_s: float


@dataclass(slots=True)
class Ledger:
    """Everything in the order in which it happened."""

    sent_count: int = 0
    acknowledged: list[Acknowledged] = field(default_factory=list)
    consumed: list[Consumed] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)
    """How often each error code was answered."""

    last_acknowledged_s: dict[int, float] = field(default_factory=dict)
    """By partition, for acks=all."""

    def note_refusal(self, code: int) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1
