"""A producer that sends what was sent before, by itself or by others, again and again (D5).

Each batch has a few ids from a pool that all of them share, some of them new. A plain one gives up
now and then and leaves it open whether a batch was stored; an idempotent one goes on until it
knows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.records.batch import Codec
from tidelog.sim.batch_producer import BatchProducer, ProducerPlan
from tidelog.sim.batches import ACKS_ALL
from tidelog.sim.client import SimulatedClient

NEW_SHARE = 0.3
RECENT = 8
"""So that most are repeated soon, perhaps before the first copy is committed."""
ATTEMPTS_MAX = 4
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)


class Told(NamedTuple):
    """A producer was told that records with these ids are stored, the first at this offset."""

    ids: tuple[bytes, ...]
    partition: int
    base_offset: int
    at_s: float


@dataclass(slots=True)
class RepeatedIds:
    """The ids of all producers, and what they were told."""

    by_partition: dict[int, list[bytes]] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)


class SimulatedRepeater(BatchProducer):
    """Sends ids of the pool, in batches of several kinds."""

    def __init__(
        self,
        client: SimulatedClient,
        ids: RepeatedIds,
        *,
        topic: str,
        partition_count: int,
        is_idempotent: bool,
    ) -> None:
        plan = ProducerPlan(
            acks=ACKS_ALL,
            is_idempotent=is_idempotent,
            attempts_max=None if is_idempotent else ATTEMPTS_MAX,
            pause_max_s=0.2,
            batch_sizes=(1, 1, 1, 2, 4),
        )
        super().__init__(client, plan, topic=topic, partition_count=partition_count)
        self._ids = ids
        self._next_number = 0

    def draw(self, partition: int) -> bytes:
        known = self._ids.by_partition.setdefault(partition, [])
        random = self._client.random
        if known and random.random() >= NEW_SHARE:
            return random.choice(known[-RECENT:])
        new = f"{self._client.name}-{self._next_number}".encode()
        self._next_number += 1
        known.append(new)
        return new

    def key_and_value(self, drawn: bytes) -> tuple[bytes | None, bytes]:
        return drawn, b"repeated " + drawn

    def codec(self) -> Codec:
        return self._client.random.choice(CODECS)

    def on_acknowledged(self, partition: int, drawn: Sequence[bytes], base_offset: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self._ids.told.append(Told(tuple(drawn), partition, base_offset, now_s))
