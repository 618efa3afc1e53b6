"""How a broker asks its controller for something: over a connection, or in the same process.

Who the controller is changes; whoever asks gives the question and not the way. A question that
could not be put, or was not answered, raises PeerUnreachable; it is not known whether it was heard.
So does one that waits for an answer of a broker that is not controller any more: that may hang.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId
from tidelog.broker.peers import Address, Peer, PeerUnreachable
from tidelog.core.controller.changes import Change, ControllerChanged
from tidelog.core.controller.image import BrokerImage, ClusterImage
from tidelog.core.controller.nodes import ControllerClaim
from tidelog.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    decode_alter_partition_response,
    encode_alter_partition_request,
)
from tidelog.wire.api import ApiKey, decode_response_header
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    decode_controlled_shutdown_response,
    encode_controlled_shutdown_request,
)
from tidelog.wire.envelope import (
    EnvelopeRequest,
    EnvelopeResponse,
    decode_envelope_response,
    encode_envelope_request,
)

ALTER_PARTITION_VERSION = 3
CONTROLLED_SHUTDOWN_VERSION = 0
ENVELOPE_VERSION = 0


class LocalController(Protocol):
    """The controller's side of it, if it is in this process."""

    @property
    def is_controller(self) -> bool: ...

    @property
    def claim(self) -> ControllerClaim: ...

    @property
    def image(self) -> ClusterImage: ...

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse: ...

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse: ...


class ControllerLink:
    """Finds the controller of the day and asks it."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        local: LocalController,
        connect: Callable[[Address], Peer],
        inter_broker_listener: str,
    ) -> None:
        self._local = local
        self._connect = connect
        self._listener = inter_broker_listener
        self._client_id = f"broker-{broker_id}"
        self._peer: Peer | None = None

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self._local.is_controller:
            return await self._local.alter_partition(request)
        peer = self._controller()
        answer = await peer.request(
            encode_alter_partition_request(
                ALTER_PARTITION_VERSION, peer.next_correlation_id(), self._client_id, request
            )
        )
        _, position = decode_response_header(
            answer, ApiKey.ALTER_PARTITION, ALTER_PARTITION_VERSION
        )
        return decode_alter_partition_response(answer, position, ALTER_PARTITION_VERSION)

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        if self._local.is_controller:
            return await self._local.controlled_shutdown(request)
        peer = self._controller()
        answer = await peer.request(
            encode_controlled_shutdown_request(
                CONTROLLED_SHUTDOWN_VERSION, peer.next_correlation_id(), self._client_id, request
            )
        )
        _, position = decode_response_header(
            answer, ApiKey.CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN_VERSION
        )
        return decode_controlled_shutdown_response(answer, position, CONTROLLED_SHUTDOWN_VERSION)

    async def forward(self, request_frame: bytes, client_host: str) -> bytes:
        """Have the controller answer a client's request, given without its length.

        Returns the answer, without its length as well. Raises PeerUnreachable also if who was
        asked is not controller any more.
        """
        peer = self._controller()
        request = EnvelopeRequest(request_frame, None, client_host.encode())
        answer = await peer.request(
            encode_envelope_request(
                ENVELOPE_VERSION, peer.next_correlation_id(), self._client_id, request
            )
        )
        _, position = decode_response_header(answer, ApiKey.ENVELOPE, ENVELOPE_VERSION)
        response: EnvelopeResponse = decode_envelope_response(answer, position, ENVELOPE_VERSION)
        if response.error_code != ErrorCode.NONE or response.response_data is None:
            raise PeerUnreachable(f"not answered: {ErrorCode(response.error_code).name}")
        return response.response_data

    def on_image(self, _image: ClusterImage, changes: Sequence[Change]) -> None:
        """Whoever waits for the last controller has to ask the next one."""
        if any(isinstance(change, ControllerChanged) for change in changes):
            self.close()

    def close(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _controller(self) -> Peer:
        claim = self._local.claim
        broker = self._local.image.brokers.get(claim.controller_id)
        if claim.controller_id == NO_BROKER or broker is None:
            raise PeerUnreachable("nobody is controller")
        address = address_of(broker, self._listener)
        if self._peer is None or self._peer.address != address:
            self.close()
            self._peer = self._connect(address)
        return self._peer


def address_of(broker: BrokerImage, listener: str) -> Address:
    """Where other brokers reach it."""
    endpoint = broker.endpoint(listener) or broker.endpoints[0]
    return Address(endpoint.host, endpoint.port)
