"""FindCoordinator (10): which broker looks after a group or a transactional id.

Every key falls to the one broker there is. librdkafka takes the presence of this API for the sign
that a broker stores LZ4, and silently sends uncompressed batches without it.
"""

from dataclasses import dataclass
from functools import partial

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.large_requests import LARGE_BYTES, LargeRequests
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.core.controller.image import Endpoint
from tidelog.wire.api import RequestHeader
from tidelog.wire.find_coordinator import (
    CoordinatorResult,
    decode_find_coordinator,
    encode_find_coordinator_response,
)

_KEY_TYPES = {0: 0, 1: 1, 2: 6}
"""Groups, transactional ids and share groups, each with the version that brought it."""
_NO_PORT = -1


@dataclass(frozen=True, slots=True)
class FindCoordinatorHandler:
    """Answers from the cluster image."""

    partitions: Partitions
    tasks: RequestTasks
    large: LargeRequests

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        if len(frame) <= LARGE_BYTES:
            return self._answer(connection, frame, header)
        work = partial(self._answer_large, connection, bytes(frame), header)
        return self.tasks.answer(connection, header.api_key, work)

    async def _answer_large(
        self, connection: Connection, frame: bytes, header: RequestHeader, pending: PendingAnswer
    ) -> None:
        async with self.large.turn(len(frame)):
            if not pending.is_wanted:
                return
            answer = await self.large.aside.run(
                partial(self._answer, connection, memoryview(frame), header), count=len(frame)
            )
        if pending.is_wanted:
            pending.complete([answer])

    def _answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> bytes:
        request = decode_find_coordinator(frame, header.body_position, header.api_version)
        first_version = _KEY_TYPES.get(request.key_type)
        if first_version is None or header.api_version < first_version:
            results = [_refused(key, ErrorCode.INVALID_REQUEST) for key in request.keys]
        else:
            results = [self._coordinator(key, connection.listener_name) for key in request.keys]
        return encode_find_coordinator_response(
            header.api_version, header.correlation_id, results, throttle_ms=0
        )

    def _coordinator(self, key: str, listener_name: str) -> CoordinatorResult:
        brokers = self.partitions.image.brokers
        for broker_id in sorted(brokers):
            endpoint: Endpoint | None = brokers[broker_id].endpoint(listener_name)
            if endpoint is not None:
                return CoordinatorResult(key, broker_id, endpoint.host, endpoint.port, 0, None)
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _refused(key: str, code: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(key, NO_BROKER, "", _NO_PORT, code, None)
