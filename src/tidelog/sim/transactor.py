"""A transactional producer: writes to several partitions and to its group's offsets, or to nothing.

    init ──▶ add partitions ──▶ produce ... ──▶ add offsets, commit them ──▶ commit or abort ──┐
      ▲             ▲                                                                          │
      │             └───────────────────── the next transaction ◀───────────────────────────── ┤
      └── fenced, or the state of the transaction is lost: whatever it was, it is over ◀───────┘

Everything is tried again until it is answered; only an answer, or being fenced, says more. Half of
the producers speak as clients before transaction version 2 do (partitions are added by request, the
epoch stays), half as those after (KIP-890: added by writing, a new epoch for each transaction).
"""

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta, i64

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import PeerUnreachable
from tidelog.records.batch import Codec
from tidelog.sim.batches import ACKS_ALL, NO_PRODUCER, PRODUCE_TIMEOUT_MS, produced_batch
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import GROUP, TRANSACTION, CoordinatedClient, Unanswered
from tidelog.sim.protocol import (
    Produced,
    decode_add_partitions_response,
    decode_produce_response,
    encode_produce_request,
)
from tidelog.sim.transaction_ledger import Outcome, Transaction, TransactionLedger
from tidelog.wire.api import ApiKey

TIMEOUT_MS = 6_000
INIT_VERSION = 4
ADD_PARTITIONS_VERSION = 3
ADD_OFFSETS_VERSION = 3
ABORT_SHARE = 0.25
OFFSETS_SHARE = 0.5
DAWDLE_SHARE = 0.04
THINK_SHARE = 0.3
THINK_MAX_S = 1.0
"""Between two records: whoever consumes, transforms and produces has something to do there."""
LATE_S = (0.3, 2.0)
PAUSE_ONCE_S = 1.0
"""So that nothing of what came before is still under way."""

_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class _Over(Exception):
    """This producer cannot go on with its transaction: another has taken its place, perhaps."""


