"""A session with the simulated coordinator: the `Coordinator` of `coordination/port.py`.

    connected ──no answer for half of the session──▶ connecting ──answer──▶ connected
        └────────────────── lease over, or the service says so ──────────▶ lost

Something is asked every third of the session's time, if only to be heard. A client that gets no
answers, or loses its connection, begins another one: all calls that wait are told
CoordinatorUnavailable, since nobody knows what became of them. Watches are set again on the new
connection and show what is there now, if that has changed.

The lease ends `session_timeout_s` after the sending of the last thing that was answered. Then the
session is lost here, whatever the service thinks: it may have given everything to others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar, assert_never, cast

from tidelog.base.errors import SessionLost, TidelogError
from tidelog.coordination.paths import is_well_formed
from tidelog.coordination.port import CoordinatorUnavailable, Create, Delete, Node, Operation
from tidelog.coordination.watches import WatchSlot
from tidelog.sim.coordinator_service_session import (
    ServiceSession,
    Watched,
    WatchedChildren,
    WatchedNode,
)
from tidelog.sim.coordinator_wire import (
    Action,
    Answer,
    Ask,
    Broken,
    Changed,
    Connection,
    Hello,
    Lost,
    State,
    ToClient,
)
from tidelog.sim.process import Process

if TYPE_CHECKING:
    from tidelog.sim.coordinator import SimulatedCoordinatorService

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """Something that was asked, and whom to tell."""

    sent_s: float
    settle: Callable[[object], None]
    fail: Callable[[TidelogError], None]


@dataclass(slots=True)
class _Watch:
    """Somebody who watches. `newest` is what he was last offered, in a tuple if he was."""

    watched: Watched
    offer: Callable[[State], None]
    lose: Callable[[], None]
    newest: tuple[State] | None


class SimulatedCoordinator:
    """See the module docstring. Begun by `SimulatedCoordinatorService.connect`."""

    def __init__(self, service: "SimulatedCoordinatorService", process: Process, host: str) -> None:
        self._service = service
        self._process = process
        self._host = host
        self._loop = process.loop
        self._timeout_s = service.session_timeout_s
        self._session_id: int | None = None
        self._numbers = count()
        self._unanswered: dict[int, _Unanswered] = {}
        self._watches: dict[int, _Watch] = {}
        self._lost = asyncio.Event()
        self._connection = self._new_connection(0)
        self._is_connected = True
        """Whether the service has answered on this connection."""
        self._heard_at_s = self._loop.time()
        self._lease_end_s = self._loop.time() + self._timeout_s

    @property
    def session_id(self) -> int:
        assert self._session_id is not None
        return self._session_id

    async def join(self) -> None:
        joined: asyncio.Future[object] = self._loop.create_future()
        self._send_hello(partial(_settle, joined), partial(_fail, joined))
        try:
            async with asyncio.timeout(self._timeout_s):
                self._session_id = cast(int, await joined)
        except TimeoutError:
            self._lose()
            raise CoordinatorUnavailable("the coordinator does not answer") from None
        except BaseException:
            self._lose()
            raise
        self._beat()
        self._check_lease()

    # -- calls -----------------------------------------------------------------------------------

    async def get(self, path: str) -> Node | None:
        assert is_well_formed(path)
        return await self._ask(lambda session: session.tree.get(path))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        assert all(map(is_well_formed, paths))
        return await self._ask(lambda session: [session.tree.get(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        assert is_well_formed(path)
        return await self._ask(lambda session: session.tree.children(path))

    async def create(self, path: str, value: bytes, *, ephemeral: bool = False) -> None:
        await self.transact([Create(path, value, ephemeral)])

    async def ensure(self, path: str) -> None:
        assert is_well_formed(path)
        await self._write(lambda session: session.tree.ensure(path, session.session_id))

    async def set(self, path: str, value: bytes, *, expected_version: int | None = None) -> int:
        assert is_well_formed(path)
        return await self._write(
            lambda session: session.tree.set(path, value, expected_version, session.session_id)
        )

    async def delete(self, path: str, *, expected_version: int | None = None) -> None:
        await self.transact([Delete(path, expected_version)])

    async def delete_tree(self, path: str) -> None:
        assert is_well_formed(path)
        await self._write(lambda session: session.tree.delete_tree(path, session.session_id))

    async def transact(self, operations: Sequence[Operation]) -> None:
        assert all(is_well_formed(operation.path) for operation in operations)
        kept = tuple(operations)
        await self._write(lambda session: session.tree.transact(kept, session.session_id))

    async def watch(self, path: str) -> AsyncIterator[Node | None]:
        assert is_well_formed(path)
        slot: WatchSlot[Node | None] = WatchSlot()
        offer = cast(Callable[[State], None], slot.offer)
        with self._armed(_Watch(WatchedNode(path), offer, slot.lose, None)):
            async for node in slot.states():
                yield node

    async def watch_children(self, path: str) -> AsyncIterator[list[str]]:
        assert is_well_formed(path)
        slot: WatchSlot[list[str]] = WatchSlot()
        offer = cast(Callable[[State], None], slot.offer)
        with self._armed(_Watch(WatchedChildren(path), offer, slot.lose, None)):
            async for names in slot.states():
                yield names

    def is_reliable(self, for_ms: int) -> bool:
        return not self._lost.is_set() and self._loop.time() + for_ms / 1_000 < self._lease_end_s

    async def session_lost(self) -> None:
        await self._lost.wait()  # Ended by `close`, by the service, or by the lease.

    async def close(self) -> None:
        """The session ends here in any case; at the service too, if it can be reached."""
        with suppress(SessionLost, CoordinatorUnavailable):
            await self._ask(self._service.end_session)
        self._lose()

    async def _ask(self, action: Callable[[ServiceSession], T]) -> T:
        return await self._answer(action, is_write=False)

    async def _write(self, action: Callable[[ServiceSession], T]) -> T:
        return await self._answer(action, is_write=True)

    async def _answer(self, action: Callable[[ServiceSession], T], *, is_write: bool) -> T:
        self._admit()
        answered: asyncio.Future[T] = self._loop.create_future()
        settle, fail = partial(_settle, answered), partial(_fail, answered)
        self._send(action, settle, fail, is_write=is_write)
        return await answered  # Ended by an answer, or when the connection is given up.

    def _admit(self) -> None:
        if self._loop.time() >= self._lease_end_s:
            self._lose()  # Its timer may not have had its turn: the process was stopped.
        if self._lost.is_set():
            raise self._loss()

    @contextmanager
    def _armed(self, watch: _Watch) -> Iterator[None]:
        self._admit()
        number = next(self._numbers)
        self._watches[number] = watch
        self._arm(number, watch)
        try:
            yield
        finally:
            del self._watches[number]
            if not self._lost.is_set():
                self._send(lambda session: session.disarm(number), _ignore, _ignore)

    # -- connection ------------------------------------------------------------------------------

    def _send(
        self,
        action: Action,
        settle: Callable[[object], None],
        fail: Callable[[TidelogError], None],
        *,
        is_write: bool = False,
    ) -> None:
        if not self._process.is_alive:
            return
        number = next(self._numbers)
        self._unanswered[number] = _Unanswered(self._loop.time(), settle, fail)
        self._connection.ask(Ask(number, action, is_write))

    def _send_hello(
        self, settle: Callable[[object], None], fail: Callable[[TidelogError], None]
    ) -> None:
        number = next(self._numbers)
        self._unanswered[number] = _Unanswered(self._loop.time(), settle, fail)
        self._connection.ask(Hello(number, self._session_id))

    def _arm(self, number: int, watch: _Watch) -> None:
        self._send(
            lambda session: session.arm(number, watch.watched),
            lambda state: self._on_armed(number, cast(State, state)),
            _ignore,
        )

    def _reconnect(self) -> None:
        self._fail_unanswered(
            CoordinatorUnavailable("the coordinator did not answer; what it did is not known")
        )
        self._heard_at_s = self._loop.time()
        self._connection = self._new_connection(self._connection.number + 1)
        self._is_connected = False
        self._send_hello(self._on_welcome, _ignore)
        for number, watch in self._watches.items():
            self._arm(number, watch)

    def _on_welcome(self, _session_id: object) -> None:
        self._is_connected = True

    def _new_connection(self, number: int) -> Connection:
        return Connection(self._service, number=number, host=self._host, hear=self._on_message)

    def _on_message(self, connection: Connection, message: ToClient) -> None:
        """Outside of the process, which hears of it when it runs."""
        self._loop.call_soon(self._hear, connection, message)

    def _hear(self, connection: Connection, message: ToClient) -> None:
        if connection is not self._connection or self._lost.is_set():
            return
        self._heard_at_s = self._loop.time()
        match message:
            case Answer():
                self._on_answer(message)
            case Changed(watch_number, state):
                self._offer(watch_number, state)
            case Lost():
                self._lose()
            case Broken():
                self._on_broken()
            case _:
                assert_never(message)

    def _on_answer(self, answer: Answer) -> None:
        asked = self._unanswered.pop(answer.number)
        self._lease_end_s = max(self._lease_end_s, asked.sent_s + self._timeout_s)
        if answer.error is None:
            asked.settle(answer.result)
        else:
            asked.fail(answer.error)

    def _on_broken(self) -> None:
        if self._session_id is None:
            self._fail_unanswered(CoordinatorUnavailable("the coordinator let go of us"))
        else:
            self._reconnect()

    def _on_armed(self, number: int, state: State) -> None:
        watch = self._watches.get(number)
        if watch is not None and watch.newest != (state,):
            self._offer(number, state)

    def _offer(self, number: int, state: State) -> None:
        watch = self._watches.get(number)
        if watch is not None:
            watch.newest = (state,)
            watch.offer(state)

    def _fail_unanswered(self, error: TidelogError) -> None:
        unanswered, self._unanswered = self._unanswered, {}
        for asked in unanswered.values():
            asked.fail(error)

    # -- session ---------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Be heard, and give up a connection on which nothing is."""
        if self._lost.is_set():
            return
        silence_s = self._loop.time() - self._heard_at_s
        if silence_s > self._timeout_s * (1 / 2 if self._is_connected else 1 / 7):
            self._reconnect()
        elif self._is_connected:
            self._send(_nothing, _ignore, _ignore)
        pause_s = self._timeout_s / (3 if self._is_connected else 6)
        self._loop.call_later(pause_s, self._beat)

    def _check_lease(self) -> None:
        """Lose the session when its lease is over; look again when that could be."""
        if self._lost.is_set():
            return
        if self._loop.time() >= self._lease_end_s:
            self._lose()
        else:
            self._loop.call_at(self._lease_end_s, self._check_lease)

    def _lose(self) -> None:
        if self._lost.is_set():
            return
        self._lost.set()
        for watch in self._watches.values():
            watch.lose()
        self._fail_unanswered(self._loss())

    def _loss(self) -> SessionLost:
        return SessionLost(f"session {self._session_id} has ended")


def _settle(future: "asyncio.Future[T]", result: object) -> None:
    if not future.done():  # Done already: whoever asked was cancelled.
        future.set_result(cast(T, result))


def _fail(future: "asyncio.Future[T]", error: TidelogError) -> None:
    if not future.done():
        future.set_exception(error)


def _ignore(_outcome: object) -> None:
    """Nobody waits for it."""


def _nothing(_session: ServiceSession) -> None:
    """Asked only to be heard."""
