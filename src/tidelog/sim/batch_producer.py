"""What producers without transactions have in common: one batch at a time, in order.

acks=all and acks=1: again until it is acknowledged or the producer's patience ends; idempotent ones
have none. acks=0: sent, never asked about. Whoever derives from it says what is in a batch.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import PeerUnreachable
from tidelog.records.batch import Codec
from tidelog.sim.batches import NO_PRODUCER, NO_SEQUENCE, PRODUCE_TIMEOUT_MS, produced_batch
from tidelog.sim.client import SimulatedClient
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

LOOK_AGAIN_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """How a producer behaves."""

    acks: int
    is_idempotent: bool
    attempts_max: int | None
    """None: until it is acknowledged."""

    pause_max_s: float
    batch_sizes: Sequence[int]


class BatchProducer:
    """Sends to the partitions of a topic by turns."""

    def __init__(
        self, client: SimulatedClient, plan: ProducerPlan, *, topic: str, partition_count: int
    ) -> None:
        self._client = client
        self._plan = plan
        self._topic = topic
        self._partition_count = partition_count
        self._producer = NO_PRODUCER
        self._sequences = [0] * partition_count
        self.is_done = False
        self.is_stopping = False

    # -- for whoever derives from it -------------------------------------------------------------

    def draw(self, partition: int) -> bytes:
        """What to send next."""
        raise NotImplementedError

    def key_and_value(self, drawn: bytes) -> tuple[bytes | None, bytes]:
        """Asked for each attempt."""
        raise NotImplementedError

    def codec(self) -> Codec:
        return Codec.NONE

    def on_acknowledged(self, partition: int, drawn: Sequence[bytes], base_offset: int) -> None:
        """All of it was said to be stored."""
        raise NotImplementedError

    def on_refused(self, code: int) -> None:
        """An attempt was, and is made again, perhaps."""

    # -- sending ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until told to stop; what is under way then is finished."""
        random = self._client.random
        while not self.is_stopping:
            await asyncio.sleep(random.uniform(0, self._plan.pause_max_s))
            partition = random.randrange(self._partition_count)
            count = random.choice(self._plan.batch_sizes)
            await self._send(partition, [self.draw(partition) for _ in range(count)])
        self.is_done = True

    async def _send(self, partition: int, drawn: Sequence[bytes]) -> None:
        if self._plan.acks == 0:
            await self._send_unanswered(partition, drawn)
            return
        attempts = 0
        while True:
            if self._plan.is_idempotent and self._producer == NO_PRODUCER:
                await self._begin_producer()
                continue
            attempts += 1
            produced = await self._attempt(partition, drawn)
            if produced is not None and self._settle(partition, drawn, produced):
                return
            if self._plan.attempts_max is not None and attempts >= self._plan.attempts_max:
                return
            await self._client.look_again()

    async def _attempt(self, partition: int, drawn: Sequence[bytes]) -> Produced | None:
        encode = partial(self._encode, partition, self._batch(partition, drawn))
        try:
            return await self._client.ask_leader(
                partition, ApiKey.PRODUCE, PRODUCE_VERSION, encode, decode_produce_response
            )
        except (PeerUnreachable, WireError):
            return None

    def _settle(self, partition: int, drawn: Sequence[bytes], produced: Produced) -> bool:
        """Whether the batch is done with, one way or the other."""
        code = produced.error_code
        if code == ErrorCode.NONE:
            self._sequences[partition] += len(drawn)
            self.on_acknowledged(partition, drawn, produced.base_offset)
            return True
        self.on_refused(code)
        if code in {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}:
            # What it knew of us is gone, and so may be records: others judge that.
            self._producer = NO_PRODUCER
        return False

    async def _send_unanswered(self, partition: int, drawn: Sequence[bytes]) -> None:
        encode = partial(self._encode, partition, self._batch(partition, drawn))
        try:
            await self._client.connect_to_leader(partition)
            self._client.send_to_leader(partition, encode)
        except PeerUnreachable:
            await self._client.look_again()
        if self._client.random.random() < LOOK_AGAIN_SHARE:
            await self._client.look_again()  # Nobody tells it that the leader is another now.

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

    def _batch(self, partition: int, drawn: Sequence[bytes]) -> bytearray:
        return produced_batch(
            [self.key_and_value(one) for one in drawn],
            codec=self.codec(),
            producer=self._producer,
            base_sequence=self._sequences[partition] if self._plan.is_idempotent else NO_SEQUENCE,
            is_transactional=False,
        )

    def _encode(self, partition: int, batch: bytearray, number: int, name: str) -> bytes:
        return encode_produce_request(
            number,
            name,
            topic=self._topic,
            partition=partition,
            records=batch,
            acks=self._plan.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
        )
