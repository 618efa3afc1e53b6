"""Producers and consumers of a simulation: what they do, and the ledger they keep.

producer   numbered records, one batch at a time, in order (`batch_producer.py`)
consumer   reads every partition from the start, up to the high watermark, for ever: at the leader,
           or at any replica that serves it (KIP-392)
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import Address, PeerUnreachable
from tidelog.records.batch import iter_headers
from tidelog.records.record import decode_records
from tidelog.sim.batch_producer import BatchProducer, ProducerPlan
from tidelog.sim.batches import ACKS_ALL
from tidelog.sim.client import SimulatedClient
from tidelog.sim.ledger import Acknowledged, Consumed, Ledger
from tidelog.sim.protocol import FETCH_VERSION, decode_partition_fetch, encode_partition_fetch
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch_client import FetchResponse


class SimulatedProducer(BatchProducer):
    """Sends numbered records."""

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
        super().__init__(client, plan, topic=topic, partition_count=partition_count)
        self._ledger = ledger
        self._has_keys = has_keys
        self._next_number = 0
        self._next_key = 0

    def draw(self, partition: int) -> bytes:
        self._ledger.sent_count += 1
        number, self._next_number = self._next_number, self._next_number + 1
        return f"{self._client.name}:{number}".encode()

    def key_and_value(self, drawn: bytes) -> tuple[bytes | None, bytes]:
        """Another key for each attempt: what is sent again may be there twice."""
        if not self._has_keys:
            return None, drawn
        number, self._next_key = self._next_key, self._next_key + 1
        return f"{self._client.name}/{number}".encode(), drawn

    def on_acknowledged(self, partition: int, drawn: Sequence[bytes], base_offset: int) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._plan.acks == ACKS_ALL:
            self._ledger.last_acknowledged_s[partition] = now_s
        for index, value in enumerate(drawn):
            self._ledger.acknowledged.append(
                Acknowledged(value, partition, base_offset + index, self._plan.acks, now_s)
            )

    def on_refused(self, code: int) -> None:
        self._ledger.note_refusal(code)


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
                decode_partition_fetch,
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
        return encode_partition_fetch(
            number,
            name,
            topic=self._topic,
            partition=partition,
            offset=self.offsets[partition],
            max_wait_ms=300,
            rack_id=self._client.random.choice(self._racks) if self._racks else "",
        )
