"""What a partition needs from those around it: its log directory, and whoever listens to it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.broker.disk_executor import DiskExecutor, as_storage_error
from tidelog.core.sessions import FetchTarget

T = TypeVar("T")


class LogCopy(Protocol):
    """Somebody who copies a partition's log to another log directory."""

    def on_cut(self) -> None:
        """The end of the log was taken off, and nothing was appended since."""
        ...

    async def until_placed(self) -> None:
        """Return at once, but for the moment in which the log is neither here nor there."""
        ...


class Watcher(Protocol):
    """Somebody who wants to know when a partition has more to read, or something else to say.

    Must only take note: the partition is in the middle of something.
    """

    @property
    def is_follower(self) -> bool:
        """Whether it reads what is not committed yet."""
        ...

    def on_news(self, target: FetchTarget, appended_bytes: int) -> bool:
        """Return whether to be told of the next news as well."""
        ...

    def on_quiet_news(self, target: FetchTarget) -> None:
        """The high watermark moved: to be told with the next answer, which need not hurry."""
        ...


class LogDirectory(Protocol):
    """What a partition needs from the log directory that holds it."""

    @property
    def executor(self) -> DiskExecutor: ...

    @property
    def offline_reason(self) -> str | None:
        """Why nothing can be stored here; None while it can."""
        ...

    def on_failure(self, error: StorageError) -> None:
        """Take the directory offline. Idempotent."""
        ...

    def delete_later(self, paths: Sequence[Path], *, delay_ms: int) -> None:
        """Remove files when the delay is over, or at the next start."""
        ...

    def truncate(
        self, topic_partition: TopicPartition, recovery_point: Offset, work: Callable[[], None]
    ) -> "asyncio.Future[None]":
        """Lower the checkpoints that are above it, then do `work`, which cuts the log there."""
        ...

    def cleaner_offset(self, topic_partition: TopicPartition) -> Offset | None:
        """Up to where the log was compacted; None if that has never been begun."""
        ...

    async def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write `cleaner-offset-checkpoint`; returns once it is on disk, or the disk has failed."""
        ...

    async def checkpoint_log_starts(self) -> None:
        """Write `log-start-offset-checkpoint`; returns once it is on disk."""
        ...


def succeeded_in(directory: LogDirectory, future: "asyncio.Future[T]") -> bool:
    """Whether work in `directory` was done; a disk that failed takes it offline."""
    error = future.exception()
    if error is None:
        return True
    directory.on_failure(as_storage_error(error))
    return False
