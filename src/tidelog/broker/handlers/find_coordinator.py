"""FindCoordinator (10): which broker looks after a group or a transactional id.

It is the leader of the partition that the key falls to, of the topic in which its coordinator keeps
what it knows. The first who asks has that topic made. While the partition has no leader, nobody is
available, and clients ask again.

librdkafka takes the presence of this API for the sign that a broker stores LZ4, and silently sends
uncompressed batches without it.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_BROKER
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.internal_topics import InternalTopics
from tidelog.broker.large_requests import LARGE_BYTES, LargeRequests
from tidelog.broker.partitions import Partitions
from tidelog.broker.request_tasks import RequestTasks
from tidelog.core.controller.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.core.coordinators import partition_of
from tidelog.wire.api import RequestHeader
from tidelog.wire.find_coordinator import (
    CoordinatorResult,
    FindCoordinatorRequest,
    decode_find_coordinator,
    encode_find_coordinator_response,
)

_NO_PORT = -1


class _KeyType(NamedTuple):
    first_version: int
    topic: str


_KEY_TYPES = {0: _KeyType(0, CONSUMER_OFFSETS), 1: _KeyType(1, TRANSACTION_STATE)}
"""Groups and transactional ids. There are no share groups here."""


@dataclass(frozen=True, slots=True)
class FindCoordinatorHandler:
    """Answers from the cluster image."""

    partitions: Partitions
    topics: InternalTopics
    tasks: RequestTasks
    large: LargeRequests

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        if len(frame) > LARGE_BYTES:
            work = partial(self._answer_large, connection, bytes(frame), header)
            return self.tasks.answer(connection, header.api_key, work)
        request = decode_find_coordinator(frame, header.body_position, header.api_version)
        key_type = _key_type(request, header)
        if key_type is None or not self._must_wait(key_type.topic):
            return self._respond(connection, request, header)
        create = partial(self._answer_after_creation, connection, request, header, key_type.topic)
        return self.tasks.answer(connection, header.api_key, create)

    def _must_wait(self, topic: str) -> bool:
        """Also while other brokers may not know of it yet, of whom one is the coordinator."""
        return topic not in self.partitions.image.topics or self.topics.is_under_way(topic)

    async def _answer_after_creation(
        self,
        connection: Connection,
        request: FindCoordinatorRequest,
        header: RequestHeader,
        topic: str,
        pending: PendingAnswer,
    ) -> None:
        refusal = await self._create(topic)
        if pending.is_wanted:
            pending.complete([self._respond(connection, request, header, refusal)])

    async def _create(self, topic: str) -> RequestRefused | None:
        try:
            await self.topics.create(topic)
        except RequestRefused as refused:
            return refused
        return None

    async def _answer_large(
        self, connection: Connection, frame: bytes, header: RequestHeader, pending: PendingAnswer
    ) -> None:
        async with self.large.turn(len(frame)):
            if not pending.is_wanted:
                return
            request = await self.large.aside.run(
                partial(
                    decode_find_coordinator,
                    memoryview(frame),
                    header.body_position,
                    header.api_version,
                ),
                count=len(frame),
            )
            key_type = _key_type(request, header)
            refusal = None
            if key_type is not None and self._must_wait(key_type.topic):
                refusal = await self._create(key_type.topic)
            answer = await self.large.aside.run(
                partial(self._respond, connection, request, header, refusal), count=len(frame)
            )
        if pending.is_wanted:
            pending.complete([answer])

    def _respond(
        self,
        connection: Connection,
        request: FindCoordinatorRequest,
        header: RequestHeader,
        refusal: RequestRefused | None = None,
    ) -> bytes:
        key_type = _key_type(request, header)
        if key_type is None:
            refusal = RequestRefused(ErrorCode.INVALID_REQUEST)
        if refusal is not None:
            results = [_refused(key, refusal) for key in request.keys]
        else:
            assert key_type is not None
            results = [
                self._coordinator(key, key_type.topic, connection.listener_name)
                for key in request.keys
            ]
        return encode_find_coordinator_response(
            header.api_version, header.correlation_id, results, throttle_ms=0
        )

    def _coordinator(self, key: str, topic_name: str, listener_name: str) -> CoordinatorResult:
        image = self.partitions.image
        topic = image.topics.get(topic_name)
        if topic is not None:
            state = topic.partitions[partition_of(key, len(topic.partitions))]
            broker = image.brokers.get(state.leader)
            endpoint = None if broker is None else broker.endpoint(listener_name)
            if endpoint is not None:
                return CoordinatorResult(key, state.leader, endpoint.host, endpoint.port, 0, None)
        return _refused(key, RequestRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _key_type(request: FindCoordinatorRequest, header: RequestHeader) -> _KeyType | None:
    """None for a kind of key that there is not, or not in this version."""
    key_type = _KEY_TYPES.get(request.key_type)
    if key_type is None or header.api_version < key_type.first_version:
        return None
    return key_type


def _refused(key: str, refusal: RequestRefused) -> CoordinatorResult:
    return CoordinatorResult(key, NO_BROKER, "", _NO_PORT, refusal.code, refusal.message)
