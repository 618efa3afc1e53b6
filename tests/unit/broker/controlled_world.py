"""A world whose cluster is run by a real controller, on a coordinator in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.unit.broker.controllers import FlakyTree, running
from tests.unit.broker.served import ServedWorld, served_world
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.handlers.init_producer_id import InitProducerIdHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.topic_creation import TopicCreation
from tidelog.core.controller.changes import changes_between
from tidelog.core.controller.image import EMPTY_IMAGE


class ControlledWorld:
    """A served world and those who run it."""

    def __init__(self, served: ServedWorld, controller: ControllerRunner, tree: FlakyTree) -> None:
        self.served = served
        self.world = served.world
        self.controller = controller
        self.tree = tree
        self.creation = TopicCreation(controller, served.world.replicas)
        self.metadata = MetadataHandler(
            partitions=served.world.partitions,
            topic_creation=self.creation,
            auto_create_topics=True,
            tasks=served.requests,
            large=served.large,
        )
        self.init_producer_id = InitProducerIdHandler(controller=controller, tasks=served.requests)

    async def settle(self) -> None:
        """The coordinator takes turns of its own."""
        for _ in range(20):
            await self.world.settle()


@asynccontextmanager
async def controlled_world() -> AsyncIterator[ControlledWorld]:
    tree = FlakyTree()
    async with served_world() as served, running(tree, node_id="1") as controller:
        world = served.world
        world.image = controller.image
        world.partitions.on_image(controller.image, changes_between(EMPTY_IMAGE, controller.image))
        controller.subscribe(world.replicas.on_image)
        controlled = ControlledWorld(served, controller, tree)
        served.serve(controlled.metadata, controlled.init_producer_id)
        yield controlled
        await asyncio.sleep(0)
