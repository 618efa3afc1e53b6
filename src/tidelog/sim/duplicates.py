"""Producers of a run that repeat each other, and who looks at what became of it (D5)."""

from collections.abc import Callable

from tidelog.sim.checkers.duplicates import DuplicatesChecker
from tidelog.sim.client import SimulatedClient
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process
from tidelog.sim.repeater import RepeatedIds, SimulatedRepeater, TransactionalRepeater
from tidelog.sim.world import World

TOPIC_CONFIGS = (("tidelog.dedup", "key"), ("tidelog.dedup.window.ms", "86400000"))
"""What the topic of a run with such producers is told."""

REPEATERS = 4
TRANSACTIONAL_REPEATERS = 2
"""One that announces partitions, and one of transaction version 2."""

MakeClient = Callable[[Process], SimulatedClient]


class SimulatedDuplicates:
    """Who takes part, and who looks at it."""

    def __init__(self, world: World, cluster: Cluster, *, topic: str, partition_count: int) -> None:
        self._world = world
        self._cluster = cluster
        self._topic = topic
        self._partition_count = partition_count
        self._repeaters: list[SimulatedRepeater | TransactionalRepeater] = []
        self.ids = RepeatedIds()
        self.checker = DuplicatesChecker(
            cluster, self.ids, topic=topic, partition_count=partition_count
        )

    def start(self, client: MakeClient) -> None:
        for number in range(REPEATERS):
            self._spawn(number, client)
        for number in range(TRANSACTIONAL_REPEATERS):
            self._spawn_transactional(number, client)

    def _spawn(self, number: int, client: MakeClient) -> None:
        async def repeat(process: Process) -> None:
            repeater = SimulatedRepeater(
                client(process),
                self.ids,
                topic=self._topic,
                partition_count=self._partition_count,
                is_idempotent=number == 0,
            )
            self._repeaters.append(repeater)
            await repeater.run()

        self._world.spawn(f"repeater-{number}", repeat)

    def _spawn_transactional(self, number: int, client: MakeClient) -> None:
        async def repeat(process: Process) -> None:
            repeater = TransactionalRepeater(
                client(process),
                self.ids,
                topic=self._topic,
                partition_count=self._partition_count,
                is_version_2=number % 2 == 1,
            )
            self._repeaters.append(repeater)
            await repeater.run()

        self._world.spawn(f"transactional-repeater-{number}", repeat)

    def rest(self) -> None:
        for repeater in self._repeaters:
            repeater.is_stopping = True

    @property
    def is_at_rest(self) -> bool:
        """Also of the last transaction, of which its partitions hear after its producer."""
        if not all(repeater.is_done for repeater in self._repeaters):
            return False
        return self._cluster.stable_ends() is not None

    @property
    def unrest(self) -> str:
        done = [repeater.is_done for repeater in self._repeaters]
        ends = self._cluster.stable_ends()
        return f"producers that repeat each other are done: {done}, all is stable: {ends}"
