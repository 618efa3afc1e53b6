"""What a broker does from time to time, whoever asks or not.

Each job has its own rhythm (Kafka's settings) and a failure of one disk ends nothing but that disk:

    retention      log.retention.check.interval.ms     remove segments by age and size
    flushing       log.flush.scheduler.interval.ms     flush what flush.ms says is due
    checkpoints    log.flush.offset.checkpoint...      recovery points, log starts, high watermarks
    in-sync sets   half of replica.lag.time.max.ms,    who lags leaves, who has caught up joins (R6)
                   at most 2.5 s
    producers      every ten minutes                   forget silent producers
    retrying       tidelog.log.dir.retry.ms            bring back directories that went offline

Rounds yield to the loop between partitions, so that thousands of them are not one long pause.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidelog.base.errors import RequestRefused, StorageError, TidelogError
from tidelog.base.ports import Clock
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.partitions import Partitions
from tidelog.config.broker import BrokerConfig
from tidelog.config.option import LONG_MAX
from tidelog.config.replication import ReplicationConfig

logger = logging.getLogger(__name__)

YIELD_EVERY = 32
IN_SYNC_CHECK_INTERVAL_MAX_MS = 2_500
PRODUCER_EXPIRATION_CHECK_INTERVAL_MS = 600_000
SLEEP_MAX_S = 24 * 3600.0

Reopen = Callable[[LogDirRunner], Awaitable[None]]


class Upkeep:
    """Runs the periodic jobs of one broker."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        partitions: Partitions,
        log_dirs: Sequence[LogDirRunner],
        reopen: Reopen,
        clock: Clock,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._reopen = reopen
        self._clock = clock

    def start(self, tasks: asyncio.TaskGroup) -> list["asyncio.Task[None]"]:
        """Start every job; they run until cancelled."""
        log, replication = self._config.log, self._config.replication
        jobs: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (log.log_retention_check_interval_ms, self.enforce_retention),
            (log.log_flush_scheduler_interval_ms, self.flush_due),
            (log.log_flush_offset_checkpoint_interval_ms, self.checkpoint),
            (
                replication.replica_high_watermark_checkpoint_interval_ms,
                self.checkpoint_high_watermarks,
            ),
            (_isr_interval_ms(replication), self.look_after_in_sync_sets),
            (PRODUCER_EXPIRATION_CHECK_INTERVAL_MS, self.expire_producers),
        ]
        if log.tidelog_log_dir_retry_ms:
            jobs.append((log.tidelog_log_dir_retry_ms, self.retry_offline))
        return [
            tasks.create_task(_every(interval_ms, job))
            for interval_ms, job in jobs
            if interval_ms < LONG_MAX
        ]

    async def enforce_retention(self) -> None:
        for count, runner in enumerate(self._partitions):
            if not runner.config.is_deleted and not runner.log.log_start_offset:
                continue
            try:
                await runner.enforce_retention(self._clock.now_ms())
            except StorageError as error:
                runner.log_directory.on_failure(error)
            except RequestRefused:
                pass  # Deleted under our hands, the topic or its records. There is a next round.
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def flush_due(self) -> None:
        now_ms = self._clock.now_ms()
        for runner in self._partitions:
            runner.flush_if_due(now_ms)

    async def checkpoint(self) -> None:
        for log_dir in self._log_dirs:
            await log_dir.checkpoint()

    async def checkpoint_high_watermarks(self) -> None:
        for log_dir in self._log_dirs:
            await log_dir.checkpoint_high_watermarks()

    async def look_after_in_sync_sets(self) -> None:
        for count, runner in enumerate(self._partitions):
            runner.on_tick()
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for count, runner in enumerate(self._partitions):
            runner.producers.on_tick(now_ms)
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)

    async def retry_offline(self) -> None:
        for log_dir in self._log_dirs:
            if log_dir.is_online or log_dir.stays_offline:
                continue
            try:
                await self._reopen(log_dir)
            except TidelogError as error:
                logger.warning(
                    "log directory still offline", extra={"log_dir": log_dir.path, "reason": error}
                )


def _isr_interval_ms(replication: ReplicationConfig) -> int:
    return max(1, min(replication.replica_lag_time_max_ms // 2, IN_SYNC_CHECK_INTERVAL_MAX_MS))


async def _every(interval_ms: int, job: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(min(interval_ms / 1000, SLEEP_MAX_S))
        await job()
