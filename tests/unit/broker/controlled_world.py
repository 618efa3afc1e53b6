"""A world whose cluster is run by a real controller, on a coordinator in memory."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from types import MappingProxyType

from tests.unit.broker.controllers import FlakyTree, controller, serving
from tests.unit.broker.served import ServedWorld, served_world
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.broker_channels import BrokerChannels
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.controlled_brokers import LocalBroker
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.departures import Departures
from tidelog.broker.group_handlers import direct_group_handlers, group_coordinator
from tidelog.broker.handlers.find_coordinator import FindCoordinatorHandler
from tidelog.broker.handlers.init_producer_id import InitProducerIdHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.internal_topics import InternalTopics, topic_template
from tidelog.broker.topic_creation import TopicCreation
from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage
from tidelog.wire.api import ApiKey

DELIVERY_WAIT_MAX_S = 2.0


class ControlledWorld:
    """A served world and those who run it."""

    def __init__(self, served: ServedWorld, runner: ControllerRunner, tree: FlakyTree) -> None:
        self.served = served
        self.world = served.world
        self.controller = runner
        self.requests = AdminRequests(runner)
        self.tree = tree
        self.creation = TopicCreation(
            self.requests,
            None,
            partial(runner.delivered, DELIVERY_WAIT_MAX_S),
            partial(topic_template, served.world.config),
        )
        self.find_coordinator = FindCoordinatorHandler(
            served.world.partitions,
            InternalTopics(self.creation, served.world.config),
            served.requests,
            served.large,
        )
        departures = Departures(asyncio.get_running_loop(), lambda: None)
        departures.joined()
        self.metadata = MetadataHandler(
            broker_id=served.world.config.broker_id,
            partitions=served.world.partitions,
            topic_creation=self.creation,
            auto_create_topics=True,
            tasks=served.requests,
            large=served.large,
            departures=departures,
        )
        self.init_producer_id = InitProducerIdHandler(
            controller=self.requests, tasks=served.requests
        )
        self.groups = group_coordinator(
            served.world.config.groups,
            partitions=served.world.partitions,
            clock=served.world.clock,
            chance=Random(5),
            loop=asyncio.get_running_loop(),
            tasks=self.world.tasks,
        )
        control = ControlRequests(runner, self.world.replicas)
        runner.use_channels(
            BrokerChannels(
                connect=lambda _broker: LocalBroker(control),
                on_told=runner.on_told,
                on_succeeded=runner.on_succeeded,
                tasks=self.world.tasks,
            )
        )
        runner.subscribe(self.on_image)

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        self.world.image = image
        self.world.replicas.on_image(image, changes)
        self.groups.on_image(image, changes)

    async def settle(self) -> None:
        """The coordinator takes turns of its own."""
        for _ in range(20):
            await self.world.settle()


@asynccontextmanager
async def controlled_world(
    settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[ControlledWorld]:
    tree = FlakyTree()
    async with served_world(settings=settings) as served:
        controlled = ControlledWorld(served, controller(tree, node_id="1"), tree)
        served.serve(
            {
                ApiKey.METADATA: controlled.metadata,
                ApiKey.INIT_PRODUCER_ID: controlled.init_producer_id,
                ApiKey.FIND_COORDINATOR: controlled.find_coordinator,
                **direct_group_handlers(
                    controlled.groups, served.world.partitions, served.requests, served.large
                ),
            }
        )
        async with serving(controlled.controller):
            yield controlled
            await asyncio.sleep(0)
