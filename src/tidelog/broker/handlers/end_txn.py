"""EndTxn (26): a transaction is committed or aborted.

The answer comes when the outcome is certain; the partitions hear of it afterwards. From version 5
on it gives the producer the epoch for its next transaction (KIP-890).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from tidelog.base.errors import RequestRefused
from tidelog.base.ids import ProducerEpoch, ProducerId
from tidelog.broker.handlers.coordinated import Begun, Outcome
from tidelog.broker.transaction_shards import TransactionCoordinator, known_code
from tidelog.core.transactions.answers import ProducerAnswer
from tidelog.core.transactions.initializing import Claim
from tidelog.records.transactions import VERSION_WITH_BUMP, VERSION_WITHOUT_BUMP
from tidelog.wire.api import RequestHeader
from tidelog.wire.end_txn import (
    EndTxnRequest,
    EndTxnResponse,
    decode_end_txn,
    encode_end_txn_response,
)

FIRST_WITH_PRODUCER_FENCED: Final = 2
FIRST_WITH_BUMP: Final = 5


@dataclass(frozen=True, slots=True)
class EndTxnApi:
    """The shard of the transactional id decides."""

    transactions: TransactionCoordinator

    def decode(self, view: memoryview, position: int, version: int) -> EndTxnRequest:
        return decode_end_txn(view, position, version)

    def begin(self, request: EndTxnRequest, header: RequestHeader) -> Begun:
        has_bump = header.api_version >= FIRST_WITH_BUMP
        version = VERSION_WITH_BUMP if has_bump else VERSION_WITHOUT_BUMP
        return Begun([self._ask(request, client_version=version)], partial(_finish, header))

    def _ask(self, request: EndTxnRequest, *, client_version: int) -> "asyncio.Future[object]":
        producer = Claim(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch))
        return self.transactions.ask_with_id(
            request.transactional_id,
            lambda shard, token, now_ms: shard.on_end(
                request.transactional_id,
                producer=producer,
                is_commit=request.is_commit,
                client_version=client_version,
                token=token,
                now_ms=now_ms,
            ),
        )


def _finish(header: RequestHeader, outcomes: Sequence[Outcome]) -> bytes:
    (outcome,) = outcomes
    if isinstance(outcome, RequestRefused):
        answer = ProducerAnswer(outcome.code)
    else:
        answer = cast(ProducerAnswer, outcome)
    code = known_code(answer.code, is_old=header.api_version < FIRST_WITH_PRODUCER_FENCED)
    response = EndTxnResponse(0, code, answer.producer_id, answer.producer_epoch)
    return encode_end_txn_response(header.api_version, header.correlation_id, response)
