"""One of `log.dirs`: its lock, its identity, its partition folders and its checkpoints (S1, S7).

    .lock                                 held while a process uses the dir, Kafka's as well
    meta.properties                       whose dir it is
    .kafka_cleanshutdown                  the last stop was clean: nothing needs recovery
    recovery-point-offset-checkpoint      below it, everything is on stable storage
    log-start-offset-checkpoint           below it, records were deleted
    replication-offset-checkpoint         below it, records are committed (the high watermark)
    cleaner-offset-checkpoint             below it, records were compacted; whoever is in it has
                                          been compacted once, or was about to be
    <topic>-<n>/                          a partition
    <topic>-<n>.<unique>-delete/          a partition that is being deleted
    <topic>-<n>.<unique>-future/          a copy of a partition that lies in another log dir, and is
                                          to lie here (`future_log.py`)

The clean-shutdown mark is removed, durably, before any partition is opened: whatever happens next,
it cannot be taken for the mark of a later stop. It is written after everything it vouches for.

A checkpoint that cannot be read is reported and taken for lost: without recovery points every log
is scanned from its start, without log start offsets deleted records may come back until retention
takes them, without high watermarks they start from the log start, without cleaner offsets logs are
compacted anew. Kafka takes the dir offline
instead; but all of it can be found out from the logs, or be lost without losing a record.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

from tidelog.base.errors import ConfigError, StorageError
from tidelog.base.ids import BrokerId, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk, HeldLock
from tidelog.storage import layout
from tidelog.storage.checkpoints import (
    CorruptCheckpoint,
    encode_uuid,
    read_offsets,
    read_topic_id,
    write_offsets,
)
from tidelog.storage.file_cache import FileCache
from tidelog.storage.future_log import FutureLog, Moved, read_moved
from tidelog.storage.log import Log, LogConfig
from tidelog.storage.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from tidelog.storage.opening import OpenedLog, Replay, open_log


class LogDir:
    """A log dir this process holds the lock of. Every call may block.

    What checkpoints say is remembered for partitions that are opened, or opened again, later.
    """

    def __init__(
        self,
        *,
        disk: Disk,
        path: Path,
        directory_id: str,
        lock: HeldLock,
        was_new: bool,
        was_clean: bool,
        open_files_max: int,
        warn: Callable[[str], None],
    ) -> None:
        """Only for `open_log_dir`."""
        self.path = path
        self.directory_id = directory_id
        self.was_new = was_new
        self.was_clean = was_clean
        self.was_ours = disk.exists(path / layout.BOOT_ID) or not _partitions(disk, path)
        """Whether whatever is here was written by brokers that belong together, and to us."""
        self.is_vouched_for = was_new or was_clean
        """Whether everybody who has to know of a stop that was not clean does."""
        self._disk = disk
        self._lock = lock
        self._warn = warn
        self._files = FileCache(disk, open_files_max=open_files_max)
        recovery_points = self._read_offsets(layout.RECOVERY_POINT_CHECKPOINT)
        self._recovery_points = recovery_points or {}
        self._unknown_recovery_point = None if recovery_points is None else Offset(0)
        self._log_start_offsets = self._read_offsets(layout.LOG_START_OFFSET_CHECKPOINT) or {}
        self._high_watermarks = self._read_offsets(layout.HIGH_WATERMARK_CHECKPOINT) or {}
        self._cleaner_offsets = self._read_offsets(layout.CLEANER_OFFSET_CHECKPOINT) or {}
        self._written_cleaner_offsets = dict(self._cleaner_offsets)
        self._has_renamed = False
        self._has_forgotten = False
        self._forget_absent()

    def _read_offsets(self, name: str) -> dict[TopicPartition, Offset] | None:
        try:
            return read_offsets(self._disk, self.path / name)
        except CorruptCheckpoint as error:
            self._warn(f"{error}: going on without it")
            return None

    def _by_partition(self) -> tuple[dict[TopicPartition, Offset], ...]:
        return (
            self._recovery_points,
            self._log_start_offsets,
            self._high_watermarks,
            self._cleaner_offsets,
        )

    def _forget_absent(self) -> None:
        """A deletion may have been interrupted after the folder was renamed."""
        present = {*self.partitions(), *(one for one, _ in self.futures())}
        for offsets in self._by_partition():
            for absent in offsets.keys() - present:
                del offsets[absent]
                self._has_forgotten = True
        self.forget_deleted()

    def last_boot_id(self) -> str | None:
        """Of the machine, when this dir was last vouched for; None if nobody has."""
        path = self.path / layout.BOOT_ID
        if not self._disk.exists(path):
            return None
        return self._disk.read_file(path).decode("ascii", "replace").strip()

    def write_boot_id(self, boot_id: str) -> None:
        """From here on this dir is vouched for. What is not flushed may be lost with this boot."""
        if self.last_boot_id() != boot_id:
            self._disk.replace_file(self.path / layout.BOOT_ID, boot_id.encode())

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition folder there is, sorted; but for those whose place a copy has taken."""
        return _partitions(self._disk, self.path)

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """As last checkpointed; 0 if never."""
        return self._high_watermarks.get(topic_partition, Offset(0))

    def has_folder(self, topic_partition: TopicPartition) -> bool:
        return self._disk.exists(self.path / str(topic_partition))

    def holds_log(self, topic_partition: TopicPartition) -> bool:
        """Whether there is a segment in the folder of that name, if it is one."""
        folder = self.path / str(topic_partition)
        if not self._disk.is_folder(folder):
            return False
        return bool(layout.sort_folder(self._disk.list_folder(folder)).offsets(layout.LOG))

    def topic_id(self, topic_partition: TopicPartition) -> TopicId | None:
        """What `partition.metadata` says; None if there is none. Nonsense is a StorageError."""
        return read_topic_id(
            self._disk, self.path / str(topic_partition) / layout.PARTITION_METADATA
        )

    def open_partition(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: TopicId | None,
        config: LogConfig,
        replay: Replay,
        now_ms: int,
    ) -> OpenedLog:
        """Open or create the partition's folder; see `opening.open_log`."""
        return open_log(
            disk=self._disk,
            files=self._files,
            folder=self.path / str(topic_partition),
            topic_partition=topic_partition,
            topic_id=topic_id,
            config=config,
            clean=self.was_clean,
            recovery_point=self._recovery_points.get(topic_partition, self._unknown_recovery_point),
            log_start_offset=self._log_start_offsets.get(topic_partition, Offset(0)),
            has_been_compacted=topic_partition in self._cleaner_offsets,
            replay=replay,
            warn=self._warn,
            now_ms=now_ms,
        )

    # -- copies of partitions in other log dirs --------------------------------------------------

    def futures(self) -> tuple[tuple[TopicPartition, str], ...]:
        """Every folder that a partition of another log dir is being copied to, and its name."""
        found = []
        for name in self._disk.list_folder(self.path):
            topic_partition = layout.parse_future_folder(name)
            if topic_partition is not None:
                found.append((topic_partition, name))
        return tuple(found)

    def future(self, name: str) -> FutureLog:
        return FutureLog(self._disk, self.path / name)

    def future_topic_id(self, name: str) -> TopicId | None:
        """As `topic_id`."""
        return read_topic_id(self._disk, self.path / name / layout.PARTITION_METADATA)

    def moved(self) -> dict[TopicPartition, Moved | None]:
        """Folders whose place a copy has taken, and which; None where nobody can read that."""
        found: dict[TopicPartition, Moved | None] = {}
        for topic_partition in _named_like_partitions(self._disk, self.path):
            folder = self.path / str(topic_partition)
            if self._disk.exists(folder / layout.MOVED):
                try:
                    found[topic_partition] = read_moved(self._disk, folder)
                except StorageError as error:
                    self._warn(str(error))
                    found[topic_partition] = None
        return found

    def is_moved(self, topic_partition: TopicPartition) -> bool:
        """Whether the folder of that name is marked as nobody's."""
        return self._disk.exists(self.path / str(topic_partition) / layout.MOVED)

    def write_future_offsets(
        self,
        topic_partition: TopicPartition,
        *,
        recovery_point: Offset,
        log_start_offset: Offset,
        high_watermark: Offset,
        cleaner_offset: Offset | None,
    ) -> None:
        """What the checkpoints will say of a copy when it is a partition of this dir."""
        self.write_recovery_points({topic_partition: recovery_point})
        self.write_log_start_offsets({topic_partition: log_start_offset})
        self.write_high_watermarks({topic_partition: high_watermark})
        if cleaner_offset is not None:
            self.write_cleaner_offsets({topic_partition: cleaner_offset})

    def promote(self, topic_partition: TopicPartition, future_name: str) -> None:
        """Make a copy the partition of this dir. Whatever has that name is set aside."""
        folder = self.path / str(topic_partition)
        if self._disk.exists(folder):
            stray = self.path / layout.stray_folder_name(topic_partition, uuid4())
            self._warn(f"{folder} is in the way of a replica that was moved: now {stray}")
            self._files.forget_folder(folder)
            self._disk.rename(folder, stray)
        self._disk.rename(self.path / future_name, folder)
        self._disk.flush_folder(self.path)

    def open_promoted(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: TopicId,
        config: LogConfig,
        log_start_offset: Offset,
        now_ms: int,
    ) -> Log:
        """Open what was completed and promoted just now, by this process."""
        log = open_log(
            disk=self._disk,
            files=self._files,
            folder=self.path / str(topic_partition),
            topic_partition=topic_partition,
            topic_id=topic_id,
            config=config,
            clean=True,
            recovery_point=None,
            log_start_offset=log_start_offset,
            has_been_compacted=topic_partition in self._cleaner_offsets,
            replay=Replay(restore=_ignore, observe=_ignore),
            warn=self._warn,
            now_ms=now_ms,
        ).log
        log.on_promoted()
        return log

    def discard_future(self, topic_partition: TopicPartition, name: str) -> None:
        """Remove a copy that is not wanted. Renamed first: what a crash leaves of it is no copy."""
        folder = self.path / name
        if not self._disk.exists(folder):
            return
        doomed = self.path / layout.delete_folder_name(topic_partition, uuid4())
        self._disk.rename(folder, doomed)
        self._disk.flush_folder(self.path)
        if not self.has_folder(topic_partition):
            self._forget(topic_partition)
        self.forget_deleted()
        self._disk.remove_folder(doomed)

    def set_future_aside(self, topic_partition: TopicPartition, name: str) -> Path | None:
        """As `set_aside`, for a copy that nobody asks for; None if it is not there any more."""
        if not self._disk.exists(self.path / name):
            return None
        stray = self.path / layout.stray_folder_name(topic_partition, uuid4())
        self._disk.rename(self.path / name, stray)
        self._disk.flush_folder(self.path)
        return stray

    # -- checkpoints -----------------------------------------------------------------------------

    def write_recovery_points(self, points: Mapping[TopicPartition, Offset]) -> None:
        """Bring `recovery-point-offset-checkpoint` up to date.

        Partitions that are not named keep what they have: they may just be being opened.
        """
        self._recovery_points = {**self._recovery_points, **points}
        self._write_offsets(layout.RECOVERY_POINT_CHECKPOINT, self._recovery_points)

    def write_log_start_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The same for `log-start-offset-checkpoint`."""
        self._log_start_offsets = {**self._log_start_offsets, **offsets}
        self._write_offsets(layout.LOG_START_OFFSET_CHECKPOINT, self._log_start_offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The same for `replication-offset-checkpoint`."""
        self._high_watermarks = {**self._high_watermarks, **offsets}
        self._write_offsets(layout.HIGH_WATERMARK_CHECKPOINT, self._high_watermarks)

    def cleaner_offset(self, topic_partition: TopicPartition) -> Offset | None:
        """Below it the log was compacted; None if that has never been begun."""
        return self._cleaner_offsets.get(topic_partition)

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The same for `cleaner-offset-checkpoint`."""
        self._cleaner_offsets = {**self._cleaner_offsets, **offsets}
        self._write_offsets(layout.CLEANER_OFFSET_CHECKPOINT, self._cleaner_offsets)
        self._written_cleaner_offsets = dict(self._cleaner_offsets)

    def lower_cleaner_offset(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """The log is about to be cut at `offset`: what will be written there is not compacted."""
        if self._cleaner_offsets.get(topic_partition, offset) > offset:
            self.write_cleaner_offsets({topic_partition: offset})

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        write_offsets(self._disk, self.path / name, offsets)

    def start_delete(self, log: Log) -> Path:
        """Close `log` and rename its folder to `<topic>-<n>.<unique>-delete`.

        Reads that are under way end with UNKNOWN_TOPIC_OR_PARTITION if they miss a file. Before
        a partition of that name is created again, call `forget_deleted`, which makes the renames
        durable: one flush for any number of them.
        """
        log.close(clean=False, producers=())
        return self.start_delete_folder(log.topic_partition)

    def start_delete_folder(self, topic_partition: TopicPartition) -> Path:
        """The same for a folder that is not open, such as one of a topic that no longer exists."""
        return self._rename(topic_partition, layout.delete_folder_name(topic_partition, uuid4()))

    def set_aside(self, topic_partition: TopicPartition) -> Path:
        """Rename a folder that is not asked for, or in the way, to `<topic>-<n>.<unique>-stray`.

        Nobody removes it: whoever lost the topic may want the records back.
        """
        return self._rename(topic_partition, layout.stray_folder_name(topic_partition, uuid4()))

    def _rename(self, topic_partition: TopicPartition, name: str) -> Path:
        self._forget(topic_partition)
        folder = self.path / str(topic_partition)
        self._files.forget_folder(folder)
        self._disk.rename(folder, self.path / name)
        self._has_renamed = True
        return self.path / name

    def _forget(self, topic_partition: TopicPartition) -> None:
        # A topic that is created again under this name must not inherit what was known about it.
        for offsets in self._by_partition():
            if offsets.pop(topic_partition, None) is not None:
                self._has_forgotten = True

    def forget_deleted(self) -> None:
        """Make renames durable, and take what was renamed out of the checkpoints.

        A new partition of the same name would be cut to fit the offsets of the old.
        """
        if self._has_renamed:
            self._disk.flush_folder(self.path)
            self._has_renamed = False
        if self._has_forgotten:
            self.write_recovery_points({})
            self.write_log_start_offsets({})
            self.write_high_watermarks({})
            if self._cleaner_offsets != self._written_cleaner_offsets:
                self.write_cleaner_offsets({})
            self._has_forgotten = False

    def finish_delete(self, folder: Path) -> None:
        """Remove what `start_delete` renamed."""
        self._disk.remove_folder(folder)

    def close(self, *, clean: bool) -> None:
        """Let go of files and lock. `clean`: leave the mark that saves the next start its recovery.

        Only after every log was closed clean and the checkpoints were written.
        """
        if clean:
            mark = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
            self._disk.replace_file(self.path / layout.CLEAN_SHUTDOWN, mark.encode())
        self._files.forget_folder(self.path)
        self._lock.release()


def open_log_dir(
    disk: Disk,
    path: Path,
    *,
    broker_id: BrokerId,
    cluster_id: str,
    open_files_max: int,
    warn: Callable[[str], None],
) -> LogDir:
    """Take the lock, check `meta.properties`, sweep leftovers, read checkpoints.

    `meta.properties` is written where it is absent. Raises StorageError if another process has
    the dir, ConfigError if it belongs to another broker or cluster.
    """
    if not disk.exists(path):
        disk.make_folder(path)
        disk.flush_folder(path.parent)
    lock = disk.lock(path / layout.LOCK)
    try:
        was_new = not disk.exists(path / layout.META_PROPERTIES)
        directory_id = _identify(disk, path, broker_id, cluster_id)
        was_clean = disk.exists(path / layout.CLEAN_SHUTDOWN)
        if was_clean:
            disk.remove(path / layout.CLEAN_SHUTDOWN)
            disk.flush_folder(path)
        _sweep(disk, path, warn)
        return LogDir(
            disk=disk,
            path=path,
            directory_id=directory_id,
            lock=lock,
            was_new=was_new,
            was_clean=was_clean,
            open_files_max=open_files_max,
            warn=warn,
        )
    except BaseException:
        lock.release()
        raise


def _partitions(disk: Disk, path: Path) -> tuple[TopicPartition, ...]:
    return tuple(
        one
        for one in _named_like_partitions(disk, path)
        if not disk.exists(path / str(one) / layout.MOVED)
    )


def _named_like_partitions(disk: Disk, path: Path) -> tuple[TopicPartition, ...]:
    found = []
    for name in disk.list_folder(path):
        topic_partition = layout.parse_partition_folder(name)
        if topic_partition is not None and name != layout.CLUSTER_METADATA:
            found.append(topic_partition)
    return tuple(sorted(found))


def _identify(disk: Disk, path: Path, broker_id: BrokerId, cluster_id: str) -> str:
    """The id of the dir; it is given one, and the file is written, where there is none yet."""
    file = path / layout.META_PROPERTIES
    found = read_meta_properties(disk, file)
    if found is not None and found.broker_id != broker_id:
        raise ConfigError(f"{file} belongs to broker {found.broker_id}, node.id is {broker_id}")
    if found is not None and found.cluster_id != cluster_id:
        raise ConfigError(
            f"{file} belongs to cluster {found.cluster_id}, this broker is in {cluster_id}"
        )
    if found is not None and found.directory_id is not None:
        return found.directory_id
    directory_id = encode_uuid(uuid4())
    write_meta_properties(disk, file, MetaProperties(broker_id, cluster_id, directory_id))
    return directory_id


def _sweep(disk: Disk, path: Path, warn: Callable[[str], None]) -> None:
    """Remove folders whose deletion was under way; say what does not belong here."""
    for name in disk.list_folder(path):
        if layout.is_delete_folder(name):
            disk.remove_folder(path / name)
        elif name.endswith(layout.TEMPORARY):
            disk.remove(path / name)
        elif "-" in name and not _is_known(name):
            warn(f"{path / name} is not the folder of a partition: left alone")


def _is_known(name: str) -> bool:
    return (
        name in _KNOWN
        or layout.parse_partition_folder(name) is not None
        or layout.parse_future_folder(name) is not None
    )


def _ignore(*_known: object) -> None:
    """Whoever moved the replica knows its producers."""


_KNOWN = frozenset(
    (
        layout.RECOVERY_POINT_CHECKPOINT,
        layout.LOG_START_OFFSET_CHECKPOINT,
        layout.HIGH_WATERMARK_CHECKPOINT,
        layout.CLEANER_OFFSET_CHECKPOINT,
    )
)
