"""A controller and the brokers it tells what to do, on a coordinator in memory.

Broker 1 is controller; the others are registrations. All of them are `ObedientBroker`s, which take
down what they are told and answer for the replicas whose disks a test has broken.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from tests.unit.core.controller.clusters import broker
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.broker_channels import BrokerChannels
from tidelog.broker.cluster_tree import ClusterTree
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.config.broker import BrokerConfig
from tidelog.coordination.memory import MemoryCoordinator, MemoryTree
from tidelog.coordination.port import Coordinator, Create, Operation, Set
from tidelog.core.controller import nodes
from tidelog.core.controller.image import BrokerImage, LastStop, PartitionImage
from tidelog.core.controller.requests import NewTopic
from tidelog.wire.cluster_states import FailedPartition, PartitionState
from tidelog.wire.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

CONTROLLER = BrokerId(1)
DELIVERY_MAX_S = 5.0
# As many turns as the longest chain of events in these tests takes.
MANY_TURNS = 100

T = TypeVar("T")


class FixedClock:
    """Stands still."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 1_000


class ObedientBroker:
    """What one broker has been told, over all its channels."""

    def __init__(self) -> None:
        self.roles: dict[TopicPartition, PartitionState] = {}
        self.stopped: list[TopicPartition] = []
        self.broken: set[TopicPartition] = set()
        self.listening = asyncio.Event()
        self.listening.set()

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        await self.listening.wait()  # Ended by the test.
        return UpdateMetadataResponse(ErrorCode.NONE)

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        await self.listening.wait()  # Ended by the test.
        failed = []
        for topic in request.topics:
            for state in topic.partitions:
                one = TopicPartition(topic.name, state.partition)
                self.roles[one] = state
                if one in self.broken:
                    failed.append(
                        FailedPartition(
                            topic.topic_id, state.partition, ErrorCode.KAFKA_STORAGE_ERROR
                        )
                    )
        return LeaderAndIsrResponse(ErrorCode.NONE, failed)

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        await self.listening.wait()  # Ended by the test.
        self.stopped += [TopicPartition(one.topic, one.partition) for one in request.partitions]
        return StopReplicaResponse(ErrorCode.NONE, [])

    def close(self) -> None:
        """There is no connection."""


class InterruptedTree(MemoryTree):
    """A tree in which somebody may be quicker than the controller."""

    def __init__(self) -> None:
        super().__init__()
        self.before_write: Callable[[], None] | None = None

    def transact(self, operations: Sequence[Operation], session_id: int) -> None:
        is_state = any(isinstance(one, Set) and one.path.endswith("/state") for one in operations)
        if self.before_write is not None and is_state:
            self.before_write()
        super().transact(operations, session_id)


class Administered:
    """The controller's own parts are real."""

    def __init__(self, tree: InterruptedTree, controller: ControllerRunner) -> None:
        self.tree = tree
        self.controller = controller
        self.requests = AdminRequests(controller)
        self.told: dict[BrokerId, ObedientBroker] = {}
        self._sessions: dict[BrokerId, MemoryCoordinator] = {}

    def connect(self, registered: BrokerImage) -> ObedientBroker:
        return self.told.setdefault(registered.broker_id, ObedientBroker())

    async def register(self, number: int) -> None:
        """Another broker comes, and the controller has heard of it."""
        coordinator = self.tree.connect()
        self._sessions[BrokerId(number)] = coordinator
        await ClusterTree(coordinator).register(broker(number), now_ms=0)
        await self.settle()

    async def kill(self, number: int) -> None:
        """Another broker dies, and the controller has heard of it."""
        self.tree.expire(self._sessions.pop(BrokerId(number)).session_id)
        await self.settle()

    async def restart(self, number: int) -> None:
        """Another broker dies and is back before the controller has looked."""
        self.tree.expire(self._sessions.pop(BrokerId(number)).session_id)
        await self.register(number)

    async def tell_log_dir_event(self, number: int) -> None:
        """Another broker has a log directory that failed or works again, and said so."""
        tree = ClusterTree(self._sessions[BrokerId(number)])
        await tree.tell_log_dir_event(BrokerId(number), 0)
        await self.settle()

    def register_before_next_write(self, number: int) -> None:
        """Another broker comes between what the controller decides next and its writing it."""
        self.tree.before_write = lambda: self._register(number)

    def _register(self, number: int) -> None:
        session = self.tree.connect()
        self._sessions[BrokerId(number)] = session
        self.tree.before_write = None
        operations: list[Operation] = [
            Create(
                nodes.broker_path(BrokerId(number)),
                nodes.encode_broker(broker(number), now_ms=0),
                ephemeral=True,
            ),
            Set(nodes.BROKER_GENERATION, b""),
        ]
        self.tree.transact(operations, session.session_id)

    async def lose_claim(self) -> None:
        """Somebody else is controller from now on."""
        coordinator = self.tree.connect()
        await coordinator.delete(nodes.CONTROLLER)
        token = bytes(nodes.TOKEN_BYTES)
        assert await ClusterTree(coordinator).claim(BrokerId(2), token=token, now_ms=0) is not None
        await self.settle()

    def leave_brokers(self) -> None:
        """They live on when this controller is gone."""
        self._sessions.clear()

    async def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        """A topic with these replicas of its partitions."""
        assignments = tuple(
            (number, tuple(map(BrokerId, brokers))) for number, brokers in enumerate(replicas)
        )
        (outcome,) = await self.requests.create_topics(
            [NewTopic(name=name, assignments=assignments)], validate_only=False
        )
        assert outcome.error is ErrorCode.NONE, outcome
        await self.settle()

    def state(self, name: str, partition: int = 0) -> PartitionImage:
        return self.controller.image.topics[name].partitions[partition]

    async def settle(self) -> None:
        """Everybody has been told everything, and has answered."""
        for _ in range(MANY_TURNS):
            await asyncio.sleep(0)
        await self.controller.delivered(DELIVERY_MAX_S)


@asynccontextmanager
async def administered(
    tree: InterruptedTree, numbers: tuple[int, ...], settings: dict[str, str]
) -> AsyncIterator[Administered]:
    async def connect() -> Coordinator:
        return tree.connect()

    config = BrokerConfig.load({"node.id": str(CONTROLLER), **settings})
    controller = ControllerRunner(
        connect=connect, config=config, clock=FixedClock(), chance=Random(7)
    )
    cluster = Administered(tree, controller)
    async with asyncio.TaskGroup() as tasks:
        await controller.join(None)
        controller.use_channels(
            BrokerChannels(
                connect=cluster.connect,
                on_told=controller.on_told,
                on_succeeded=controller.on_succeeded,
                tasks=tasks,
            )
        )
        await controller.register(broker(CONTROLLER).endpoints, LastStop.CLEAN)
        running = tasks.create_task(controller.run())
        for number in numbers:
            if number != CONTROLLER:
                await cluster.register(number)
        await cluster.settle()
        yield cluster
        running.cancel()
    await controller.stop()


def with_three_brokers(scenario: Callable[[Administered], Awaitable[T]], **settings: str) -> T:
    """Run `scenario` with a new cluster of brokers 1, 2 and 3."""

    async def run() -> T:
        async with administered(InterruptedTree(), (1, 2, 3), settings) as cluster:
            return await scenario(cluster)

    return asyncio.run(run())
