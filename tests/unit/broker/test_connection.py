"""Frames in, answers out: any chunking of the bytes, any order of completion."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.fake_transport import FakeTransport, Outbox
from tests.unit.broker.world import ManualClock
from tidelog.base.errors import WireError
from tidelog.broker.after_read import AfterRead
from tidelog.broker.answers import PendingAnswer
from tidelog.broker.connection import (
    PENDING_ANSWERS_MAX,
    QUEUED_ANSWERS_MAX_BYTES,
    Answer,
    Connection,
)
from tidelog.broker.heavy_turns import HeavyTurns
from tidelog.broker.memory import MemoryBound
from tidelog.broker.session_gate import SURE_FOR_MS, SessionGate

SHARED_BYTES = 4_096
REQUEST_MAX_BYTES = 100_000


class FakeLoop:
    """Keeps what is to be called soon until somebody turns it."""

    def __init__(self) -> None:
        self.soon: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def call_later(self, _delay_s: float, callback: Any) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class Owner:
    """A server whose requests are echoed; the first byte of a frame says how."""

    def __init__(self, *, read_budget_bytes: int = 2**30) -> None:
        self.now_ms = 1
        self.shared_buffer = memoryview(bytearray(SHARED_BYTES))
        self.request_max_bytes = REQUEST_MAX_BYTES
        self.read_budget_bytes = read_budget_bytes
        self.frame_memory = MemoryBound(2**20)
        self.request_memory = MemoryBound(2**20)
        self.answer_memory = MemoryBound(2**20)
        self.fake_loop = FakeLoop()
        loop: Any = self.fake_loop
        self.loop = loop
        self.clock = ManualClock()
        self.gate = SessionGate(self.clock, loop)
        self.after_read = AfterRead(loop)
        self.turns = HeavyTurns(loop, pause_s=0)
        self.frames: list[bytes] = []
        self.pending: list[PendingAnswer] = []
        self.is_forgotten = False
        self.answer_bytes = 0

    def admit(self, connection: Connection) -> bool:
        return True

    def forget(self, connection: Connection) -> None:
        self.is_forgotten = True

    def touched(self, connection: Connection) -> None:
        connection.last_used_ms = self.now_ms

    def dispatch(self, connection: Connection, frame: memoryview) -> Answer:
        content = bytes(frame)
        self.frames.append(content)
        match content[:1]:
            case b"s":
                return None
            case b"p" | b"x":
                answer = PendingAnswer(connection, exclusive=content[:1] == b"x")
                self.pending.append(answer)
                return answer
            case b"l":
                return [content, b"|"]
            case b"B":
                return bytes(self.answer_bytes)
            case b"!":
                raise WireError("bang")
            case _:
                return content


class Client:
    """Feeds bytes to a connection as uvloop would."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.transport = FakeTransport()
        self.connection = Connection(owner, "PLAINTEXT")
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        outbox = Outbox(self.connection, self.transport)
        self.send = outbox.send
        self.deliver = outbox.deliver


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def client(owner: Owner) -> Client:
    return Client(owner)


@given(
    bodies=st.lists(
        st.binary(min_size=1, max_size=9_000).map(lambda body: b"." + body), max_size=8
    ),
    chunk_bytes=st.integers(1, 10_000),
)
def test_frames_are_the_same_however_the_bytes_arrive(
    bodies: list[bytes], chunk_bytes: int
) -> None:
    owner = Owner()
    client = Client(owner)
    client.send(framed(*bodies), chunk_bytes=chunk_bytes)
    assert owner.frames == bodies
    assert bytes(client.transport.sent) == b"".join(bodies)
    assert owner.frame_memory.held_bytes == 0


@pytest.mark.parametrize("bodies", [[b"one"], [b"one", b"two"]])
def test_requests_wait_while_the_session_is_in_doubt(
    owner: Owner, client: Client, bodies: list[bytes]
) -> None:
    """They lay in the socket while the process was stopped; others may lead by now (C6)."""
    owner.gate.is_reliable = lambda _for_ms: False
    client.send(framed(*bodies))
    owner.fake_loop.turn()
    assert owner.frames == []
    assert client.transport.sent == b""
    owner.gate.is_reliable = lambda _for_ms: True
    owner.fake_loop.turn()
    assert owner.frames == bodies
    client.send(framed(b"next"))
    assert owner.frames == [*bodies, b"next"]
    assert bytes(client.transport.sent) == b"".join(owner.frames)


