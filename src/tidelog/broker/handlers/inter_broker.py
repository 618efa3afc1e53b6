"""What brokers ask each other: the controller's three requests, and what the controller is asked.

None of these is advertised to clients. LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6) come
from the controller; AlterPartition (56), ControlledShutdown (7) and Envelope (58) go to it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidelog.base.errors import ErrorCode
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.request_tasks import RequestTasks
from tidelog.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    decode_alter_partition,
    encode_alter_partition_response,
)
from tidelog.wire.api import ApiKey, RequestHeader
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    decode_controlled_shutdown,
    encode_controlled_shutdown_response,
)
from tidelog.wire.envelope import (
    EnvelopeRequest,
    EnvelopeResponse,
    decode_envelope,
    encode_envelope_response,
)
from tidelog.wire.leader_and_isr import decode_leader_and_isr, encode_leader_and_isr_response
from tidelog.wire.stop_replica import decode_stop_replica, encode_stop_replica_response
from tidelog.wire.update_metadata import decode_update_metadata, encode_update_metadata_response

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class InterBrokerHandler(Generic[Request, Response]):
    """One API: how it is read, who answers it, how that is written.

    Requests of one connection are begun in order, also while earlier ones are unanswered.
    """

    tasks: RequestTasks
    decode: Callable[[memoryview, int, int], Request]
    answer_to: Callable[[Request], Awaitable[Response]]
    encode: Callable[[int, int, Response], bytes]

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        request = self.decode(frame, header.body_position, header.api_version)
        pending = PendingAnswer(connection, exclusive=False)
        self.tasks.start(connection, header.api_key, self._answer(pending, request, header))
        return pending

    async def _answer(
        self, pending: PendingAnswer, request: Request, header: RequestHeader
    ) -> None:
        response = await self.answer_to(request)
        if pending.is_wanted:
            pending.complete([self.encode(header.api_version, header.correlation_id, response)])


class AskedController(Protocol):
    """Answers as the controller, or says that it is not."""

    @property
    def is_controller(self) -> bool: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse: ...


Forwarded = Callable[[bytes, str], Awaitable[bytes]]
"""Answers a client's request that another broker passed on: frames without their lengths."""


def inter_broker_handlers(
    *,
    tasks: RequestTasks,
    control: ControlRequests,
    controller: AskedController,
    forwarded: Forwarded,
) -> dict[ApiKey, InterBrokerHandler]:  # type: ignore[type-arg]
    """The handler of every API that brokers use among themselves."""

    async def unwrap(request: EnvelopeRequest) -> EnvelopeResponse:
        if not controller.is_controller:
            return EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER)
        host = request.client_host_address.decode("utf-8", "replace")
        return EnvelopeResponse(await forwarded(request.request_data, host), ErrorCode.NONE)

    return {
        ApiKey.LEADER_AND_ISR: InterBrokerHandler(
            tasks, decode_leader_and_isr, control.leader_and_isr, encode_leader_and_isr_response
        ),
        ApiKey.STOP_REPLICA: InterBrokerHandler(
            tasks, decode_stop_replica, control.stop_replica, encode_stop_replica_response
        ),
        ApiKey.UPDATE_METADATA: InterBrokerHandler(
            tasks, decode_update_metadata, control.update_metadata, encode_update_metadata_response
        ),
        ApiKey.CONTROLLED_SHUTDOWN: InterBrokerHandler(
            tasks,
            decode_controlled_shutdown,
            controller.controlled_shutdown,
            encode_controlled_shutdown_response,
        ),
        ApiKey.ALTER_PARTITION: InterBrokerHandler(
            tasks,
            decode_alter_partition,
            controller.alter_partition,
            encode_alter_partition_response,
        ),
        ApiKey.ENVELOPE: InterBrokerHandler(
            tasks, decode_envelope, unwrap, encode_envelope_response
        ),
    }
