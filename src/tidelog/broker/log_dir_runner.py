"""One log directory in service: its threads, its checkpoints, and what happens when it fails (S9).

        ┌─────────┐  open   ┌────────────┐  every log is open   ┌────────┐
   ────▶│ offline │────────▶│ recovering │─────────────────────▶│ online │
        └─────────┘         └────────────┘                      └────────┘
             ▲                    │                                 │
             └────────────────────┴────────── StorageError ─────────┘

A directory that fails takes its own partitions offline: they answer KAFKA_STORAGE_ERROR, the rest
of the broker serves on. It is tried again every `tidelog.log.dir.retry.ms`: its logs are opened as
after a crash, so nothing that was in doubt is served before it was checked. That brings a disk back
that was full, without a restart.

Not so after a flush that failed. What is then read back comes from memory and may not be on the
disk, and the next flush would say that it is; so it stays offline until the broker restarts.

Invariants:

    I1  Nothing is written to a directory that is offline.
    I2  The clean-shutdown mark is left only if every log was open, nothing is under way on either
        thread, and nothing has failed; and, if the stop before was not clean, only once the
        cluster has heard of that: the mark would hide what may have been lost (R13).
    I3  A folder is renamed for deletion only when no thread works in it any more.
    I4  Checkpoints are written by the background thread alone.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.base.errors import FlushFailed, StorageError
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk
from tidelog.broker.disk_executor import DiskExecutor, as_storage_error
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.core.controller.image import LastStop
from tidelog.storage.checkpoints import CorruptCheckpoint
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

UNKNOWN_BOOT = ""

FOREIGN = "folder of another topic set aside"
STRAY = "replica is not assigned to this broker any more: its folder is set aside"

T = TypeVar("T")


class FutureReplica(Protocol):
    """A replica that is being copied from another directory to this one (`replica_mover.py`)."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def offset_lag(self) -> int:
        """How many offsets it lacks, at most."""
        ...


