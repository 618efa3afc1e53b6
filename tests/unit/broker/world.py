"""One broker's partitions on a disk in memory, with everything around them but sockets.

Threads are stepped, time is virtual, the disk fails on demand. What the cluster decides is said by
the test: `create`, `delete`, `configure`, `elect`. The broker hears of it as from a controller: the
image first, and then its roles, in the loop's next turn.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from uuid import uuid4

from tests.support.batches import NOW_MS
from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.far_end import FarEnd
from tests.unit.broker.stepped_executor import SteppedExecutor
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.broker.append_queue import Settle
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.peers import Peer
from tidelog.broker.replica_fetchers import ReplicaFetchers
from tidelog.broker.replicas import Replicas, Role
from tidelog.broker.replication_throttle import ReplicationThrottle
from tidelog.broker.served_partition import PartitionPorts, ServedPartition
from tidelog.broker.shortcuts import SHORTCUTS, Shortcuts
from tidelog.broker.upkeep import Upkeep
from tidelog.config.broker import BrokerConfig
from tidelog.core.controller.changes import (
    BrokerRegistered,
    Change,
    ClusterNamed,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    changes_between,
)
from tidelog.core.controller.election import Candidates
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    Endpoint,
    LastStop,
    PartitionImage,
    TopicImage,
)
from tidelog.core.controller.membership import on_replicas_changed
from tidelog.core.partition.effects import ProposeIsr
from tidelog.records.batch import iter_headers
from tidelog.records.record import Record, decode_records
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.wire.produce import PartitionProduceResult

BROKER = BrokerId(1)
OTHER = BrokerId(2)
CLUSTER_ID = "cluster"
LISTENER = "PLAINTEXT"
BOOT_ID = "boot"
# As many turns as the longest chain of callbacks in these tests takes.
MANY_TURNS = 40


class ManualClock:
    """Moves when told to."""

    def __init__(self) -> None:
        self.moment_ms = NOW_MS

    def advance(self, by_ms: int) -> None:
        self.moment_ms += by_ms

    def now_ms(self) -> int:
        return self.moment_ms

    def monotonic_ms(self) -> int:
        return self.moment_ms


class Produced:
    """What became of one append: a result, once there is one."""

    def __init__(self) -> None:
        self.results: list[PartitionProduceResult] = []

    @property
    def result(self) -> PartitionProduceResult | None:
        assert len(self.results) <= 1
        return self.results[0] if self.results else None

    @property
    def is_settled(self) -> bool:
        return bool(self.results)

    @property
    def code(self) -> int:
        assert self.result is not None
        return self.result.error_code

    @property
    def base_offset(self) -> int:
        assert self.result is not None
        return self.result.base_offset


class World:
    """See the module docstring."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        disk: MemoryDisk,
        *,
        dir_count: int,
        settings: Mapping[str, str],
        shortcuts: Shortcuts,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.tasks = tasks
        self.clock = ManualClock()
        self.memory_disk = disk
        self.disk = FaultyDisk(disk)
        self.config = BrokerConfig.load({"node.id": str(BROKER), **settings})
        self.request_memory = MemoryBound(2**20)
        self.partitions = Partitions()
        self.warnings: list[str] = []
        self.executors = [SteppedExecutor(loop) for _ in range(dir_count)]
        self.log_dir_changes: list[int] = []
        self.log_dirs = [
            LogDirRunner(
                path=Path(f"/logs-{number}"),
                disk=self.disk,
                executor=executor,
                loop=loop,
                open_log_dir=partial(self.open_log_dir, Path(f"/logs-{number}")),
                on_changed=partial(self.log_dir_changes.append, number),
            )
            for number, executor in enumerate(self.executors)
        ]
        self.proposed: list[tuple[ServedPartition, ProposeIsr]] = []
        self.doubted: list[tuple[ServedPartition, PartitionProduceResult, Settle]] = []
        """What is refused once it is sure that this broker leads."""
        self.looked_for: list[BrokerId] = []
        self.far_end: FarEnd | None = None
        self.lost: list[BrokerId] = []
        """Leaders that do not answer followers here."""
        self.fetchers = ReplicaFetchers(
            connect=self.connect,
            broker_id=BROKER,
            broker_epoch=lambda: self.image.brokers[BROKER].broker_epoch,
            config=self.config.replication,
            throttle=ReplicationThrottle(BROKER, self.clock),
            loop=loop,
            tasks=tasks,
            on_lost=self.lost.append,
            on_found=self.lost.remove,
            shortcut=shortcuts.follow,
        )
        self.replicas = Replicas(
            broker_id=BROKER,
            config=self.config,
            partitions=self.partitions,
            log_dirs=self.log_dirs,
            ports=PartitionPorts(
                request_memory=self.request_memory,
                clock=self.clock,
                hash_key=HASH_KEY,
                propose_isr=lambda runner, proposal: self.proposed.append((runner, proposal)),
                refuse_if_leading=lambda *doubt: self.doubted.append(doubt),
            ),
            tasks=tasks,
            fetchers=self.fetchers,
        )
        self.upkeep = Upkeep(
            config=self.config,
            partitions=self.partitions,
            log_dirs=self.log_dirs,
            reopen=self.replicas.reopen,
            clock=self.clock,
        )
        self.image = EMPTY_IMAGE
        endpoint = Endpoint(LISTENER, "PLAINTEXT", "localhost", 9092)
        self.decide(
            ClusterNamed(CLUSTER_ID),
            BrokerRegistered(BrokerImage(BROKER, 1, (endpoint,), None, LastStop.CLEAN)),
        )

    @property
    def executor(self) -> SteppedExecutor:
        return self.executors[0]

    @property
    def log_dir(self) -> LogDirRunner:
        return self.log_dirs[0]

    # -- the cluster -----------------------------------------------------------------------------

    def connect(self, broker_id: BrokerId) -> Peer | None:
        """Where to fetch; None, and nobody can be reached, unless the test is the far end."""
        self.looked_for.append(broker_id)
        return None if self.far_end is None else self.far_end.peer()

    def decide(self, *changes: Change) -> None:
        self.image = self.image.apply_all(changes)
        self.replicas.on_image(self.image, changes)
        roles = roles_of(self.image, [one for change in changes for one in concerned(change)])
        if roles:
            self.tasks.create_task(self.become(roles))

    async def become(self, roles: Mapping[TopicPartition, Role]) -> None:
        """What a LeaderAndIsr says."""
        await self.replicas.become(roles, live_brokers(self.image))

    async def become_all(self) -> None:
        """What a LeaderAndIsr says that is about everything."""
        await self.become(roles_of(self.image, all_partitions(self.image)))

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        topic_id: TopicId | None = None,
        state: PartitionImage | None = None,
    ) -> None:
        states = (state or led_by_us(0),) * partitions
        topic = TopicImage(name, topic_id or TopicId(uuid4()), states)
        self.decide(TopicCreated(topic, config or {}))

    def add_partitions(self, name: str, count: int) -> None:
        first = len(self.image.topics[name].partitions)
        self.decide(PartitionsAdded(name, first, (led_by_us(0),) * count))

    def delete(self, name: str) -> None:
        self.decide(TopicDeleted(name, self.image.topics[name].topic_id))

    def configure(self, name: str, config: Mapping[str, str]) -> None:
        self.decide(TopicConfigChanged(name, config))

    def elect(self, name: str, partition: int = 0) -> None:
        """This broker leads in a new epoch, once everything is settled."""
        state = self.image.topics[name].partitions[partition]
        self.decide(PartitionChanged(name, partition, led_by_us(state.leader_epoch + 1)))

    def change(self, name: str, state: PartitionImage, partition: int = 0) -> None:
        """Another state of a partition, of which this broker hears as `decide` says."""
        self.decide(PartitionChanged(name, partition, state))

    # -- time ------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything happen that is not held."""
        for _ in range(MANY_TURNS):
            await asyncio.sleep(0)

    # -- partitions ------------------------------------------------------------------------------

    def runner(self, name: str, partition: int = 0) -> PartitionRunner:
        found = self.partitions.find(name, partition)
        assert found is not None
        return found

    def produce(
        self, name: str, batch: bytearray, *, acks: int = 1, partition: int = 0
    ) -> Produced:
        produced = Produced()
        result = self.runner(name, partition).append(
            memoryview(bytearray(batch)),
            acks=acks,
            now_ms=self.clock.now_ms(),
            settle=produced.results.append,
        )
        if result is not None:
            produced.results.append(result)
        return produced

    def overwrite(self, name: str) -> None:
        """Put zeros in place of all that is stored, as a disk that lies does."""
        file = self.disk.open_existing(self.runner(name).log.segments[0].log_path)
        size_bytes = file.size_bytes
        file.truncate(0)
        file.append(bytes(size_bytes))

    def stored(self, name: str, partition: int = 0) -> list[Record]:
        """Every record that a consumer may read."""
        runner = self.runner(name, partition)
        log = runner.log
        records: list[Record] = []
        offset = log.log_start_offset
        while offset < runner.high_watermark:
            read = log.read(
                offset, end_offset=runner.high_watermark, max_bytes=2**20, at_least_one=True
            )
            data = bytes(read.data)
            for position, header in iter_headers(data):
                batch = data[position : position + header.size_bytes]
                records += [one for one in decode_records(batch) if one.offset >= offset]
            offset = Offset(read.end_offset)
        return records

    def stored_offsets(self, name: str, partition: int = 0) -> list[int]:
        return [record.offset for record in self.stored(name, partition)]

    # -- log directories -------------------------------------------------------------------------

    def open_log_dir(self, path: Path) -> LogDir:
        return open_log_dir(
            self.disk,
            path,
            broker_id=BROKER,
            cluster_id=CLUSTER_ID,
            open_files_max=16,
            warn=self.warnings.append,
        )

    async def reopen(self, log_dir: LogDirRunner | None = None) -> None:
        """Try a directory that is offline, as `Upkeep` does from time to time."""
        await self.replicas.reopen(log_dir or self.log_dir)
        await self.elect_recovered()

    async def elect_recovered(self) -> None:
        """Do as a controller does that hears which replicas have failed, and which work again."""
        failed = await self._how_replicas_are()
        await self._elect(failed, offline=failed)
        failed = await self._how_replicas_are()
        await self._elect(all_partitions(self.image), offline=failed)

    async def _how_replicas_are(self) -> list[TopicPartition]:
        told = roles_of(self.image, all_partitions(self.image))
        return list(await self.replicas.become(told, live_brokers(self.image)))

    async def _elect(
        self, partitions: Iterable[TopicPartition], *, offline: Iterable[TopicPartition]
    ) -> None:
        candidates = Candidates.of(
            self.image.brokers,
            shutting_down={},
            offline_replicas={one: {BROKER} for one in offline},
            allow_unclean=lambda _topic: False,
        )
        changes = on_replicas_changed(self.image, partitions, candidates).changes
        self.image = self.image.apply_all(changes)
        self.replicas.on_image(self.image, changes)
        changed = [TopicPartition(one.topic, one.partition) for one in changes]
        await self.become(roles_of(self.image, changed))

    async def stop(self) -> None:
        """As after the last connection was closed."""
        await self.replicas.settled()
        for log_dir in self.log_dirs:
            await log_dir.close()

    def is_marked_clean(self, log_dir: LogDirRunner | None = None) -> bool:
        return self.disk.exists((log_dir or self.log_dir).path / ".kafka_cleanshutdown")


