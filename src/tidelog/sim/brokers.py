"""A broker in the simulator: the production one, on simulated ports, with a life of its own.

    off ──start──▶ starting, running ──┬─ kill        its writes stay, as the system keeps them
                                       ├─ power cut   what was not flushed may be gone
                                       ├─ stop        as SIGTERM asks for
                                       └─ pause, resume

The disk and the machine outlive the process. A machine that lost power has another boot id when it
is back; that is all the broker is told. A process ends when its broker has stopped (P29): nothing
of it waits for anything any more.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from random import Random

from tidelog.broker.broker import HASH_KEY_BYTES, Broker, BrokerPorts
from tidelog.broker.cluster_session import NOT_REGISTERED
from tidelog.broker.left_tasks import left_tasks
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.shortcuts import Shortcuts
from tidelog.config.broker import BrokerConfig
from tidelog.sim.clock import SimulatedClock
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.disk import SimulatedDisk
from tidelog.sim.executor import SimulatedExecutor
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.process import Process, ProcessState
from tidelog.sim.world import World

PORT = 9092
DATA = Path("/data")
DESCRIPTORS_MAX = 1_000
DISK_BYTES = 2**30
DISK_WORK_MAX_S = 0.01
STOPPED_WITHIN_S = 2.0


class SimulatedBroker:
    """One broker's machine, and the process that runs on it or does not."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        coordination: SimulatedCoordinatorService,
        broker_id: int,
        settings: Mapping[str, str],
        shortcuts: Shortcuts,
        *,
        log_dir_count: int,
        disk_work_max_s: float,
    ) -> None:
        self._shortcuts = shortcuts
        self.log_dirs = (DATA, *(Path(f"{DATA}-{number}") for number in range(1, log_dir_count)))
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self.disk = SimulatedDisk(
            world, self.host, total_bytes=DISK_BYTES, work_min_s=0.0002, work_max_s=disk_work_max_s
        )
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.is_ready = False
        self.boot_count = 1
        self.life = 0
        """How often it was started."""
        self._world = world
        self._network = network
        self._coordination = coordination
        self._chance = world.random_for(f"{self.host} clock")
        self._clock_offset_ms = self._chance.randint(-200, 200)
        self._stopping: asyncio.Event | None = None
        self._config = BrokerConfig.load(
            {
                **settings,
                "node.id": str(broker_id),
                "listeners": f"PLAINTEXT://{self.host}:{PORT}",
                "log.dirs": ",".join(map(str, self.log_dirs)),
            }
        )

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def is_paused(self) -> bool:
        return self.process is not None and self.process.state is ProcessState.PAUSED

    @property
    def is_registered(self) -> bool:
        """Whether it has a place in the cluster, as far as it knows."""
        return (
            self.is_running
            and self.broker is not None
            and self.broker.controller.broker_epoch != NOT_REGISTERED
        )

    def runner(self, topic: str, partition: int) -> PartitionRunner | None:
        """The replica in a running process."""
        if not self.is_running or self.broker is None:
            return None
        return self.broker.partitions.find(topic, partition)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        assert not self.is_running
        if not self._network.host(self.host).is_on:
            self._network.power_on(self.host)
        self.life += 1
        self.is_ready = False
        self.process = self._world.spawn(self.host, self._main)

    def kill(self) -> None:
        """kill -9: the system keeps what it was given."""
        assert self.process is not None
        self.process.kill()
        self.broker = None
        self._stopping = None

    def power_cut(self, random: Random) -> None:
        """The machine stops without a word: what was not flushed may be gone, in part or whole."""
        self._network.power_off(self.host)
        if self.is_running:
            self.kill()
        self.disk.power_cut(random)
        self.boot_count += 1

    def stop(self) -> None:
        """Ask it to stop cleanly; it ends when it has."""
        if self._stopping is not None and self.process is not None and self.process.is_alive:
            self.process.loop.call_soon(self._stopping.set)

    async def _main(self, process: Process) -> None:
        disk = self.disk.attach(process)
        broker = Broker(
            self._config,
            BrokerPorts(
                disk=disk,
                clock=SimulatedClock(
                    self._world.agenda, offset_ms=self._clock_offset_ms, drift=0.0
                ),
                network=self._network.attach(process, self.host),
                connect=lambda: self._coordination.connect(process, self.host),
                executor=lambda _name: SimulatedExecutor(process, self.disk),
                chance=process.random,
                hash_key=bytes(HASH_KEY_BYTES),  # Nothing that can be seen depends on it.
                boot_id=f"{self.host} boot {self.boot_count}",
                connection_descriptor_max=DESCRIPTORS_MAX,
                shortcuts=self._shortcuts,
            ),
        )
        self.broker = broker
        self._stopping = stopping = asyncio.Event()

        def ready(_endpoints: object) -> None:
            self.is_ready = True

        async with asyncio.TaskGroup() as tasks:
            await broker.run(tasks, stopping=stopping, on_ready=ready)
            await self._require_end()
        self.broker = None

    async def _require_end(self) -> None:
        """P29"""
        left = await left_tasks(STOPPED_WITHIN_S)
        assert not left, f"P29: {self.host} has stopped, and {left} still wait"