class SimulatedTransactor:
    """One life of a producer with a transactional id."""

    def __init__(
        self,
        client: SimulatedClient,
        ledger: TransactionLedger,
        *,
        transactional_id: str,
        group: str,
        topic: str,
        partition_count: int,
        first_number: int,
        timeout_ms: int,
        is_version_2: bool,
    ) -> None:
        """Numbers of its transactions, which are offsets of its group as well, begin where those
        of an earlier life end."""
        self._client = client
        self._coordinator = CoordinatedClient(client, transactional_id, TRANSACTION)
        self._group_coordinator = CoordinatedClient(client, group, GROUP)
        self._ledger = ledger
        self._transactional_id = transactional_id
        self._group = group
        self._topic = topic
        self._partition_count = partition_count
        self._number = first_number
        self._timeout_ms = timeout_ms
        self._is_version_2 = is_version_2
        self._producer = NO_PRODUCER
        self._sequences: dict[int, int] = {}
        self._transaction: Transaction | None = None
        self.is_stopping = False
        self.is_done = False
        self.is_superseded = False
        """Another life has begun: being fenced is the end of this one."""
        self.be_overtaken: Callable[[], object] | None = None
        """Before it ends a transaction, have another life begin, and be late."""

    @property
    def next_number(self) -> int:
        return self._number

    async def run(self) -> None:
        """Until told to stop; what is under way then is finished."""
        await self._begin()
        while not self.is_stopping:
            try:
                await self._transact()
            except _Over:
                if self.is_superseded:
                    return
                await self._begin()
        self.is_done = True

    async def run_until_it_dies(self) -> None:
        """Begin a transaction, and be heard of no more."""
        await self._begin()
        with suppress(_Over):
            await self._write(self._begin_transaction())

    async def run_once(self, *, is_commit: bool, on_begun: Callable[[], object]) -> None:
        """One transaction, with a record in every partition and an offset of the group.

        `on_begun` is called before its first request. It is left as it is if this producer cannot
        go on with it.
        """
        await self._begin()
        await asyncio.sleep(PAUSE_ONCE_S)
        on_begun()
        with suppress(_Over):
            await self._transact_everywhere(is_commit=is_commit)

    async def run_twice(
        self,
        *,
        is_commit: bool,
        on_begun: Callable[[], object],
        while_open: Callable[[], Awaitable[object]],
    ) -> None:
        """The same, and one more, which is committed.

        `on_begun` is called before the first request of all. `while_open` is waited for within the
        second transaction, when that has an offset of the group and lacks a record.
        """
        on_begun()
        await self._begin()
        partitions = list(range(self._partition_count))
        with suppress(_Over):
            await self._transact_everywhere(is_commit=is_commit)
            transaction = self._begin_transaction()
            if not self._is_version_2:
                await self._add_partitions(partitions)
            for partition in partitions[:-1]:
                await self._produce(transaction, partition, 0)
            await self._send_offsets(transaction)
            await while_open()
            await self._produce(transaction, partitions[-1], 0)
            await self._end(transaction, is_commit=True)

    async def _transact_everywhere(self, *, is_commit: bool) -> None:
        transaction = self._begin_transaction()
        partitions = list(range(self._partition_count))
        if not self._is_version_2:
            await self._add_partitions(partitions)
        for partition in partitions:
            await self._produce(transaction, partition, 0)
        await self._send_offsets(transaction)
        await self._end(transaction, is_commit=is_commit)

    async def _begin(self) -> None:
        """A producer id, or a new epoch of the one there was; whoever had it before is fenced."""
        while True:
            request = InitProducerIdRequest(
                transactional_id=TransactionalId(self._transactional_id),
                transaction_timeout=i32Timedelta.parse(
                    datetime.timedelta(milliseconds=self._timeout_ms)
                ),
                producer_id=ProducerId(i64(-1)),
                producer_epoch=i16(-1),
            )
            try:
                answer = await self._coordinator.ask(ApiKey.INIT_PRODUCER_ID, INIT_VERSION, request)
            except Unanswered:
                continue
            if int(answer.error_code) == ErrorCode.NONE:
                self._use(answer.producer_id, answer.producer_epoch)
                return
            self._ledger.note_refusal(int(answer.error_code))
            await self._coordinator.look_again()

    def _use(self, producer_id: int, epoch: int) -> None:
        self._producer = (producer_id, epoch)
        self._sequences = {}

    def _begin_transaction(self) -> Transaction:
        transaction = self._ledger.begin(self._transactional_id, self._number)
        self._number += 1
        return transaction

    async def _transact(self) -> None:
        random = self._client.random
        await asyncio.sleep(random.uniform(0.0, 0.5))
        transaction = self._begin_transaction()
        await self._write(transaction)
        if random.random() < DAWDLE_SHARE:
            # Longer than it may take, for most: the coordinator ends it.
            await asyncio.sleep(TIMEOUT_MS / 1000 * random.uniform(0.8, 1.5))
        if self.be_overtaken is not None:
            await self._be_late(transaction, self.be_overtaken)
        await self._end(transaction, is_commit=random.random() >= ABORT_SHARE)

    async def _be_late(self, transaction: Transaction, be_overtaken: Callable[[], object]) -> None:
        """It writes no more records: their partitions would refuse them, and nobody would ask the
        coordinators."""
        random = self._client.random
        be_overtaken()
        await asyncio.sleep(random.uniform(*LATE_S))
        if random.random() < OFFSETS_SHARE / 2:
            await self._send_offsets(transaction)

    async def _write(self, transaction: Transaction) -> None:
        """Everything but its end."""
        random = self._client.random
        count = random.randint(1, self._partition_count)
        partitions = random.sample(range(self._partition_count), count)
        if not self._is_version_2:
            await self._add_partitions(partitions)
        for partition in partitions:
            for part in range(random.randint(1, 2)):
                await self._produce(transaction, partition, part)
                if random.random() < THINK_SHARE:
                    await asyncio.sleep(random.uniform(0.0, THINK_MAX_S))
        if random.random() < OFFSETS_SHARE:
            await self._send_offsets(transaction)

    # -- steps -----------------------------------------------------------------------------------

    async def _add_partitions(self, partitions: list[int]) -> None:
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(self._transactional_id),
            v3_and_below_producer_id=ProducerId(i64(producer_id)),
            v3_and_below_producer_epoch=i16(epoch),
            v3_and_below_topics=(
                AddPartitionsToTxnTopic(
                    name=TopicName(self._topic), partitions=tuple(map(i32, partitions))
                ),
            ),
        )
        while True:
            try:
                codes = await self._coordinator.ask(
                    ApiKey.ADD_PARTITIONS_TO_TXN,
                    ADD_PARTITIONS_VERSION,
                    request,
                    decode_add_partitions_response,
                )
            except Unanswered:
                continue
            if await self._is_done_with(self._coordinator, codes):
                return

    async def _send_offsets(self, transaction: Transaction) -> None:
        producer_id, epoch = self._producer
        if not self._is_version_2:
            request = AddOffsetsToTxnRequest(
                transactional_id=TransactionalId(self._transactional_id),
                producer_id=ProducerId(i64(producer_id)),
                producer_epoch=i16(epoch),
                group_id=GroupId(self._group),
            )
            while True:
                try:
                    answer = await self._coordinator.ask(
                        ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION, request
                    )
                except Unanswered:
                    continue
                if await self._is_done_with(self._coordinator, {int(answer.error_code)}):
                    break
        commit = TxnOffsetCommitRequest(
            transactional_id=TransactionalId(self._transactional_id),
            group_id=GroupId(self._group),
            producer_id=ProducerId(i64(producer_id)),
            producer_epoch=i16(epoch),
            topics=(
                TxnOffsetCommitRequestTopic(
                    name=TopicName(self._topic),
                    partitions=(
                        TxnOffsetCommitRequestPartition(
                            partition_index=i32(0),
                            committed_offset=i64(transaction.number),
                            committed_metadata="",
                        ),
                    ),
                ),
            ),
        )
        version = 5 if self._is_version_2 else 3
        while True:
            try:
                answer = await self._group_coordinator.ask(
                    ApiKey.TXN_OFFSET_COMMIT, version, commit
                )
            except Unanswered:
                continue
            codes = {int(one.error_code) for topic in answer.topics for one in topic.partitions}
            if await self._is_done_with(self._group_coordinator, codes):
                transaction.has_offset = True
                return

    async def _produce(self, transaction: Transaction, partition: int, part: int) -> None:
        value = f"{self._transactional_id}:{transaction.number}:{partition}:{part}".encode()
        await self._send(partition, [(None, value)], Codec.NONE)
        transaction.written.append((partition, value))

    async def _send(
        self, partition: int, keys_and_values: Sequence[tuple[bytes | None, bytes]], codec: Codec
    ) -> int:
        """A batch, until it is stored; the offset that is answered."""
        sequence = self._sequences.get(partition, 0)
        batch = self._batch(keys_and_values, codec, sequence)
        while True:
            try:
                produced: Produced = await self._client.ask_leader(
                    partition,
                    ApiKey.PRODUCE,
                    self._produce_version,
                    partial(self._encode, partition, batch),
                    decode_produce_response,
                )
            except (PeerUnreachable, WireError):
                await self._client.look_again()
                continue
            code = produced.error_code
            if code == ErrorCode.NONE:
                self._sequences[partition] = sequence + len(keys_and_values)
                return produced.base_offset
            self._ledger.note_refusal(code)
            if code not in _AGAIN:
                raise _Over
            await self._client.look_again()

    async def _end(self, transaction: Transaction, *, is_commit: bool) -> None:
        producer_id, epoch = self._producer
        request = EndTxnRequest(
            transactional_id=TransactionalId(self._transactional_id),
            producer_id=ProducerId(i64(producer_id)),
            producer_epoch=i16(epoch),
            committed=is_commit,
        )
        if is_commit:
            transaction.outcome = Outcome.ASKED
        version = 5 if self._is_version_2 else 3
        while True:
            try:
                answer = await self._coordinator.ask(ApiKey.END_TXN, version, request)
            except Unanswered:
                continue
            if await self._is_done_with(self._coordinator, {int(answer.error_code)}):
                break
        transaction.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        if self._is_version_2:
            self._use(answer.producer_id, answer.producer_epoch)

    async def _is_done_with(self, coordinator: CoordinatedClient, codes: set[int]) -> bool:
        """Whether it has succeeded; False: again. Raises _Over if there is no point."""
        refused = codes - {int(ErrorCode.NONE)}
        if not refused:
            return True
        for code in refused:
            self._ledger.note_refusal(code)
        if not refused <= _AGAIN:
            raise _Over
        await coordinator.look_again()
        return False

    # -- records ---------------------------------------------------------------------------------

    @property
    def _produce_version(self) -> int:
        return 12 if self._is_version_2 else 11

    def _batch(
        self, keys_and_values: Sequence[tuple[bytes | None, bytes]], codec: Codec, sequence: int
    ) -> bytearray:
        return produced_batch(
            keys_and_values,
            codec=codec,
            producer=self._producer,
            base_sequence=sequence,
            is_transactional=True,
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
            version=self._produce_version,
            transactional_id=self._transactional_id,
        )
