"""InitProducerId (22): an id for an idempotent producer (D2).

Ids come from blocks of a thousand that the coordinator hands out once and never again, whatever
crashes. The next block is asked for when the last id is taken; requests that arrive meanwhile wait.
"""

from collections import deque

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.request_tasks import RequestTasks
from tidelog.wire.api import RequestHeader
from tidelog.wire.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    decode_init_producer_id,
    encode_init_producer_id_response,
)

FIRST_EPOCH = 0


class InitProducerIdHandler:
    """Gives every producer that asks an id of its own."""

    def __init__(self, *, controller: AdminRequests, tasks: RequestTasks) -> None:
        self._controller = controller
        self._tasks = tasks
        self._block = iter(range(0))
        self._waiting: deque[tuple[PendingAnswer, RequestHeader]] = deque()
        self._is_asking = False

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        request = decode_init_producer_id(frame, header.body_position, header.api_version)
        code = _refusal(request)
        if code is not ErrorCode.NONE:
            return _encode(header, code, NO_PRODUCER_ID)
        producer_id = next(self._block, None)
        if producer_id is not None:
            return _encode(header, ErrorCode.NONE, producer_id)
        pending = PendingAnswer(connection, exclusive=False)
        self._waiting.append((pending, header))
        if not self._is_asking:
            self._is_asking = True
            self._tasks.start(connection, header.api_key, self._ask_for_block())
        return pending

    async def _ask_for_block(self) -> None:
        try:
            while self._waiting:
                self._block = iter(await self._controller.allocate_producer_ids())
                self._serve_waiting()
        except RequestRefused as refusal:
            self._refuse_waiting(refusal.code)
        finally:
            self._is_asking = False
            # None is left unless something unforeseen happened; nobody would answer them then.
            self._refuse_waiting(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _serve_waiting(self) -> None:
        while self._waiting:
            producer_id = next(self._block, None)
            if producer_id is None:
                return
            pending, header = self._waiting.popleft()
            if pending.is_wanted:
                pending.complete([_encode(header, ErrorCode.NONE, producer_id)])

    def _refuse_waiting(self, code: ErrorCode) -> None:
        while self._waiting:
            pending, header = self._waiting.popleft()
            if pending.is_wanted:
                pending.complete([_encode(header, code, NO_PRODUCER_ID)])


def _refusal(request: InitProducerIdRequest) -> ErrorCode:
    has_id = request.producer_id != NO_PRODUCER_ID
    has_epoch = request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        # None of the APIs of a transaction is advertised: no client gets here unless it guesses.
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _encode(header: RequestHeader, code: ErrorCode, producer_id: int) -> bytes:
    response = InitProducerIdResponse(
        throttle_ms=0,
        error_code=code,
        producer_id=producer_id,
        producer_epoch=FIRST_EPOCH if code is ErrorCode.NONE else NO_PRODUCER_EPOCH,
    )
    return encode_init_producer_id_response(header.api_version, header.correlation_id, response)
