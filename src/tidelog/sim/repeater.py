"""Producers that send what was sent before, by themselves or by others, again and again (D5).

Each batch has a few ids from a pool that all of them share, some of them new. A plain one gives up
now and then and leaves it open whether a batch was stored; an idempotent one goes on until it
knows. One that sends in transactions aborts some of them: what only those had is not stored. Who
repeats an id of an open transaction is told to come back, so that two of these can wait for each
other, until the coordinator ends a transaction.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.records.batch import Codec
from tidelog.sim.batch_producer import BatchProducer, ProducerPlan
from tidelog.sim.batches import ACKS_ALL
from tidelog.sim.client import SimulatedClient
from tidelog.sim.transaction_ledger import Transaction, TransactionLedger
from tidelog.sim.transactor import TIMEOUT_MS, SimulatedTransactor

NEW_SHARE = 0.3
RECENT = 8
"""So that most are repeated soon, perhaps before the first copy is committed."""
ATTEMPTS_MAX = 4
BATCH_SIZES = (1, 1, 1, 2, 4)
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
    _counts: Counter[str] = field(default_factory=Counter)

    def draw(self, partition: int, client: SimulatedClient) -> bytes:
        """A known one, or a new one of this client."""
        known = self.by_partition.setdefault(partition, [])
        if known and client.random.random() >= NEW_SHARE:
            return client.random.choice(known[-RECENT:])
        new = f"{client.name}-{self._counts[client.name]}".encode()
        self._counts[client.name] += 1
        known.append(new)
        return new


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
            batch_sizes=BATCH_SIZES,
        )
        super().__init__(client, plan, topic=topic, partition_count=partition_count)
        self._ids = ids

    def draw(self, partition: int) -> bytes:
        return self._ids.draw(partition, self._client)

    def key_and_value(self, drawn: bytes) -> tuple[bytes | None, bytes]:
        return drawn, _value(drawn)

    def codec(self) -> Codec:
        return self._client.random.choice(CODECS)

    def on_acknowledged(self, partition: int, drawn: Sequence[bytes], base_offset: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self._ids.told.append(Told(tuple(drawn), partition, base_offset, now_s))


class TransactionalRepeater(SimulatedTransactor):
    """Sends ids of the pool in transactions, some of which it aborts."""

    def __init__(
        self,
        client: SimulatedClient,
        ids: RepeatedIds,
        *,
        topic: str,
        partition_count: int,
        is_version_2: bool,
    ) -> None:
        super().__init__(
            client,
            TransactionLedger(),
            transactional_id=client.name,
            group=client.name,
            topic=topic,
            partition_count=partition_count,
            first_number=0,
            timeout_ms=TIMEOUT_MS,
            is_version_2=is_version_2,
        )
        self._ids = ids
        self._sent: list[Told] = []

    async def _write(self, transaction: Transaction) -> None:
        self._sent = []
        random = self._client.random
        count = random.randint(1, self._partition_count)
        partitions = random.sample(range(self._partition_count), count)
        if not self._is_version_2:
            await self._add_partitions(partitions)
        for partition in partitions:
            for _ in range(random.randint(1, 2)):
                batch = range(random.choice(BATCH_SIZES))
                drawn = tuple(self._ids.draw(partition, self._client) for _ in batch)
                keys_and_values = [(one, _value(one)) for one in drawn]
                offset = await self._send(partition, keys_and_values, random.choice(CODECS))
                now_s = asyncio.get_running_loop().time()
                self._sent.append(Told(drawn, partition, offset, now_s))

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        await super()._end(transaction, is_commit=is_commit)
        if is_commit:
            self._ids.told += self._sent


def _value(drawn: bytes) -> bytes:
    return b"repeated " + drawn
