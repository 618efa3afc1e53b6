"""Brokers of a run with several log dirs, and administrators who move replicas between them.

while there are faults   any replica to any of its broker's log dirs, two at a time and at any pace,
                         so that moves are called off and overtaken
then                     nobody asks; what was begun comes to its end, and each replica is where
                         it may be (`log_dir_ledger.py`)
at last                  each is asked for once more, until that is granted, and is there
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tidelog.base.errors import ErrorCode, WireError
from tidelog.broker.peers import Address, PeerUnreachable
from tidelog.config.option import LONG_MAX
from tidelog.sim.brokers import DISK_WORK_MAX_S, PORT
from tidelog.sim.checkers.log_dirs import LogDirsChecker
from tidelog.sim.client import SimulatedClient
from tidelog.sim.coordinated import ask
from tidelog.sim.log_dir_ledger import LogDirLedger, ReplicaKey
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process
from tidelog.sim.world import World
from tidelog.wire.api import ApiKey

ALTER_REPLICA_LOG_DIRS_VERSION = 2
ADMINISTRATORS = 2
PAUSES_MAX_S = (0.5, 2.0, 6.0)
LOOK_EVERY_S = 0.2
NEVER_MS = 10**9

MakeClient = Callable[[Process], SimulatedClient]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPlan:
    """How many log dirs brokers have, and what they are told about moves."""

    count: int
    work_max_s: float
    """How long a piece of work on a disk takes, at most. Where it is slow there is time for more to
    go wrong with a move."""
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def draw(cls, random: Random) -> "LogDirPlan":
        count = random.choice([2, 2, 3])
        # Where work takes long there is less of it, so that a move takes seconds at most.
        work_max_s, slice_bytes, roll_ms = random.choice(
            [
                (DISK_WORK_MAX_S, 200, 400),
                (DISK_WORK_MAX_S, 2_000, 5_000),
                (0.05, 2_000, 5_000),
                (0.05, 2**20, NEVER_MS),
                (0.2, 10_000, NEVER_MS),
            ]
        )
        return cls(
            count=count,
            work_max_s=work_max_s,
            settings={
                "log.roll.ms": str(roll_ms),
                "tidelog.log.dir.move.slice.bytes": str(slice_bytes),
                "tidelog.log.dir.move.rest.bytes": str(random.choice([0, 1_000, 2**22])),
                "replica.alter.log.dirs.io.max.bytes.per.second": str(
                    random.choice([LONG_MAX, LONG_MAX, 100_000])
                ),
                "log.segment.delete.delay.ms": str(random.choice([500, 60_000])),
            },
        )


ONE_LOG_DIR = LogDirPlan(count=1, work_max_s=DISK_WORK_MAX_S)


class SimulatedLogDirMoves:
    """Who takes part, and who looks at it."""

    def __init__(self, world: World, cluster: Cluster, *, topic: str, partition_count: int) -> None:
        self._world = world
        self._cluster = cluster
        self._topic = topic
        self._partition_count = partition_count
        self._random = world.random_for("log dir moves")
        self._pause_max_s = self._random.choice(PAUSES_MAX_S)
        self._client: MakeClient | None = None
        self._asking = 0
        """Administrators who have not heard that they are to rest."""
        self._is_resting = False
        self._is_over = False
        self.ledger = LogDirLedger(cluster)
        self.checker = LogDirsChecker(cluster, self.ledger)
        self.codes: dict[str, int] = {}

    @property
    def counts(self) -> dict[str, int]:
        return {
            "ask for a log dir": sum(self.codes.values()),
            "log dir granted": self.codes.get(ErrorCode.NONE.name, 0),
            "moved to another log dir": self.checker.moved_count,
        }

    def start(self, client: MakeClient) -> None:
        self._client = client
        for number in range(ADMINISTRATORS):
            self._spawn(number, client)

    def _spawn(self, number: int, client: MakeClient) -> None:
        async def administer(process: Process) -> None:
            await self._ask_for_anything(client(process))

        self._asking += 1
        self._world.spawn(f"mover-{number}", administer)

    # -- what is asked ---------------------------------------------------------------------------

    async def _ask_for_anything(self, client: SimulatedClient) -> None:
        while not self._is_resting:
            await asyncio.sleep(self._random.uniform(0.0, self._pause_max_s))
            key = self._random.choice(self.ledger.keys)
            await self._ask(client, key, self._any_log_dir(key))
        self._asking -= 1

    async def _ask_once_more(self, process: Process) -> None:
        assert self._client is not None
        client = self._client(process)
        for key in self.ledger.keys:
            if self._cluster.brokers[key.broker_id].runner(self._topic, key.partition):
                await self._ask_until_granted(client, key, self._any_log_dir(key))
        self._is_over = True

    async def _ask_until_granted(
        self, client: SimulatedClient, key: ReplicaKey, log_dir: Path
    ) -> None:
        while True:  # Ended by the simulation, which waits for rest no longer than it says.
            if await self._ask(client, key, log_dir):
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _any_log_dir(self, key: ReplicaKey) -> Path:
        return self._random.choice(self._cluster.brokers[key.broker_id].log_dirs)

    async def _ask(self, client: SimulatedClient, key: ReplicaKey, log_dir: Path) -> bool:
        """Whether it is granted."""
        claim = self.ledger.asked(key, log_dir)
        try:
            answer = await ask(
                client,
                Address(self._cluster.brokers[key.broker_id].host, PORT),
                ApiKey.ALTER_REPLICA_LOG_DIRS,
                ALTER_REPLICA_LOG_DIRS_VERSION,
                self._request(key, log_dir),
            )
        except (PeerUnreachable, WireError):
            self.ledger.unanswered(key, claim)
            self._note(client, key, log_dir, "not answered")
            return False
        code = ErrorCode(answer.results[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self.ledger.granted(key, claim)
        else:
            self.ledger.refused(key, claim)
        self._note(client, key, log_dir, code.name)
        return code is ErrorCode.NONE

    def _request(self, key: ReplicaKey, log_dir: Path) -> AlterReplicaLogDirsRequest:
        topic = AlterReplicaLogDirTopic(
            name=TopicName(self._topic), partitions=(i32(key.partition),)
        )
        return AlterReplicaLogDirsRequest(
            dirs=(AlterReplicaLogDir(path=str(log_dir), topics=(topic,)),)
        )

    def _note(self, client: SimulatedClient, key: ReplicaKey, log_dir: Path, said: str) -> None:
        self.codes[said] = self.codes.get(said, 0) + 1
        fields = {"broker": key.broker_id, "partition": key.partition, "log_dir": log_dir}
        self._world.trace.note(client.name, "asked for a log dir", {**fields, "answer": said})

    # -- rest ------------------------------------------------------------------------------------

    def rest(self) -> None:
        self._is_resting = True
        self._look()

    def _look(self) -> None:
        if not self._asking and self.checker.leftover() is None:
            self.checker.require_places()
            self._world.spawn("mover-last", self._ask_once_more)
        else:
            self._world.call_later(LOOK_EVERY_S, self._look)

    @property
    def is_at_rest(self) -> bool:
        return self._is_over and self.checker.leftover() is None

    @property
    def unrest(self) -> str:
        """What is left to do, for somebody who waits in vain."""
        return f"{self._asking} administrators ask; {self.checker.leftover()}; {self.codes}"
