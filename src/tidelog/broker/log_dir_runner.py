"""One log directory in service: its threads, its checkpoints, and what happens when it fails (S9).

              ┌──────────── StorageError ───────────┐
              │                                     ▼
        ┌─────┴────┐                          ┌──────────┐
   ────▶│  online  │◀── every log recovered ──│ offline  │
        └──────────┘        (retried)         └──────────┘

A directory that fails takes its own partitions offline: they answer KAFKA_STORAGE_ERROR, the rest
of the broker serves on. It is tried again every `tidelog.log.dir.retry.ms`: its logs are opened as
after a crash, so nothing that was in doubt is served before it was checked. That brings a disk back
that was full, without a restart.

Nothing is written to a directory that is offline, in particular no clean-shutdown mark.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Disk
from tidelog.broker.disk_executor import DiskExecutor
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LogDirRunner:
    """Owns one `LogDir` and the partitions in it."""

    def __init__(
        self,
        *,
        path: Path,
        disk: Disk,
        executor: DiskExecutor,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.path = path
        self.disk = disk
        self.executor = executor
        self.runners: dict[TopicPartition, PartitionRunner] = {}
        self.log_dir: LogDir | None = None
        self.offline_reason: str | None = None
        self._loop = loop
        self._on_offline: Callable[[LogDirRunner], None] | None = None
        self._written: dict[str, Mapping[TopicPartition, Offset]] = {}
        self._deletions: set[asyncio.TimerHandle] = set()

    @property
    def is_online(self) -> bool:
        return self.log_dir is not None and self.offline_reason is None

    def total_bytes(self) -> int:
        """Size of the disk. Blocks."""
        return self.disk.total_bytes(self.path)

    def usable_bytes(self) -> int:
        """What is left of it. Blocks."""
        return self.disk.free_bytes(self.path)

    def opened(self, log_dir: LogDir) -> None:
        """The directory is locked by us and may be used."""
        self.log_dir = log_dir
        self.offline_reason = None
        self._written.clear()

    def when_offline(self, callback: "Callable[[LogDirRunner], None]") -> None:
        self._on_offline = callback

    # -- failure ---------------------------------------------------------------------------------

    def on_failure(self, error: StorageError) -> None:
        """Take the directory and everything in it offline."""
        if self.offline_reason is not None:
            return
        self.offline_reason = str(error)
        logger.error(
            "log directory offline",
            extra={
                "log_dir": self.path,
                "reason": self.offline_reason,
                "partitions": len(self.runners),
            },
        )
        for runner in tuple(self.runners.values()):
            runner.take_offline()
        if self._on_offline is not None:
            self._on_offline(self)

    # -- checkpoints -----------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Write down recovery points, log starts and high watermarks, where they have changed."""
        await self._write_changed("recovery points", lambda runner: runner.log.recovery_point)
        await self._write_changed("log starts", lambda runner: runner.log.log_start_offset)
        await self._write_changed("high watermarks", lambda runner: runner.high_watermark)

    async def checkpoint_high_watermarks(self) -> None:
        await self._write_changed("high watermarks", lambda runner: runner.high_watermark)

    async def checkpoint_log_starts(self) -> None:
        await self._write_changed("log starts", lambda runner: runner.log.log_start_offset)

    async def _write_changed(self, name: str, value: Callable[[PartitionRunner], Offset]) -> None:
        if self.log_dir is None or self.offline_reason is not None:
            return
        values = {tp: value(runner) for tp, runner in self.runners.items()}
        if values == self._written.get(name):
            return
        write = {
            "recovery points": self.log_dir.write_recovery_points,
            "log starts": self.log_dir.write_log_start_offsets,
            "high watermarks": self.log_dir.write_high_watermarks,
        }[name]
        try:
            await self.executor.background(write, values)
        except StorageError as error:
            self.on_failure(error)
            return
        self._written[name] = values

    # -- deleting --------------------------------------------------------------------------------

    def delete_later(self, paths: Sequence[Path], *, delay_ms: int) -> None:
        """Remove the files of expired segments when readers have had time to finish."""
        self._later(delay_ms, lambda: self._remove(paths))

    def delete_partition(self, runner: PartitionRunner) -> "asyncio.Future[None]":
        """Rename the folder of a deleted partition, and remove it after `file.delete.delay.ms`.

        Resolves when the folder has its new name. On the background thread, behind every fsync
        of the log, which must not lose its files under its hands.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        if self.log_dir is None or self.offline_reason is not None:
            done.set_result(None)  # What is left is swept away, or left alone, when it is back.
            return done
        log_dir, delay_ms = self.log_dir, runner.config.file_delete_delay_ms

        def renamed(future: "asyncio.Future[Path]") -> None:
            done.set_result(None)
            error = future.exception()
            if isinstance(error, StorageError):
                self.on_failure(error)
                return
            folder = future.result()
            self._later(delay_ms, lambda: log_dir.finish_delete(folder))

        self.executor.background(log_dir.start_delete, runner.log).add_done_callback(renamed)
        return done

    def discard(self, log: Log) -> None:
        """Delete a log that was opened for a partition which is no longer wanted."""
        assert self.log_dir is not None
        log_dir = self.log_dir
        self._watch(
            self.executor.background(lambda: log_dir.finish_delete(log_dir.start_delete(log)))
        )

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
            if isinstance(error, StorageError):
                self.on_failure(error)
            elif error is not None:
                raise error

        future.add_done_callback(done)

    async def release(self) -> None:
        """Let go of a directory that is offline, files and lock, before it is tried again."""
        assert self.offline_reason is not None
        log_dir, self.log_dir = self.log_dir, None
        logs = [runner.log for runner in self.runners.values()]
        # Behind whatever is still stuck in this directory's threads.
        await self.executor.background(_close_unclean, log_dir, logs)

    # -- end -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every log and leave the clean-shutdown mark. What fails stays for recovery."""
        for handle in self._deletions:
            handle.cancel()
        if self.log_dir is None or self.offline_reason is not None:
            return
        log_dir = self.log_dir
        try:
            for runner in self.runners.values():
                await self.executor.urgent(
                    runner.log.close, clean=True, producers=runner.producers.entries()
                )
            await self.checkpoint()
            if self.offline_reason is None:
                await self.executor.urgent(log_dir.close, clean=True)
        except StorageError as error:
            self.on_failure(error)


def _close_unclean(log_dir: LogDir | None, logs: Sequence[Log]) -> None:
    for log in logs:
        log.close(clean=False, producers=())
    if log_dir is not None:
        log_dir.close(clean=False)
