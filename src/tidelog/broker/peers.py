"""The connection one broker has to another: requests out, their answers back, in order.

    request(frame) ──▶ connect if need be ──▶ write ──▶ ... ──▶ answer ──▶ the caller's future
                              │                          │               or callback
                              └── refused, lost, silent for too long: PeerUnreachable for all

A peer answers in the order of the requests, so answers are matched by position and checked by
correlation id. After any failure the connection is gone and the next request makes a new one;
whether what was asked has happened is then not known, and the caller has to be able to ask again.

Everybody who talks to a broker has a `Peer` of its own (a fetcher, the controller's channel, ...),
so that a fetch that is parked over there holds up nobody else. Nothing here retries.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from tidelog.base.buffers import new_buffer
from tidelog.base.errors import TidelogError
from tidelog.base.ports import BytesLike
from tidelog.broker.heavy_turns import HEAVY_BYTES, HeavyTurns
from tidelog.broker.network import Network

_LENGTH: Final = struct.Struct(">i")
_FIRST_BUFFER_BYTES: Final = 64 * 1024
CORRELATION_ID_BYTES: Final = 4
_CORRELATION_ID_AT: Final = 8
"""Behind length, api key and version of a request."""


class PeerUnreachable(TidelogError):
    """The other broker gave no answer. Whether it did what was asked is not known."""


class Address(NamedTuple):
    host: str
    port: int


Settle = Callable[[memoryview | PeerUnreachable], None]


class Unanswered:
    """A request that was sent, and who is to be called with what comes of it."""

    __slots__ = ("_settle", "correlation_id", "deadline_s")

    def __init__(self, correlation_id: bytes, settle: Settle, deadline_s: float) -> None:
        self.correlation_id = correlation_id
        self.deadline_s = deadline_s
        self._settle: Settle | None = settle

    @property
    def is_wanted(self) -> bool:
        """Whether anybody cares."""
        return self._settle is not None

    def settle(self, result: memoryview | PeerUnreachable) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(result)

    def forget(self) -> None:
        """Whoever asked does not care any more. The answer is still expected, and dropped."""
        self._settle = None


class AnswerShortcut(Protocol):
    """Takes in answers that are like the last one; see `shortcuts.py`."""

    def answered(self, buffer: bytearray, size_bytes: int) -> bool:
        """Whether the bytes were one whole answer, which it has taken in and gone on from."""
        ...


class Peer:
    """One connection to one broker, made when it is first needed and again after it broke."""

    def __init__(
        self,
        address: Address,
        *,
        network: Network,
        loop: asyncio.AbstractEventLoop,
        timeout_ms: int,
        answer_max_bytes: int,
        turns: HeavyTurns,
    ) -> None:
        self.address = address
        self._network = network
        self._loop = loop
        self._timeout_s = timeout_ms / 1_000
        self._answer_max_bytes = answer_max_bytes
        self.turns = turns
        self._connection: _PeerConnection | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._attempt: asyncio.Timeout | None = None
        self._last_correlation_id = 0
        self._is_closed = False
        self.shortcut: AnswerShortcut | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and not self._connection.is_lost

    def next_correlation_id(self) -> int:
        self._last_correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
        return self._last_correlation_id

    async def request(self, frame: BytesLike) -> memoryview:
        """Send a whole frame; return the answer, without its length. Raises PeerUnreachable."""
        await self.connect()
        return await self.send(frame)  # Ended by the answer, its time-out or the connection's end.

    def send(self, frame: BytesLike) -> "asyncio.Future[memoryview]":
        """The same on a connection that is there; without one it has failed already."""
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        try:
            unanswered = self.ask(frame, partial(_set, answer))
        except PeerUnreachable as error:
            answer.set_exception(error)
        else:
            answer.add_done_callback(partial(_on_answered, unanswered))
        return answer

    def ask(self, frame: BytesLike, settle: Settle) -> Unanswered:
        """The same, but `settle` is called where the answer arrives, not a turn of the loop later.

        It must not raise. Raises PeerUnreachable without a connection.
        """
        connection = self._require_connection()
        correlation_id = bytes(frame[_CORRELATION_ID_AT : _CORRELATION_ID_AT + 4])
        unanswered = Unanswered(correlation_id, settle, self._loop.time() + self._timeout_s)
        connection.send(frame, unanswered)
        return unanswered

    def send_only(self, frame: BytesLike) -> None:
        """Send what is not answered. Raises PeerUnreachable without a connection."""
        self._require_connection().send_only(frame)

    def _require_connection(self) -> "_PeerConnection":
        connection = self._connection
        if connection is None or connection.is_lost:
            raise PeerUnreachable(f"no connection to {_name(self.address)}")
        return connection

    def close(self) -> None:
        """Break off; whoever waits is told that the peer cannot be reached."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.fail("connection given up")
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(self._loop.time())

    async def connect(self) -> None:
        """Make a connection if there is none. Raises PeerUnreachable."""
        if self.is_connected:
            return
        async with self._connecting:
            if self.is_connected:
                return
            self._require_open()
            connection = _PeerConnection(
                self.address,
                loop=self._loop,
                timeout_s=self._timeout_s,
                answer_max_bytes=self._answer_max_bytes,
                turns=self.turns,
            )
            connection.shortcut = self.shortcut
            try:
                async with asyncio.timeout(self._timeout_s) as self._attempt:
                    await self._network.connect(*self.address, lambda: connection)
                self._require_open()
            except (OSError, TimeoutError) as error:
                self._require_open()
                raise PeerUnreachable(f"cannot connect to {_name(self.address)}: {error}") from None
            except PeerUnreachable:
                connection.fail("connection given up")
                raise
            finally:
                self._attempt = None
            self._connection = connection

    def _require_open(self) -> None:
        if self._is_closed:
            raise PeerUnreachable("connection given up")


