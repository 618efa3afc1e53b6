"""Shards of the transaction coordinator on this broker: how they are made, and stored.

`TransactionShards` is what `broker/coordinators.py` has to know of transactions;
`TransactionCoordinator` is all shards that this broker runs, as handlers see them.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, cast

from tidelog.base.errors import ErrorCode, RequestRefused, WireError
from tidelog.broker.coordinators import Coordinators, pass_on
from tidelog.broker.marker_sender import MarkerSender
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.shard_runner import ShardRunner
from tidelog.config.transactions import TransactionsConfig
from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage
from tidelog.core.coordinators import NO_EFFECTS, Effects, Token, Transactional
from tidelog.core.transactions.answers import TransactionLimits, WriteMarkers
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.core.transactions.initializing import NoProducerId
from tidelog.records.batch import Codec
from tidelog.records.transactions import TransactionRecord
from tidelog.wire.transaction_records import (
    TRANSACTION_KEY,
    decode_transaction_record,
    encode_transaction_record,
)

logger = logging.getLogger(__name__)

ID_MAX_BYTES: Final = 32_000
"""Of a transactional id. A record's key has room for 32,767."""

Decide = Callable[[TransactionShard, Token, int], Effects]
SendMarkers = Callable[[ShardRunner[TransactionShard], WriteMarkers], None]


class TransactionShards:
    """Makes shards, and knows how their records are written."""

    codec = Codec.NONE
    kinds = (TRANSACTION_KEY,)
    kinds_in_transactions = ()

    def __init__(
        self, config: TransactionsConfig, producer_ids: ProducerIds, send: SendMarkers
    ) -> None:
        self._config = config
        self._producer_ids = producer_ids
        self._send = send
        self._numbers = count(1)

    def create(self, *, leader_epoch: int, record_max_bytes: int) -> TransactionShard:
        config = self._config
        return TransactionShard(
            limits=TransactionLimits(
                timeout_max_ms=config.transaction_max_timeout_ms,
                id_expiration_ms=config.transactional_id_expiration_ms,
                abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
                wait_max_ms=config.add_partitions_to_txn_retry_backoff_max_ms,
                record_max_bytes=record_max_bytes,
            ),
            coordinator_epoch=leader_epoch,
            take_producer_id=self._producer_ids.take,
            numbers=self._numbers,
        )

    def encode(self, record: object) -> tuple[bytes, bytes | None]:
        return encode_transaction_record(cast(TransactionRecord, record))

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """A record that nobody can read is left out: the other ids have to go on."""
        try:
            return decode_transaction_record(key, value)
        except WireError as error:
            logger.error(
                "record of a transactional id cannot be read", extra={"key": key, "reason": error}
            )
            return None

    def replay(
        self, shard: TransactionShard, record: object, transactional: Transactional | None
    ) -> None:
        shard.replay(cast(TransactionRecord, record))

    def on_transaction_ended(
        self, shard: TransactionShard, producer: Transactional, *, is_committed: bool, now_ms: int
    ) -> Effects:
        """Nobody writes here in transactions."""
        return NO_EFFECTS

    def perform(self, runner: ShardRunner[TransactionShard], deed: object) -> None:
        assert isinstance(deed, WriteMarkers)
        self._send(runner, deed)


class TransactionCoordinator:
    """Every transactional id that this broker looks after."""

    def __init__(
        self,
        shards: Coordinators[TransactionShard],
        producer_ids: ProducerIds,
        markers: MarkerSender,
        *,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.shards = shards
        self.producer_ids = producer_ids
        self._markers = markers
        self._loop = loop
        self._tasks = tasks

    def ask(
        self, transactional_id: str, decide: Decide, *, may_write: bool = True
    ) -> "asyncio.Future[object]":
        """What the shard of `transactional_id` replies, or RequestRefused. Never raises itself."""
        try:
            _require_id(transactional_id)
            return self.shards.ask(transactional_id, decide, may_write=may_write)
        except RequestRefused as refused:
            return self.refuse(refused)

    def ask_with_id(self, transactional_id: str, decide: Decide) -> "asyncio.Future[object]":
        """The same; if it takes a producer id and there is none, as soon as there is."""
        try:
            _require_id(transactional_id)
            coming = self.shards.coming(transactional_id)
            ask = self.shards.in_epoch_of_now(
                transactional_id, lambda: self.shards.of(transactional_id).ask(decide)
            )
            if coming is None:
                asked = ask()
                if not _lacks_id(asked):
                    return asked
        except RequestRefused as refused:
            return self.refuse(refused)
        later: asyncio.Future[object] = self._loop.create_future()
        self._tasks.create_task(self._ask_later(later, ask, coming))
        return later

    def ask_all(self, decide: Decide) -> "list[asyncio.Future[object]]":
        """What each shard of this broker replies."""
        return [runner.ask(decide, may_write=False) for runner in self.shards]

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """Who is to be told how transactions ended may be somebody else now."""
        self._markers.on_image(image, changes)

    def end(self) -> None:
        """This broker stops."""
        self.shards.end()
        self._markers.close()

    def refuse(self, refusal: RequestRefused) -> "asyncio.Future[object]":
        """What is not even asked."""
        refused: asyncio.Future[object] = self._loop.create_future()
        refused.set_exception(refusal)
        refused.exception()  # Whoever asked may be gone before it looks.
        return refused

    def answer(self, answer: object) -> "asyncio.Future[object]":
        """What needs no shard to decide."""
        answered: asyncio.Future[object] = self._loop.create_future()
        answered.set_result(answer)
        return answered

    async def _ask_later(
        self,
        answer: "asyncio.Future[object]",
        ask: "Callable[[], asyncio.Future[object]]",
        coming: "asyncio.Future[None] | None",
    ) -> None:
        """Unless nobody waits for `answer` then, who may have asked again and have gone on."""
        try:
            if coming is not None:
                await asyncio.wait([coming])  # Ended by the shard, or by time.
            else:
                await self.producer_ids.available()
            while not answer.done():
                asked = ask()
                if not _lacks_id(asked):
                    pass_on(asked, answer)
                    return
                await self.producer_ids.available()
        except RequestRefused as refusal:
            if not answer.done():
                answer.set_exception(refusal)
                answer.exception()


def _lacks_id(asked: "asyncio.Future[object]") -> bool:
    return asked.done() and isinstance(asked.exception(), NoProducerId)


def _require_id(transactional_id: str) -> None:
    if not 0 < len(transactional_id.encode()) <= ID_MAX_BYTES:
        raise RequestRefused(ErrorCode.INVALID_REQUEST)


def known_code(code: ErrorCode, *, is_old: bool) -> ErrorCode:
    """What an old client is told in place of PRODUCER_FENCED, which it does not know (KIP-588)."""
    if is_old and code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
