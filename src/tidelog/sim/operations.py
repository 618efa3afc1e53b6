"""What an administrator does while a simulation runs: topics, replicas, leaders and settings.

Asked of whoever takes itself for the controller, which in a bad moment is somebody else than the
controller or nobody. Most of it concerns the topic that producers write to:

    elect            leaderships go back to the first of the replicas
    move leader      somebody else becomes the first of the replicas, and leads
    move replicas    to two of the brokers or to three, in any order
    settings         min.insync.replicas of the topic goes up and down, if the run says so

Other topics are made, grow and are deleted. What the administrator was told about them is kept, and
must be so in the end (`checkers/topics.py`).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.admin_requests import AdminRequests
from tidelog.config.dynamic import AlterOperation
from tidelog.core.controller.preferred import ElectionType
from tidelog.core.controller.reassignment import Reassignment
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicReference,
)
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.observation import Cluster
from tidelog.sim.world import World

Question = Callable[[AdminRequests], Awaitable[None]]

OTHER_PARTITIONS_MAX = 3
SETTLE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlan:
    """`pause_between_max_s` None: the administrator is on holiday."""

    pause_between_max_s: float | None
    changes_min_isr: bool

    @classmethod
    def draw(cls, random: Random) -> "OperationPlan":
        return cls(
            pause_between_max_s=random.choice([None, 2.0, 6.0]),
            changes_min_isr=random.random() < 0.3,
        )


class Operations:
    """Asks for things until told to stop; then has the replicas put back to where they began."""

    def __init__(self, world: World, cluster: Cluster, plan: OperationPlan) -> None:
        self._world = world
        self._cluster = cluster
        self._plan = plan
        self._random = world.random_for("operations")
        self._is_over = False
        self._others = 0
        self.created: dict[str, int] = {}
        """Topics that are there, as far as was said, and at least so many partitions of them."""
        self.deleted: set[str] = set()
        self.doubtful: set[str] = set()
        """Topics that somebody tried to delete, perhaps in vain."""
        self.counts: dict[str, int] = {}
        kinds: list[tuple[Callable[[], None], int]] = [
            (self._elect, 4),
            (self._move_leader, 3),
            (self._move_replicas, 3),
            (self._create, 2),
            (self._grow, 1),
            (self._delete, 1),
            (self._change_settings, 2 if plan.changes_min_isr else 0),
        ]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight for _, weight in kinds]

    @property
    def all_replicas(self) -> tuple[BrokerId, ...]:
        return tuple(map(BrokerId, sorted(self._cluster.brokers)))[:3]

    def start(self) -> None:
        if self._plan.pause_between_max_s is not None:
            self._next()

    def stop(self) -> None:
        self._is_over = True
        self._settle()

    def _next(self) -> None:
        if self._is_over:
            return
        assert self._plan.pause_between_max_s is not None
        (kind,) = self._random.choices(self._kinds, self._weights)
        kind()
        self._world.call_later(
            self._random.uniform(0.05, self._plan.pause_between_max_s), self._next
        )

    def _settle(self) -> None:
        """All replicas where they began, whatever it takes."""
        for partition in range(self._cluster.partition_count):
            state = self._cluster.state(partition)
            if state is None or (
                not state.is_moving and sorted(state.replicas) != sorted(self.all_replicas)
            ):
                self._reassign(partition, self.all_replicas)
        self._world.call_later(SETTLE_EVERY_S, self._settle)

    # -- leaders and replicas --------------------------------------------------------------------

    def move_leader(self, partition: TopicPartition) -> None:
        """Have somebody else in the in-sync set lead."""
        state = self._cluster.state_of(partition)
        if state is None or state.is_moving:
            return
        others = [one for one in state.replicas if one != state.leader and one in state.isr]
        if not others:
            return
        self.move_leader_to(partition, self._random.choice(others))

    def move_leader_to(self, partition: TopicPartition, broker_id: int) -> None:
        """Have this one of the in-sync set lead."""
        state = self._cluster.state_of(partition)
        if state is None or state.is_moving or broker_id not in state.isr:
            return
        order = [broker_id, *(one for one in state.replicas if one != broker_id)]

        async def ask(requests: AdminRequests) -> None:
            await requests.alter_reassignments(
                [Reassignment(*partition, tuple(map(BrokerId, order)))],
                allow_replication_factor_change=True,
            )
            await requests.elect_leaders(ElectionType.PREFERRED, [partition])

        self._ask("move leader", ask)

    def _move_leader(self) -> None:
        number = self._random.randrange(self._cluster.partition_count)
        self.move_leader(TopicPartition(self._cluster.topic, number))

    def _elect(self) -> None:
        async def ask(requests: AdminRequests) -> None:
            await requests.elect_leaders(ElectionType.PREFERRED, None)

        self._ask("elect preferred leaders", ask)

    def _move_replicas(self) -> None:
        brokers = sorted(self._cluster.brokers)
        count = self._random.choice([2, 3, 3])
        target = self._random.sample(brokers, min(count, len(brokers)))
        self._reassign(self._random.randrange(self._cluster.partition_count), target)

    def _reassign(self, partition: int, target: Sequence[int]) -> None:
        async def ask(requests: AdminRequests) -> None:
            await requests.alter_reassignments(
                [Reassignment(self._cluster.topic, partition, tuple(map(BrokerId, target)))],
                allow_replication_factor_change=True,
            )

        self._ask("move replicas", ask)

    # -- settings --------------------------------------------------------------------------------

    def _change_settings(self) -> None:
        value = str(self._random.choice([1, 2]))
        resource = ConfigResource(ResourceType.TOPIC, self._cluster.topic)
        alteration = ConfigAlteration("min.insync.replicas", AlterOperation.SET, value)

        async def ask(requests: AdminRequests) -> None:
            await requests.incremental_alter_configs(
                [(resource, (alteration,))], validate_only=False
            )

        self._ask("change settings", ask)

    # -- other topics ----------------------------------------------------------------------------

    def _create(self) -> None:
        self._others += 1
        name = f"other-{self._others}"
        partition_count = self._random.randint(1, OTHER_PARTITIONS_MAX)
        new = NewTopic(
            name=name,
            partition_count=partition_count,
            replication_factor=self._random.randint(1, min(3, len(self._cluster.brokers))),
        )

        async def ask(requests: AdminRequests) -> None:
            (outcome,) = await requests.create_topics([new], validate_only=False)
            if outcome.error is ErrorCode.NONE:
                self.created[name] = partition_count

        self._ask("create topic", ask)

    def _grow(self) -> None:
        if not self.created:
            return
        name = self._random.choice(sorted(self.created))
        partition_count = self.created[name] + 1

        async def ask(requests: AdminRequests) -> None:
            wanted = NewPartitions(topic=name, partition_count=partition_count)
            (outcome,) = await requests.create_partitions([wanted], validate_only=False)
            if outcome.error is ErrorCode.NONE and name in self.created:
                self.created[name] = partition_count

        self._ask("add partitions", ask)

    def _delete(self) -> None:
        if not self.created:
            return
        name = self._random.choice(sorted(self.created))
        del self.created[name]
        self.doubtful.add(name)

        async def ask(requests: AdminRequests) -> None:
            (outcome,) = await requests.delete_topics([TopicReference(name=name)])
            if outcome.error is ErrorCode.NONE:
                self.deleted.add(name)

        self._ask("delete topic", ask)

    # --------------------------------------------------------------------------------------------

    def _ask(self, phrase: str, question: Question) -> None:
        """Put `question` to whoever says that it is controller. It may die before it answers."""
        asked = self._somebody()
        if asked is None or asked.broker is None or asked.process is None:
            return
        self.counts[phrase] = self.counts.get(phrase, 0) + 1
        self._world.trace.note("operator", phrase, {"asked": asked.broker_id})
        # A paused process hears of it when it goes on.
        asked.process.loop.call_soon(partial(self._begin, asked, question))

    def _somebody(self) -> SimulatedBroker | None:
        claiming = [
            one
            for one in self._cluster.brokers.values()
            if one.is_running and one.broker and one.broker.controller.is_controller
        ]
        return self._random.choice(claiming) if claiming else None

    def _begin(self, asked: SimulatedBroker, question: Question) -> None:
        async def ask() -> None:
            assert asked.broker is not None
            try:
                await question(asked.broker.requests)
            except RequestRefused as refusal:
                self._world.trace.note("operator", "refused", {"reason": refusal})

        assert asked.process is not None
        asked.process.loop.create_task(ask())
