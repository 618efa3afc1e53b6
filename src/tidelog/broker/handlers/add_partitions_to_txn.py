"""AddPartitionsToTxn (24): a transaction reaches to more partitions.

A client says so before it writes to them, in versions 0 to 3. With transaction version 2 it does
not: the brokers that it writes to do, in versions 4 and 5, about many transactions at once; and for
older clients they ask whether it has (KIP-890).

A client that asks while its last transaction is being completed waits for that. A broker does not:
others are in the same request, and it asks again.

A transaction that names a partition that there is not gets none of them: whoever reads the answer
learns which one it was, and that the others were not tried.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.broker.handlers.coordinated import Begun, Outcome, outcome
from tidelog.broker.partitions import Partitions
from tidelog.broker.transaction_shards import TransactionCoordinator, known_code
from tidelog.core.coordinators import Effects, Token
from tidelog.core.transactions.answers import PartitionsAnswer
from tidelog.core.transactions.coordinator import TransactionShard
from tidelog.core.transactions.initializing import Claim
from tidelog.records.transactions import VERSION_WITH_BUMP, VERSION_WITHOUT_BUMP
from tidelog.wire.add_partitions_to_txn import (
    FIRST_OF_BROKERS,
    AddedPartitions,
    AddedResult,
    AddPartitionsToTxnResponse,
    decode_add_partitions_to_txn,
    encode_add_partitions_to_txn_response,
)
from tidelog.wire.api import RequestHeader

FIRST_WITH_PRODUCER_FENCED: Final = 2

Codes = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnApi:
    """Each transaction is its own shard's."""

    transactions: TransactionCoordinator
    partitions: Partitions

    def decode(self, view: memoryview, position: int, version: int) -> list[AddedPartitions]:
        return decode_add_partitions_to_txn(view, position, version)

    def begin(self, request: list[AddedPartitions], header: RequestHeader) -> Begun:
        is_broker = header.api_version >= FIRST_OF_BROKERS
        version = VERSION_WITH_BUMP if is_broker else VERSION_WITHOUT_BUMP
        futures = [self._ask(added, client_version=version) for added in request]
        return Begun(futures, partial(_finish, request, header))

    async def ask_here(self, request: Sequence[AddedPartitions]) -> list[AddedResult]:
        """The same for a leader on this broker, which asks on behalf of its producers."""
        futures = [self._ask(added, client_version=VERSION_WITH_BUMP) for added in request]
        if futures:
            await asyncio.wait(futures)  # Ended by shards, each in its time.
        return [
            _result(added, outcome(future), FIRST_OF_BROKERS)
            for added, future in zip(request, futures, strict=True)
        ]

    def _ask(self, added: AddedPartitions, *, client_version: int) -> "asyncio.Future[object]":
        named = _named(added)
        unknown = [partition for partition in named if not self._is_known(partition)]
        if unknown:
            codes = dict.fromkeys(named, ErrorCode.OPERATION_NOT_ATTEMPTED)
            codes |= dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return self.transactions.answer(PartitionsAnswer(codes))
        producer = Claim(ProducerId(added.producer_id), ProducerEpoch(added.producer_epoch))

        def decide(shard: TransactionShard, token: Token, now_ms: int) -> Effects:
            if added.is_verification:
                return shard.on_verify_partitions(
                    added.transactional_id, producer=producer, partitions=named, token=token
                )
            return shard.on_add_partitions(
                added.transactional_id,
                producer=producer,
                partitions=named,
                client_version=client_version,
                may_wait=client_version < VERSION_WITH_BUMP,
                token=token,
                now_ms=now_ms,
            )

        return self.transactions.ask(
            added.transactional_id, decide, may_write=not added.is_verification
        )

    def _is_known(self, partition: TopicPartition) -> bool:
        topic = self.partitions.image.topics.get(partition.topic)
        return topic is not None and 0 <= partition.partition < len(topic.partitions)


def _named(added: AddedPartitions) -> list[TopicPartition]:
    """Each once."""
    partitions = (
        TopicPartition(name, partition)
        for name, partitions in added.topics
        for partition in partitions
    )
    return list(dict.fromkeys(partitions))


def _finish(
    request: Sequence[AddedPartitions], header: RequestHeader, outcomes: Sequence[Outcome]
) -> bytes:
    results = [
        _result(added, told, header.api_version)
        for added, told in zip(request, outcomes, strict=True)
    ]
    response = AddPartitionsToTxnResponse(0, ErrorCode.NONE, results)
    return encode_add_partitions_to_txn_response(
        header.api_version, header.correlation_id, response
    )


def _result(added: AddedPartitions, told: Outcome, version: int) -> AddedResult:
    codes: Codes
    if isinstance(told, RequestRefused):
        codes = dict.fromkeys(_named(added), told.code)
    else:
        codes = cast(PartitionsAnswer, told).codes
    topics: dict[str, list[tuple[int, int]]] = {}
    is_old = version < FIRST_WITH_PRODUCER_FENCED
    for (topic, partition), code in codes.items():
        topics.setdefault(topic, []).append((partition, known_code(code, is_old=is_old)))
    return AddedResult(added.transactional_id, list(topics.items()))