def led_by_us(leader_epoch: int) -> PartitionImage:
    return PartitionImage(
        leader=BROKER,
        leader_epoch=LeaderEpoch(leader_epoch),
        replicas=(BROKER,),
        isr=(BROKER,),
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=leader_epoch,
    )


def replicated(
    leader: BrokerId,
    leader_epoch: int,
    *,
    isr: tuple[BrokerId, ...] = (BROKER, OTHER),
    partition_epoch: int | None = None,
) -> PartitionImage:
    """A partition that this broker has in common with another one."""
    return PartitionImage(
        leader=leader,
        leader_epoch=LeaderEpoch(leader_epoch),
        replicas=(BROKER, OTHER),
        isr=isr,
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=leader_epoch if partition_epoch is None else partition_epoch,
    )


def live_brokers(image: ClusterImage) -> dict[BrokerId, int]:
    return {broker.broker_id: broker.broker_epoch for broker in image.brokers.values()}


def concerned(change: Change) -> list[TopicPartition]:
    """The partitions whose replicas a controller tells of `change`."""
    match change:
        case TopicCreated(topic, _):
            return [TopicPartition(topic.name, each) for each in range(len(topic.partitions))]
        case PartitionsAdded(name, first, partitions):
            return [TopicPartition(name, first + each) for each in range(len(partitions))]
        case PartitionChanged(name, partition, _):
            return [TopicPartition(name, partition)]
        case _:
            return []


