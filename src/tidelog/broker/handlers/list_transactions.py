"""ListTransactions (66): the transactional ids that the coordinators here look after."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState
from kio.schema.types import ProducerId as MessageProducerId
from kio.schema.types import TransactionalId
from kio.static.primitive import i64

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import ProducerId
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error
from tidelog.broker.handlers.coordinated import outcome
from tidelog.broker.transaction_shards import TransactionCoordinator
from tidelog.core.transactions.listing import (
    ListedTransaction,
    TransactionFilter,
    pattern_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsHandler:
    """Asks every shard; while one of them is loaded, the list would not be whole."""

    transactions: TransactionCoordinator

    async def handle(
        self, request: ListTransactionsRequest, context: RequestContext
    ) -> ListTransactionsResponse:
        try:
            wanted = _filter(request)
            found = await self._found(wanted)
        except RequestRefused as refusal:
            return _response(refusal.code)
        return _response(ErrorCode.NONE, wanted.unknown_states, found)

    async def _found(self, wanted: TransactionFilter) -> list[ListedTransaction]:
        futures = self.transactions.ask_all(
            lambda shard, token, now_ms: shard.on_list(wanted, token=token, now_ms=now_ms)
        )
        if futures:
            await asyncio.wait(futures)
        found: list[ListedTransaction] = []
        for future in futures:
            told = outcome(future)
            if isinstance(told, RequestRefused):
                raise told
            found += cast(tuple[ListedTransaction, ...], told)
        return found


def _filter(request: ListTransactionsRequest) -> TransactionFilter:
    return TransactionFilter(
        states=frozenset(request.state_filters),
        producer_ids=frozenset(map(ProducerId, request.producer_id_filters)),
        longer_than_ms=request.duration_filter,
        pattern=pattern_of(request.transactional_id_pattern),
    )


def _response(
    code: ErrorCode,
    unknown_states: tuple[str, ...] = (),
    found: Iterable[ListedTransaction] = (),
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=message_error(code),
        unknown_state_filters=unknown_states,
        transaction_states=tuple(
            TransactionState(
                transactional_id=TransactionalId(each.transactional_id),
                producer_id=MessageProducerId(i64(each.producer_id)),
                transaction_state=each.state.title,
            )
            for each in found
        ),
    )
