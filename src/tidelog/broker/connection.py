"""One client's connection: frames in, answers out, in the order of the requests.

Everything here runs in uvloop's read callback. A request is handled where it is read, without a
task and without a copy: while no frame is incomplete, all connections read into one shared buffer,
so an idle connection owns no memory. Only the tail of an incomplete frame is copied into a buffer
of the connection's own, which grows as bytes arrive and never on a client's word alone.

    socket ─▶ shared buffer ──whole frames──▶ dispatch ──▶ answers (ready, or PendingAnswer)
                   │                                          │
                   └─▶ own buffer (rest of a frame)           └─▶ transport, coalesced

A connection stops handling what it has read, and reading once it holds a whole request, while

    - the client does not read its answers (`pause_writing`),
    - `PENDING_ANSWERS_MAX` answers are not ready yet, or one that is exclusive,
    - answers of `QUEUED_ANSWERS_MAX_BYTES` are ready but have to wait for an earlier one,
    - its next request is heavy and others take their turn (`heavy_turns.py`),
    - it has used up its budget of this turn: bytes read, bytes answered, and a share per request
      (fairness; see FINDINGS on a bulk producer).

Invariants:

    I1  Answers leave in the order in which their requests arrived.
    I2  A view of the shared buffer never outlives the callback; who needs bytes later copies them.
    I3  `_held_bytes` of the server's answer memory are ours: answers that are ready and cannot
        leave, and what the transport holds while the client does not read.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from typing import Final, Protocol, cast

from tidelog.base.buffers import new_buffer
from tidelog.base.errors import WireError
from tidelog.broker.after_read import AfterRead
from tidelog.broker.answers import Buffers, Pending, PendingAnswer
from tidelog.broker.heavy_turns import HEAVY_BYTES, HeavyTurns
from tidelog.broker.memory import MemoryBound
from tidelog.broker.session_gate import SessionGate
from tidelog.wire.produce_template import ProduceTemplate

logger = logging.getLogger(__name__)

PENDING_ANSWERS_MAX: Final = 512
QUEUED_ANSWERS_MAX_BYTES: Final = 1024 * 1024
# What handling a request takes of the budget, beside its bytes.
REQUEST_SHARE_BYTES: Final = 128
FIRST_OWN_BUFFER_BYTES: Final = 64 * 1024
# A frame up to this size gets its whole buffer at once, to spare producers of 1 MB batches a copy.
TRUSTED_FRAME_BYTES: Final = 2 * 1024 * 1024
_LENGTH: Final = struct.Struct(">i")

Answer = bytes | Buffers | Pending | None


class RequestShortcut(Protocol):
    """Handles requests that are like the last one; see `shortcuts.py`."""

    def end(self) -> None:
        """It is not used any more, and nothing it has begun is unanswered."""
        ...

    def answer(self, view: memoryview, start: int, end: int) -> Answer:
        """The answer to the request in `view[start:end]`; None if nothing was done with it.

        Raises WireError, as dispatching does.
        """
        ...


class ConnectionOwner(Protocol):
    """What a connection needs from its server."""

    shared_buffer: memoryview
    now_ms: int
    """Monotonic, and the same for a while: what is stamped with it was used lately."""
    request_max_bytes: int
    read_budget_bytes: int
    frame_memory: MemoryBound
    request_memory: MemoryBound
    answer_memory: MemoryBound
    gate: SessionGate
    after_read: AfterRead
    turns: HeavyTurns
    loop: asyncio.AbstractEventLoop

    def admit(self, connection: "Connection") -> bool: ...
    def forget(self, connection: "Connection") -> None: ...
    def touched(self, connection: "Connection") -> None: ...
    def dispatch(self, connection: "Connection", frame: memoryview) -> Answer: ...


class Connection(asyncio.BufferedProtocol):
    """Reads frames, has them handled, writes answers in order."""

    __slots__ = (
        "_answers",
        "_blocked",
        "_budget_bytes",
        "_budget_spent",
        "_exclusive",
        "_filled_bytes",
        "_finishing",
        "_handling",
        "_held_bytes",
        "_is_held",
        "_own",
        "_owner",
        "_reading_paused",
        "_ready_bytes",
        "_transport",
        "_write_paused",
        "client_software",
        "closing",
        "last_used_ms",
        "listener_name",
        "peer_host",
        "peer_port",
        "produce_template",
        "shortcut",
    )

    def __init__(self, owner: ConnectionOwner, listener_name: str) -> None:
        self._owner = owner
        self.listener_name = listener_name
        self._transport: asyncio.Transport | None = None
        self._answers: deque[Pending] = deque()
        self._own: bytearray | None = None
        self._filled_bytes = 0
        self._budget_bytes = owner.read_budget_bytes
        self._budget_spent = False
        self._write_paused = False
        self._reading_paused = False
        self._handling = False
        self._blocked = False
        self._exclusive = False
        self._finishing = False
        self._held_bytes = 0
        self._is_held = False
        self._ready_bytes = 0
        self.closing = False
        self.last_used_ms = 0
        """By the owner's clock, see `ConnectionOwner.now_ms`."""
        self.peer_host = ""
        self.peer_port = 0
        self.client_software = ""
        self.produce_template: ProduceTemplate | None = None
        """What the last Produce looked like, for the next one."""
        self.shortcut: RequestShortcut | None = None
        """For requests like the last one, compiled; not on every machine."""

    @property
    def is_closed(self) -> bool:
        return self._transport is None or self.closing

    @property
    def unread_answer_bytes(self) -> int:
        """What the client has not taken yet; shrinks as it reads."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def descriptor(self) -> int:
        """The number under which the system knows this socket; -1 if it is not a real one."""
        assert self._transport is not None
        kernel_socket = self._transport.get_extra_info("socket")
        return -1 if kernel_socket is None else int(kernel_socket.fileno())

    def use_shortcut(self, shortcut: RequestShortcut | None) -> None:
        """For requests like the last one, from now on."""
        before, self.shortcut = self.shortcut, shortcut
        if before is not None:
            before.end()

    def set_buffers(self, *, send_bytes: int, receive_bytes: int) -> None:
        """Bound the kernel's buffers of this socket; a negative size leaves it to the system."""
        assert self._transport is not None
        kernel_socket = self._transport.get_extra_info("socket")
        if kernel_socket is None:
            return
        for option, size_bytes in (
            (socket.SO_SNDBUF, send_bytes),
            (socket.SO_RCVBUF, receive_bytes),
        ):
            if size_bytes >= 0:
                kernel_socket.setsockopt(socket.SOL_SOCKET, option, size_bytes)

    # -- asyncio's callbacks ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if peer:
            self.peer_host, self.peer_port = peer[0], peer[1]
        # Anything the kernel does not take at once counts as unread, see MemoryBound.
        self._transport.set_write_buffer_limits(high=0)
        if not self._owner.admit(self):
            self.closing = True
            self._transport.abort()

    def hold(self) -> None:
        """Handle no request until `release`: too many connections have just begun."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._own is None:
            return self._owner.shared_buffer
        return memoryview(self._own)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.closing:
            return
        answered_bytes = 0
        after_read = self._owner.after_read
        after_read.begin()
        try:
            if self._own is None:
                answered_bytes = self._handle_only_frame(nbytes)
                if not answered_bytes:
                    self._handle_frames(self._owner.shared_buffer, nbytes, is_first_admitted=False)
            else:
                self._filled_bytes += nbytes
                self._handle_own()
        finally:
            after_read.end()
        # After the answer: this client has it while we keep our books.
        if self.last_used_ms != self._owner.now_ms:
            self._owner.touched(self)
        self._budget_bytes -= nbytes + answered_bytes
        if self._budget_bytes <= 0:
            self.end_turn()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closing = True
        self._drop_own()
        self._ready_bytes = 0
        self._hold(0)
        answers, self._answers = self._answers, deque()
        for answer in answers:
            answer.abandon()
        self.use_shortcut(None)  # It knows us.
        self._owner.forget(self)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._pace_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._flush_answers()
        self._go_on()

    # -- requests --------------------------------------------------------------------------------

    def _handle_own(self) -> None:
        """Handle the own buffer once its frame is whole, or make room for more of it."""
        own = self._own
        assert own is not None
        if self._filled_bytes < 4:
            return
        size_bytes: int = _LENGTH.unpack_from(own)[0]
        try:
            self._require_size(size_bytes)
        except WireError as error:
            self.refuse(str(error))
            return
        if self._filled_bytes < size_bytes + 4:
            if self._filled_bytes == len(own):
                self._grow_own(size_bytes + 4)
            return
        if not self._may_go_on(size_bytes + 4):
            self._pace_reading()
            return  # It stays where it is.
        filled_bytes = self._filled_bytes
        self._drop_own()
        with memoryview(own) as view:
            self._handle_frames(view, filled_bytes, is_first_admitted=True)

    def _handle_only_frame(self, nbytes: int) -> int:
        """Handle one whole frame and nothing else, which is what most reads bring.

        Returns the size of the answer, at least 1. 0 leaves everything to `_handle_frames`,
        which does the same for any number of frames. benchmarks/request_path.py
        """
        owner = self._owner
        view = owner.shared_buffer
        if self._answers or self._write_paused or self._finishing or self._is_held:
            return 0
        is_one = 4 < nbytes < HEAVY_BYTES and _LENGTH.unpack_from(view)[0] == nbytes - 4
        if not is_one or nbytes > owner.request_max_bytes:
            return 0
        if owner.request_memory.is_exhausted or not owner.gate.is_open():
            return 0
        self._handling = True
        owner.after_read.has_one_request = True
        try:
            answer = self._answer(view, 4, nbytes)
        except WireError as error:
            self.refuse(str(error))
            return 1
        finally:
            self._handling = False
        if answer.__class__ is bytes:
            self.send_one(answer)
            return len(answer)
        return self.take_only(answer)

    def take_only(self, answer: Answer) -> int:
        """Send the answer to the only request there is, or keep its place; its size, at least 1."""
        ready: Buffers = []
        answered_bytes = self._collect(answer, ready)
        if ready:
            self._send(ready)
        if self._answers:
            self._flush_answers()
            self._pace_reading()
        return answered_bytes + 1

    def _handle_frames(self, view: memoryview, end: int, *, is_first_admitted: bool) -> None:
        """Handle every whole frame in `view[:end]` and keep the rest for later."""
        is_admitted = is_first_admitted
        position = 0
        ready: Buffers = []
        self._handling = True
        try:
            while frame_end := self._frame_end(view, position, end):
                if not is_admitted and not self._may_go_on(frame_end - position):
                    break
                is_admitted = False
                answer = self._answer(view, position + 4, frame_end)
                position = frame_end
                self._budget_bytes -= self._collect(answer, ready) + REQUEST_SHARE_BYTES
        except WireError as error:
            self._send(ready)
            self.refuse(str(error))
            return
        finally:
            self._handling = False
        if ready:
            self._send(ready)
        if self._answers:
            self._flush_answers()
        if self.closing:
            return
        if position < end:
            self._keep(view[position:end])
        self._pace_reading()

    def _answer(self, view: memoryview, start: int, end: int) -> Answer:
        shortcut = self.shortcut
        if shortcut is not None:
            done = shortcut.answer(view, start, end)
            if done is not None:
                return done
        return self._owner.dispatch(self, view[start:end])

    def _frame_end(self, view: memoryview, position: int, end: int) -> int:
        """Where the frame at `position` ends; 0 if it is not whole yet."""
        if end - position < 4:
            return 0
        size_bytes: int = _LENGTH.unpack_from(view, position)[0]
        self._require_size(size_bytes)
        frame_end = position + 4 + size_bytes
        return frame_end if frame_end <= end else 0

    def _may_go_on(self, size_bytes: int) -> bool:
        """Whether the next request may be handled; if not, `_go_on` is called when it may."""
        if self.closing:
            return False
        if self._budget_bytes <= 0:
            self.end_turn()
        memory, gate = self._owner.request_memory, self._owner.gate
        if memory.is_exhausted:
            memory.when_available(self._go_on)
        elif not gate.is_open():
            gate.when_open(self._go_on)
        elif not self._must_wait() and self._may_take_turn(size_bytes):
            return True
        if self._exclusive and self._answers and self._answers[-1].gives_way:
            # Not now: we are in the middle of a read, or of an answer.
            self._owner.loop.call_soon(self._answers[-1].hurry)
        self._blocked = True
        return False

    def _may_take_turn(self, size_bytes: int) -> bool:
        return size_bytes < HEAVY_BYTES or self._owner.turns.take_or_wait(self._on_turn)

    def _on_turn(self) -> None:
        # It has waited while others had their turn, which is what a budget is for.
        self._budget_bytes = self._owner.read_budget_bytes
        self._budget_spent = False
        self._go_on()

    def _collect(self, answer: Answer, ready: Buffers) -> int:
        """Put an answer where it belongs; return its size, as far as there is one yet."""
        if answer is None:
            return 0
        if not isinstance(answer, bytes | list):
            if answer.buffers is not None and not self._answers:
                self._ready_bytes -= answer.size_bytes
                ready.extend(answer.buffers)
            else:
                self._answers.append(answer)
                self._exclusive = answer.exclusive
            return answer.size_bytes
        size_bytes = len(answer) if isinstance(answer, bytes) else sum(map(len, answer))
        if self._answers:  # I1: it must wait for the ones before it.
            place = PendingAnswer(self, exclusive=False)
            self._answers.append(place)
            place.complete([answer] if isinstance(answer, bytes) else answer)
        elif isinstance(answer, bytes):
            ready.append(answer)
        else:
            ready.extend(answer)
            # Large answers go out before the next request is looked at, so that a client which
            # asks for much and reads nothing is stopped after the first answer.
            self._send(ready)
            ready.clear()
        return size_bytes

    def _must_wait(self) -> bool:
        """Whether the next request may not be handled yet."""
        return (
            self._write_paused
            or self._budget_spent
            or self._exclusive
            or self._is_held
            or self._finishing
            or len(self._answers) >= PENDING_ANSWERS_MAX
            or self._ready_bytes >= QUEUED_ANSWERS_MAX_BYTES
        )

    def _keep(self, rest: memoryview) -> None:
        """Copy what cannot be handled now into a buffer of our own."""
        needed = len(rest)
        room = FIRST_OWN_BUFFER_BYTES
        if needed >= 4:
            frame_bytes = _LENGTH.unpack_from(rest)[0] + 4
            if frame_bytes <= needed:
                room = needed  # Whole frames, kept because we are blocked.
            elif frame_bytes <= TRUSTED_FRAME_BYTES and self._owner.frame_memory.has_room_for(
                frame_bytes
            ):
                room = frame_bytes
            else:
                room = min(frame_bytes, max(room, 2 * needed))
        self._take_own(new_buffer(max(room, needed)), rest)

    def _grow_own(self, frame_bytes: int) -> None:
        assert self._own is not None
        if len(self._own) >= TRUSTED_FRAME_BYTES and not self._owner.frame_memory.has_room_for(
            len(self._own)
        ):
            # Somebody has to go, and it is not the clients whose requests are of ordinary size.
            self.refuse(f"no memory for a request of {frame_bytes} bytes: queued.max.request.bytes")
            return
        smaller = memoryview(self._own)[: self._filled_bytes]
        self._drop_own()
        self._take_own(new_buffer(min(frame_bytes, 2 * len(smaller))), smaller)

    def _take_own(self, own: bytearray, content: memoryview) -> None:
        own[: len(content)] = content
        self._own, self._filled_bytes = own, len(content)
        self._owner.frame_memory.hold(len(own))

    def _drop_own(self) -> None:
        if self._own is not None:
            self._owner.frame_memory.release(len(self._own))
        self._own, self._filled_bytes = None, 0

    # -- flow ------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Let the others have theirs."""
        if not self._budget_spent and not self.closing:
            self._budget_spent = True
            self._pace_reading()
            self._owner.loop.call_soon(self._renew_budget)

    def _renew_budget(self) -> None:
        self._budget_bytes = self._owner.read_budget_bytes
        self._budget_spent = False
        self._go_on()

    def _go_on(self) -> None:
        """Handle what was kept while blocked, then read again."""
        if self.closing or self._handling:
            return
        if self._must_wait():
            return
        if self._blocked:
            self._blocked = False
            if self._own is not None:
                self._handle_own()
        self._pace_reading()

    def _pace_reading(self) -> None:
        transport = self._transport
        if transport is None or self.closing:
            return
        # While it only waits for answers, reading goes on: nobody else hears a client hang up.
        stop = self._budget_spent or self._blocked or self._write_paused or self._finishing
        if stop and not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()
        elif not stop and self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    # -- answers ---------------------------------------------------------------------------------

    def answer_ready(self, size_bytes: int) -> None:
        """A pending answer is complete; send it if its turn has come."""
        if self._transport is None:
            return
        self._ready_bytes += size_bytes
        if self._handling:
            return
        self._flush_answers()
        self._go_on()

    def _flush_answers(self) -> None:
        ready: Buffers = []
        answers = self._answers
        while answers and answers[0].buffers is not None and not self._write_paused:
            answer = answers.popleft()
            self._ready_bytes -= answer.size_bytes
            buffers = answer.buffers
            assert buffers is not None
            if answer.exclusive:  # It was the last of the queue, nothing was handled after it.
                self._exclusive = False
            ready.extend(buffers)
            if len(buffers) > 1:
                self._send(ready)
                ready.clear()
        if ready:
            self._send(ready)
        if self._ready_bytes or self._held_bytes:
            self._hold_unsent()
        self._close_if_finished()

    def send_one(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)
            if self._write_paused:
                self._hold_unsent()

    def _send(self, buffers: Buffers) -> None:
        transport = self._transport
        if transport is None or not buffers:
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)
        if self._write_paused:
            self._hold_unsent()

    def _hold_unsent(self) -> None:
        """Count what cannot leave. I3"""
        unread_bytes = self.unread_answer_bytes if self._write_paused else 0
        self._hold(self._ready_bytes + unread_bytes)

    def _hold(self, size_bytes: int) -> None:
        before, self._held_bytes = self._held_bytes, size_bytes
        if size_bytes > before:
            self._owner.answer_memory.hold(size_bytes - before)
        elif size_bytes < before:
            self._owner.answer_memory.release(before - size_bytes)

    # -- ends ------------------------------------------------------------------------------------

    def refuse(self, reason: str) -> None:
        """The peer broke the protocol: one log line, and the connection closes."""
        if self.closing:
            return
        logger.warning(
            "connection refused",
            extra={"peer": f"{self.peer_host}:{self.peer_port}", "reason": reason},
        )
        self.close()

    def finish(self) -> None:
        """Handle nothing more, and close when the answers that are due have left."""
        self._finishing = True
        self._pace_reading()
        for answer in tuple(self._answers):
            answer.hurry()
        self._close_if_finished()

    def _close_if_finished(self) -> None:
        if self._finishing and not self._answers and not self.closing:
            self.close()

    def close(self) -> None:
        """Send what is ready and close. Nothing more is read."""
        self.closing = True
        self._drop_own()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; unread answers are dropped."""
        self.closing = True
        self._drop_own()
        if self._transport is not None:
            self._transport.abort()

    def _require_size(self, size_bytes: int) -> None:
        if not 0 < size_bytes <= self._owner.request_max_bytes:
            raise WireError(
                f"a request of {size_bytes} bytes is not between 1 and "
                f"socket.request.max.bytes={self._owner.request_max_bytes}"
            )
