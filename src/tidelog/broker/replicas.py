"""The replicas on this broker: opened, created, reconfigured and deleted as the image says.

The cluster image says what should be here; this makes it so. Opening and deleting happen on the log
directories' threads, in batches; the loop only puts runners in and out of `Partitions`.

    TopicCreated, PartitionsAdded   a folder in the directory with the fewest partitions
    TopicDeleted                    runner out at once, folder renamed, removed after a delay
    TopicConfigChanged              the runner's settings
    PartitionChanged                the runner's leader epoch and isr

Two orders matter. A topic made again under its old name must not meet the folder of the old one, so
creating waits for deleting. And a partition is announced to clients (`settled`) only when it is
open.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from tidelog.base.errors import StorageError
from tidelog.base.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from tidelog.base.ports import Clock
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    changes_between,
)
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from tidelog.core.partition.epochs import EpochHistory, EpochStart
from tidelog.core.partition.leader import PartitionLeader, elected
from tidelog.core.transactions.producers import ProducerStates
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir
from tidelog.storage.opening import Replay

logger = logging.getLogger(__name__)

OPEN_AT_ONCE = 64
PRODUCERS_MAX_PER_PARTITION = 10_000
# Kafka keeps topic settings elsewhere. Until somebody sets them again, nothing may expire.
ADOPTED_SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1"}
NO_STATE = PartitionImage(
    leader=NO_BROKER,
    leader_epoch=NO_LEADER_EPOCH,
    replicas=(),
    isr=(),
    adding_replicas=(),
    removing_replicas=(),
    partition_epoch=0,
)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A replica that should be on this broker."""

    topic_partition: TopicPartition
    topic_id: TopicId
    state: PartitionImage
    config: TopicConfig


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """What a thread made of a `_Wanted`."""

    wanted: _Wanted
    log: Log
    epochs: EpochHistory
    producers: ProducerStates
    high_watermark: Offset


