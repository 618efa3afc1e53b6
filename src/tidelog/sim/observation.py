"""What can be seen of a simulated cluster from outside all of its processes.

Checkers look at replicas through a `Sight`, which is made when something about a replica has
changed, and remember what they need themselves. `Observation` finds out what has changed: after a
turn of a broker, only that broker's replicas can have.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from tidelog.base.ids import Offset, TopicPartition
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.coordination.port import Node
from tidelog.core.controller import nodes
from tidelog.records.batch import BatchHeader
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.excuses import Excuses
from tidelog.sim.ledger import Ledger
from tidelog.sim.process import Process
from tidelog.sim.stored_state import StoredState
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


class Checker(Protocol):
    """A promise that is watched. Raises PromiseBroken."""

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Something about a replica has changed."""
        ...

    def at_end(self) -> None:
        """Nothing happens any more, and all brokers are up."""
        ...


class Judge(Protocol):
    """Whom a checker tells that a promise is broken."""

    def fail(self, promise: str, detail: str) -> PromiseBroken: ...


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
        allow_unclean: bool,
    ) -> None:
        """`allow_unclean`: who is elected may lack what was acknowledged (R9)."""
        self.world = world
        self.brokers = brokers
        self.ledger = ledger
        self.topic = topic
        self.partition_count = partition_count
        self.excuses = Excuses(
            brokers, partition_count=partition_count, allow_unclean=allow_unclean
        )
        self.committed_ends = [0] * partition_count
        """Up to where each partition has been committed, as far as was seen."""
        self.high_watermarks = [0] * partition_count
        """The highest of any replica of each partition, at any time."""
        self.last_end_offsets: dict[tuple[int, int], int] = {}
        """By broker and partition: where a log ended when last seen; killing does not change it."""
        self.tree = coordination.tree
        self._topic_path = nodes.topic_path(topic)
        self._state_paths = [nodes.state_path(topic, number) for number in range(partition_count)]
        self._states: list[StoredState | None] = [None] * partition_count
        self._decoded: list[tuple[Node | None, Node | None]] = [(None, None)] * partition_count

    def state(self, partition: int) -> StoredState | None:
        """What the coordinator has of a partition."""
        topic = self.tree.get(self._topic_path)
        node = self.tree.get(self._state_paths[partition])
        decoded = self._decoded[partition]
        if decoded[0] is not topic or decoded[1] is not node:
            self._decoded[partition] = (topic, node)
            self._states[partition] = state = _decode(self.topic, partition, topic, node)
            self.excuses.on_state(partition, state)
        return self._states[partition]

    def state_of(self, one: TopicPartition) -> StoredState | None:
        """The same, of any topic."""
        if one.topic == self.topic:
            return self.state(one.partition)
        topic = self.tree.get(nodes.topic_path(one.topic))
        node = self.tree.get(nodes.state_path(one.topic, one.partition))
        return _decode(one.topic, one.partition, topic, node)

    def partition_count_of(self, topic: str) -> int:
        """0 if there is no such topic."""
        node = self.tree.get(nodes.topic_path(topic))
        return 0 if node is None else len(nodes.decode_topic(topic, node.value).replicas)

    def led(self, partition: int) -> PartitionRunner | None:
        """The replica that leads, if its broker knows that."""
        state = self.state(partition)
        broker = None if state is None else self.brokers.get(state.leader)
        runner = None if broker is None else broker.runner(self.topic, partition)
        return None if runner is None or runner.leader is None else runner

    def stable_ends(self) -> list[int] | None:
        """Where each partition ends, if all of it is stable: no transaction is open."""
        ends: list[int] = []
        for partition in range(self.partition_count):
            led = self.led(partition)
            if led is None or led.last_stable_offset < led.announced_end_offset:
                return None
            ends.append(led.announced_end_offset)
        return ends

    def half_done(self) -> str | None:
        """What about any topic is not as it is meant to be; None if all is."""
        deleting = self.tree.children(nodes.DELETE_TOPICS)
        if deleting:
            return f"{deleting} are being deleted"
        for name in self.tree.children(nodes.TOPICS):
            topic = self.tree.get(nodes.topic_path(name))
            assert topic is not None
            assignment = nodes.decode_topic(name, topic.value)
            for partition, replicas in enumerate(assignment.replicas):
                node = self.tree.get(nodes.state_path(name, partition))
                if node is None:
                    return f"{name}-{partition} has no state"
                state = nodes.decode_state(
                    name, partition, assignment, node.value, version=node.version
                )
                if state.leader not in self.brokers or set(state.isr) != set(replicas):
                    return f"{name}-{partition} is {state}"
        return None

    def look_at_states(self) -> None:
        for partition in range(self.partition_count):
            self.state(partition)

    def is_excused(self, partition: int) -> bool:
        return partition in self.excuses.partitions

    def on_power_cut(self, broker_id: int) -> None:
        """To be told at once."""
        self.excuses.on_power_cut(broker_id, self.state)

    def controller(self) -> SimulatedBroker | None:
        """The broker whose claim the coordinator holds, if its process knows."""
        for broker in self.brokers.values():
            if broker.is_running and broker.broker and broker.broker.controller.is_controller:
                return broker
        return None

    def fail(self, promise: str, detail: str) -> PromiseBroken:
        return PromiseBroken(f"{promise}: {detail}")


def _decode(name: str, partition: int, topic: Node | None, node: Node | None) -> StoredState | None:
    if topic is None or node is None:
        return None
    assignment = nodes.decode_topic(name, topic.value)
    state = nodes.decode_state(name, partition, assignment, node.value, version=node.version)
    return StoredState(
        state.leader,
        state.leader_epoch,
        state.replicas,
        state.isr,
        bool(state.adding_replicas or state.removing_replicas),
        state.partition_epoch,
    )


class Observation:
    """Looks at a broker's replicas after each of its turns and tells checkers what has changed."""

    def __init__(self, cluster: Cluster, checkers: Sequence[Checker]) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._last: dict[tuple[int, int], Sight] = {}
        self._registered: dict[int, bool] = {}
        cluster.world.observe(self._on_turn)

    def _on_turn(self, process: Process) -> None:
        self._cluster.look_at_states()
        for broker in self._cluster.brokers.values():
            if broker.process is process:
                self._look_at_registration(broker)
                self._look(broker)
                return

    def _look_at_registration(self, broker: SimulatedBroker) -> None:
        is_registered = broker.is_registered
        if is_registered != self._registered.get(broker.broker_id):
            self._registered[broker.broker_id] = is_registered
            self._cluster.excuses.on_registered(self._cluster.state)

    def _look(self, broker: SimulatedBroker) -> None:
        cluster = self._cluster
        if broker.broker is None:
            return
        for partition in range(cluster.partition_count):
            # Of a process that died in this turn as well: it may have answered somebody before.
            runner = broker.broker.partitions.find(cluster.topic, partition)
            if runner is None:
                continue
            known = cluster.high_watermarks[partition]
            cluster.high_watermarks[partition] = max(known, runner.high_watermark)
            if runner.is_offline or not broker.is_running:
                continue
            sight = see(broker, partition, runner)
            key = (broker.broker_id, partition)
            if self._last.get(key) != sight:
                self._last[key] = sight
                cluster.last_end_offsets[key] = sight.log_end_offset
                if sight.leader_epoch >= 0:
                    cluster.excuses.on_role(*key)
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
