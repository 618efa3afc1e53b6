"""Requests with thousands of parts, handled without holding up everybody else.

What takes a callback half a second takes a thread a little longer, but a thread gives way to the
event loop every few milliseconds. So what grows with a request is done *aside*, on a thread, where
there is much of it: reading it, deciding about it, writing the answer. Only pure work goes there:
from immutable values to new ones. What has to look at partitions stays on the loop, in turns.

Large requests are handled one at a time, in the order of their arrival. They wait as bytes, which
are counted, and not decoded, which takes fifty times as much memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from tidelog.broker.memory import MemoryBound

# A few milliseconds of work: some hundreds of topics, or their names.
LARGE_BYTES: Final = 8 * 1024
LARGE_COUNT: Final = 256
# At some tens of microseconds each, others wait for a millisecond or two.
PARTS_PER_TURN: Final = 64

T = TypeVar("T")


class Aside:
    """One thread for work that only computes. It starts with the first that is large."""

    __slots__ = ("_thread",)

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")

    async def run(self, work: Callable[[], T], *, count: int) -> T:
        """What `work` returns, which takes longer the larger `count` is."""
        if count < LARGE_COUNT:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


class LargeRequests:
    """Who is next, and the thread that does the work."""

    __slots__ = ("_memory", "_turn", "aside")

    def __init__(self, request_memory: MemoryBound) -> None:
        self._memory = request_memory
        self._turn = asyncio.Lock()
        self.aside = Aside()

    @asynccontextmanager
    async def turn(self, size_bytes: int) -> AsyncIterator[None]:
        """Wait for those before, with a request of `size_bytes`."""
        self._memory.hold(size_bytes)
        try:
            async with self._turn:  # Ended by their handlers, as far as those are.
                yield
        finally:
            self._memory.release(size_bytes)


async def in_turns(parts: Iterable[T]) -> AsyncIterator[T]:
    """The parts of a request, which may be many, with a turn for everybody else in between."""
    for number, part in enumerate(parts, start=1):
        yield part
        if number % PARTS_PER_TURN == 0:
            await asyncio.sleep(0)
