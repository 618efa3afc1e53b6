"""Compacts the logs of this broker that ask for it, the dirtiest first (S5).

    every log.cleaner.backoff.ms ──▶ measure every compacted log ──nothing is due──▶ rest
                                        ▲           │ the dirtiest, one of
                                        │           ▼ each log directory
                                write down how far ◀── step ── step ── step

The work is `storage/compaction.py`, done in small steps on the background thread of the log's
directory: what is flushed or deleted there waits for one step, not for a gigabyte. Between two
steps it is asked whether the log is still to be compacted. One step in hundreds, `Log.replace`, is
for the urgent thread, so that it meets no roll; readers wait for it, for as long as it takes to
rename a few files.

Both leaders and followers compact, each its own log, up to what is stable there. So their files
differ, and what readers find in them does not.

Invariants:

    I1  No log is compacted while retention is at work on it, and the other way round
        (`is_rearranged`).
    I2  A log that is being cut is not touched: the cut waits for what the urgent thread has, and
        we give up when we hear of it.
    I3  A log that cannot be compacted is left alone, and said so once, until it is opened again.
    I4  Whoever has been compacted here, or may be soon, is in `cleaner-offset-checkpoint`:
        recovery then expects gaps, whatever the topic's settings are by then.
    I5  A log that is being copied to another log directory is not compacted (`log_dir_moves.py`):
        the segments that were copied would not be there any more.

A disk that is full fails the compaction alone. What it wrote is removed, and there is a next time;
Kafka takes the directory offline, but then nothing would ever be removed from it.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from tidelog.base.errors import DamagedLog, DiskFull, RequestRefused, StorageError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.partition_ports import LogDirectory
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.config.log import LogConfig
from tidelog.storage.cleanable import Cleanable, measure
from tidelog.storage.compaction import (
    Compaction,
    CompactionAborted,
    CompactionLimits,
    Replace,
    Worked,
)
from tidelog.storage.log import Log
from tidelog.storage.replacement import CleanedSegment

logger = logging.getLogger(__name__)

# Smaller reads would cost more than what they read.
_READ_BYTES_MIN = 64 * 1024
_SLEEP_MAX_S = 24 * 3600.0
_PAUSE_MIN_S = 0.001


class _Candidate(NamedTuple):
    """A log that is due."""

    runner: PartitionRunner
    log: Log
    cleanable: Cleanable


class Cleaner:
    """Runs the compactions of one broker."""

    def __init__(
        self, *, config: LogConfig, partitions: Partitions, clock: Clock, hash_key: bytes
    ) -> None:
        """`hash_key`: see `BrokerPorts`."""
        self._config = config
        self._partitions = partitions
        self._clock = clock
        self._hash_key = hash_key
        self._is_reconfigured = asyncio.Event()
        self._paced_until_s = 0.0
        self._given_up: set[TopicPartition] = set()
        self.uncleanable: dict[TopicPartition, Log] = {}
        """Logs that could not be compacted. I3"""

    def on_config(self, config: LogConfig) -> None:
        """The broker's settings are these now; what is under way ends as it began."""
        if config != self._config:
            self._config = config
            self._is_reconfigured.set()

    async def run(self) -> None:
        """Compact whatever is due, until cancelled."""
        if not self._config.log_cleaner_enable:
            return
        while True:
            await self.clean_all()
            await self._rest()

    async def _rest(self) -> None:
        """For `log.cleaner.backoff.ms`, or until there are new settings: it may be shorter now."""
        self._is_reconfigured.clear()
        backoff_s = self._config.log_cleaner_backoff_ms / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(backoff_s, _PAUSE_MIN_S), _SLEEP_MAX_S)):
                await self._is_reconfigured.wait()

    async def clean_all(self) -> None:
        """Compact until nothing is due, but for what had to be given up.

        `log.cleaner.threads` at a time, the dirtiest first. What is due is looked for anew each
        time: others have become dirtier meanwhile.
        """
        self._given_up.clear()
        while chosen := self._chosen(await self._due()):
            await asyncio.gather(*(self._clean(candidate, len(chosen)) for candidate in chosen))

    # -- choosing --------------------------------------------------------------------------------

    async def _due(self) -> list[_Candidate]:
        await self._note_new()
        found = []
        for runner in self._partitions:
            log = runner.log
            if (
                not self._may_clean(runner, log)
                or runner.is_rearranged
                or runner.topic_partition in self._given_up
            ):
                continue
            cleanable = await self._measure(runner, log)
            if cleanable is not None and cleanable.is_due(
                min_cleanable_dirty_ratio=runner.config.min_cleanable_dirty_ratio
            ):
                found.append(_Candidate(runner, log, cleanable))
        return found

    def _chosen(self, due: list[_Candidate]) -> list[_Candidate]:
        """The dirtiest of each directory: a directory has one thread for this."""
        by_directory: dict[LogDirectory, _Candidate] = {}
        for candidate in sorted(due, key=lambda one: one.cleanable.ratio, reverse=True):
            by_directory.setdefault(candidate.runner.log_directory, candidate)
        return list(by_directory.values())[: self._config.log_cleaner_threads]

    def _may_clean(self, runner: PartitionRunner, log: Log) -> bool:
        """Whether `log` may be compacted, or go on being compacted."""
        return (
            runner.config.is_compacted
            and runner.log is log
            and not log.is_closed
            and not runner.is_offline
            and not runner.is_cutting  # I2
            and runner.move is None  # I5
            and self.uncleanable.get(runner.topic_partition) is not log  # I3
        )

    async def _note_new(self) -> None:
        """Write down who is compacted from now on. I4"""
        new: dict[LogDirectory, dict[TopicPartition, Offset]] = {}
        present = set()
        for runner in self._partitions:
            present.add(runner.topic_partition)
            directory = runner.log_directory
            if (
                runner.config.is_compacted
                and not runner.is_offline
                and directory.cleaner_offset(runner.topic_partition) is None
            ):
                offsets = new.setdefault(directory, {})
                offsets[runner.topic_partition] = runner.log.log_start_offset
        for directory, offsets in new.items():
            await directory.write_cleaner_offsets(offsets)
        for gone in self.uncleanable.keys() - present:
            del self.uncleanable[gone]

    async def _measure(self, runner: PartitionRunner, log: Log) -> Cleanable | None:
        directory = runner.log_directory
        try:
            return await directory.executor.background(
                _measure,
                log,
                cleaned_offset=directory.cleaner_offset(runner.topic_partition),
                last_stable_offset=runner.last_stable_offset,
                now_ms=self._clock.now_ms(),
            )
        except Exception as error:  # noqa: BLE001 - one log must not end the work on all others
            self._on_failure(runner, log, error)
            return None

    # -- compacting ------------------------------------------------------------------------------

    async def _clean(self, candidate: _Candidate, share: int) -> None:
        """Compact one log, with its `share`th part of the memory."""
        runner, log, cleanable = candidate
        self._given_up.add(runner.topic_partition)  # Until it is done.
        if runner.is_rearranged or not self._may_clean(runner, log):
            return
        compaction = Compaction(
            log,
            cleanable,
            producers=runner.producers.entries(),
            limits=self._limits(share),
            hash_key=self._hash_key,
            now_ms=self._clock.now_ms(),
        )
        runner.is_rearranged = True  # I1
        began_ms = self._clock.monotonic_ms()
        try:
            await self._take_steps(runner, log, compaction)
            await runner.log_directory.write_cleaner_offsets(
                {runner.topic_partition: compaction.end_offset}
            )
            self._given_up.discard(runner.topic_partition)
            took_ms = self._clock.monotonic_ms() - began_ms
            _say_compacted(runner, cleanable, compaction, took_ms)
        except CompactionAborted:
            logger.info("compaction given up", extra={"partition": runner.topic_partition})
            await self._discard(runner, log, compaction)
        except Exception as error:  # noqa: BLE001 - one log must not end the work on all others
            self._on_failure(runner, log, error)
            await self._discard(runner, log, compaction)
        finally:
            runner.is_rearranged = False

    def _limits(self, share: int) -> CompactionLimits:
        config = self._config
        return CompactionLimits(
            memory_bytes=config.log_cleaner_dedupe_buffer_size // share,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            read_bytes=max(_READ_BYTES_MIN, config.log_cleaner_io_buffer_size // share // 2),
        )

    async def _take_steps(self, runner: PartitionRunner, log: Log, compaction: Compaction) -> None:
        steps = compaction.steps()
        executor = runner.log_directory.executor
        while self._may_clean(runner, log):
            step = await executor.background(_next, steps)
            match step:
                case None:
                    return
                case Worked(size_bytes):
                    await self._pace(size_bytes)
                case Replace(cleaned):
                    await self._replace(runner, log, cleaned, compaction)
        raise CompactionAborted

    async def _replace(
        self, runner: PartitionRunner, log: Log, cleaned: CleanedSegment, compaction: Compaction
    ) -> None:
        if not self._may_clean(runner, log):
            raise CompactionAborted
        directory = runner.log_directory
        log.begin_replacing()
        # Shielded: who cancels us must not take it back before it has begun.
        renamed = await asyncio.shield(
            directory.executor.urgent(
                log.replace, cleaned, truncation_count=compaction.truncation_count
            )
        )
        if renamed is None:
            raise CompactionAborted
        directory.delete_later(renamed, delay_ms=runner.config.file_delete_delay_ms)

    async def _pace(self, size_bytes: int) -> None:
        """Wait as long as `log.cleaner.io.max.bytes.per.second` asks for, all logs together."""
        now_s = asyncio.get_running_loop().time()
        allowed_s = size_bytes / self._config.log_cleaner_io_max_bytes_per_second
        self._paced_until_s = max(self._paced_until_s, now_s) + allowed_s
        if self._paced_until_s - now_s >= _PAUSE_MIN_S:
            await asyncio.sleep(self._paced_until_s - now_s)

    # -- failing ---------------------------------------------------------------------------------

    async def _discard(self, runner: PartitionRunner, log: Log, compaction: Compaction) -> None:
        """Remove what was begun, unless nothing may be written there any more."""
        if runner.is_offline or runner.log is not log:
            return  # It is removed when the log is opened again.
        try:
            await runner.log_directory.executor.background(compaction.discard)
        except StorageError as error:
            runner.log_directory.on_failure(error)

    def _on_failure(self, runner: PartitionRunner, log: Log, error: Exception) -> None:
        where = {"partition": runner.topic_partition, "reason": error}
        if log.is_closed or runner.log is not log or isinstance(error, RequestRefused):
            return  # Its files went while we looked at them.
        if isinstance(error, DiskFull):
            logger.warning("no room for compaction", extra=where)
        elif isinstance(error, StorageError) and not isinstance(error, DamagedLog):
            runner.log_directory.on_failure(error)
        else:
            self.uncleanable[runner.topic_partition] = log  # I3
            logger.error(
                "log cannot be compacted and is left as it is",
                extra=where,
                exc_info=None if isinstance(error, DamagedLog) else error,
            )


def _measure(
    log: Log, *, cleaned_offset: Offset | None, last_stable_offset: Offset, now_ms: int
) -> Cleanable | None:
    """On a thread; None if the log was closed meanwhile."""
    if log.is_closed:
        return None
    return measure(
        log, cleaned_offset=cleaned_offset, last_stable_offset=last_stable_offset, now_ms=now_ms
    )


def _next(steps: Iterator[Worked | Replace]) -> Worked | Replace | None:
    return next(steps, None)


def _say_compacted(
    runner: PartitionRunner, cleanable: Cleanable, compaction: Compaction, took_ms: int
) -> None:
    logger.info(
        "log compacted",
        extra={
            "partition": runner.topic_partition,
            "from_offset": cleanable.first_dirty_offset,
            "to_offset": compaction.end_offset,
            "keys": compaction.counts.keys,
            "bytes_before": compaction.counts.bytes_before,
            "bytes_after": compaction.counts.bytes_after,
            "took_ms": took_ms,
        },
    )
