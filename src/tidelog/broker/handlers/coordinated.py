"""What requests to a group coordinator have in common: shards decide, and answers may wait.

    frame ──▶ request ──▶ futures of shards ──▶ answer
              decode      begin                 finish

A shard may answer at once, after its write is committed, or when other members have come. The
connection waits meanwhile, as with Kafka; a client has others for what cannot wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidelog.base.errors import RequestRefused
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.large_requests import LARGE_BYTES, LargeRequests
from tidelog.broker.request_tasks import AtTheCostOf, RequestTasks
from tidelog.wire.api import RequestHeader

R = TypeVar("R")
Outcome = object | RequestRefused
Futures = Sequence["asyncio.Future[object]"]


class Begun(NamedTuple):
    """A request that shards are deciding upon, and how their outcomes become an answer."""

    futures: Futures
    finish: Callable[[Sequence[Outcome]], bytes]

    @property
    def is_done(self) -> bool:
        return all(future.done() for future in self.futures)

    def answer(self) -> bytes:
        """Once all of them are done."""
        return self.finish([outcome(future) for future in self.futures])

    def cancel(self) -> None:
        """Nobody waits any more. What was decided stands."""
        for future in self.futures:
            future.cancel()


class Coordinated(Protocol[R]):
    """One API that a coordinator answers, with a codec of its own."""

    def decode(self, view: memoryview, position: int, version: int) -> R: ...

    def begin(self, request: R, header: RequestHeader) -> Begun:
        """Ask whichever shards have to decide."""
        ...


@dataclass(frozen=True, slots=True)
class CoordinatedHandler(Generic[R]):
    """Answers at once if the shards do."""

    api: Coordinated[R]
    tasks: RequestTasks
    large: LargeRequests

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        if len(frame) > LARGE_BYTES:
            work = partial(self._answer_large, bytes(frame), header)
            return self.tasks.answer(connection, header.api_key, work)
        request = self.api.decode(frame, header.body_position, header.api_version)
        begun = self.api.begin(request, header)
        if begun.is_done:
            return begun.answer()
        pending = PendingAnswer(connection, exclusive=True)
        pending.on_abandoned(begun.cancel)
        _when_done(begun.futures, partial(_complete, connection, header.api_key, pending, begun))
        return pending

    async def _answer_large(
        self, frame: bytes, header: RequestHeader, pending: PendingAnswer
    ) -> None:
        async with self.large.turn(len(frame)):
            if not pending.is_wanted:
                return
            decode = partial(
                self.api.decode, memoryview(frame), header.body_position, header.api_version
            )
            request = await self.large.aside.run(decode, count=len(frame))
        begun = self.api.begin(request, header)
        pending.on_abandoned(begun.cancel)
        if begun.futures:
            await asyncio.wait(begun.futures)  # Ended by shards, each in its time.
        if pending.is_wanted:
            pending.complete([begun.answer()])


def outcome(future: "asyncio.Future[object]") -> Outcome:
    """What a shard replied, or why it did not."""
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, RequestRefused):
        raise error
    return error


def _when_done(futures: Futures, then: Callable[[], None]) -> None:
    left = sum(not future.done() for future in futures)

    def on_done(_future: "asyncio.Future[object]") -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for future in futures:
        if not future.done():
            future.add_done_callback(on_done)


def _complete(connection: Connection, api_key: int, pending: PendingAnswer, begun: Begun) -> None:
    with AtTheCostOf(connection, api_key):
        if pending.is_wanted:
            pending.complete([begun.answer()])