def roles_of(
    image: ClusterImage, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Role]:
    """What this broker is to do with those of `partitions` of which it has replicas."""
    roles = {}
    for one in partitions:
        state = image.partition(*one)
        if state is not None and BROKER in state.replicas:
            roles[one] = Role(image.topics[one.topic].topic_id, state)
    return roles


def all_partitions(image: ClusterImage) -> list[TopicPartition]:
    return [
        TopicPartition(name, number)
        for name, topic in image.topics.items()
        for number in range(len(topic.partitions))
    ]


def topic_partition(name: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(name, partition)


@asynccontextmanager
async def broker_world(
    *,
    dir_count: int = 1,
    before: World | None = None,
    settings: Mapping[str, str] | None = None,
    is_vouched_for: bool = True,
    shortcuts: Shortcuts = SHORTCUTS,
) -> AsyncIterator[World]:
    """A broker with empty log directories, or on the disk and in the cluster of one `before`.

    The cluster has heard how its directories were left, unless they are not `is_vouched_for`.
    An exception in a callback would end the broker, so it fails the test.
    """
    failures: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: failures.append(_failure(context))
    )
    disk = before.memory_disk if before else MemoryDisk(total_bytes=2**30, now_ms=NOW_MS)
    async with asyncio.TaskGroup() as tasks:
        world = World(
            tasks, disk, dir_count=dir_count, settings=settings or {}, shortcuts=shortcuts
        )
        if before is not None:
            world.clock.moment_ms = before.clock.moment_ms
            world.image = before.image
            world.partitions.on_image(before.image, changes_between(EMPTY_IMAGE, before.image))
        for log_dir in world.log_dirs:
            await log_dir.open()
        await world.replicas.open_all()
        await world.become_all()
        for log_dir in world.log_dirs if is_vouched_for else ():
            await log_dir.write_boot_id(BOOT_ID)
        yield world
        if failures:
            raise failures[0]


def power_cut(world: World, seed: int) -> None:
    """What is not flushed may be gone. The world must not be used any more, but as `before`."""
    world.memory_disk.crash(Random(seed))


def process_killed(world: World) -> None:
    """The same without a loss: only the locks go."""
    world.memory_disk.kill()


def _failure(context: dict[str, object]) -> BaseException:
    error = context.get("exception")
    return error if isinstance(error, BaseException) else AssertionError(context["message"])
