"""A world whose cluster is run by a real controller, on a coordinator in memory."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from types import MappingProxyType

from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.controllers import FlakyTree, controller, serving
from tests.unit.broker.served import ServedWorld, served_world
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.broker_channels import BrokerChannels
from tidelog.broker.control_requests import ControlRequests
from tidelog.broker.controlled_brokers import LocalBroker
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.departures import Departures
from tidelog.broker.group_handlers import direct_group_handlers, group_coordinator
from tidelog.broker.handlers.coordinated import CoordinatedHandler
from tidelog.broker.handlers.find_coordinator import FindCoordinatorHandler
from tidelog.broker.handlers.metadata import MetadataHandler
from tidelog.broker.handlers.txn_offset_commit import TxnOffsetCommitApi
from tidelog.broker.handlers.write_txn_markers import WriteTxnMarkersHandler
from tidelog.broker.internal_topics import InternalTopics, topic_template
from tidelog.broker.producer_ids import ProducerIds
from tidelog.broker.topic_creation import TopicCreation
from tidelog.broker.transaction_handlers import (
    direct_transaction_handlers,
    transaction_coordinator,
)
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
        self.groups = group_coordinator(
            served.world.config.groups,
            served.world.config.consumer_groups,
            broker_id=served.world.config.broker_id,
            partitions=served.world.partitions,
            clock=served.world.clock,
            chance=Random(5),
            hash_key=HASH_KEY,
            loop=asyncio.get_running_loop(),
            tasks=self.world.tasks,
        )
        self.markers = WriteTxnMarkersHandler(
            served.world.partitions,
            served.world.clock,
            asyncio.get_running_loop(),
            served.world.config.network.request_timeout_ms,
        )
        self.transactions = transaction_coordinator(
            served.world.config.transactions,
            broker_id=served.world.config.broker_id,
            partitions=served.world.partitions,
            producer_ids=ProducerIds(self._allocate_producer_ids, self.world.tasks),
            connect=lambda _broker_id: None,
            write_here=self.markers.write,
            request_timeout_ms=served.world.config.network.request_timeout_ms,
            clock=served.world.clock,
            hash_key=HASH_KEY,
            loop=asyncio.get_running_loop(),
            tasks=self.world.tasks,
        )
        self.txn_offset_commit = CoordinatedHandler(
            TxnOffsetCommitApi(
                self.groups,
                served.world.partitions,
                served.verifier,
                lambda: served.is_verifying,
                served.world.clock,
                asyncio.get_running_loop(),
                self.world.tasks,
            ),
            served.requests,
            served.large,
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

    async def _allocate_producer_ids(self) -> range:
        return await self.requests.allocate_producer_ids()

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
                ApiKey.FIND_COORDINATOR: controlled.find_coordinator,
                ApiKey.WRITE_TXN_MARKERS: controlled.markers,
                ApiKey.TXN_OFFSET_COMMIT: controlled.txn_offset_commit,
                **direct_group_handlers(
                    controlled.groups, served.world.partitions, served.requests, served.large
                ),
                **direct_transaction_handlers(
                    controlled.transactions,
                    served.world.partitions,
                    served.requests,
                    served.large,
                ),
            }
        )
        async with serving(controlled.controller):
            yield controlled
            await asyncio.sleep(0)