def test_what_was_kept_for_its_turn_waits_as_well(owner: Owner, client: Client) -> None:
    client.send(framed(b"x", b"kept"))
    owner.gate.is_reliable = lambda _for_ms: False
    owner.clock.advance(SURE_FOR_MS)
    owner.pending[0].complete([b"first"])
    assert owner.frames == [b"x"]
    owner.gate.is_reliable = lambda _for_ms: True
    owner.fake_loop.turn()
    assert owner.frames == [b"x", b"kept"]


@given(
    kinds=st.lists(st.sampled_from("ap"), min_size=1, max_size=20),
    order=st.randoms(use_true_random=False),
)
def test_answers_leave_in_the_order_of_the_requests(kinds: list[str], order: Any) -> None:
    owner = Owner()
    client = Client(owner)
    bodies = [f"{kind}{number};".encode() for number, kind in enumerate(kinds)]
    client.send(framed(*bodies))
    answers = list(zip(owner.pending, [b for b in bodies if b[:1] == b"p"], strict=True))
    order.shuffle(answers)
    for answer, body in answers:
        answer.complete([body])
    assert bytes(client.transport.sent) == b"".join(bodies)


def test_a_request_without_an_answer_leaves_no_gap(client: Client) -> None:
    client.send(framed(b"a", b"s", b"b"))
    assert bytes(client.transport.sent) == b"ab"


def test_nothing_is_handled_behind_an_exclusive_request(owner: Owner, client: Client) -> None:
    client.send(framed(b"x", b"a", b"b"))
    assert owner.frames == [b"x"]
    assert not client.transport.reads
    owner.pending[0].complete([b"X"])
    assert owner.frames == [b"x", b"a", b"b"]
    assert bytes(client.transport.sent) == b"Xab"
    assert client.transport.reads


def test_a_client_that_does_not_read_is_not_served(owner: Owner, client: Client) -> None:
    client.transport.is_stalled = True
    client.send(framed(b"l1", b"l2", b"l3"))
    assert owner.frames == [b"l1"]
    assert not client.transport.reads
    assert owner.answer_memory.held_bytes == 3
    client.transport.take_all()
    assert owner.frames == [b"l1", b"l2", b"l3"]
    assert bytes(client.transport.sent) == b"l1|l2|l3|"
    assert owner.answer_memory.held_bytes == 0


def test_pending_answers_are_bounded(owner: Owner, client: Client) -> None:
    client.send(framed(*[b"p"] * (PENDING_ANSWERS_MAX + 10)))
    assert len(owner.frames) == PENDING_ANSWERS_MAX
    assert not client.transport.reads
    for answer in list(owner.pending):
        answer.complete([b"."])
    assert len(owner.frames) == PENDING_ANSWERS_MAX + 10
    assert client.transport.reads


def test_a_busy_connection_gives_way_after_its_read_budget() -> None:
    owner = Owner(read_budget_bytes=1_000)
    client = Client(owner)
    client.send(framed(*[b"a" * 100] * 100), chunk_bytes=500)
    handled = len(owner.frames)
    assert handled < 100
    assert not client.transport.reads
    owner.fake_loop.turn()
    assert client.transport.reads
    client.deliver(500)
    assert len(owner.frames) > handled


def test_requests_wait_while_request_memory_is_exhausted(owner: Owner, client: Client) -> None:
    owner.request_memory.hold(2**20)
    client.send(framed(b"a"))
    assert owner.frames == []
    assert not client.transport.reads
    owner.request_memory.release(1)
    assert owner.frames == [b"a"]
    assert client.transport.reads


