"""Questions to the controller, wherever it is: asked there, asked again, or answered here (P1)."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.unit.broker.far_end import FarEnd
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.core.controller.clusters import broker, brokers, cluster
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, ControllerEpoch
from tidelog.broker.controller_link import ControllerLink, address_of
from tidelog.broker.forwarding import FORWARDED, PATIENCE_S, RETRY_BACKOFF_S, Forwarding
from tidelog.broker.peers import Address, Peer, PeerUnreachable
from tidelog.core.controller.image import ClusterImage, Endpoint
from tidelog.core.controller.nodes import NO_TOKEN, ControllerClaim
from tidelog.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    decode_alter_partition,
    encode_alter_partition_response,
)
from tidelog.wire.api import INTER_BROKER, SUPPORTED, ApiKey, RequestHeader, decode_request_header
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    decode_controlled_shutdown,
    encode_controlled_shutdown_response,
)
from tidelog.wire.envelope import EnvelopeResponse, decode_envelope, encode_envelope_response

FRAME = struct.pack(">hhih", ApiKey.CREATE_TOPICS, 5, 33, -1) + b"what a client asked"
ANSWER = struct.pack(">i", 33) + b"what it is told"


class LocalSide:
    """What this broker knows of the controller, and answers if it is that itself."""

    def __init__(self) -> None:
        self.is_controller = False
        self.claim = ControllerClaim(BrokerId(2), ControllerEpoch(4), NO_TOKEN)
        self.image: ClusterImage = cluster(brokers(1, 2, 3))

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return AlterPartitionResponse(1, ErrorCode.NONE, [])

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(ErrorCode.NONE, [("here", 1)])


class Linked:
    """A broker, and the controller it reaches: the test."""

    def __init__(self) -> None:
        self.local = LocalSide()
        self.far = FarEnd()
        self.addresses: list[Address] = []
        self.link = ControllerLink(
            broker_id=BrokerId(1),
            local=self.local,
            connect=self.connect,
            inter_broker_listener="PLAINTEXT",
        )
        self.forwarding = Forwarding(self.link, self.local)

    def connect(self, address: Address) -> Peer:
        self.addresses.append(address)
        return self.far.peer(address)

    async def asked(self, key: ApiKey) -> tuple[RequestHeader, memoryview]:
        """The next request that arrives, which is of that kind."""
        while True:
            for connection in self.far.connections:
                for frame in connection.requests():
                    header = decode_request_header(frame)
                    assert header.api_key == key
                    lowest, highest = INTER_BROKER[key][:2]
                    assert lowest <= header.api_version <= highest
                    return header, frame
            await asyncio.sleep(0.001)

    async def answer_forwarded(self, response: EnvelopeResponse) -> bytes:
        """What another broker has passed on."""
        header, frame = await self.asked(ApiKey.ENVELOPE)
        request = decode_envelope(frame, header.body_position, header.api_version)
        assert request.client_host_address == b"10.1.2.3"
        self.far.connection.send(
            encode_envelope_response(header.api_version, header.correlation_id, response)
        )
        return request.request_data


@asynccontextmanager
async def linked() -> AsyncIterator[Linked]:
    found = Linked()
    yield found
    found.link.close()
    assert all(connection.is_closed for connection in found.far.connections)


def test_only_what_the_controller_decides_is_forwarded() -> None:
    assert set(SUPPORTED) >= FORWARDED
    assert not FORWARDED & {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.DELETE_RECORDS}


# -- forwarding ----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_clients_request_is_passed_on_as_it_is() -> None:
    async with linked() as broker:
        asking = asyncio.create_task(broker.forwarding.ask(FRAME, "10.1.2.3"))
        assert await broker.answer_forwarded(EnvelopeResponse(ANSWER, ErrorCode.NONE)) == FRAME
        assert await asking == ANSWER
        assert broker.addresses == [Address("host-2", 9092)]


@in_virtual_time
async def test_who_is_controller_answers_itself() -> None:
    async with linked() as broker:
        assert broker.forwarding.is_needed
        broker.local.is_controller = True
        assert not broker.forwarding.is_needed
        assert await broker.forwarding.ask(FRAME, "10.1.2.3") is None
        assert broker.far.attempts == 0


@in_virtual_time
async def test_who_is_not_controller_any_more_is_asked_again_or_its_successor_is() -> None:
    async with linked() as broker:
        asking = asyncio.create_task(broker.forwarding.ask(FRAME, "10.1.2.3"))
        await broker.answer_forwarded(EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER))
        broker.local.claim = ControllerClaim(BrokerId(3), ControllerEpoch(5), NO_TOKEN)
        await broker.answer_forwarded(EnvelopeResponse(ANSWER, ErrorCode.NONE))
        assert await asking == ANSWER
        assert broker.addresses == [Address("host-2", 9092), Address("host-3", 9092)]
        assert broker.far.connections[0].is_closed


@in_virtual_time
async def test_a_broker_that_becomes_controller_meanwhile_answers_itself() -> None:
    async with linked() as broker:
        asking = asyncio.create_task(broker.forwarding.ask(FRAME, "10.1.2.3"))
        header, _ = await broker.asked(ApiKey.ENVELOPE)
        assert header.client_id == "broker-1"
        broker.local.is_controller = True
        broker.far.connection.close()
        assert await asking is None


@pytest.mark.parametrize("why", ["nobody is controller", "not known where", "refused"])
@in_virtual_time
async def test_while_nobody_can_be_asked_it_is_tried_for_a_while(why: str) -> None:
    async with linked() as broker:
        claim, image = broker.local.claim, broker.local.image
        if why == "nobody is controller":
            broker.local.claim = ControllerClaim(NO_BROKER, ControllerEpoch(4), NO_TOKEN)
        elif why == "not known where":
            broker.local.image = cluster(brokers(1))
        broker.far.is_refusing = why == "refused"
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert await broker.forwarding.ask(FRAME, "10.1.2.3") is None
        assert PATIENCE_S <= loop.time() - before <= PATIENCE_S + 2 * RETRY_BACKOFF_S
        asking = asyncio.create_task(broker.forwarding.ask(FRAME, "10.1.2.3"))
        await asyncio.sleep(PATIENCE_S / 2)
        broker.local.claim, broker.local.image, broker.far.is_refusing = claim, image, False
        await broker.answer_forwarded(EnvelopeResponse(ANSWER, ErrorCode.NONE))
        assert await asking == ANSWER


# -- other questions -----------------------------------------------------------------------------


@in_virtual_time
async def test_a_proposal_goes_to_the_controller() -> None:
    async with linked() as broker:
        request = AlterPartitionRequest(1, 9, [])
        asking = asyncio.create_task(broker.link.alter_partition(request))
        header, frame = await broker.asked(ApiKey.ALTER_PARTITION)
        assert decode_alter_partition(frame, header.body_position, header.api_version) == request
        response = AlterPartitionResponse(0, ErrorCode.NOT_CONTROLLER, [])
        broker.far.connection.send(
            encode_alter_partition_response(header.api_version, header.correlation_id, response)
        )
        assert await asking == response
        broker.local.is_controller = True
        assert (await broker.link.alter_partition(request)).throttle_ms == 1


@in_virtual_time
async def test_who_stops_says_so_to_the_controller() -> None:
    async with linked() as broker:
        request = ControlledShutdownRequest(1, 9)
        asking = asyncio.create_task(broker.link.controlled_shutdown(request))
        header, frame = await broker.asked(ApiKey.CONTROLLED_SHUTDOWN)
        asked = decode_controlled_shutdown(frame, header.body_position, header.api_version)
        assert asked == request
        response = ControlledShutdownResponse(ErrorCode.NONE, [("t", 3)])
        broker.far.connection.send(
            encode_controlled_shutdown_response(header.api_version, header.correlation_id, response)
        )
        assert await asking == response
        broker.local.is_controller = True
        assert (await broker.link.controlled_shutdown(request)).remaining == [("here", 1)]


@in_virtual_time
async def test_a_controller_keeps_its_connection_and_one_that_moves_gets_another() -> None:
    async with linked() as broker:
        for _ in range(2):
            asking = asyncio.create_task(broker.link.forward(FRAME, "10.1.2.3"))
            await broker.answer_forwarded(EnvelopeResponse(ANSWER, ErrorCode.NONE))
            assert await asking == ANSWER
        assert broker.far.attempts == 1
        moved = broker.local.image.brokers[BrokerId(2)]
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 9093)
        elsewhere = replace(moved, endpoints=(endpoint,))
        broker.local.image = cluster({**brokers(1), BrokerId(2): elsewhere})
        asking = asyncio.create_task(broker.link.forward(FRAME, "10.1.2.3"))
        await broker.answer_forwarded(EnvelopeResponse(ANSWER, ErrorCode.NONE))
        assert await asking == ANSWER
        assert broker.addresses[-1] == Address("elsewhere", 9093)


@in_virtual_time
async def test_a_question_that_was_not_answered_says_so() -> None:
    async with linked() as broker:
        asking = asyncio.create_task(broker.link.forward(FRAME, "10.1.2.3"))
        await broker.answer_forwarded(EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER))
        with pytest.raises(PeerUnreachable, match="NOT_CONTROLLER"):
            await asking


def test_brokers_meet_on_their_own_listener_if_there_is_one() -> None:
    one = broker(1)
    inside = Endpoint("INSIDE", "PLAINTEXT", "inside", 9099)
    both = replace(one, endpoints=(*one.endpoints, inside))
    assert address_of(both, "INSIDE") == Address("inside", 9099)
    assert address_of(one, "INSIDE") == Address("host-1", 9092)
