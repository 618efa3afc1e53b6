"""The only place that moves blocking work off the event loop.

Each log directory has an executor of its own, so that a disk that hangs holds up its own partitions
and nobody else's. An executor has two lanes, each one thread and first come, first served:

    urgent      what a client waits for: rolling a segment, creating a log, a read from the platters
    background  what nobody waits for: fsync, checkpoints, retention, compaction, deleting

A roll therefore never queues behind the fsync of a gigabyte. Work that touches the same file in
both lanes is ordered by the caller: see `broker/partition_appends.py`.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tidelog.base.errors import StorageError

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class DiskExecutor:
    """Runs blocking calls of one log directory on its two threads."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._urgent = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-urgent")
        self._background = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix=f"{name}-background"
        )

    def urgent(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        """Run `work` soon; the future resolves on the loop."""
        return self._loop.run_in_executor(self._urgent, lambda: work(*args, **kwargs))

    def background(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> "asyncio.Future[T]":
        """Run `work` when the disk has time; the future resolves on the loop."""
        return self._loop.run_in_executor(self._background, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Wait for everything handed in. Blocks; only for the end of the process."""
        self._urgent.shutdown(wait=True)
        self._background.shutdown(wait=True)


def as_storage_error(error: BaseException) -> StorageError:
    """What a failure on a thread means to its directory. A failed assertion is raised instead.

    Of what nobody thought of, nobody knows how much was done before it: that is for recovery to
    find out, as if the disk had failed.
    """
    if isinstance(error, StorageError):
        return error
    if isinstance(error, AssertionError) or not isinstance(error, Exception):
        raise error
    logger.error("work on a log failed", exc_info=error)
    return StorageError(f"unexpected failure: {error!r}")