class LogDirRunner:
    """Owns one `LogDir` and the partitions in it."""

    def __init__(
        self,
        *,
        path: Path,
        disk: Disk,
        executor: DiskExecutor,
        loop: asyncio.AbstractEventLoop,
        open_log_dir: Callable[[], LogDir],
        on_changed: Callable[[], None],
    ) -> None:
        """`open_log_dir` takes the directory's lock and blocks. `on_changed` is called when the
        directory has failed, and when it works again."""
        self.path = path
        self.disk = disk
        self.executor = executor
        self.runners: dict[TopicPartition, PartitionRunner] = {}
        self.log_dir: LogDir | None = None
        self.offline_reason: str | None = None
        self.stays_offline = False
        """Whether trying again would prove nothing."""
        self.futures: dict[TopicPartition, FutureReplica] = {}
        """Replicas of other directories that are being copied to this one."""
        self.doomed: dict[TopicPartition, TopicId] = {}
        """Replicas that were deleted while the directory could not be used."""
        self.was_ours = False
        """Whether a broker of ours had served from it when this one came to use it."""
        self._loop = loop
        self._open_log_dir = open_log_dir
        self._on_changed = on_changed
        self._is_recovering = False
        self._is_vouched_for = False
        self._has_lost_replicas = False
        self._has_failed = False
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {}
        self._deletions: set[asyncio.TimerHandle] = set()
        self._log_starts_turn = asyncio.Lock()
        self._log_starts_asked = 0
        self._log_starts_written = 0
        self._cutting: dict[TopicPartition, Offset] = {}

    @property
    def is_online(self) -> bool:
        """Whether logs in it may be used, or opened."""
        return self.log_dir is not None and self.offline_reason is None

    def total_bytes(self) -> int:
        """Size of the disk. Blocks."""
        return self.disk.total_bytes(self.path)

    def usable_bytes(self) -> int:
        """What is left of it. Blocks."""
        return self.disk.free_bytes(self.path)

    # -- beginning -------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take the directory into use. Its partitions are opened next; then call `recovered`.

        Raises StorageError or ConfigError, and nothing has changed then.
        """
        log_dir = await self.executor.urgent(self._open_log_dir)
        if self.log_dir is None and self.offline_reason is None:
            self.was_ours = log_dir.was_ours
        # Also if it is this very process that did not close it in order, when it failed.
        log_dir.is_vouched_for |= self._is_vouched_for
        self._is_vouched_for = log_dir.is_vouched_for
        self.log_dir = log_dir
        self.offline_reason = None
        self._is_recovering = True
        self._written.clear()

    def recovered(self) -> None:
        """Every log that belongs here has been opened."""
        self._is_recovering = False
        if self._has_failed:
            self._has_failed = False
            self._on_changed()

    async def partitions(self) -> Sequence[TopicPartition]:
        """Every partition that has a folder here; none if the directory cannot be read."""
        if self.log_dir is None or not self.is_online:
            return ()
        try:
            return await self.executor.urgent(self.log_dir.partitions)
        except StorageError as error:
            self.on_failure(error)
            return ()

    async def release(self) -> None:
        """Let go of a directory that is offline, files and lock, before it is tried again."""
        assert self.offline_reason is not None
        log_dir, self.log_dir = self.log_dir, None
        logs = [runner.log for runner in self.runners.values()]
        await self._idle()
        await self.executor.background(_close_unclean, log_dir, logs)

    async def last_stop(self, boot_id: str) -> LastStop:
        """How whoever used the directory before ended, and so what it can have lost (R13)."""
        log_dir = self.log_dir
        if log_dir is None or not self.is_online:
            return LastStop.LOST  # Nobody can tell.
        if self._has_lost_replicas:
            return LastStop.LOST
        if log_dir.was_clean or log_dir.was_new:
            return LastStop.CLEAN
        try:
            last_boot_id = await self.executor.urgent(log_dir.last_boot_id)
        except StorageError as error:
            self.on_failure(error)
            return LastStop.LOST
        if boot_id == UNKNOWN_BOOT or last_boot_id != boot_id:
            return LastStop.LOST
        return LastStop.KILLED

    async def on_lost_replicas(self) -> None:
        """Others count on replicas that are not here any more, whatever the directory says (R13).

        To be called before there are folders for them again: who is killed then must still know.
        """
        self._has_lost_replicas = True
        self._is_vouched_for = False
        log_dir = self.log_dir
        if log_dir is None or not self.is_online:
            return
        log_dir.is_vouched_for = False
        try:
            await self.executor.urgent(_forget_boot, log_dir)
        except StorageError as error:
            self.on_failure(error)

    async def was_vouched_for(self) -> bool:
        """Whether a broker of ours has served from it before; also if nobody can tell."""
        log_dir = self.log_dir
        if log_dir is None or not self.is_online:
            return True
        try:
            return await self.executor.urgent(log_dir.last_boot_id) is not None
        except StorageError as error:
            self.on_failure(error)
            return True

    async def write_boot_id(self, boot_id: str) -> None:
        """The cluster knows by now what this directory may have lost: vouch for it anew."""
        self._is_vouched_for = True
        log_dir = self.log_dir
        if log_dir is None or not self.is_online:
            return
        try:
            await self.executor.background(log_dir.write_boot_id, boot_id)
            log_dir.is_vouched_for = True
        except StorageError as error:
            self.on_failure(error)

    # -- failure ---------------------------------------------------------------------------------

    def on_failure(self, error: StorageError) -> None:
        """Take the directory and everything in it offline."""
        self.stays_offline |= isinstance(error, FlushFailed)
        if self.offline_reason is not None:
            return
        self.offline_reason = str(error)
        self._has_failed = True
        logger.error(
            "log directory offline",
            extra={
                "log_dir": self.path,
                "reason": self.offline_reason,
                "until": "the broker restarts" if self.stays_offline else "it can be used again",
                "partitions": len(self.runners),
            },
        )
        for runner in tuple(self.runners.values()):
            runner.take_offline()
        self._on_changed()

    # -- checkpoints -----------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Write down recovery points, log starts and high watermarks, where they have changed."""
        await self._write_changed("recovery points", self._recovery_point)
        await self._write_changed("log starts", lambda runner: runner.log.log_start_offset)
        await self._write_changed("high watermarks", lambda runner: runner.high_watermark)

    async def checkpoint_high_watermarks(self) -> None:
        await self._write_changed("high watermarks", lambda runner: runner.high_watermark)

    async def checkpoint_log_starts(self) -> None:
        """Also if somebody else writes already: what has moved since may not be in that.

        One write is enough for all who ask while another is under way.
        """
        self._log_starts_asked += 1
        number = self._log_starts_asked
        async with self._log_starts_turn:  # Ended by the disk.
            if self._log_starts_written < number:
                newest = self._log_starts_asked
                await self._write_changed("log starts", lambda runner: runner.log.log_start_offset)
                self._log_starts_written = newest

    def cleaner_offset(self, topic_partition: TopicPartition) -> Offset | None:
        """Up to where the log was compacted; None if that has never been begun."""
        return None if self.log_dir is None else self.log_dir.cleaner_offset(topic_partition)

    async def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write `cleaner-offset-checkpoint`; returns once it is on disk, or the disk has failed."""
        log_dir = self.log_dir
        if log_dir is None or not self.is_online:
            return
        try:
            await self.executor.background(_write_cleaner_offsets, log_dir, offsets)
        except StorageError as error:
            self.on_failure(error)

    async def _write_changed(self, name: str, value: Callable[[PartitionRunner], Offset]) -> None:
        log_dir = self.log_dir
        if log_dir is None or not self.is_online:
            return
        values = {tp: value(runner) for tp, runner in self.runners.items()}
        if values == self._written.get(name):
            return
        write = {
            "recovery points": log_dir.write_recovery_points,
            "log starts": log_dir.write_log_start_offsets,
            "high watermarks": log_dir.write_high_watermarks,
        }[name]
        try:
            await self.executor.background(write, values)
        except StorageError as error:
            self.on_failure(error)
            return
        self._written[name] = values

    # -- truncating ------------------------------------------------------------------------------

    def truncate(
        self, topic_partition: TopicPartition, recovery_point: Offset, work: Callable[[], None]
    ) -> "asyncio.Future[None]":
        """Lower the checkpoints that are above it, then do `work`, which cuts the log there.

        On the background thread, so that no flush of that log is under way meanwhile.
        """
        log_dir = self.log_dir
        self._cutting[topic_partition] = recovery_point
        points = {tp: self._recovery_point(runner) for tp, runner in self.runners.items()}
        self._written.pop("recovery points", None)

        def run() -> None:
            assert log_dir is not None
            log_dir.write_recovery_points(points)
            log_dir.lower_cleaner_offset(topic_partition, recovery_point)
            work()

        cut = self.executor.background(run)
        cut.add_done_callback(lambda _: self._cutting.pop(topic_partition))
        return cut

    def _recovery_point(self, runner: PartitionRunner) -> Offset:
        # What is written down while a thread is about to cut a log must not be above the cut.
        recovery_point = runner.log.recovery_point
        return min(recovery_point, self._cutting.get(runner.topic_partition, recovery_point))

    # -- deleting --------------------------------------------------------------------------------

    def delete_later(self, paths: Sequence[Path], *, delay_ms: int) -> None:
        """Remove the files of expired segments when readers have had time to finish."""
        self._later(delay_ms, lambda: self._remove(paths))

    async def delete(self, logs: Sequence[Log], *, delay_ms: int) -> bool:
        """Rename the folders of deleted partitions, and remove them after `file.delete.delay.ms`.
        False if the directory cannot be used.

        Returns when the folders have their new names and the checkpoints have forgotten them, so
        that partitions of the same names may be created. Nobody may use `logs` any more; what
        was begun, a roll or an fsync, must not lose its files under its hands. I3
        """
        log_dir = self.log_dir
        await self._idle()
        if log_dir is None or log_dir is not self.log_dir or not self.is_online:
            # I1. They are removed when it can be used again (`doomed`); a file that is open would
            # keep its room on the disk for as long as this process runs.
            await self.close_unused(logs)
            return False
        try:
            folders = await self.executor.background(_start_delete, log_dir, logs)
        except StorageError as error:
            self.on_failure(error)
            return False
        self._written.clear()
        self._later(delay_ms, lambda: _finish_delete(log_dir, folders))
        return True

    async def delete_doomed(self, doomed: Mapping[TopicPartition, TopicId]) -> None:
        """Remove at once what was deleted while the directory could not be used: it may be full."""
        log_dir = self.log_dir
        if not doomed or log_dir is None or not self.is_online:
            return
        try:
            await self.executor.background(_delete_doomed, log_dir, doomed)
        except StorageError as error:
            self.on_failure(error)
            return
        for topic_partition in doomed:
            self.doomed.pop(topic_partition, None)
        self._written.clear()

    async def set_aside_strays(self, partitions: Sequence[TopicPartition]) -> None:
        """Move folders out of the way that nobody asks for; see `strays.py`."""
        log_dir = self.log_dir
        if not partitions or log_dir is None or not self.is_online:
            return
        try:
            await self.executor.background(_set_aside, log_dir, partitions, STRAY)
        except StorageError as error:
            self.on_failure(error)
        self._written.clear()

    async def set_aside(self, partitions: Sequence[TopicPartition]) -> None:
        """Move folders out of the way that belong to other topics. Raises StorageError."""
        assert self.log_dir is not None
        await self.executor.background(_set_aside, self.log_dir, partitions, FOREIGN)
        self._written.clear()

    async def close_unused(self, logs: Sequence[Log]) -> None:
        """Let go of logs that were opened for nothing."""
        await self.executor.background(_close_unclean, None, logs)

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            self._deletions.discard(handle)
            if self.is_online:
                self._watch(self.executor.background(work))

        handle = self._loop.call_later(delay_ms / 1000, run)
        self._deletions.add(handle)

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self.disk.remove(path)

    def _watch(self, future: "asyncio.Future[T]") -> None:
        def done(finished: "asyncio.Future[T]") -> None:
            error = finished.exception()
            if error is not None:
                self.on_failure(as_storage_error(error))

        future.add_done_callback(done)

    # -- end -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every log and leave the clean-shutdown mark. What fails stays for recovery."""
        for handle in self._deletions:
            handle.cancel()
        log_dir = self.log_dir
        if log_dir is None or not self.is_online or self._is_recovering:
            return  # I1, I2
        for runner in tuple(self.runners.values()):
            runner.take_offline()
        await self._idle()
        if not self.is_online:
            return
        try:
            for runner in tuple(self.runners.values()):
                await self.executor.urgent(
                    runner.log.close, clean=True, producers=runner.producers.entries()
                )
            await self.checkpoint()
            if self.is_online:
                await self.executor.urgent(log_dir.close, clean=log_dir.is_vouched_for)
        except StorageError as error:
            self.on_failure(error)

    async def _idle(self) -> None:
        """Return when both threads have done, and the loop has heard of, all they have by now."""
        await self.executor.urgent(_nothing)
        # Second, because the end of a roll begins a flush.
        await self.executor.background(_nothing)


