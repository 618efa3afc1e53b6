"""A controller on a coordinator in memory, for the tests of handlers that ask it for something."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

from tests.unit.broker.handlers.samples import LISTENER
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.config.broker import BrokerConfig
from tidelog.coordination.memory import MemoryTree
from tidelog.coordination.port import Coordinator
from tidelog.core.controller.image import Endpoint, LastStop

T = TypeVar("T")


class StoppedClock:
    """A clock that nobody has wound up."""

    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 0


@asynccontextmanager
async def controlled(settings: Mapping[str, str]) -> AsyncIterator[ControllerRunner]:
    """The controller of a cluster with one broker, serving requests."""
    tree = MemoryTree()

    async def connect() -> Coordinator:
        return tree.connect()

    controller = ControllerRunner(
        connect=connect,
        config=BrokerConfig.load({"node.id": "1", **settings}),
        clock=StoppedClock(),
        chance=Random(1),
    )
    await controller.join(None)
    endpoint = Endpoint(LISTENER, "PLAINTEXT", "one.example", 9092)
    await controller.register((endpoint,), LastStop.CLEAN)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(controller.run())
        yield controller
        serving.cancel()
    await controller.stop()


def with_controller(
    scenario: Callable[[ControllerRunner], Awaitable[T]], settings: Mapping[str, str] | None = None
) -> T:
    """Run `scenario` against a new cluster."""

    async def run() -> T:
        async with controlled(settings or {}) as controller:
            return await scenario(controller)

    return asyncio.run(run())


async def at_once() -> None:
    """Every partition is open."""


async def never() -> None:
    """No partition is ever open. Ended by whoever waits."""
    await asyncio.Event().wait()
