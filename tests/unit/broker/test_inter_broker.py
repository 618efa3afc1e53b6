"""What brokers ask each other, from one broker's memory to another's: every request, both ways.

Broker 1 is a controller, broker 2 is not; between them are connections without sockets.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast
from uuid import UUID

import pytest

from tests.support.kio_codec import milliseconds
from tests.unit.broker.controlled_world import ControlledWorld, controlled_world
from tests.unit.broker.piped import PipedNetwork
from tests.unit.broker.served import Client, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import ControllerEpoch, TopicId
from tidelog.broker import cluster_messages as messages
from tidelog.broker.admin_handlers import admin_handlers
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.controlled_brokers import RemoteBroker
from tidelog.broker.controller_link import ControllerLink
from tidelog.broker.dispatch import ColdHandler, ColdHandlers, Dispatcher
from tidelog.broker.forwarding import Forwarding
from tidelog.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from tidelog.broker.handlers.inter_broker import inter_broker_handlers
from tidelog.broker.large_requests import Aside
from tidelog.broker.local_controller import LocalControllerSide
from tidelog.broker.loggers import BROKER_LOGGER, Loggers
from tidelog.broker.peers import Address, PeerUnreachable
from tidelog.broker.topic_creation import TopicCreation
from tidelog.core.controller.changes import TopicCreated
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from tidelog.core.controller.nodes import NO_TOKEN, ControllerClaim
from tidelog.core.controller.requests import NewTopic
from tidelog.wire.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidelog.wire.api import SUPPORTED, ApiKey
from tidelog.wire.cluster_states import ControlHeader, TopicStates
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from tidelog.wire.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.stop_replica import StoppedReplica, StopReplicaRequest
from tidelog.wire.update_metadata import UpdateMetadataRequest

CREATE_TOPICS_VERSION = 5
CONTROLLER_AT = Address("host-1", 9092)
TOPIC_ID = TopicId(UUID(int=7))
TOPIC = 2


class NotController:
    """What broker 2 knows of the controller."""

    is_controller = False

    def __init__(self) -> None:
        self.claim = ControllerClaim(BROKER, ControllerEpoch(1), NO_TOKEN)
        self.image: ClusterImage = EMPTY_IMAGE

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        raise AssertionError("asked of the wrong broker")

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        raise AssertionError("asked of the wrong broker")


class TwoBrokers:
    """See the module docstring."""

    def __init__(self, controlled: ControlledWorld, other: ServedWorld) -> None:
        self.controlled = controlled
        self.other = other
        self.network = PipedNetwork(lambda _address: controlled.served)
        self.side = LocalControllerSide(controlled.controller, controlled.requests)
        self._serve_controller()
        self.knows = NotController()
        self.link = ControllerLink(
            broker_id=OTHER,
            local=self.knows,
            connect=self.network.peer,
            inter_broker_listener="PLAINTEXT",
        )
        self.forwarding = Forwarding(self.link, self.knows)
        self._serve_other()

    def _serve_controller(self) -> None:
        controlled, served = self.controlled, self.controlled.served
        world = controlled.world
        control = ControlRequests(controlled.controller, world.replicas)

        async def forwarded(frame: bytes, client_host: str) -> bytes:
            return await dispatcher.answer_forwarded(frame, client_host)

        async def delivered() -> None:
            await controlled.controller.delivered(1.0)

        dispatcher = Dispatcher(
            produce=served.produce,
            direct=served.direct,
            inter_broker=inter_broker_handlers(
                tasks=served.requests, control=control, controller=self.side, forwarded=forwarded
            ),
            forwarding=None,
            load_cold=lambda: admin_handlers(
                requests=controlled.requests,
                replicas=world.replicas,
                partitions=world.partitions,
                log_dirs=world.log_dirs,
                delivered=delivered,
                groups=controlled.groups,
                transactions=controlled.transactions,
                forwarding=None,
            ),
            tasks=served.requests,
            large=served.large,
        )
        dispatcher.warm_up()
        served.server.dispatch = dispatcher.dispatch

    def _serve_other(self) -> None:
        served = self.other
        cold: ColdHandlers = {
            key: _Refusing() for key in SUPPORTED if key not in {ApiKey.PRODUCE, *served.direct}
        }
        altering = IncrementalAlterConfigsHandler(
            controller=cast(AdminRequests, _NoRequests()),
            loggers=Loggers(OTHER),
            forwarding=self.forwarding,
        )
        cold = {**cold, ApiKey.INCREMENTAL_ALTER_CONFIGS: cast(ColdHandler, altering)}
        dispatcher = Dispatcher(
            produce=served.produce,
            direct=served.direct,
            inter_broker={},
            forwarding=self.forwarding,
            load_cold=lambda: cold,
            tasks=served.requests,
            large=served.large,
        )
        dispatcher.warm_up()
        served.server.dispatch = dispatcher.dispatch

    async def settle(self) -> None:
        await self.controlled.settle()

    def remote(self) -> RemoteBroker:
        """Broker 1 as a controller elsewhere reaches it."""
        return RemoteBroker(self.network.peer(CONTROLLER_AT), "controller-9")


class _Refusing:
    """What is handled here was not forwarded."""

    async def handle(self, request: object, context: object) -> object:
        raise AssertionError("handled by the wrong broker")


class _NoRequests:
    """What a broker that is not controller can decide: nothing."""

    aside = Aside()


@asynccontextmanager
async def two_brokers() -> AsyncIterator[TwoBrokers]:
    async with controlled_world() as controlled, served_world() as other:
        both = TwoBrokers(controlled, other)
        both.knows.image = controlled.controller.image
        yield both
        both.link.close()
        await both.settle()


def create_topic(client: Client, name: str) -> None:
    client.send(
        ApiKey.CREATE_TOPICS,
        CREATE_TOPICS_VERSION,
        {
            "topics": [
                {
                    "name": name,
                    "num_partitions": 2,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "timeout": milliseconds(1_000),
            "validate_only": False,
        },
    )


# -- to the controller ---------------------------------------------------------------------------


@in_virtual_time
async def test_a_client_may_ask_any_broker_to_create_a_topic() -> None:
    async with two_brokers() as both:
        client = both.other.client()
        create_topic(client, "t")
        await both.settle()
        (answer,) = client.take()
        (created,) = answer.topics
        assert (created.name, int(created.error_code)) == ("t", 0)
        assert len(both.controlled.controller.image.topics["t"].partitions) == 2
        create_topic(client, "t")
        await both.settle()
        (again,) = client.take()
        assert int(again.topics[0].error_code) == ErrorCode.TOPIC_ALREADY_EXISTS


def alter_configs(client: Client, *resources: tuple[int, str, str, str]) -> None:
    """Each with its type, its name, a setting and the value that it shall have."""
    values = {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": setting, "config_operation": 0, "value": value}],
            }
            for kind, name, setting, value in resources
        ],
        "validate_only": False,
    }
    client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)


LOGGER = "tidelog.broker.dispatch"


@pytest.fixture
def level_as_before() -> Iterator[None]:
    before = logging.getLogger(LOGGER).level
    yield
    logging.getLogger(LOGGER).setLevel(before)


@pytest.mark.usefixtures("level_as_before")
@pytest.mark.parametrize("is_logger_first", [True, False])
@in_virtual_time
async def test_loggers_are_altered_here_and_what_comes_with_them_by_the_controller(
    is_logger_first: bool,
) -> None:
    """P1"""
    ours = (BROKER_LOGGER, "2", LOGGER, "ERROR")
    theirs = (BROKER_LOGGER, "1", LOGGER, "WARN")
    topic = (TOPIC, "t", "retention.ms", "5")
    unknown = (TOPIC, "gone", "retention.ms", "5")
    resources = (
        (ours, theirs, topic, unknown) if is_logger_first else (topic, unknown, theirs, ours)
    )
    async with two_brokers() as both:
        client = both.other.client()
        create_topic(client, "t")
        await both.settle()
        client.take()
        alter_configs(client, *resources)
        answers = client.take()
        while not answers:  # A thread is at work, and there is no event.
            await asyncio.sleep(0.001)
            answers = client.take()
        (answer,) = answers
        codes = {
            ours: ErrorCode.NONE,
            theirs: ErrorCode.INVALID_REQUEST,
            topic: ErrorCode.NONE,
            unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert [
            (one.resource_type, one.resource_name, int(one.error_code)) for one in answer.responses
        ] == [(*resource[:2], codes[resource]) for resource in resources]
        assert both.controlled.controller.image.topic_config("t")["retention.ms"] == "5"
        assert logging.getLogger(LOGGER).level == logging.ERROR


@in_virtual_time
async def test_a_client_that_hangs_up_meanwhile_is_not_answered() -> None:
    async with two_brokers() as both:
        client = both.other.client()
        create_topic(client, "t")
        client.disconnect()
        await both.settle()
        assert "t" in both.controlled.controller.image.topics


@in_virtual_time
async def test_what_is_not_for_a_controller_is_not_answered_in_its_name() -> None:
    async with two_brokers() as both:
        for frame in (b"", bytes(8), both.other.client().frame(ApiKey.API_VERSIONS, 0, {})[4:]):
            with pytest.raises(PeerUnreachable):
                await both.link.forward(frame, "10.0.0.9")


@in_virtual_time
async def test_a_leader_proposes_and_a_broker_that_stops_says_so() -> None:
    async with two_brokers() as both:
        epoch = both.controlled.controller.broker_epoch
        answered = await both.link.alter_partition(AlterPartitionRequest(BROKER, epoch, []))
        assert answered.error_code == ErrorCode.NONE
        stale = await both.link.alter_partition(AlterPartitionRequest(BROKER, epoch + 1, []))
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        unknown = await both.link.controlled_shutdown(ControlledShutdownRequest(9, 1))
        assert unknown.error_code == ErrorCode.STALE_BROKER_EPOCH
        stopping = await both.link.controlled_shutdown(ControlledShutdownRequest(BROKER, epoch))
        assert (stopping.error_code, stopping.remaining) == (ErrorCode.NONE, [])


@in_virtual_time
async def test_who_is_not_controller_says_so() -> None:
    async with two_brokers() as both:
        both.controlled.controller.joined().fence = None
        proposal = await both.link.alter_partition(AlterPartitionRequest(BROKER, 1, []))
        assert proposal.error_code == ErrorCode.NOT_CONTROLLER
        stop = await both.link.controlled_shutdown(ControlledShutdownRequest(BROKER, 1))
        assert stop.error_code == ErrorCode.NOT_CONTROLLER
        with pytest.raises(PeerUnreachable, match="NOT_CONTROLLER"):
            await both.link.forward(b"", "10.0.0.9")


# -- from the controller -------------------------------------------------------------------------


@in_virtual_time
async def test_a_controller_elsewhere_is_heard_over_a_connection() -> None:
    async with two_brokers() as both:
        controller = both.controlled.controller
        claim = controller.claim
        header = ControlHeader(
            claim.controller_id, claim.controller_epoch, controller.broker_epoch, claim.token
        )
        both.controlled.world.replicas.on_image(
            *_with_topic(controller.image, replicated(BROKER, 3))
        )
        remote = both.remote()
        states = _states(replicated(BROKER, 3))
        roles = LeaderAndIsrRequest(header, False, [(BROKER, header.broker_epoch)], states)
        stop = StopReplicaRequest(header, [StoppedReplica("t", TOPIC_ID.bytes, 0, 3, True)])
        update = UpdateMetadataRequest(header, False, [], [], [], [], [])
        updated, told, stopped = await asyncio.gather(
            remote.update_metadata(update), remote.leader_and_isr(roles), remote.stop_replica(stop)
        )
        assert updated.error_code == told.error_code == stopped.error_code == 0
        assert told.partitions == []
        assert both.controlled.world.partitions.find("t", 0) is None
        wrong = update._replace(header=header._replace(token=bytes(16)))
        refused = await remote.update_metadata(wrong)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        remote.close()
        with pytest.raises(PeerUnreachable):
            await remote.update_metadata(update)


def _states(state: PartitionImage) -> list[TopicStates]:
    image, _ = _with_topic(EMPTY_IMAGE, state)
    return messages.topic_states(image, {"t": [0]})


def _with_topic(
    image: ClusterImage, state: PartitionImage
) -> tuple[ClusterImage, list[TopicCreated]]:
    created = TopicCreated(TopicImage("t", TOPIC_ID, (state,)), {})
    return image.apply(created), [created]


def test_topics_on_first_use_are_made_by_the_controller() -> None:
    """On a loop with time and threads: preparing the request may import a library."""

    async def story() -> None:
        async with two_brokers() as both:
            requests = both.controlled.requests
            creation = TopicCreation(
                requests, both.forwarding, _at_once, lambda name: NewTopic(name=name)
            )
            assert await creation.create_missing(["t", "not legal"]) == {
                "not legal": ErrorCode.INVALID_TOPIC_EXCEPTION
            }
            assert "t" in both.controlled.controller.image.topics
            assert await creation.create_missing(["t"]) == {}

    asyncio.run(story())


async def _at_once() -> None:
    """Everybody has heard."""