@pytest.mark.parametrize("size_bytes", [0, -1, -(2**31), REQUEST_MAX_BYTES + 1, 2**31 - 1])
@pytest.mark.parametrize("chunk_bytes", [1, 100])
def test_an_impossible_size_closes_the_connection(
    client: Client, owner: Owner, size_bytes: int, chunk_bytes: int
) -> None:
    client.send(struct.pack(">i", size_bytes) + b"abc", chunk_bytes=chunk_bytes)
    assert client.transport.is_closed
    assert owner.frames == []
    assert owner.frame_memory.held_bytes == 0


def test_what_was_answered_before_bad_bytes_is_still_sent(client: Client, owner: Owner) -> None:
    client.send(framed(b"a", b"!", b"b"))
    assert bytes(client.transport.sent) == b"a"
    assert client.transport.is_closed
    assert owner.frames == [b"a", b"!"]


def test_memory_grows_with_what_was_sent_and_not_with_what_was_promised(owner: Owner) -> None:
    owner.request_max_bytes = 2**30
    owner.frame_memory = MemoryBound(0)
    client = Client(owner)
    client.send(struct.pack(">i", 2**29) + bytes(100_000))
    assert owner.frame_memory.held_bytes <= 4 * 100_000


def test_a_huge_request_is_refused_when_frames_fill_their_memory(owner: Owner) -> None:
    owner.request_max_bytes = 2**30
    client = Client(owner)
    client.send(struct.pack(">i", 2**29) + bytes(8 * 2**20))
    assert client.transport.is_closed
    assert owner.frame_memory.held_bytes == 0


def test_a_lost_connection_gives_everything_back(owner: Owner, client: Client) -> None:
    abandoned = []
    client.send(framed(b"p") + struct.pack(">i", 500) + b"half")
    owner.pending[0].on_abandoned(lambda: abandoned.append(True))
    client.connection.connection_lost(None)
    assert abandoned == [True]
    assert owner.is_forgotten
    assert owner.frame_memory.held_bytes == 0


def test_a_lost_connection_gives_back_what_it_left_unread(owner: Owner, client: Client) -> None:
    client.transport.is_stalled = True
    client.send(framed(b"l1"))
    client.connection.connection_lost(None)
    assert owner.answer_memory.held_bytes == 0


def test_finishing_lets_due_answers_leave_and_handles_nothing_more(
    owner: Owner, client: Client
) -> None:
    client.send(framed(b"p"))
    client.connection.finish()
    client.send(framed(b"a"))
    assert not client.transport.is_closed
    owner.pending[0].complete([b"P"])
    assert bytes(client.transport.sent) == b"P"
    assert client.transport.is_closed
    assert owner.frames == [b"p"]


def test_answers_count_against_the_read_budget() -> None:
    """Small requests with large answers must not hold up the others either."""
    owner = Owner(read_budget_bytes=1_000)
    owner.answer_bytes = 500
    client = Client(owner)
    client.send(framed(*[b"Big"] * 100))
    assert len(owner.frames) < 10
    while len(owner.frames) < 100:
        before = len(owner.frames)
        owner.fake_loop.turn()
        assert before < len(owner.frames) < before + 10
    owner.fake_loop.turn()
    assert client.transport.reads
    assert len(client.transport.sent) == 100 * 500


def test_requests_without_an_answer_count_against_the_read_budget() -> None:
    owner = Owner(read_budget_bytes=4_000)
    client = Client(owner)
    client.send(framed(*[b"s"] * 500))
    assert len(owner.frames) < 100
    for _ in range(100):
        owner.fake_loop.turn()
    assert len(owner.frames) == 500


def test_answers_that_wait_for_an_earlier_one_count_as_unread(owner: Owner, client: Client) -> None:
    client.send(framed(b"p", b"a" * 1_000))
    assert owner.answer_memory.held_bytes == 1_000
    owner.pending[0].complete([b"P"])
    assert owner.answer_memory.held_bytes == 0
    assert bytes(client.transport.sent) == b"P" + b"a" * 1_000


