"""A producer that sends what was sent before, by itself or by others, again and again (D5).

Each batch has a few ids from a pool that all of them share, some of them new. A plain one gives up
now and then and leaves it open whether a batch was stored; an idempotent one goes on until it
knows.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import PeerUnreachable
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.sim.client import SimulatedClient
from tidelog.sim.clock import EPOCH_MS
from tidelog.sim.protocol import (
    INIT_PRODUCER_ID_VERSION,
    PRODUCE_VERSION,
    Produced,
    decode_init_producer_id_response,
    decode_produce_response,
    encode_init_producer_id_request,
    encode_produce_request,
)
from tidelog.wire.api import ApiKey

PRODUCE_TIMEOUT_MS = 3_000
ACKS_ALL = -1
PAUSE_MAX_S = 0.2
BATCH_SIZES = (1, 1, 1, 2, 4)
NEW_SHARE = 0.3
RECENT = 8
"""So that most are repeated soon, perhaps before the first copy is committed."""
ATTEMPTS_MAX = 4
NO_PRODUCER = (-1, -1)
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


class SimulatedRepeater:
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
        self._client = client
        self._ids = ids
        self._topic = topic
        self._partition_count = partition_count
        self._is_idempotent = is_idempotent
        self._producer = NO_PRODUCER
        self._sequences = [0] * partition_count
        self._next_number = 0
        self.is_done = False
        self.is_stopping = False

    async def run(self) -> None:
        """Send until told to stop; what is under way then is finished."""
        random = self._client.random
        while not self.is_stopping:
            await asyncio.sleep(random.uniform(0, PAUSE_MAX_S))
            partition = random.randrange(self._partition_count)
            ids = tuple(self._draw(partition) for _ in range(random.choice(BATCH_SIZES)))
            await self._send(partition, ids)
        self.is_done = True

    def _draw(self, partition: int) -> bytes:
        known = self._ids.by_partition.setdefault(partition, [])
        random = self._client.random
        if known and random.random() >= NEW_SHARE:
            return random.choice(known[-RECENT:])
        new = f"{self._client.name}-{self._next_number}".encode()
        self._next_number += 1
        known.append(new)
        return new

    async def _send(self, partition: int, ids: tuple[bytes, ...]) -> None:
        attempts = 0
        while True:
            if self._is_idempotent and self._producer == NO_PRODUCER:
                await self._begin_producer()
                continue
            attempts += 1
            produced = await self._attempt(partition, ids)
            if produced is not None and self._settle(partition, ids, produced):
                return
            if not self._is_idempotent and attempts >= ATTEMPTS_MAX:
                return
            await self._client.look_again()

    async def _attempt(self, partition: int, ids: tuple[bytes, ...]) -> Produced | None:
        encode = partial(self._encode, partition, self._batch(partition, ids))
        try:
            return await self._client.ask_leader(
                partition, ApiKey.PRODUCE, PRODUCE_VERSION, encode, decode_produce_response
            )
        except (PeerUnreachable, WireError):
            return None

    def _settle(self, partition: int, ids: tuple[bytes, ...], produced: Produced) -> bool:
        if produced.error_code == ErrorCode.NONE:
            now_s = asyncio.get_running_loop().time()
            self._ids.told.append(Told(ids, partition, produced.base_offset, now_s))
            self._sequences[partition] += len(ids)
            return True
        if produced.error_code in {
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        }:
            self._producer = NO_PRODUCER
        return False

    async def _begin_producer(self) -> None:
        try:
            code, producer_id, epoch = await self._client.ask(
                self._client.any_broker(),
                ApiKey.INIT_PRODUCER_ID,
                INIT_PRODUCER_ID_VERSION,
                encode_init_producer_id_request,
                decode_init_producer_id_response,
            )
        except (PeerUnreachable, WireError):
            code, producer_id, epoch = -1, -1, -1
        if code == ErrorCode.NONE:
            self._producer = (producer_id, epoch)
            self._sequences = [0] * self._partition_count
        else:
            await self._client.look_again()

    def _batch(self, partition: int, ids: tuple[bytes, ...]) -> bytearray:
        timestamp_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1_000)
        producer_id, epoch = self._producer
        return encode_batch(
            [Record(at, timestamp_ms, one, b"repeated " + one, ()) for at, one in enumerate(ids)],
            leader_epoch=-1,
            codec=self._client.random.choice(CODECS),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[partition] if self._is_idempotent else -1,
            is_transactional=False,
            is_control=False,
        )

    def _encode(self, partition: int, batch: bytearray, number: int, name: str) -> bytes:
        return encode_produce_request(
            number,
            name,
            topic=self._topic,
            partition=partition,
            records=batch,
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
        )
