"""What a partition's machines ask their runner to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.ids import BrokerId, LeaderEpoch


@dataclass(frozen=True, slots=True)
class HighWatermarkAdvanced:
    """Wake the produce and fetch requests that wait for `PartitionLeader.high_watermark`.

    Carries no offset: it is returned for every append to an unreplicated partition, and the
    leader, which nobody else may touch in between, holds the value.
    """


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Compare-and-set `isr` into the partition's state node; the answer is another event.

    `on_isr_changed` if the node holds it now, `on_isr_refused` if it surely does not. As long as
    nobody knows, neither: propose the same again until there is an answer.
    """

    isr: frozenset[BrokerId]
    broker_epochs: Mapping[BrokerId, int]
    """Of its members but the leader: the registrations under which they caught up (KIP-903)."""

    leader_epoch: LeaderEpoch
    expected_version: int


Effect = HighWatermarkAdvanced | ProposeIsr
Effects = tuple[Effect, ...]

NOTHING: Final[Effects] = ()
ADVANCED: Final[Effects] = (HighWatermarkAdvanced(),)
"""One object for every append, so that a runner may compare by identity."""
