"""Reads what is committed, as clients with read_committed do, and the offsets of some groups.

A broker sends all records up to the last stable offset and says which transactions in them were
aborted; leaving those out is the reader's business:

    aborted: producer 7 from offset 40      7, offset 40: left out ... marker ABORT of 7: no more
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.types import GroupId

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import PeerUnreachable
from tidelog.records.batch import iter_headers
from tidelog.records.control import ControlType, decode_transaction_end
from tidelog.records.record import decode_records
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import GROUP, CoordinatedClient, Unanswered
from tidelog.sim.protocol import FETCH_VERSION, decode_partition_fetch, encode_partition_fetch
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import FetchPartitionResult
from tidelog.wire.fetch_client import FetchResponse

OFFSET_FETCH_VERSION = 9
READ_COMMITTED = 1


class Read(NamedTuple):
    """A record that a reader was given as committed."""

    partition: int
    offset: int
    value: bytes


class CommittedReader:
    """Reads every partition from the start, for ever."""

    def __init__(
        self,
        client: SimulatedClient,
        *,
        topic: str,
        partition_count: int,
        groups: Sequence[str],
    ) -> None:
        self._client = client
        self._topic = topic
        self._groups = {group: CoordinatedClient(client, group, GROUP) for group in groups}
        self.offsets = [0] * partition_count
        self.records: list[Read] = []
        self.committed: dict[str, list[int]] = {group: [] for group in groups}
        """Offsets of each group, in the order in which they were told."""
        self.round_count = 0

    async def run(self) -> None:
        """Until the process ends."""
        while True:
            for partition in range(len(self.offsets)):
                if not await self._read(partition):
                    await self._client.look_again()
            if all([await self._ask(group) for group in self._groups]):
                self.round_count += 1
            await asyncio.sleep(self._client.random.uniform(0.0, 0.3))

    async def _ask(self, group: str) -> bool:
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=GroupId(group), topics=None),),
            require_stable=True,
        )
        try:
            answer = await self._groups[group].ask(
                ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, request
            )
        except Unanswered:
            return False
        (told,) = answer.groups
        if int(told.error_code) != ErrorCode.NONE:
            await self._groups[group].is_elsewhere(int(told.error_code))
            return False
        for topic in told.topics:
            for one in topic.partitions:
                if int(one.error_code) != ErrorCode.NONE:
                    return False  # A transaction is not decided yet.
                self.committed[group].append(one.committed_offset)
        return True

    async def _read(self, partition: int) -> bool:
        try:
            response: FetchResponse = await self._client.ask_leader(
                partition,
                ApiKey.FETCH,
                FETCH_VERSION,
                partial(self._encode, partition),
                decode_partition_fetch,
            )
        except (PeerUnreachable, WireError):
            return False
        if response.error_code != ErrorCode.NONE:
            return False
        for _, _, results in response.topics:
            for result in results:
                if result.error_code != ErrorCode.NONE:
                    return False
                self._take(partition, result)
        return True

    def _take(self, partition: int, result: FetchPartitionResult) -> None:
        waiting = sorted(result.aborted or (), key=lambda one: one.first_offset, reverse=True)
        aborted: set[int] = set()
        records = memoryview(result.records)
        for position, header in iter_headers(records):
            while waiting and waiting[-1].first_offset <= header.last_offset:
                aborted.add(waiting.pop().producer_id)
            batch = bytes(records[position : position + header.size_bytes])
            if header.is_control:
                (record,) = decode_records(batch)
                end = decode_transaction_end(record.key, record.value)
                if end is not None and end.control_type is ControlType.ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                self.records += [
                    Read(partition, record.offset, record.value or b"")
                    for record in decode_records(batch)
                    if record.offset >= self.offsets[partition]
                ]
            self.offsets[partition] = max(self.offsets[partition], header.end_offset)

    def _encode(self, partition: int, number: int, name: str) -> bytes:
        return encode_partition_fetch(
            number,
            name,
            topic=self._topic,
            partition=partition,
            offset=self.offsets[partition],
            max_wait_ms=200,
            isolation_level=READ_COMMITTED,
        )
