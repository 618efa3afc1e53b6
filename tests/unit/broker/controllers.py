"""Controllers on a coordinator in memory that fails when told to."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random

from tidelog.base.errors import SessionLost
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.config.broker import BrokerConfig
from tidelog.coordination.memory import MemoryCoordinator, MemoryTree
from tidelog.coordination.port import Coordinator, CoordinatorUnavailable, Node, Operation
from tidelog.core.controller.changes import Change
from tidelog.core.controller.image import ClusterImage, Endpoint, LastStop

ENDPOINTS = (Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)


class FixedClock:
    """Stands still."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 1_000


class FlakyTree(MemoryTree):
    """A tree whose answers to writes get lost, with or without what was written.

    `refusing` fails writes before they happen, `forgetting` after; each counts how many. After
    `writes_left` have succeeded the session of whoever wants another one is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refusing = 0
        self.forgetting = 0
        self.writes_left: int | None = None
        self.write_count = 0

    def expire(self, session_id: int) -> None:
        failures = (self.refusing, self.forgetting, self.writes_left)
        self.refusing, self.forgetting, self.writes_left = 0, 0, None
        super().expire(session_id)
        self.refusing, self.forgetting, self.writes_left = failures

    def transact(self, operations: Sequence[Operation], session_id: int) -> None:
        if self.writes_left == 0 and operations:
            raise SessionLost("killed before this write")
        if self.refusing:
            self.refusing -= 1
            raise CoordinatorUnavailable("nothing was written")
        super().transact(operations, session_id)
        self.write_count += 1
        if self.writes_left is not None:
            self.writes_left -= 1
        if self.forgetting:
            self.forgetting -= 1
            raise CoordinatorUnavailable("the answer was lost")


class LateTree(MemoryTree):
    """A tree of which one answer about `late_path` is on its way until `arrives` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.late_path = ""
        self.arrives = asyncio.Event()

    def connect(self) -> MemoryCoordinator:
        return self.join(lambda session_id: _LateCoordinator(self, session_id))

    async def delay(self, path: str) -> None:
        if path == self.late_path:
            self.late_path = ""
            await self.arrives.wait()  # Ended by the test.


class _LateCoordinator(MemoryCoordinator):
    def __init__(self, tree: LateTree, session_id: int) -> None:
        super().__init__(tree, session_id)
        self._late = tree

    async def get(self, path: str) -> Node | None:
        node = await super().get(path)
        await self._late.delay(path)
        return node

    async def children(self, path: str) -> list[str]:
        names = await super().children(path)
        await self._late.delay(path)
        return names


class MovableTree(MemoryTree):
    """A tree in whose place another one can be found by sessions that begin."""

    def __init__(self) -> None:
        super().__init__()
        self.moved_to: MemoryTree | None = None

    def connect(self) -> MemoryCoordinator:
        return super().connect() if self.moved_to is None else self.moved_to.connect()


class Observer:
    """A subscriber that checks what it is told: the changes lead from image to image."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.changes: list[Change] = []

    def __call__(self, image: ClusterImage, changes: Sequence[Change]) -> None:
        assert changes
        assert self.image.apply_all(changes) == image
        self.image = image
        self.changes += changes


def controller(tree: MemoryTree, **settings: str) -> ControllerRunner:
    async def connect() -> Coordinator:
        return tree.connect()

    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ControllerRunner(
        connect=connect,
        config=BrokerConfig.load(named),
        clock=FixedClock(),
        chance=Random(7),
    )


async def start(runner: ControllerRunner) -> ClusterImage:
    """Join the cluster and become part of it, as a broker that was stopped in order does."""
    await runner.join(None)
    await runner.register(ENDPOINTS, LastStop.CLEAN)
    return runner.image


@asynccontextmanager
async def running(tree: MemoryTree, **settings: str) -> AsyncIterator[ControllerRunner]:
    """A broker's controller, started, served and stopped."""
    async with serving(controller(tree, **settings)) as runner:
        yield runner


@asynccontextmanager
async def serving(runner: ControllerRunner) -> AsyncIterator[ControllerRunner]:
    await start(runner)
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await runner.stop()
