"""The replicas on this broker: opened, created, reconfigured and deleted as the image says.

The cluster image says what should be here; this makes it so. Opening and deleting happen on the log
directories' threads, in batches; the loop only puts runners in and out of `Partitions`.

    TopicCreated, PartitionsAdded   a folder in the directory with the fewest partitions; I7
    PartitionChanged                the same, if this broker is among its replicas now; if it is
                                    not any more, as if the topic had been deleted
    TopicDeleted                    runner out at once, folder renamed, removed after a delay
    TopicConfigChanged              the runner's settings

What a replica does is not read from the image, which may be older than this broker's registration:
only the controller of the day gives roles (`become`, `stop_replicas`), and only to this
registration. A role that comes before its log is open is taken when it is.

The image moves on while a thread works, and topics of the same name may come and go:

    I1  A folder has one user at a time: whoever opens or deletes it occupies its partition, and
        the next one waits.
    I2  What a thread opened is served only if it is still wanted, under the same topic id, and
        its directory has not failed meanwhile; under the image's newest state and settings.
    I3  A folder that belongs to another topic of the same name is set aside, never opened.
    I4  A partition is announced to clients (`settled`) only when it is open.
    I5  A role is never replaced by an older one, and none outlives the session it was given in.
    I6  A replica whose directory failed has no role that was decided as if it had not: its log may
        be shorter now than what others believe it to be. Until the controller has heard of it -
        it gives a role in which the replica is not in sync, or nobody leads - such a role is
        answered with KAFKA_STORAGE_ERROR.
    I7  A partition has one folder among all directories that can be read. One that was others' for
        a while, and is this broker's again before it was set aside, is opened where it was.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby

from tidelog.base.errors import ErrorCode, StorageError
from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition
from tidelog.broker.adoption import in_two_places
from tidelog.broker.large_requests import in_turns
from tidelog.broker.log_dir_moves import LogDirMoves
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.log_placement import share_out, where_left
from tidelog.broker.misfits import log_misfits
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.replica_fetchers import ReplicaFetchers
from tidelog.broker.replica_logs import (
    OpenedReplica,
    OpenedReplicas,
    WantedReplica,
    open_replicas,
)
from tidelog.broker.served_partition import PartitionPorts, ServedPartition
from tidelog.broker.strays import strays_in
from tidelog.config.broker import BrokerConfig
from tidelog.config.topic import TopicConfig, resolve_fitting
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
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage, PartitionImage
from tidelog.core.partition.leader import PartitionLeader, elected
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

OPEN_AT_ONCE = 64
RESOLVED_CONFIGS_MAX = 1_000
OPENING_WAIT_MAX_S = 2.0
ROLES_LOGGED_MAX = 20

ReplicaId = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class Role:
    """Who leads a partition, as the controller said; and so what this broker is to do."""

    topic_id: TopicId
    state: PartitionImage

    def succeeds(self, other: "Role") -> bool:
        """Whether this was decided after `other`."""
        if self.topic_id != other.topic_id:
            return True
        ours, theirs = self.state, other.state
        return (ours.leader_epoch, ours.partition_epoch) > (
            theirs.leader_epoch,
            theirs.partition_epoch,
        )


@dataclass(frozen=True, slots=True)
class StoppedRole:
    """A replica that is to end, as the controller said."""

    topic_id: TopicId
    leader_epoch: LeaderEpoch
    delete: bool


class Replicas:
    """Keeps this broker's partitions as the image wants them."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        config: BrokerConfig,
        partitions: Partitions,
        log_dirs: Sequence[LogDirRunner],
        ports: PartitionPorts,
        tasks: asyncio.TaskGroup,
        fetchers: ReplicaFetchers,
    ) -> None:
        self._broker_id = broker_id
        self._config = config
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._ports = ports
        self._clock = ports.clock
        self._tasks = tasks
        self._fetchers = fetchers
        self._roles: dict[TopicPartition, Role] = {}
        self._session_number = 0
        self._recovered: set[TopicPartition] = set()
        """Replicas of which the controller has to hear that they failed. I6"""
        self._cut_short: set[TopicPartition] = set()
        """Replicas that had more when they were last served."""
        self._live_brokers: Mapping[BrokerId, int] = {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._occupied: dict[TopicPartition, asyncio.Future[None]] = {}
        self._resolved: dict[frozenset[tuple[str, str]], TopicConfig] = {}
        self._on_config: list[Callable[[BrokerConfig], None]] = []
        self._has_joined = False
        """Whether the image is followed; before, folders may be there to be adopted."""
        self._is_all_told = False
        self.moves = LogDirMoves(
            partitions=partitions,
            log_dirs=log_dirs,
            config=config.replication,
            clock=ports.clock,
            tasks=tasks,
            start=self._start,
            occupy=self._occupy,
            is_occupied=self._occupied.__contains__,
            open_in=self._open_in,
        )

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, dynamic ones included."""
        return self._config

    def on_config_changed(self, callback: Callable[[BrokerConfig], None]) -> None:
        self._on_config.append(callback)

    async def settled(self) -> None:
        """Return once everything the image asked for so far is open or gone."""
        if self._under_way:
            # Ended by the disk: opening a log either works or takes its directory offline.
            await asyncio.wait(self._under_way)

    async def start(self, image: ClusterImage) -> None:
        """Open everything the cluster wants here. Nothing has a role yet."""
        self._partitions.on_image(image, changes_between(EMPTY_IMAGE, image))
        self._on_broker_config(image)
        await self.open_all()

    # -- what the image says ---------------------------------------------------------------------

    def on_image(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        """Start whatever `changes` ask for. Returns at once; `settled` waits."""
        self._partitions.on_image(image, changes)
        if not self._has_joined:
            self._has_joined = True
            if self._is_all_told:
                self.on_all_told(())
        self._on_membership(image, changes)
        if any(isinstance(change, BrokerConfigChanged) for change in changes):
            self._on_broker_config(image)
        wanted: dict[TopicPartition, WantedReplica] = {}
        for are_deletions, together in groupby(changes, key=_is_deletion):
            if are_deletions:
                names = {change.name for change in together if isinstance(change, TopicDeleted)}
                wanted = {key: one for key, one in wanted.items() if key.topic not in names}
                self._delete(names)
            else:
                for change in together:
                    wanted |= self._on_change(image, change)
        if wanted:
            self._start(self._create(list(wanted.values())))

    def _on_change(
        self, image: ClusterImage, change: Change
    ) -> dict[TopicPartition, WantedReplica]:
        """Do what `change` asks for; return the replicas that are to be opened."""
        match change:
            case TopicCreated(topic, _):
                return self._wanted(image, topic.name, 0)
            case PartitionsAdded(topic_name, first, _):
                return self._wanted(image, topic_name, first)
            case TopicConfigChanged(name, _):
                self._reconfigure(image, [name])
            case PartitionChanged(name, partition, state):
                if self._broker_id in state.replicas:
                    return self._wanted_one(image, TopicPartition(name, partition))
                # Also said by StopReplica, unless the controller died before it could.
                self._remove_moved(TopicPartition(name, partition))
            case _:
                pass
        return {}

    def _on_membership(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        if any(isinstance(change, BrokerRegistered | BrokerGone) for change in changes):
            self._on_live_brokers(
                {broker_id: broker.broker_epoch for broker_id, broker in image.brokers.items()}
            )
        for change in changes:
            match change:
                case BrokerGone(self._broker_id):
                    self.drop_roles()
                case BrokerGone(broker_id):
                    self._fetchers.on_address_changed(broker_id)
                case BrokerRegistered(broker) if broker.broker_id != self._broker_id:
                    self._fetchers.on_address_changed(broker.broker_id)
                case _:
                    pass

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def _wanted(
        self, image: ClusterImage, name: str, first_partition: int
    ) -> dict[TopicPartition, WantedReplica]:
        topic = image.topics.get(name)
        if topic is None:
            return {}
        config = self._topic_config(image, name)
        here = (
            TopicPartition(name, index)
            for index, state in enumerate(topic.partitions)
            if index >= first_partition and self._broker_id in state.replicas
        )
        return {one: WantedReplica(one, topic.topic_id, config) for one in here}

    def _wanted_one(
        self, image: ClusterImage, one: TopicPartition
    ) -> dict[TopicPartition, WantedReplica]:
        if self._partitions.find(*one) is not None or self._partitions.is_marked_offline(one):
            return {}  # What is on a disk that cannot be read must not be made anew elsewhere.
        topic_id = image.topics[one.topic].topic_id
        return {one: WantedReplica(one, topic_id, self._topic_config(image, one.topic))}

    def _missing(self) -> list[WantedReplica]:
        """What should be here and is not served."""
        image = self._partitions.image
        return [
            one
            for name in image.topics
            for one in self._wanted(image, name, 0).values()
            if not self._is_served(one)
        ]

    def _is_wanted(self, one: WantedReplica) -> bool:
        """Whether the image still asks for it, by this name and this topic id."""
        topic, partition = one.topic_partition
        known = self._partitions.image.topics.get(topic)
        return (
            known is not None
            and known.topic_id == one.topic_id
            and partition < len(known.partitions)
            and self._broker_id in known.partitions[partition].replicas
        )

    def _is_served(self, one: WantedReplica) -> bool:
        runner = self._partitions.find(*one.topic_partition)
        return runner is not None and not runner.is_offline

    def _topic_config(self, image: ClusterImage, name: str) -> TopicConfig:
        # Most topics have the same settings, and there may be thousands at once.
        overrides = image.topic_config(name)
        key = frozenset(overrides.items())
        config = self._resolved.get(key)
        if config is None:
            if len(self._resolved) >= RESOLVED_CONFIGS_MAX:
                self._resolved.clear()
            config, misfits = resolve_fitting(overrides, self._config.topic_defaults)
            self._resolved[key] = config
            log_misfits(misfits, f"topic {name} and those set as it is")
        return config

    def _reconfigure(self, image: ClusterImage, names: Iterable[str]) -> None:
        for name in names:
            config = self._topic_config(image, name)
            for index in range(len(image.topics[name].partitions)):
                runner = self._partitions.find(name, index)
                if runner is not None:
                    runner.reconfigure(config)

    def _on_broker_config(self, image: ClusterImage) -> None:
        before = self._config
        self._config = self._config.with_fitting(
            cluster_wide=image.broker_config(None),
            this_broker=image.broker_config(self._broker_id),
        )
        log_misfits(self._config.misfits, f"broker {self._broker_id}", known=before.misfits)
        if self._config.topic_defaults != before.topic_defaults:
            self._resolved.clear()
        self._reconfigure(image, image.topics)
        for runner in self._partitions:
            runner.producers.on_expiration_changed(
                self._config.transactions.producer_id_expiration_ms
            )
        self._fetchers.on_config(self._config.replication)
        self.moves.on_config(self._config.replication)
        for callback in self._on_config:
            callback(self._config)

    # -- roles -----------------------------------------------------------------------------------

    def drop_roles(self) -> None:
        """The coordinator does not vouch for us any more: lead nothing, follow nobody (C6)."""
        self._session_number += 1
        self._roles.clear()
        self._is_all_told = False
        for runner in self._partitions:
            if runner.follower is not None:
                self._fetchers.unfollow(runner.follower)
        self._partitions.drop_roles()

    def stop_fetching(self) -> list["asyncio.Task[None]"]:
        """Follow nobody any more; whoever waits for the tasks knows when nothing is appended."""
        return self._fetchers.stop()

    async def become(
        self, roles: Mapping[TopicPartition, Role], live_brokers: Mapping[BrokerId, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Take the roles that the controller gives. Returns what could not be done.

        Those whose logs are being opened are waited for, a while. Others have their turn between
        many roles; if the session ends meanwhile, the rest is not taken. I5
        """
        self._on_live_brokers(live_brokers)
        session = self._session_number
        # Each is worth a line, but not a thousand of them in one turn.
        log_level = logging.INFO if len(roles) <= ROLES_LOGGED_MAX else logging.DEBUG
        async for topic_partition, role in in_turns(roles.items()):
            if self._session_number != session:
                return {}
            known = self._roles.get(topic_partition)
            if known is not None and not role.succeeds(known):
                continue  # I5
            self._roles[topic_partition] = role
            runner = self._partitions.find(*topic_partition)
            if runner is not None and not runner.is_offline:
                self._give_role(runner, role, known, log_level)
        if log_level == logging.DEBUG:
            logger.info("roles taken", extra={"partitions": len(roles)})
        if self._under_way and any(self._partitions.find(*one) is None for one in roles):
            await asyncio.wait(self._under_way, timeout=OPENING_WAIT_MAX_S)
        return {one: ErrorCode.KAFKA_STORAGE_ERROR for one in roles if self._has_failed(one)}

    def _has_failed(self, one: TopicPartition) -> bool:
        runner = self._partitions.find(*one)
        if runner is None:
            return self._partitions.is_marked_offline(one)
        return runner.is_offline or one in self._recovered

    def stop_replicas(self, stopped: Mapping[TopicPartition, StoppedRole]) -> None:
        """Neither lead nor follow these any more; delete those of which it is asked.

        What was decided before the role was given says nothing about it. I5
        """
        deleted: list[PartitionRunner] = []
        for topic_partition, stop in stopped.items():
            role = self._roles.get(topic_partition)
            if role is not None and (
                role.topic_id != stop.topic_id or role.state.leader_epoch > stop.leader_epoch
            ):
                continue
            self._roles.pop(topic_partition, None)
            runner = self._partitions.find(*topic_partition)
            if runner is None or runner.topic_id != stop.topic_id:
                continue
            if runner.follower is not None:
                self._fetchers.unfollow(runner.follower)
            runner.resign()
            if stop.delete:
                self._partitions.remove(topic_partition)
                deleted.append(runner)
        self._discard(deleted)

    def _remove_moved(self, one: TopicPartition) -> None:
        """Others have this partition from now on."""
        self._roles.pop(one, None)
        runner = self._partitions.remove(one)
        if runner is not None:
            if runner.follower is not None:
                self._fetchers.unfollow(runner.follower)
            runner.resign()
            self._discard([runner])

    def _on_live_brokers(self, live_brokers: Mapping[BrokerId, int]) -> None:
        if live_brokers == self._live_brokers:
            return
        self._live_brokers = live_brokers
        for runner in self._partitions:
            runner.on_live_brokers_changed(live_brokers)

    def _give_role(
        self, runner: PartitionRunner, role: Role, known: Role | None, log_level: int
    ) -> None:
        one = runner.topic_partition
        if one in self._recovered:
            if self._broker_id in role.state.isr and role.state.leader != NO_BROKER:
                return  # I6
            self._recovered.discard(one)
            known = None
        self._take_role(runner, role, known, log_level)

    def _take_role(
        self, runner: PartitionRunner, role: Role, known: Role | None, log_level: int
    ) -> None:
        state = role.state
        runner.on_in_sync_changed(self._broker_id in state.isr)
        if known is not None and known.state.leader_epoch == state.leader_epoch:
            if state.replicas != known.state.replicas:
                runner.on_replicas_changed(state.replicas)
            runner.on_isr_changed(frozenset(state.isr), version=state.partition_epoch)
            return
        before = runner.follower
        if state.leader == self._broker_id:
            runner.lead(self._elect)
        elif state.leader == NO_BROKER:
            runner.resign()
        else:
            runner.follow(state.leader, state.leader_epoch, self._fetchers.follow)
        logger.log(
            log_level,
            "role taken",
            extra={
                "partition": runner.topic_partition,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": state.isr,
            },
        )
        if before is not None and before.is_stopped:
            self._fetchers.unfollow(before)

    def _elect(self, runner: ServedPartition) -> PartitionLeader:
        """The leader that this broker becomes, with its log and its role as they are by now."""
        state = self._roles[runner.topic_partition].state
        return elected(
            broker=self._broker_id,
            replicas=state.replicas,
            leader_epoch=state.leader_epoch,
            isr=frozenset(state.isr),
            isr_version=state.partition_epoch,
            live_brokers=self._live_brokers,
            log_start_offset=runner.log.log_start_offset,
            log_end_offset=runner.announced_end_offset,
            high_watermark=runner.high_watermark,
            min_insync_replicas=runner.config.min_insync_replicas,
            replica_lag_time_max_ms=self._config.replication.replica_lag_time_max_ms,
            now_ms=self._clock.now_ms(),
        )

    # -- opening ---------------------------------------------------------------------------------

    async def open_all(self) -> None:
        """At start: open what is here and should be, create what should be and is not.

        Folders that nothing in the image asks for wait for what the controller says. Raises
        ConfigError if two directories have the same partition.
        """
        await self.moves.decided.resolve()
        folders = {log_dir: set(await log_dir.partitions()) for log_dir in self._log_dirs}
        wanted = self._missing()
        await _require_one_place_each(wanted, folders)
        missing = await self._open_found(wanted, folders)
        if missing:  # New since the last stop, or somebody has removed them.
            logger.warning(
                "partitions without a folder start empty",
                extra={"partitions": len(missing), "first": missing[0].topic_partition},
            )
        if any(self._is_in_sync(one.topic_partition) for one in missing) or any(
            self._is_in_sync(one) for one in self._cut_short
        ):
            for log_dir in self._log_dirs:
                await log_dir.on_lost_replicas()
        await self._create_missing(missing)
        for log_dir in folders:
            log_dir.recovered()
        await self.moves.resume()

    def _is_in_sync(self, one: TopicPartition) -> bool:
        state = self._partitions.image.partition(*one)
        return state is not None and self._broker_id in state.isr

    async def _open_found(
        self, wanted: Sequence[WantedReplica], folders: dict[LogDirRunner, set[TopicPartition]]
    ) -> list[WantedReplica]:
        """Open each in the folder it has; return those that have none. Takes from `folders`."""
        missing: list[WantedReplica] = []
        while wanted:
            here: dict[LogDirRunner, list[WantedReplica]] = {dir_: [] for dir_ in folders}
            for one in wanted:
                found = next(
                    (d for d, names in folders.items() if one.topic_partition in names), None
                )
                if found is None:
                    missing.append(one)
                else:
                    folders[found].discard(one.topic_partition)
                    here[found].append(one)
            foreign = await asyncio.gather(
                *(self._open(log_dir, ones, are_new=False) for log_dir, ones in here.items())
            )
            wanted = [one for ones in foreign for one in ones]  # Perhaps in another directory.
        return missing

    async def _create_missing(self, missing: Sequence[WantedReplica]) -> None:
        if missing and not all(log_dir.is_online for log_dir in self._log_dirs):
            # They may well be in the directory that we cannot read. An empty one in its place
            # would be elected leader of nothing.
            self._mark_offline(missing)
            return
        await self._create(missing)

    async def _create(self, wanted: Sequence[WantedReplica]) -> None:
        asked = self._where_asked(wanted)
        for _ in range(2):  # Once more where a folder had to be set aside.
            left = await where_left(self._log_dirs, wanted)
            online = [log_dir for log_dir in self._log_dirs if log_dir.is_online]
            if not online:
                self._mark_offline(wanted)
                return
            shares = share_out(online, wanted, asked | left)
            foreign = await asyncio.gather(
                *(self._open(log_dir, ones, are_new=True) for log_dir, ones in shares.items())
            )
            wanted = [one for ones in foreign for one in ones]

    def _where_asked(self, wanted: Sequence[WantedReplica]) -> dict[TopicPartition, LogDirRunner]:
        """Directories in which replicas were asked to be before they were here."""
        asked = {one.topic_partition: self.moves.take_asked(one.topic_partition) for one in wanted}
        return {one: log_dir for one, log_dir in asked.items() if log_dir is not None}

    async def _open(
        self, log_dir: LogDirRunner, wanted: Sequence[WantedReplica], *, are_new: bool
    ) -> list[WantedReplica]:
        """Open or create logs in `log_dir`; return those whose folders had to be set aside."""
        foreign: list[WantedReplica] = []
        for start in range(0, len(wanted), OPEN_AT_ONCE):
            batch = wanted[start : start + OPEN_AT_ONCE]
            partitions = [one.topic_partition for one in batch]
            while occupied := {self._occupied[one] for one in partitions if one in self._occupied}:
                await asyncio.wait(occupied)  # Ended by the disk. I1
            batch = [one for one in batch if self._is_wanted(one) and not self._is_served(one)]
            if not log_dir.is_online:
                self._mark_offline(batch)
            elif batch:
                vacate = self._occupy([one.topic_partition for one in batch])
                try:
                    foreign += await self._open_batch(log_dir, batch, are_new=are_new)
                finally:
                    vacate()
        return foreign

    def _occupy(self, partitions: Sequence[TopicPartition]) -> Callable[[], None]:
        """Keep everybody else away from the folders of `partitions`, until it is called back."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert not self._occupied.keys() & set(partitions)  # I1
        self._occupied.update(dict.fromkeys(partitions, done))

        def vacate() -> None:
            for topic_partition in partitions:
                del self._occupied[topic_partition]
            done.set_result(None)

        return vacate

    async def _open_batch(
        self, log_dir: LogDirRunner, batch: Sequence[WantedReplica], *, are_new: bool
    ) -> Sequence[WantedReplica]:
        used = log_dir.log_dir
        assert used is not None
        try:
            result = await log_dir.executor.urgent(self._open_logs, used, batch, are_new=are_new)
            if result.foreign and log_dir.log_dir is used and log_dir.is_online:
                await log_dir.set_aside([one.topic_partition for one in result.foreign])
        except StorageError as error:
            self._mark_offline(batch)
            log_dir.on_failure(error)
            return ()
        if log_dir.log_dir is not used or not log_dir.is_online:
            # It failed meanwhile. These were opened too late to be taken offline with it. I2
            self._mark_offline(batch)
            await log_dir.close_unused([one.log for one in result.opened])
            return ()
        unwanted = [one.log for one in result.opened if not self._serve(log_dir, one)]
        if unwanted:
            await log_dir.delete(unwanted, delay_ms=0)
        return result.foreign

    def _open_logs(
        self, log_dir: LogDir, wanted: Sequence[WantedReplica], *, are_new: bool
    ) -> OpenedReplicas:
        """On a thread."""
        return open_replicas(
            log_dir,
            wanted,
            are_new=are_new,
            producer_id_expiration_ms=self._config.transactions.producer_id_expiration_ms,
            now_ms=self._clock.now_ms(),
        )

    def _serve(self, log_dir: LogDirRunner, opened: OpenedReplica) -> bool:
        """Put what a thread opened into service; False if nobody wants it any more. I2"""
        wanted, log = opened.wanted, opened.log
        if not self._is_wanted(wanted):
            return False
        image = self._partitions.image
        config = self._topic_config(image, wanted.topic_partition.topic)
        log.reconfigure(config)
        if opened.has_lost_records:
            self._cut_short.add(wanted.topic_partition)
            logger.warning(
                "log ends before what was committed",
                extra={"partition": wanted.topic_partition, "log_end_offset": log.log_end_offset},
            )
        runner = log_dir.runners.get(wanted.topic_partition)
        if runner is not None:
            self._recovered.add(wanted.topic_partition)
            if runner.follower is not None:
                self._fetchers.unfollow(runner.follower)
            runner.bring_online(
                log=log,
                high_watermark=opened.high_watermark,
                epochs=opened.epochs,
                producers=opened.producers,
            )
        else:
            runner = PartitionRunner(
                topic_partition=wanted.topic_partition,
                topic_id=wanted.topic_id,
                log=log,
                high_watermark=opened.high_watermark,
                epochs=opened.epochs,
                producers=opened.producers,
                config=config,
                log_directory=log_dir,
                ports=self._ports,
            )
            log_dir.runners[wanted.topic_partition] = runner
            self._partitions.add(runner)
        role = self._roles.get(wanted.topic_partition)
        if role is not None and role.topic_id == wanted.topic_id:
            self._give_role(runner, role, None, logging.DEBUG)
        return True

    def _mark_offline(self, wanted: Iterable[WantedReplica]) -> None:
        for one in wanted:
            if self._partitions.find(*one.topic_partition) is None and self._is_wanted(one):
                self._partitions.mark_offline(one.topic_partition)

    # -- a directory that comes back -------------------------------------------------------------

    async def reopen(self, log_dir: LogDirRunner) -> None:
        """Try a directory that is offline: recover its partitions as after a crash.

        Raises TidelogError if it cannot be used. If one of its partitions cannot, it is offline
        again on return.
        """
        await log_dir.release()
        await log_dir.open()
        await self._delete_doomed(log_dir)
        await self.moves.decided.resolve()
        folders = set(await log_dir.partitions())
        for topic_partition in log_dir.runners.keys() - folders:
            # Perhaps the disk is not mounted. An empty log would be served as if it were all.
            log_dir.on_failure(
                StorageError(f"{log_dir.path}: the folder of {topic_partition} is gone")
            )
            return
        here = [
            one
            for one in self._missing()
            if one.topic_partition in log_dir.runners
            or (
                one.topic_partition in folders
                and self._partitions.find(*one.topic_partition) is None
            )
        ]
        await self._open(log_dir, here, are_new=False)
        await self._create_missing(
            [one for one in self._missing() if self._partitions.find(*one.topic_partition) is None]
        )
        if log_dir.is_online:
            # Last, because the controller asks then how the replicas are, the new ones too.
            log_dir.recovered()
            logger.info("log directory online", extra={"log_dir": log_dir.path})
            self._start(self.moves.resume())
            if self._is_all_told:
                await self._set_strays_aside(log_dir, frozenset())

    async def _open_in(self, log_dir: LogDirRunner, one: TopicPartition) -> None:
        """Open a log that has come to this directory while its replica was offline."""
        wanted = [missing for missing in self._missing() if missing.topic_partition == one]
        await self._open(log_dir, wanted, are_new=False)

    # -- folders that are nobody's ---------------------------------------------------------------

    def on_all_told(self, told: Collection[ReplicaId]) -> None:
        """The controller has given all roles that there are for this broker: those of `told`."""
        self._is_all_told = True
        if self._has_joined:
            for log_dir in self._log_dirs:
                self._start(self._set_strays_aside(log_dir, frozenset(told)))

    async def _set_strays_aside(self, log_dir: LogDirRunner, told: Set[ReplicaId]) -> None:
        """See `strays.py`. S1, S4"""

        def is_stray(one: TopicPartition, topic_id: TopicId, log_dir: LogDirRunner) -> bool:
            return (topic_id, one.partition) not in told and self._is_stray(one, topic_id, log_dir)

        strays = [one for one in await strays_in(log_dir, is_stray) if one not in self._occupied]
        if strays and self._is_all_told:
            vacate = self._occupy(strays)
            try:
                await log_dir.set_aside_strays(strays)
            finally:
                vacate()
        if self._is_all_told:
            await self.moves.set_strays_aside(log_dir, is_stray)

    def _is_stray(self, one: TopicPartition, topic_id: TopicId, log_dir: LogDirRunner) -> bool:
        role = self._roles.get(one)
        if role is not None and role.topic_id == topic_id:
            return self._is_elsewhere(one, log_dir)
        topic = self._partitions.image.topic_by_id(topic_id)
        if topic is None:
            return log_dir.was_ours  # S3
        return (
            one.partition < len(topic.partitions)
            and self._broker_id not in topic.partitions[one.partition].replicas
        )

    # -- deleting --------------------------------------------------------------------------------

    def _delete(self, topics: Collection[str]) -> None:
        self._roles = {one: role for one, role in self._roles.items() if one.topic not in topics}
        self._discard(self._partitions.remove_topics(topics))

    async def _delete_doomed(self, log_dir: LogDirRunner) -> None:
        """First of all when a directory is back, so that nothing of the same names is there yet."""
        doomed = {
            one: topic_id
            for one, topic_id in log_dir.doomed.items()
            if one not in self._occupied
            and (not self._is_assigned(one, topic_id) or self._is_elsewhere(one, log_dir))
        }
        vacate = self._occupy(list(doomed))
        try:
            await log_dir.delete_doomed(doomed)
        finally:
            vacate()

    def _is_elsewhere(self, one: TopicPartition, log_dir: LogDirRunner) -> bool:
        """Whether it was made anew in another directory. I7"""
        runner = self._partitions.find(*one)
        return runner is not None and runner.log_directory is not log_dir

    def _is_assigned(self, one: TopicPartition, topic_id: TopicId) -> bool:
        topic = self._partitions.image.topic_by_id(topic_id)
        return (
            topic is not None
            and one.partition < len(topic.partitions)
            and self._broker_id in topic.partitions[one.partition].replicas
        )

    def _discard(self, runners: Sequence[PartitionRunner]) -> None:
        """Delete the logs of runners that nobody can find any more."""
        doomed: dict[tuple[LogDirRunner, int], list[PartitionRunner]] = {}
        for runner in runners:
            if runner.follower is not None:
                self._fetchers.unfollow(runner.follower)
            log_dir = next(
                known
                for known in self._log_dirs
                if known.runners.get(runner.topic_partition) is runner
            )
            del log_dir.runners[runner.topic_partition]
            self.moves.on_deleted(runner.topic_partition)
            self._recovered.discard(runner.topic_partition)
            runner.take_offline()
            if runner.topic_partition not in self._occupied:
                delay_ms = runner.config.file_delete_delay_ms
                doomed.setdefault((log_dir, delay_ms), []).append(runner)
            # Else its log is being opened again, and `_open_batch` finds that nobody wants it; or
            # it is changing places, and `moves` does.
        for (log_dir, delay_ms), together in doomed.items():
            vacate = self._occupy([runner.topic_partition for runner in together])
            self._start(self._remove(log_dir, together, delay_ms, vacate))

    async def _remove(
        self,
        log_dir: LogDirRunner,
        runners: Sequence[PartitionRunner],
        delay_ms: int,
        vacate: Callable[[], None],
    ) -> None:
        try:
            if not await log_dir.delete([runner.log for runner in runners], delay_ms=delay_ms):
                log_dir.doomed |= {one.topic_partition: one.topic_id for one in runners}
        finally:
            vacate()
        await self._delete_doomed(log_dir)  # If it has come back meanwhile.


def _is_deletion(change: Change) -> bool:
    return isinstance(change, TopicDeleted)


async def _require_one_place_each(
    wanted: Sequence[WantedReplica], folders: Mapping[LogDirRunner, Collection[TopicPartition]]
) -> None:
    for one in wanted:
        holders = [log_dir for log_dir, found in folders.items() if one.topic_partition in found]
        if len(holders) > 1:
            own = [
                log_dir
                for log_dir in holders
                if await _is_of_topic(log_dir, one.topic_partition, one.topic_id)
            ]
            if len(own) > 1:
                raise in_two_places(one.topic_partition, *own)


async def _is_of_topic(log_dir: LogDirRunner, one: TopicPartition, topic_id: TopicId) -> bool:
    """Whether the folder there states this topic id, and not that of another topic."""
    assert log_dir.log_dir is not None
    try:
        found = await log_dir.executor.urgent(log_dir.log_dir.topic_id, one)
    except StorageError:
        return False  # Whoever opens it says what is wrong.
    return found == topic_id
