"""InitProducerId (22): an id for an idempotent producer (D2), or a transactional one (D3).

Who has no transactional id may ask any broker and gets an id that nobody has had. Who has one asks
its coordinator, which gives it an epoch that fences whoever had the transactional id before.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.handlers.coordinated import Begun, CoordinatedHandler, Outcome
from tidelog.broker.large_requests import LargeRequests
from tidelog.broker.request_tasks import RequestTasks
from tidelog.broker.transaction_shards import TransactionCoordinator, known_code
from tidelog.core.transactions.answers import ProducerAnswer
from tidelog.core.transactions.initializing import Claim
from tidelog.core.transactions.transitions import FIRST_EPOCH
from tidelog.wire.api import RequestHeader
from tidelog.wire.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    decode_init_producer_id,
    encode_init_producer_id_response,
)

FIRST_WITH_PRODUCER_FENCED: Final = 4


class InitProducerIdHandler:
    """Gives every producer that asks an id of its own."""

    def __init__(
        self, transactions: TransactionCoordinator, tasks: RequestTasks, large: LargeRequests
    ) -> None:
        self._producer_ids = transactions.producer_ids
        self._tasks = tasks
        self._transactional = CoordinatedHandler(_TransactionalApi(transactions), tasks, large)

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        request = decode_init_producer_id(frame, header.body_position, header.api_version)
        code = _refusal(request)
        if code is not ErrorCode.NONE:
            return _encode(header, ProducerAnswer(code))
        if request.transactional_id is not None:
            return self._transactional.answer(connection, frame, header)
        if not self._producer_ids.is_empty:
            return _encode_new(header, self._producer_ids.take())
        pending = PendingAnswer(connection, exclusive=False)
        self._tasks.start(connection, header.api_key, self._answer_later(header, pending))
        return pending

    async def _answer_later(self, header: RequestHeader, pending: PendingAnswer) -> None:
        try:
            answer = _encode_new(header, await self._producer_ids.next())
        except RequestRefused as refusal:
            answer = _encode(header, ProducerAnswer(refusal.code))
        if pending.is_wanted:
            pending.complete([answer])


@dataclass(frozen=True, slots=True)
class _TransactionalApi:
    """The shard of the transactional id decides."""

    transactions: TransactionCoordinator

    def decode(self, view: memoryview, position: int, version: int) -> InitProducerIdRequest:
        return decode_init_producer_id(view, position, version)

    def begin(self, request: InitProducerIdRequest, header: RequestHeader) -> Begun:
        return Begun([self._ask(request)], partial(_finish, header))

    def _ask(self, request: InitProducerIdRequest) -> "asyncio.Future[object]":
        transactional_id = cast(str, request.transactional_id)
        claim = None
        if request.producer_id != NO_PRODUCER_ID:
            claim = Claim(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
        return self.transactions.ask_with_id(
            transactional_id,
            lambda shard, token, now_ms: shard.on_init_producer_id(
                transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                claim=claim,
                token=token,
                now_ms=now_ms,
            ),
        )


def _refusal(request: InitProducerIdRequest) -> ErrorCode:
    """Kafka's checks before it looks at anything."""
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _finish(header: RequestHeader, outcomes: Sequence[Outcome]) -> bytes:
    (outcome,) = outcomes
    if isinstance(outcome, RequestRefused):
        return _encode(header, ProducerAnswer(outcome.code))
    return _encode(header, cast(ProducerAnswer, outcome))


def _encode_new(header: RequestHeader, producer_id: ProducerId) -> bytes:
    return _encode(header, ProducerAnswer(ErrorCode.NONE, producer_id, FIRST_EPOCH))


def _encode(header: RequestHeader, answer: ProducerAnswer) -> bytes:
    code = known_code(answer.code, is_old=header.api_version < FIRST_WITH_PRODUCER_FENCED)
    response = InitProducerIdResponse(
        throttle_ms=0,
        error_code=code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
    return encode_init_producer_id_response(header.api_version, header.correlation_id, response)