def test_late_answers_that_wait_for_an_earlier_one_count_as_unread(
    owner: Owner, client: Client
) -> None:
    client.send(framed(b"p", b"p", b"p"))
    owner.pending[1].complete([b"second", b"answer"])
    assert owner.answer_memory.held_bytes == 12
    client.transport.is_stalled = True
    owner.pending[0].complete([b"first"])
    assert owner.answer_memory.held_bytes == 17
    client.transport.take_all()
    assert owner.answer_memory.held_bytes == 0
    owner.pending[2].complete([b"."])
    assert bytes(client.transport.sent) == b"firstsecondanswer."


def test_answers_that_wait_for_an_earlier_one_are_bounded(owner: Owner, client: Client) -> None:
    owner.answer_bytes = QUEUED_ANSWERS_MAX_BYTES // 4
    client.send(framed(b"p", *[b"Big"] * 20))
    assert len(owner.frames) == 1 + 4
    owner.pending[0].complete([b"P"])
    for _ in range(100):
        owner.fake_loop.turn()
        client.deliver()
    assert len(owner.frames) == 1 + 20
    assert owner.answer_memory.held_bytes == 0


def test_a_lost_connection_gives_back_answers_that_never_left(owner: Owner, client: Client) -> None:
    client.send(framed(b"p", b"a" * 1_000))
    client.connection.connection_lost(None)
    assert owner.answer_memory.held_bytes == 0


def test_a_parked_request_does_not_stop_the_reading(owner: Owner, client: Client) -> None:
    """Somebody has to hear the client hang up."""
    client.send(framed(b"x"))
    assert client.transport.reads
    client.send(struct.pack(">i", 10) + b"half")
    assert client.transport.reads
    client.send(b"123456")
    assert not client.transport.reads
    assert owner.frames == [b"x"]
    owner.pending[0].complete([b"X"])
    assert owner.frames == [b"x", b"half123456"]


@given(
    kinds=st.lists(st.sampled_from("apxls"), min_size=1, max_size=25),
    chunk_bytes=st.integers(1, 200),
    order=st.randoms(use_true_random=False),
)
def test_every_request_is_answered_once_whatever_happens_in_between(
    kinds: list[str], chunk_bytes: int, order: Any
) -> None:
    """Stalls, memory that runs out, budgets: in the end each answer has left, in order."""
    owner = Owner(read_budget_bytes=400)
    owner.request_memory = MemoryBound(1)
    client = Client(owner)
    bodies = [f"{kind}{number};".encode() for number, kind in enumerate(kinds)]
    client.send(framed(*bodies), chunk_bytes=chunk_bytes)
    world = Trouble(owner, client, order)
    for _ in range(40 * len(bodies)):
        world.happens()
        client.deliver(chunk_bytes)
    for _ in range(3 * len(bodies)):
        world.ends()
        client.deliver(chunk_bytes)
    assert owner.frames == bodies
    expected = [body + b"|" * (body[:1] == b"l") for body in bodies if body[:1] != b"s"]
    assert bytes(client.transport.sent) == b"".join(expected)
    assert owner.answer_memory.held_bytes == 0
    assert owner.frame_memory.held_bytes == 0
    assert client.transport.reads


class Trouble:
    """What may come between a request and its answer."""

    def __init__(self, owner: Owner, client: Client, chance: Any) -> None:
        self.owner = owner
        self.client = client
        self.chance = chance
        self.completed = 0

    def happens(self) -> None:
        transport, memory = self.client.transport, self.owner.request_memory
        match self.chance.randrange(6):
            case 0:
                transport.is_stalled = True
            case 1 if transport.is_stalled:
                transport.take_all()
            case 2 if not memory.held_bytes:
                memory.hold(1)
            case 3 if memory.held_bytes:
                memory.release(1)
            case 4:
                self.owner.fake_loop.turn()
            case _:
                self.complete_one()

    def ends(self) -> None:
        if self.owner.request_memory.held_bytes:
            self.owner.request_memory.release(1)
        if self.client.transport.is_stalled:
            self.client.transport.take_all()
        self.owner.fake_loop.turn()
        while self.complete_one():
            pass

    def complete_one(self) -> bool:
        if self.completed == len(self.owner.pending):
            return False
        late = [body for body in self.owner.frames if body[:1] in b"px"]
        self.completed += 1
        self.owner.pending[self.completed - 1].complete([late[self.completed - 1]])
        return True
