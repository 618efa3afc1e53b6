"""A few production brokers in the simulator, for tests that say themselves what happens when.

Unlike `tidelog.sim.simulation`, which draws a whole run from a seed, nothing here goes wrong by
itself. A test kills, fills disks and asks the controller for things, and lets time pass in between.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tests.support.batches import plain_batch
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.shortcuts import SHORTCUTS
from tidelog.core.controller import nodes
from tidelog.core.controller.image import PartitionImage
from tidelog.core.controller.reassignment import Reassignment
from tidelog.core.controller.requests import NewTopic
from tidelog.sim.brokers import DISK_WORK_MAX_S, SimulatedBroker
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.links import same_machine, same_rack
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.world import World
from tidelog.wire.produce import PartitionProduceResult

DATA_FOLDER = Path("/data")
WITHIN_S = 60.0
HISTORY_LINES_MAX = 2_000
ACKS_ALL = -1

T = TypeVar("T")


class SimulatedCluster:
    """Brokers 1 to `broker_count`, all running when it is made; 1 is the first controller."""

    def __init__(
        self, world: World, broker_count: int, settings: Mapping[str, str], *, log_dir_count: int
    ) -> None:
        self.world = world
        self.network = SimulatedNetwork(
            world,
            between=same_rack(),
            within=same_machine(),
            connect_timeout_s=10.0,
            window_bytes=2**18,
        )
        self.coordination = SimulatedCoordinatorService(
            world, self.network, host="coordinator", session_timeout_ms=2_000, notices_death=True
        )
        self.brokers = {
            number: SimulatedBroker(
                world,
                self.network,
                self.coordination,
                number,
                {"replica.fetch.backoff.ms": "200", "tidelog.log.dir.retry.ms": "500", **settings},
                SHORTCUTS,
                log_dir_count=log_dir_count,
                disk_work_max_s=DISK_WORK_MAX_S,
            )
            for number in range(1, broker_count + 1)
        }
        for broker in self.brokers.values():
            broker.start()
            self.controller()  # The first one, before the others can be.
        self.until(lambda: all(broker.is_ready for broker in self.brokers.values()))

    # -- time ------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], bool]) -> None:
        """Let time pass until it does; a process that failed fails the test."""

        def look() -> bool:
            for process in self.world.processes:
                if process.failure is not None:
                    raise process.failure
            return holds()

        self.world.run_until(look, within_s=WITHIN_S)

    def run_for(self, duration_s: float) -> None:
        self.world.run_for(duration_s)
        self.until(lambda: True)

    # -- what is asked of the controller ---------------------------------------------------------

    def controller(self) -> SimulatedBroker:
        """Waits until there is one."""

        def find() -> SimulatedBroker | None:
            for one in self.brokers.values():
                if one.is_running and one.broker and one.broker.controller.is_controller:
                    return one
            return None

        self.until(lambda: find() is not None)
        found = find()
        assert found is not None
        return found

    def ask(self, question: Callable[[AdminRequests], Awaitable[T]]) -> T:
        """What the controller answers; raises what it raises."""
        controller = self.controller()
        assert controller.broker is not None
        assert controller.process is not None
        requests = controller.broker.requests
        answers: list[T] = []

        async def run() -> None:
            answers.append(await question(requests))

        task = controller.process.loop.create_task(run())
        self.until(task.done)
        task.result()
        return answers[0]

    def create(self, topic: str, *replicas: tuple[int, ...]) -> None:
        assignments = tuple(
            (number, tuple(map(BrokerId, brokers))) for number, brokers in enumerate(replicas)
        )
        new = NewTopic(name=topic, assignments=assignments)
        (outcome,) = self.ask(lambda requests: requests.create_topics([new], validate_only=False))
        assert outcome.error is ErrorCode.NONE, outcome
        self.until(lambda: all(self.is_led(topic, n) for n in range(len(replicas))))

    def move(self, topic: str, partition: int, *target: int) -> ErrorCode:
        return self._alter(Reassignment(topic, partition, tuple(map(BrokerId, target))))

    def cancel_move(self, topic: str, partition: int) -> ErrorCode:
        return self._alter(Reassignment(topic, partition, None))

    def _alter(self, reassignment: Reassignment) -> ErrorCode:
        (outcome,) = self.ask(
            lambda requests: requests.alter_reassignments(
                [reassignment], allow_replication_factor_change=True
            )
        )
        return outcome.error

    # -- what there is ---------------------------------------------------------------------------

    def state(self, topic: str, partition: int = 0) -> PartitionImage:
        """As the coordinator has it."""
        stored = self.coordination.tree.get(nodes.state_path(topic, partition))
        assert stored is not None
        return nodes.decode_state(
            topic, partition, self.assignment(topic), stored.value, version=stored.version
        )

    def assignment(self, topic: str) -> nodes.TopicAssignment:
        assigned = self.coordination.tree.get(nodes.topic_path(topic))
        assert assigned is not None
        return nodes.decode_topic(topic, assigned.value)

    def runner(self, number: int, topic: str, partition: int = 0) -> PartitionRunner | None:
        return self.brokers[number].runner(topic, partition)

    def is_led(self, topic: str, partition: int = 0) -> bool:
        """Whether the leader that is stored knows that it leads."""
        state = self.state(topic, partition)
        if state.leader not in self.brokers:
            return False
        runner = self.runner(state.leader, topic, partition)
        return (
            runner is not None
            and not runner.is_offline
            and runner.leader is not None
            and runner.leader.leader_epoch == state.leader_epoch
        )

    def is_at(self, topic: str, partition: int, *replicas: int) -> bool:
        """Whether these are the replicas, nobody is being moved, and all are in sync."""
        state = self.state(topic, partition)
        return (
            state.replicas == replicas
            and not state.adding_replicas
            and not state.removing_replicas
            and sorted(state.isr) == sorted(replicas)
            and self.is_led(topic, partition)
        )

    def has_folder(self, number: int, topic: str, partition: int = 0) -> bool:
        """Whether a broker's disk has a log of this partition, served or not."""
        disk = self.brokers[number].disk.memory
        return disk.exists(DATA_FOLDER / str(TopicPartition(topic, partition)))

    def end_offset(self, number: int, topic: str, partition: int = 0) -> int:
        runner = self.runner(number, topic, partition)
        return -1 if runner is None or runner.is_offline else runner.log.log_end_offset

    # -- records ---------------------------------------------------------------------------------

    def produce(self, topic: str, record_count: int, partition: int = 0) -> PartitionProduceResult:
        """Append a batch with acks=all at the leader; return what its producer is told."""
        self.until(lambda: self.is_led(topic, partition))
        leader = self.brokers[self.state(topic, partition).leader]
        runner = leader.runner(topic, partition)
        assert runner is not None
        assert leader.process is not None
        settled: list[PartitionProduceResult] = []

        def append() -> None:
            result = runner.append(
                memoryview(plain_batch(record_count)),
                acks=ACKS_ALL,
                now_ms=1_700_000_000_000,
                settle=settled.append,
            )
            if result is not None:
                settled.append(result)

        leader.process.loop.call_soon(append)
        self.until(lambda: bool(settled))
        return settled[0]


@contextmanager
def simulated_cluster(
    broker_count: int,
    settings: Mapping[str, str] | None = None,
    *,
    seed: int = 1,
    log_dir_count: int = 1,
) -> Iterator[SimulatedCluster]:
    with World(seed, lines_max=HISTORY_LINES_MAX) as world, world.capturing_logs(logging.INFO):
        try:
            yield SimulatedCluster(world, broker_count, settings or {}, log_dir_count=log_dir_count)
        except BaseException as error:
            error.add_note(world.trace.history())
            raise
