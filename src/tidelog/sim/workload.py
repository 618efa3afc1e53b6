"""Producers and consumers of a simulation: what they do, and the ledger they keep.

producer   one batch at a time, in order. acks=all and acks=1: again until it is acknowledged or
           its patience ends (idempotent ones have none); acks=0: sent, never asked about
consumer   reads every partition from the start, up to the high watermark, for ever: at the leader,
           or at any replica that serves it (KIP-392)
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import Address, PeerUnreachable
from tidelog.records.batch import Codec, iter_headers
from tidelog.records.record import Record, decode_records, encode_batch
from tidelog.sim.client import SimulatedClient
from tidelog.sim.clock import EPOCH_MS
from tidelog.sim.ledger import Acknowledged, Consumed, Ledger
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
from tidelog.wire.fetch import FetchPartition, FetchRequest
from tidelog.wire.fetch_client import (
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)

FETCH_VERSION = 12
FETCH_MAX_BYTES = 2**20
PRODUCE_TIMEOUT_MS = 3_000
NO_PRODUCER = (-1, -1)
ACKS_ALL = -1
LOOK_AGAIN_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """How a producer behaves."""

    acks: int
    is_idempotent: bool
    attempts_max: int | None
    """None: until it is acknowledged."""

    pause_max_s: float
    records_max: int


class SimulatedProducer:
    """Sends numbered records to the partitions of a topic by turns."""

    def __init__(
        self,
        client: SimulatedClient,
        plan: ProducerPlan,
        ledger: Ledger,
        *,
        topic: str,
        partition_count: int,
        has_keys: bool,
    ) -> None:
        """`has_keys`: each record has one of its own, so that compaction has to keep them all."""
        self._client = client
        self._plan = plan
        self._ledger = ledger
        self._has_keys = has_keys
        self._topic = topic
        self._partition_count = partition_count
        self._producer = NO_PRODUCER
        self._sequences = [0] * partition_count
        self._next_number = 0
        self._next_key = 0
        self.is_done = False
        self.is_stopping = False

    async def run(self) -> None:
        """Send until told to stop; what is under way then is finished."""
        random = self._client.random
        while not self.is_stopping:
            await asyncio.sleep(random.uniform(0, self._plan.pause_max_s))
            partition = random.randrange(self._partition_count)
            values = [self._value() for _ in range(random.randint(1, self._plan.records_max))]
            await self._send(partition, values)
        self.is_done = True

    def _value(self) -> bytes:
        number, self._next_number = self._next_number, self._next_number + 1
        return f"{self._client.name}:{number}".encode()

    async def _send(self, partition: int, values: list[bytes]) -> None:
        self._ledger.sent_count += len(values)
        if self._plan.acks == 0:
            await self._send_unanswered(partition, values)
            return
        attempts = 0
        while True:
            if self._plan.is_idempotent and self._producer == NO_PRODUCER:
                await self._begin_producer()
                continue
            attempts += 1
            produced = await self._attempt(partition, values)
            if produced is not None and self._settle(partition, values, produced):
                return
            if self._plan.attempts_max is not None and attempts >= self._plan.attempts_max:
                return
            await self._client.look_again()

    async def _attempt(self, partition: int, values: list[bytes]) -> Produced | None:
        encode = partial(self._encode, partition, self._batch(partition, values))
        try:
            return await self._client.ask_leader(
                partition, ApiKey.PRODUCE, PRODUCE_VERSION, encode, decode_produce_response
            )
        except (PeerUnreachable, WireError):
            return None

    def _settle(self, partition: int, values: list[bytes], produced: Produced) -> bool:
        """Whether the batch is done with, one way or the other."""
        code = produced.error_code
        if code == ErrorCode.NONE:
            self._acknowledge(partition, values, produced.base_offset)
            return True
        self._ledger.note_refusal(code)
        if code in {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}:
            # What it knew of us is gone, and so may be records: others judge that.
            self._producer = NO_PRODUCER
        return False

    def _acknowledge(self, partition: int, values: list[bytes], base_offset: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self._sequences[partition] += len(values)
        if self._plan.acks == ACKS_ALL:
            self._ledger.last_acknowledged_s[partition] = now_s
        for index, value in enumerate(values):
            self._ledger.acknowledged.append(
                Acknowledged(value, partition, base_offset + index, self._plan.acks, now_s)
            )

    async def _send_unanswered(self, partition: int, values: list[bytes]) -> None:
        encode = partial(self._encode, partition, self._batch(partition, values))
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

    def _batch(self, partition: int, values: list[bytes]) -> bytearray:
        timestamp_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1_000)
        producer_id, epoch = self._producer
        return encode_batch(
            [
                Record(offset, timestamp_ms, self._key(), value, ())
                for offset, value in enumerate(values)
            ],
            leader_epoch=-1,
            codec=Codec.NONE,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequences[partition] if self._plan.is_idempotent else -1,
            is_transactional=False,
            is_control=False,
        )

    def _key(self) -> bytes | None:
        """Another one for each attempt: what is sent again may be there twice."""
        if not self._has_keys:
            return None
        number, self._next_key = self._next_key, self._next_key + 1
        return f"{self._client.name}/{number}".encode()

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


class SimulatedConsumer:
    """Reads one partition after the other, round and round."""

    def __init__(
        self,
        client: SimulatedClient,
        ledger: Ledger,
        *,
        topic: str,
        partition_count: int,
        racks: Sequence[str],
    ) -> None:
        """With `racks`: from a broker by chance, whoever leads, each time as if it stood in one
        of them; and then from the one that it is told to read from."""
        self._racks = racks
        self._preferred: dict[int, int] = {}
        self._client = client
        self._ledger = ledger
        self._topic = topic
        self.offsets = [0] * partition_count
        self.out_of_range: list[tuple[int, int]] = []

    async def run(self) -> None:
        """Read until the process ends."""
        while True:
            for partition in range(len(self.offsets)):
                if not await self._read(partition):
                    await self._client.look_again()

    async def _read(self, partition: int) -> bool:
        client = self._client
        try:
            response = await client.ask(
                self._whom_to_ask(partition),
                ApiKey.FETCH,
                FETCH_VERSION,
                partial(self._encode, partition),
                lambda view, position: decode_fetch_response(view, position, FETCH_VERSION),
            )
        except (PeerUnreachable, WireError):
            return False
        return self._take(partition, response)

    def _whom_to_ask(self, partition: int) -> Address:
        if not self._racks:
            return self._client.leader_at(partition)
        preferred = self._preferred.pop(partition, None)
        return self._client.any_broker() if preferred is None else self._client.broker_at(preferred)

    def _take(self, partition: int, response: FetchResponse) -> bool:
        for _, _, results in response.topics:
            for result in results:
                if result.error_code != ErrorCode.NONE:
                    self._ledger.note_refusal(result.error_code)
                    if result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        self.out_of_range.append((partition, self.offsets[partition]))
                    return False
                self._keep(partition, memoryview(result.records))
                if result.preferred_read_replica >= 0:
                    self._preferred[partition] = result.preferred_read_replica
        return response.error_code == ErrorCode.NONE

    def _keep(self, partition: int, records: memoryview) -> None:
        now_s = asyncio.get_running_loop().time()
        for position, header in iter_headers(records):
            batch = bytes(records[position : position + header.size_bytes])
            for record in decode_records(batch):
                if record.offset < self.offsets[partition]:
                    continue
                self._ledger.consumed.append(
                    Consumed(
                        self._client.name, partition, record.offset, record.value or b"", now_s
                    )
                )
            # Also past a batch without records.
            self.offsets[partition] = max(self.offsets[partition], header.end_offset)

    def _encode(self, partition: int, number: int, name: str) -> bytes:
        wanted = FetchPartition(partition, -1, self.offsets[partition], -1, -1, FETCH_MAX_BYTES)
        return encode_fetch_request(
            FETCH_VERSION,
            number,
            name,
            FetchRequest(
                replica_id=-1,
                replica_epoch=-1,
                max_wait_ms=300,
                min_bytes=1,
                max_bytes=FETCH_MAX_BYTES,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[(self._topic, None, [wanted])],
                forgotten=[],
                rack_id=self._client.random.choice(self._racks) if self._racks else "",
                cluster_id=None,
            ),
        )
