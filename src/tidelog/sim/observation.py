"""What can be seen of a simulated cluster from outside all of its processes.

Checkers look at replicas through a `Sight`, which is made when something about a replica has
changed, and remember what they need themselves. `Observation` finds out what has changed: after a
turn of a broker, only that broker's replicas can have.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidelog.base.ids import Offset
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.controller import nodes
from tidelog.records.batch import BatchHeader
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.ledger import Ledger
from tidelog.sim.process import Process
from tidelog.sim.world import World


class PromiseBroken(AssertionError):
    """The cluster did what it must never do."""


class Sight(NamedTuple):
    """One replica in a running process, at one moment."""

    broker_id: int
    life: int
    partition: int
    leads: bool
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    isr_version: int


class StoredState(NamedTuple):
    """A partition's state as the coordinator has it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int


@dataclass(slots=True)
class Excuses:
    """Partitions that may have lost what was acknowledged: no member of the isr was left whole."""

    partitions: set[int] = field(default_factory=set)


class Checker(Protocol):
    """A promise that is watched. Raises PromiseBroken."""

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Something about a replica has changed."""
        ...

    def at_end(self) -> None:
        """Nothing happens any more, and all brokers are up."""
        ...


class Cluster:
    """Everything there is, for those who may see it all."""

    def __init__(
        self,
        world: World,
        coordination: SimulatedCoordinatorService,
        brokers: Mapping[int, SimulatedBroker],
        ledger: Ledger,
        *,
        topic: str,
        partition_count: int,
    ) -> None:
        self.world = world
        self.brokers = brokers
        self.ledger = ledger
        self.topic = topic
        self.partition_count = partition_count
        self.excuses = Excuses()
        self.committed_ends = [0] * partition_count
        """Up to where each partition has been committed, as far as was seen."""
        self._seen_versions = [-1] * partition_count
        self.last_end_offsets: dict[tuple[int, int], int] = {}
        """By broker and partition: where a log ended when last seen; killing does not change it."""
        self._tree = coordination.tree
        self._state_paths = [nodes.state_path(topic, number) for number in range(partition_count)]

    def state(self, partition: int) -> StoredState | None:
        """What the coordinator has of a partition."""
        topic = self._tree.get(nodes.topic_path(self.topic))
        node = self._tree.get(nodes.state_path(self.topic, partition))
        if topic is None or node is None:
            return None
        assignment = nodes.decode_topic(self.topic, topic.value)
        state = nodes.decode_state(
            self.topic, partition, assignment, node.value, version=node.version
        )
        return StoredState(state.leader, state.leader_epoch, state.isr, state.partition_epoch)

    def look_for_excuses(self) -> None:
        """Note partitions of whose isr no member is whole: nothing could save what is lost."""
        for partition, end_offset in enumerate(self.committed_ends):
            state = self.state(partition)
            if state is not None and not any(
                self._is_whole(member, partition, end_offset) for member in state.isr
            ):
                self.excuses.partitions.add(partition)

    def look_for_excuses_if_changed(self) -> None:
        versions = [
            -1 if node is None else node.version for node in map(self._tree.get, self._state_paths)
        ]
        if versions != self._seen_versions:
            self._seen_versions = versions
            self.look_for_excuses()

    def _is_whole(self, member: int, partition: int, end_offset: int) -> bool:
        if self.brokers[member].has_lost_power_since_ready:
            return False
        return self.last_end_offsets.get((member, partition), 0) >= end_offset

    def controller(self) -> SimulatedBroker | None:
        """The broker whose claim the coordinator holds, if its process knows."""
        for broker in self.brokers.values():
            if broker.is_running and broker.broker and broker.broker.controller.is_controller:
                return broker
        return None

    def fail(self, promise: str, detail: str) -> PromiseBroken:
        return PromiseBroken(f"{promise}: {detail}")


class Observation:
    """Looks at a broker's replicas after each of its turns and tells checkers what has changed."""

    def __init__(self, cluster: Cluster, checkers: Sequence[Checker]) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._last: dict[tuple[int, int], Sight] = {}
        cluster.world.observe(self._on_turn)

    def _on_turn(self, process: Process) -> None:
        self._cluster.look_for_excuses_if_changed()
        for broker in self._cluster.brokers.values():
            if broker.process is process:
                self._look(broker)
                return

    def _look(self, broker: SimulatedBroker) -> None:
        cluster = self._cluster
        for partition in range(cluster.partition_count):
            runner = broker.runner(cluster.topic, partition)
            if runner is None or runner.is_offline:
                continue
            sight = see(broker, partition, runner)
            key = (broker.broker_id, partition)
            if self._last.get(key) != sight:
                self._last[key] = sight
                cluster.last_end_offsets[key] = sight.log_end_offset
                with broker.disk.looked_at():
                    for checker in self._checkers:
                        checker.on_sight(sight, runner)


def see(broker: SimulatedBroker, partition: int, runner: PartitionRunner) -> Sight:
    leader = runner.leader
    return Sight(
        broker.broker_id,
        broker.life,
        partition,
        leader is not None,
        runner.leader_epoch,
        runner.high_watermark,
        runner.log.log_end_offset,
        -1 if leader is None else leader.isr_version,
    )


def headers(runner: PartitionRunner, start_offset: int, end_offset: int) -> Iterator[BatchHeader]:
    """The batches of a log from `start_offset` on that end at or before `end_offset`."""
    if start_offset >= end_offset:
        return
    for header in runner.log.headers_from(Offset(start_offset)):
        if header.end_offset > end_offset:
            return
        yield header


Look = Callable[[], bool]
