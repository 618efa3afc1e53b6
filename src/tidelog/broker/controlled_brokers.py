"""A broker as its controller reaches it: over a connection, or in the same process."""

from collections.abc import Callable
from typing import TypeVar

from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.peers import Peer
from tidelog.wire.api import ApiKey, decode_response_header
from tidelog.wire.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    decode_leader_and_isr_response,
    encode_leader_and_isr_request,
)
from tidelog.wire.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    decode_stop_replica_response,
    encode_stop_replica_request,
)
from tidelog.wire.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    decode_update_metadata_response,
    encode_update_metadata_request,
)

VERSION = 0

Request = TypeVar("Request")
Response = TypeVar("Response")


class RemoteBroker:
    """Another process. Raises PeerUnreachable, and WireError for an answer that is none."""

    def __init__(self, peer: Peer, client_id: str) -> None:
        self._peer = peer
        self._client_id = client_id

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        return await self._ask(
            ApiKey.UPDATE_METADATA,
            encode_update_metadata_request,
            request,
            decode_update_metadata_response,
        )

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        return await self._ask(
            ApiKey.LEADER_AND_ISR,
            encode_leader_and_isr_request,
            request,
            decode_leader_and_isr_response,
        )

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        return await self._ask(
            ApiKey.STOP_REPLICA, encode_stop_replica_request, request, decode_stop_replica_response
        )

    def close(self) -> None:
        self._peer.close()

    async def _ask(
        self,
        api_key: ApiKey,
        encode: Callable[[int, int, str, Request], bytes],
        request: Request,
        decode: Callable[[memoryview, int, int], Response],
    ) -> Response:
        await self._peer.connect()
        frame = encode(VERSION, self._peer.next_correlation_id(), self._client_id, request)
        answer = await self._peer.request(frame)
        _, position = decode_response_header(answer, api_key, VERSION)
        return decode(answer, position, VERSION)


class LocalBroker:
    """The controller's own broker. It has published the metadata itself before it says so."""

    def __init__(self, requests: ControlRequests) -> None:
        self._requests = requests

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(0)

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        return await self._requests.leader_and_isr(request)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        return await self._requests.stop_replica(request)

    def close(self) -> None:
        """Nothing to let go of."""