class Replicas:
    """Keeps this broker's partitions as the image wants them."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        config: BrokerConfig,
        partitions: Partitions,
        log_dirs: Sequence[LogDirRunner],
        request_memory: MemoryBound,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._request_memory = request_memory
        self._clock = clock
        self._tasks = tasks
        self._under_way: set[asyncio.Task[None]] = set()
        self._deleting: dict[TopicPartition, asyncio.Future[None]] = {}
        self._on_config: list[Callable[[BrokerConfig], None]] = []

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, dynamic ones included."""
        return self._config

    def on_config_changed(self, callback: Callable[[BrokerConfig], None]) -> None:
        self._on_config.append(callback)

    async def settled(self) -> None:
        """Return once everything the image asked for so far is open or gone."""
        while self._under_way:
            # Ended by the disk: opening a log either works or takes its directory offline.
            await asyncio.wait(self._under_way)

    async def start(self, controller: ControllerRunner) -> None:
        """Open everything the cluster wants here, and follow it from now on."""
        adopted = {} if controller.image.topics else await self._adopt(controller)
        image = controller.image
        self._partitions.on_image(image, changes_between(EMPTY_IMAGE, image))
        self._on_broker_config(image)
        controller.subscribe(self.on_image)
        for opened, log_dir in adopted.items():
            state = image.partition(*opened.wanted.topic_partition)
            assert state is not None
            self._serve(log_dir, replace(opened, wanted=replace(opened.wanted, state=state)))
        await self.open_all(image)

    # -- what the image says ---------------------------------------------------------------------

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """Start whatever `changes` ask for. Returns at once; `settled` waits."""
        self._partitions.on_image(image, changes)
        self._on_membership(changes)
        if any(isinstance(change, BrokerConfigChanged) for change in changes):
            self._on_broker_config(image)
        wanted: list[_Wanted] = []
        for change in changes:
            match change:
                case TopicCreated(topic, _):
                    wanted += self._wanted(image, topic.name, 0)
                case PartitionsAdded(topic_name, first, _):
                    wanted += self._wanted(image, topic_name, first)
                case TopicDeleted(name, _):
                    wanted = [w for w in wanted if w.topic_partition.topic != name]
                    self._delete(name)
                case TopicConfigChanged(name, _):
                    self._reconfigure(image, [name])
                case PartitionChanged(name, partition, state):
                    self._on_partition_state(name, partition, state)
                case _:
                    pass
        if wanted:
            self._start(self._create(wanted))

    def _on_membership(self, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case BrokerGone(self._broker_id):
                    self._partitions.drop_leaderships()
                case BrokerRegistered(broker) if broker.broker_id == self._broker_id:
                    self._partitions.resume_leaderships()
                case _:
                    pass

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _wanted(self, image: ClusterImage, name: str, first_partition: int) -> list[_Wanted]:
        topic = image.topics.get(name)
        if topic is None:
            return []
        config = self._topic_config(image, name)
        return [
            _Wanted(TopicPartition(name, index), topic.topic_id, state, config)
            for index, state in enumerate(topic.partitions)
            if index >= first_partition and self._broker_id in state.replicas
        ]

    def _topic_config(self, image: ClusterImage, name: str) -> TopicConfig:
        return TopicConfig.resolve(image.topic_config(name), self._config.topic_defaults)

    def _reconfigure(self, image: ClusterImage, names: Iterable[str]) -> None:
        for name in names:
            config = self._topic_config(image, name)
            for index in range(len(image.topics[name].partitions)):
                runner = self._partitions.replica(name, index)
                if runner is not None:
                    runner.reconfigure(config)

    def _on_broker_config(self, image: ClusterImage) -> None:
        self._config = self._config.with_dynamic(
            cluster_wide=image.broker_config(None),
            this_broker=image.broker_config(self._broker_id),
        )
        self._reconfigure(image, image.topics)
        for callback in self._on_config:
            callback(self._config)

    def _on_partition_state(self, name: str, partition: int, state: PartitionImage) -> None:
        runner = self._partitions.replica(name, partition)
        if runner is not None and state.leader_epoch > runner.leader_epoch:
            runner.lead(
                self._elect(
                    state,
                    runner.config,
                    log_start_offset=runner.log.log_start_offset,
                    # Not the log's own end: what is being flushed is nobody's yet.
                    log_end_offset=runner.leader.log_end_offset,
                    high_watermark=runner.high_watermark,
                )
            )

    # -- opening ---------------------------------------------------------------------------------

    async def open_all(self, image: ClusterImage) -> int:
        """At start: open what is here and should be, create what should be and is not.

        Returns how many partitions this broker serves. Folders that nothing in the image asks
        for are left alone and named in the log.
        """
        wanted = [
            one
            for name in image.topics
            for one in self._wanted(image, name, 0)
            if self._partitions.replica(*one.topic_partition) is None
        ]
        found = await self._find_folders()
        here: dict[LogDirRunner, list[_Wanted]] = {log_dir: [] for log_dir in self._log_dirs}
        missing = []
        for one in wanted:
            log_dir = found.pop(one.topic_partition, None)
            if log_dir is None:
                missing.append(one)
            else:
                here[log_dir].append(one)
        for topic_partition, log_dir in found.items():
            if topic_partition in log_dir.runners:
                continue
            logger.warning(
                "stray partition folder left alone",
                extra={"partition": topic_partition, "log_dir": log_dir.path},
            )
        await asyncio.gather(*(self._open(log_dir, ones) for log_dir, ones in here.items()))
        await self._create_missing(missing)
        return len(self._partitions)

    async def _find_folders(self) -> dict[TopicPartition, LogDirRunner]:
        found: dict[TopicPartition, LogDirRunner] = {}
        for log_dir in self._log_dirs:
            if log_dir.log_dir is None:
                continue
            for topic_partition in await log_dir.executor.urgent(log_dir.log_dir.partitions):
                found.setdefault(topic_partition, log_dir)
        return found

    async def _create_missing(self, missing: Sequence[_Wanted]) -> None:
        if missing and not all(log_dir.is_online for log_dir in self._log_dirs):
            # They may well be in the directory that we cannot read. An empty one in its place
            # would be elected leader of nothing.
            for one in missing:
                self._partitions.mark_offline(one.topic_partition)
            return
        await self._create(missing)

    async def _create(self, wanted: Sequence[_Wanted]) -> None:
        for one in wanted:
            deleting = self._deleting.get(one.topic_partition)
            if deleting is not None:
                await asyncio.wait([deleting])
        shares = self._share_out(wanted)
        await asyncio.gather(*(self._open(log_dir, ones) for log_dir, ones in shares.items()))

    def _share_out(self, wanted: Sequence[_Wanted]) -> dict[LogDirRunner, list[_Wanted]]:
        """Each new partition to the directory with the fewest."""
        online = [log_dir for log_dir in self._log_dirs if log_dir.is_online]
        shares: dict[LogDirRunner, list[_Wanted]] = {log_dir: [] for log_dir in online}
        for one in wanted:
            if not online:
                self._partitions.mark_offline(one.topic_partition)
                continue
            log_dir = min(online, key=lambda known: len(known.runners) + len(shares[known]))
            shares[log_dir].append(one)
        return shares

    async def _open(self, log_dir: LogDirRunner, wanted: Sequence[_Wanted]) -> None:
        for start in range(0, len(wanted), OPEN_AT_ONCE):
            batch = wanted[start : start + OPEN_AT_ONCE]
            if not log_dir.is_online:
                self._mark_offline(batch)
                continue
            assert log_dir.log_dir is not None
            try:
                opened = await log_dir.executor.urgent(
                    self._open_logs, log_dir.log_dir, batch, self._clock.now_ms()
                )
            except StorageError as error:
                self._mark_offline(batch)
                log_dir.on_failure(error)
                continue
            for one in opened:
                self._serve(log_dir, one)

    def _open_logs(self, log_dir: LogDir, wanted: Sequence[_Wanted], now_ms: int) -> list[_Opened]:
        """On a thread."""
        return [self._open_log(log_dir, one, now_ms) for one in wanted]

    def _open_log(self, log_dir: LogDir, wanted: _Wanted, now_ms: int) -> _Opened:
        producers = ProducerStates(
            producer_id_expiration_ms=self._config.transactions.producer_id_expiration_ms,
            producers_max=PRODUCERS_MAX_PER_PARTITION,
        )
        opened = log_dir.open_partition(
            wanted.topic_partition,
            topic_id=wanted.topic_id,
            config=wanted.config,
            replay=Replay(
                restore=lambda entries, end_offset: producers.restore(
                    entries, end_offset=end_offset
                ),
                observe=producers.on_replayed,
            ),
            now_ms=now_ms,
        )
        return _Opened(
            wanted,
            opened.log,
            EpochHistory(EpochStart(*entry) for entry in opened.leader_epochs),
            producers,
            log_dir.high_watermark(wanted.topic_partition),
        )

    def _serve(self, log_dir: LogDirRunner, opened: _Opened) -> None:
        wanted = opened.wanted
        if self._partitions.image.partition(*wanted.topic_partition) is None:
            # Deleted while it was being opened.
            log_dir.discard(opened.log)
            return
        leader = self._elect(
            wanted.state,
            wanted.config,
            log_start_offset=opened.log.log_start_offset,
            log_end_offset=opened.log.log_end_offset,
            high_watermark=opened.high_watermark,
        )
        runner = log_dir.runners.get(wanted.topic_partition)
        if runner is not None:
            runner.bring_online(
                log=opened.log, leader=leader, epochs=opened.epochs, producers=opened.producers
            )
            return
        runner = PartitionRunner(
            topic_partition=wanted.topic_partition,
            topic_id=wanted.topic_id,
            log=opened.log,
            leader=leader,
            epochs=opened.epochs,
            producers=opened.producers,
            config=wanted.config,
            log_directory=log_dir,
            request_memory=self._request_memory,
            clock=self._clock,
        )
        log_dir.runners[wanted.topic_partition] = runner
        self._partitions.add(runner)

    def _elect(
        self,
        state: PartitionImage,
        config: TopicConfig,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
        high_watermark: Offset,
    ) -> PartitionLeader:
        return elected(
            broker=self._broker_id,
            replicas=state.replicas,
            leader_epoch=state.leader_epoch,
            isr=frozenset(state.isr) | {self._broker_id},
            isr_version=state.partition_epoch,
            live_brokers=frozenset(self._partitions.image.brokers),
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            high_watermark=high_watermark,
            min_insync_replicas=config.min_insync_replicas,
            replica_lag_time_max_ms=self._config.replication.replica_lag_time_max_ms,
            now_ms=self._clock.now_ms(),
        )

    def _mark_offline(self, wanted: Sequence[_Wanted]) -> None:
        for one in wanted:
            if self._partitions.replica(*one.topic_partition) is None:
                self._partitions.mark_offline(one.topic_partition)

    # -- logs that another cluster wrote ---------------------------------------------------------

    async def _adopt(self, controller: ControllerRunner) -> "dict[_Opened, LogDirRunner]":
        """A new cluster on old folders, say of a Kafka that was here before: take them over.

        Only where the coordinator knows no topic at all. Later on, a folder that nobody asked
        for is what is left of a topic that was deleted.
        """
        found = await self._find_folders()
        config = TopicConfig.resolve(ADOPTED_SETTINGS, self._config.topic_defaults)
        opened: dict[_Opened, LogDirRunner] = {}
        for topic_partition, log_dir in found.items():
            assert log_dir.log_dir is not None
            topic_id = await log_dir.executor.urgent(log_dir.log_dir.topic_id, topic_partition)
            wanted = _Wanted(topic_partition, topic_id or TopicId(uuid4()), NO_STATE, config)
            try:
                log = await log_dir.executor.urgent(
                    self._open_log, log_dir.log_dir, wanted, self._clock.now_ms()
                )
            except StorageError as error:
                log_dir.on_failure(error)
                continue
            opened[log] = log_dir
        if opened:
            await controller.adopt_topics(
                _found_topics(opened, self._broker_id),
                producer_end_id=max(one.producers.end_producer_id for one in opened),
            )
            logger.info("partitions adopted", extra={"partitions": len(opened)})
        return opened

    # -- a directory that comes back -------------------------------------------------------------

    async def reopen(self, log_dir: LogDirRunner) -> None:
        """Recover every partition of a directory that was offline and is usable again."""
        image = self._partitions.image
        assert log_dir.log_dir is not None
        folders = set(await log_dir.executor.urgent(log_dir.log_dir.partitions))
        wanted = [one for name in image.topics for one in self._wanted(image, name, 0)]
        here = [
            one
            for one in wanted
            if one.topic_partition in log_dir.runners or one.topic_partition in folders
        ]
        await self._open(log_dir, here)

    # -- deleting --------------------------------------------------------------------------------

    def _delete(self, topic: str) -> None:
        for runner in self._partitions.remove_topic(topic):
            log_dir = next(
                known
                for known in self._log_dirs
                if known.runners.get(runner.topic_partition) is runner
            )
            del log_dir.runners[runner.topic_partition]
            runner.take_offline()
            deleting = log_dir.delete_partition(runner)
            self._deleting[runner.topic_partition] = deleting
            deleting.add_done_callback(partial(self._on_deleted, runner.topic_partition))

    def _on_deleted(self, topic_partition: TopicPartition, _done: "asyncio.Future[None]") -> None:
        self._deleting.pop(topic_partition, None)


def _found_topics(opened: Iterable[_Opened], broker_id: BrokerId) -> list[TopicCreated]:
    """The topics that these logs belong to; numbers that are missing become empty partitions."""
    logs: dict[str, dict[int, _Opened]] = {}
    for one in opened:
        topic, partition = one.wanted.topic_partition
        logs.setdefault(topic, {})[partition] = one
    return [
        TopicCreated(
            TopicImage(
                topic,
                next(iter(partitions.values())).wanted.topic_id,
                tuple(
                    _found_state(partitions.get(number), broker_id)
                    for number in range(max(partitions) + 1)
                ),
            ),
            ADOPTED_SETTINGS,
        )
        for topic, partitions in logs.items()
    ]


def _found_state(opened: _Opened | None, broker_id: BrokerId) -> PartitionImage:
    last_epoch = -1 if opened is None else opened.epochs.latest_epoch
    return replace(
        NO_STATE,
        leader=broker_id,
        leader_epoch=LeaderEpoch(last_epoch + 1),
        replicas=(broker_id,),
        isr=(broker_id,),
    )
