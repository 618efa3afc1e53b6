"""DescribeTransactions (65): what the coordinators here know about transactional ids."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Final, cast

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import TZAware, i16, i32, i32Timedelta, i64

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.coordinated import outcome
from tidelog.broker.transaction_shards import TransactionCoordinator
from tidelog.core.transactions.answers import DescribeAnswer
from tidelog.records.transactions import TransactionMetadata

_EPOCH: Final = datetime.fromtimestamp(0, tz=UTC)
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, which is the last one that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsHandler:
    """Asks the shard of each id."""

    transactions: TransactionCoordinator

    async def handle(
        self, request: DescribeTransactionsRequest, context: RequestContext
    ) -> DescribeTransactionsResponse:
        futures = [self._ask(transactional_id) for transactional_id in request.transactional_ids]
        if futures:
            await asyncio.wait(futures)
        states = [
            _state(transactional_id, future)
            for transactional_id, future in zip(request.transactional_ids, futures, strict=True)
        ]
        return DescribeTransactionsResponse(
            throttle_time=NO_THROTTLE, transaction_states=tuple(states)
        )

    def _ask(self, transactional_id: str) -> "asyncio.Future[object]":
        return self.transactions.ask(
            transactional_id,
            lambda shard, token, _now_ms: shard.on_describe(transactional_id, token=token),
            may_write=False,
        )


def _state(transactional_id: TransactionalId, future: "asyncio.Future[object]") -> TransactionState:
    told = outcome(future)
    if isinstance(told, RequestRefused):
        return _refused(transactional_id, told.code)
    metadata = cast(DescribeAnswer, told).metadata
    if metadata is None:
        return _refused(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return TransactionState(
        error_code=message_error(ErrorCode.NONE),
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=metadata.timeout_ms)),
        transaction_start_time=_moment(metadata.start_ms),
        producer_id=ProducerId(i64(metadata.producer_id)),
        producer_epoch=i16(metadata.producer_epoch),
        topics=tuple(_topics(metadata)),
    )


def _refused(transactional_id: TransactionalId, code: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=message_error(code),
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=NO_THROTTLE,
        transaction_start_time=_moment(0),
        producer_id=ProducerId(i64(0)),
        producer_epoch=i16(0),
        topics=(),
    )


def _topics(metadata: TransactionMetadata) -> Iterator[TopicData]:
    for topic, partitions in groupby(sorted(metadata.partitions), attrgetter("topic")):
        numbers = tuple(i32(partition.partition) for partition in partitions)
        yield TopicData(topic=TopicName(topic), partitions=numbers)


def _moment(time_ms: int) -> TZAware:
    # Not parsed: kio refuses whatever is not a whole second, and Kafka's -1 for no time at all.
    return cast(TZAware, _EPOCH + timedelta(milliseconds=min(max(time_ms, -1), _LAST_MS)))