class _PeerConnection(asyncio.BufferedProtocol):
    """Cuts the answers out of the stream. One that fits the first buffer is copied out of it; a
    larger one is read into memory of its own, which the caller keeps."""

    __slots__ = (
        "_address",
        "_answer_max_bytes",
        "_filled_bytes",
        "_large",
        "_loop",
        "_small",
        "_timeout_s",
        "_timer",
        "_transport",
        "_turns",
        "_waiting",
        "is_lost",
        "shortcut",
    )

    def __init__(
        self,
        address: Address,
        *,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
        answer_max_bytes: int,
        turns: HeavyTurns,
    ) -> None:
        self._address = address
        self._turns = turns
        self._loop = loop
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._answer_max_bytes = answer_max_bytes
        self._transport: asyncio.Transport | None = None
        self._small = bytearray(_FIRST_BUFFER_BYTES)
        self._large: bytearray | None = None
        self._filled_bytes = 0
        self._waiting: deque[Unanswered] = deque()
        self.is_lost = False
        self.shortcut: AnswerShortcut | None = None

    def send(self, frame: BytesLike, unanswered: Unanswered) -> None:
        assert self._transport is not None
        self._waiting.append(unanswered)
        if self._timer is None:
            # One for all: most answers come long before their time is up.
            self._timer = self._loop.call_later(self._timeout_s, self._on_time)
        self._transport.write(frame)

    def _on_time(self) -> None:
        """Somebody may have waited for too long."""
        self._timer = None
        for unanswered in self._waiting:
            if unanswered.is_wanted:
                rest_s = unanswered.deadline_s - self._loop.time()
                if rest_s > 0:
                    self._timer = self._loop.call_later(rest_s, self._on_time)
                else:
                    self.fail(f"no answer from {_name(self._address)} for {self._timeout_s:g} s")
                return

    def send_only(self, frame: BytesLike) -> None:
        assert self._transport is not None
        self._transport.write(frame)

    def fail(self, reason: str) -> None:
        """Give up the connection and tell everybody who waits."""
        if self.is_lost:
            return
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for unanswered in waiting:
            unanswered.settle(PeerUnreachable(reason))

    # -- asyncio's callbacks ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(f"connection to {_name(self._address)} lost")

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self._small if self._large is None else self._large
        return memoryview(buffer)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_lost:
            return
        self._filled_bytes += nbytes
        if self._large is not None:
            if self._filled_bytes == len(self._large):
                self._finish_large()
            return
        if self.shortcut is not None and self.shortcut.answered(self._small, self._filled_bytes):
            self._filled_bytes = 0
        else:
            self._take_small()

    def _finish_large(self) -> None:
        large = self._large
        assert large is not None
        assert self._transport is not None
        if len(large) >= HEAVY_BYTES and not self._turns.take():
            self._transport.pause_reading()
            self._turns.when_free(self._on_turn)
            return
        self._large = None
        self._filled_bytes = 0
        self._deliver(memoryview(large)[_LENGTH.size :])

    def _on_turn(self) -> None:
        if self.is_lost:
            return
        self._finish_large()
        if not self.is_lost:
            assert self._transport is not None
            self._transport.resume_reading()

    def _take_small(self) -> None:
        """Deliver every whole answer in the first buffer; make room for one that does not fit."""
        start, end = 0, self._filled_bytes
        small = self._small
        while end - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(small, start)
            if not CORRELATION_ID_BYTES <= length <= self._answer_max_bytes:
                self.fail(f"{_name(self._address)} sent an answer of {length} bytes")
                return
            size_bytes = _LENGTH.size + length
            if end - start < size_bytes:
                break
            self._deliver(memoryview(bytes(small[start + _LENGTH.size : start + size_bytes])))
            if self.is_lost:
                return
            start += size_bytes
        rest_bytes = end - start
        if rest_bytes >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(small, start)
            if _LENGTH.size + length > len(small) - start:
                large = new_buffer(_LENGTH.size + length)
                large[:rest_bytes] = small[start:end]
                self._large = large
                self._filled_bytes = rest_bytes
                return
        if start and rest_bytes:
            small[:rest_bytes] = small[start:end]
        self._filled_bytes = rest_bytes

    def _deliver(self, answer: memoryview) -> None:
        if not self._waiting or self._waiting[0].correlation_id != answer[:CORRELATION_ID_BYTES]:
            self.fail(f"{_name(self._address)} answered what nobody asked")
            return
        self._waiting.popleft().settle(answer)


def _set(answer: "asyncio.Future[memoryview]", result: memoryview | PeerUnreachable) -> None:
    if answer.done():  # Whoever asked has given up.
        return
    if isinstance(result, PeerUnreachable):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _on_answered(unanswered: Unanswered, answer: "asyncio.Future[memoryview]") -> None:
    unanswered.forget()
    if not answer.cancelled():
        # Looked at here, because whoever asked may be gone: asyncio would call it unheard of.
        answer.exception()


def _name(address: Address) -> str:
    return f"{address.host}:{address.port}"
