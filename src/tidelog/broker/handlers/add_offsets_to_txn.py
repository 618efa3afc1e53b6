"""AddOffsetsToTxn (25): a transaction is going to commit offsets of a group.

So it reaches to the partition of `__consumer_offsets` that the group falls to. With transaction
version 2 clients do not ask any more: the group's coordinator does, when offsets come.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.broker.partitions import Partitions
from tidelog.broker.transaction_shards import TransactionCoordinator, known_code
from tidelog.core.controller.names import CONSUMER_OFFSETS
from tidelog.core.coordinators import partition_of
from tidelog.core.transactions.answers import PartitionsAnswer
from tidelog.core.transactions.initializing import Claim
from tidelog.records.transactions import VERSION_WITHOUT_BUMP
from tidelog.wire.api import RequestHeader
from tidelog.wire.end_txn import (
    AddOffsetsToTxnRequest,
    decode_add_offsets_to_txn,
    encode_add_offsets_to_txn_response,
)

FIRST_WITH_PRODUCER_FENCED: Final = 2


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnApi:
    """One partition more."""

    transactions: TransactionCoordinator
    partitions: Partitions

    def decode(self, view: memoryview, position: int, version: int) -> AddOffsetsToTxnRequest:
        return decode_add_offsets_to_txn(view, position, version)

    def begin(self, request: AddOffsetsToTxnRequest, header: RequestHeader) -> Begun:
        return Begun([self._ask(request)], partial(_finish, header))

    def _ask(self, request: AddOffsetsToTxnRequest) -> "asyncio.Future[object]":
        topic = self.partitions.image.topics.get(CONSUMER_OFFSETS)
        if topic is None:
            # Whoever has found the group's coordinator has had the topic made.
            return self.transactions.refuse(RequestRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        number = partition_of(request.group_id, len(topic.partitions))
        producer = Claim(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
        return self.transactions.ask(
            request.transactional_id,
            lambda shard, token, now_ms: shard.on_add_partitions(
                request.transactional_id,
                producer=producer,
                partitions=(TopicPartition(CONSUMER_OFFSETS, number),),
                client_version=VERSION_WITHOUT_BUMP,
                may_wait=True,
                token=token,
                now_ms=now_ms,
            ),
        )


def _finish(header: RequestHeader, outcomes: Sequence[Outcome]) -> bytes:
    (outcome,) = outcomes
    if isinstance(outcome, RequestRefused):
        code = outcome.code
    else:
        (code,) = cast(PartitionsAnswer, outcome).codes.values()
    code = known_code(code, is_old=header.api_version < FIRST_WITH_PRODUCER_FENCED)
    return encode_add_offsets_to_txn_response(header.api_version, header.correlation_id, 0, code)