def _nothing() -> None:
    """The work of somebody who waits for those before him."""


def _start_delete(log_dir: LogDir, logs: Sequence[Log]) -> list[Path]:
    folders = [log_dir.start_delete(log) for log in logs]
    log_dir.forget_deleted()
    return folders


def _delete_doomed(log_dir: LogDir, doomed: Mapping[TopicPartition, TopicId]) -> None:
    for topic_partition in log_dir.partitions():
        topic_id = doomed.get(topic_partition)
        if topic_id is not None and _topic_id(log_dir, topic_partition) == topic_id:
            log_dir.finish_delete(log_dir.start_delete_folder(topic_partition))
    log_dir.forget_deleted()


def _topic_id(log_dir: LogDir, topic_partition: TopicPartition) -> TopicId | None:
    try:
        return log_dir.topic_id(topic_partition)
    except CorruptCheckpoint:
        return None


def _finish_delete(log_dir: LogDir, folders: Sequence[Path]) -> None:
    for folder in folders:
        log_dir.finish_delete(folder)


def _set_aside(log_dir: LogDir, partitions: Sequence[TopicPartition], why: str) -> None:
    for topic_partition in partitions:
        folder = log_dir.set_aside(topic_partition)
        logger.warning(why, extra={"partition": topic_partition, "folder": folder})
    log_dir.forget_deleted()


def _write_cleaner_offsets(log_dir: LogDir, offsets: Mapping[TopicPartition, Offset]) -> None:
    # Of a partition that was deleted meanwhile, nothing may be remembered.
    log_dir.write_cleaner_offsets({one: offsets[one] for one in offsets if log_dir.has_folder(one)})


def _forget_boot(log_dir: LogDir) -> None:
    if log_dir.last_boot_id() is not None:  # Else there is nothing that could be believed.
        log_dir.write_boot_id(UNKNOWN_BOOT)


def _close_unclean(log_dir: LogDir | None, logs: Sequence[Log]) -> None:
    for log in logs:
        log.close(clean=False, producers=())
    if log_dir is not None:
        log_dir.close(clean=False)
