"""A read that `FastProtocol` handles leaves a connection as `Connection` itself would have.

Twins: two connections to owners that echo, one behind the compiled protocol and one without it,
both with a shortcut. They get the same bytes in the same pieces and meet with the same trouble, and
after every step what was sent, seen and is remembered must be equal. That is the whole
specification of `_shortcuts_read.pxi`.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.unit.broker.books import connection_books
from tests.unit.broker.compiled import only_compiled
from tests.unit.broker.fake_transport import FakeTransport, Outbox
from tests.unit.broker.test_connection import Owner, framed
from tidelog.base.errors import WireError
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import Answer, Connection
from tidelog.broker.heavy_turns import HEAVY_BYTES
from tidelog.broker.memory import MemoryBound
from tidelog.broker.shortcuts import NO_SHORTCUTS, SHORTCUTS, Shortcuts

pytestmark = only_compiled

STEPS = 80
BUDGET_BYTES = 1_000


class Echo:
    """A shortcut for all but what begins with `-`."""

    def __init__(self, twin: "Twin") -> None:
        self.twin = twin
        self.tried = 0

    def end(self) -> None:
        self.twin.seen.append("no shortcut any more")

    def answer(self, view: memoryview, start: int, end: int) -> Answer:
        self.tried += 1
        return None if view[start] == ord("-") else self.twin.answer(bytes(view[start:end]))


class Twin(Owner):
    """An owner, its only connection, and what they have seen."""

    def __init__(self, shortcuts: Shortcuts) -> None:
        super().__init__(read_budget_bytes=BUDGET_BYTES)
        self.shared_buffer = memoryview(bytearray(2 * HEAVY_BYTES))
        self.request_max_bytes = 2 * HEAVY_BYTES
        self.request_memory = MemoryBound(1)
        self.is_in_doubt = False
        self.gate.is_reliable = lambda _for_ms: not self.is_in_doubt
        self.seen: list[object] = []
        self.connection = Connection(self, "PLAINTEXT")
        self.echo = Echo(self)
        self.connection.shortcut = self.echo
        self.transport = FakeTransport()
        protocol = shortcuts.protocol(self.connection, self)
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)
        self.outbox = Outbox(protocol, self.transport)

    def touched(self, connection: Connection) -> None:
        super().touched(connection)
        self.seen.append("touched")

    def dispatch(self, connection: Connection, frame: memoryview) -> Answer:
        return self.answer(bytes(frame))

    def answer(self, content: bytes) -> Answer:
        """The second byte says how."""
        after_read, connection = self.after_read, self.connection
        self.seen.append((content, after_read.has_one_request, connection._handling))
        match content[1:2]:
            case b"p" | b"x" | b"r":
                place = PendingAnswer(connection, exclusive=content[1:2] == b"x")
                if content[1:2] == b"r":
                    place.complete([content])
                else:
                    self.pending.append(place)
                return place
            case b"l":
                return [content, b"|"]
            case b"d":
                after_read.call(lambda: self.seen.append(bytes(self.transport.sent)))
            case b"f":
                connection.finish()
            case b"c":
                connection.close()
            case b"!":
                raise WireError("bang")
            case b"?":
                raise ZeroDivisionError
            case _:
                pass
        return content

    def books(self) -> dict[str, object]:
        transport = self.transport
        return connection_books(self.connection) | {
            "seen": self.seen,
            "soon": len(self.fake_loop.soon),
            "sent": (bytes(transport.sent), bytes(transport.unsent)),
            "transport": (transport.reads, transport.is_closed),
            "memory": [
                memory.held_bytes
                for memory in (self.frame_memory, self.request_memory, self.answer_memory)
            ],
            "reading": (self.after_read._is_reading, self.after_read.has_one_request),
            "due": len(self.after_read._due),
        }


class Twins:
    """Both, and what is done to them."""

    def __init__(self) -> None:
        self.each = (Twin(SHORTCUTS), Twin(NO_SHORTCUTS))
        self.compare()

    def do(self, act: Callable[[Twin], object]) -> None:
        raised = []
        for twin in self.each:
            try:
                act(twin)
            except ZeroDivisionError as error:
                raised.append(error)
        assert len(raised) in {0, 2}
        self.compare()

    def compare(self) -> None:
        one, other = (twin.books() for twin in self.each)
        assert one == other

    def send(self, *bodies: bytes, chunk_bytes: int = 2**20) -> None:
        data = framed(*bodies)
        self.do(lambda twin: twin.outbox.send(data, chunk_bytes=chunk_bytes))


@pytest.mark.parametrize(
    ("body", "tried"), [(b"..", 1), (b".p", 1), (b".x", 1), (b".l", 1), (b"-.", 2)]
)
def test_a_shortcut_is_asked_before_the_connection_is(body: bytes, tried: int) -> None:
    """Otherwise the twins would agree because they are the same.

    What it does not want is read once more by the connection, which asks it again.
    """
    both = Twins()
    both.send(body)
    assert [twin.echo.tried for twin in both.each] == [tried, 1]


@pytest.mark.parametrize("size_bytes", [HEAVY_BYTES - 5, HEAVY_BYTES - 4, HEAVY_BYTES])
def test_the_twins_agree_about_large_requests(size_bytes: int) -> None:
    both = Twins()
    both.do(lambda twin: twin.turns.take())
    both.send(b"." * size_bytes)
    assert len(both.each[0].frames) == 0
    for _ in range(3):
        both.do(lambda twin: twin.fake_loop.turn())
        both.do(lambda twin: twin.outbox.deliver())


@pytest.mark.parametrize("over_bytes", [-1, 0, 1])
def test_the_twins_agree_about_the_largest_request(over_bytes: int) -> None:
    both = Twins()
    both.do(lambda twin: setattr(twin, "request_max_bytes", 500))
    both.send(b"." * (500 + over_bytes))


@pytest.mark.parametrize("left_bytes", [-1, 0, 1])
@pytest.mark.parametrize("kind", [b".", b"p", b"l"])
def test_the_twins_agree_about_the_end_of_a_budget(left_bytes: int, kind: bytes) -> None:
    both = Twins()
    body = b"." + kind
    answered_bytes = {b".": len(body), b"p": 1, b"l": len(body) + 2}[kind]
    budget_bytes = len(framed(body)) + answered_bytes + left_bytes
    both.do(lambda twin: setattr(twin.connection, "_budget_bytes", budget_bytes))
    both.send(body)
    assert both.each[0].connection._budget_spent is (left_bytes <= 0)


@pytest.mark.parametrize("bad", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00\x00"])
def test_the_twins_agree_about_impossible_sizes(bad: bytes) -> None:
    both = Twins()
    both.do(lambda twin: twin.outbox.send(bad))
    assert both.each[0].connection.is_closed


def _fill_socket(twin: Twin) -> None:
    twin.transport.is_stalled = True
    twin.connection.send_one(b"....")


@pytest.mark.parametrize(
    "stop",
    [lambda twin: twin.connection.close(), lambda twin: twin.connection.finish(), _fill_socket],
    ids=["close", "finish", "socket is full"],
)
def test_the_twins_agree_about_what_arrives_although_they_do_not_read(
    stop: Callable[[Twin], object],
) -> None:
    both = Twins()
    both.do(stop)
    both.do(_read_anyway)
    assert both.each[0].echo.tried == 0


def _read_anyway(twin: Twin) -> None:
    data = framed(b"..")
    protocol = twin.transport.protocol
    assert protocol is not None
    memoryview(protocol.get_buffer(-1))[: len(data)] = data
    protocol.buffer_updated(len(data))


def test_what_was_read_before_is_not_read_again() -> None:
    """The shared buffer still holds an old request while the next one goes to another buffer."""
    both = Twins()
    both.send(b".." + bytes(8))
    following = framed(b".." + bytes(11))
    both.do(lambda twin: twin.outbox.send(following[:3]))
    both.do(lambda twin: twin.outbox.send(following[3:]))
    assert [seen[0] for seen in both.each[0].seen if isinstance(seen, tuple)] == [
        b".." + bytes(8),
        b".." + bytes(11),
    ]


@pytest.mark.parametrize("seed", range(150))
def test_the_twins_agree_whatever_happens(seed: int) -> None:
    chance = Random(seed)
    both = Twins()
    for number in range(STEPS):
        if chance.random() < 0.6:
            bodies = [body(chance, number) for _ in range(chance.choice((1, 1, 1, 1, 2, 3)))]
            both.send(*bodies, chunk_bytes=chance.choice((2**20, 2**20, 2**20, 3, 50)))
        else:
            both.do(chance.choice(TROUBLE)(chance))
        if both.each[0].connection.is_closed and chance.random() < 0.3:
            both.do(lambda twin: twin.connection.connection_lost(None))
            break


def body(chance: Random, number: int) -> bytes:
    way = chance.choices(b".-", (8, 1))[0]
    how = chance.choices(b".pxrlds!?fc", (80, 10, 10, 5, 5, 10, 3, 1, 1, 1, 1))[0]
    return bytes((way, how)) + b"%d" % number + bytes(chance.choice((0, 0, 0, 100, 700)))


def _complete(chance: Random) -> Callable[[Twin], object]:
    position = chance.random()

    def complete(twin: Twin) -> None:
        if twin.pending:
            number = int(position * len(twin.pending))
            twin.pending.pop(number).complete([b"<%d>" % number])

    return complete


def _stall(_chance: Random) -> Callable[[Twin], object]:
    return lambda twin: setattr(twin.transport, "is_stalled", True)


def _read_answers(_chance: Random) -> Callable[[Twin], object]:
    def read(twin: Twin) -> None:
        if twin.transport.is_stalled:
            twin.transport.take_all()

    return read


def _fill_memory(_chance: Random) -> Callable[[Twin], object]:
    def fill(twin: Twin) -> None:
        if not twin.request_memory.held_bytes:
            twin.request_memory.hold(1)

    return fill


def _empty_memory(_chance: Random) -> Callable[[Twin], object]:
    def empty(twin: Twin) -> None:
        if twin.request_memory.held_bytes:
            twin.request_memory.release(1)

    return empty


def _doubt(chance: Random) -> Callable[[Twin], object]:
    is_in_doubt = chance.random() < 0.3

    def doubt(twin: Twin) -> None:
        twin.is_in_doubt = is_in_doubt
        twin.clock.advance(50)

    return doubt


def _time(_chance: Random) -> Callable[[Twin], object]:
    return lambda twin: setattr(twin, "now_ms", twin.now_ms + 1)


def _turn(_chance: Random) -> Callable[[Twin], object]:
    def turn(twin: Twin) -> None:
        twin.fake_loop.turn()
        twin.outbox.deliver()

    return turn


def _change_shortcut(chance: Random) -> Callable[[Twin], object]:
    has_one = chance.random() < 0.8

    def use(twin: Twin) -> None:
        made: Any = twin.echo if has_one else None
        if not twin.connection.is_closed:
            twin.connection.shortcut = made

    return use


TROUBLE: list[Callable[[Random], Callable[[Twin], object]]] = [
    *[_complete] * 5,
    _stall,
    _read_answers,
    _read_answers,
    _fill_memory,
    _empty_memory,
    _empty_memory,
    _doubt,
    _doubt,
    _time,
    *[_turn] * 5,
    _change_shortcut,
    _change_shortcut,
]
