"""One broker's connection to another: answers in order, and what goes wrong is told to whoever
asked."""

import asyncio
import gc
import struct
from collections.abc import Callable, Coroutine

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.far_end import FarConnection, FarEnd
from tests.unit.broker.simulated_loop import SimulatedLoop, in_virtual_time
from tidelog.broker.peers import Peer, PeerUnreachable

FIRST_BUFFER_BYTES = 64 * 1024


def request(peer: Peer) -> bytes:
    return struct.pack(">ihhi", 8, 1, 0, peer.next_correlation_id())


def answer_to(number: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), number) + body


async def asked(far: FarEnd, peer: Peer, count: int) -> list["asyncio.Future[memoryview]"]:
    await peer.connect()
    return [peer.send(request(peer)) for _ in range(count)]


def bodies(answers: list["asyncio.Future[memoryview]"]) -> list[bytes]:
    return [bytes(answer.result()[4:]) for answer in answers]


def in_a_story(story: Callable[[], Coroutine[None, None, None]]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(story())


# -- answers -------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_request_makes_the_connection_and_gets_its_answer() -> None:
    far = FarEnd()
    peer = far.peer()
    asking = asyncio.create_task(peer.request(request(peer)))
    await asyncio.sleep(0.1)
    (frame,) = far.connection.requests()
    assert bytes(frame) == struct.pack(">hhi", 1, 0, 1)
    far.connection.send(answer_to(1, b"yes"))
    assert bytes(await asking) == struct.pack(">i", 1) + b"yes"
    assert far.attempts == 1


@in_virtual_time
async def test_who_asks_with_a_callback_is_called_where_the_answer_arrives() -> None:
    """A turn of the loop is milliseconds under load, and producers wait for followers."""
    far = FarEnd()
    peer = far.peer()
    await peer.connect()
    settled: list[memoryview | PeerUnreachable] = []
    peer.ask(request(peer), settled.append)
    far.connection.send(answer_to(1, b"yes"))
    (answer,) = settled  # Nothing else has run in between.
    assert not isinstance(answer, PeerUnreachable)
    assert bytes(answer[4:]) == b"yes"


@in_virtual_time
async def test_who_asks_with_a_callback_is_told_of_the_end_and_may_ask_to_be_forgotten() -> None:
    far = FarEnd()
    peer = far.peer()
    await peer.connect()
    told: list[memoryview | PeerUnreachable] = []
    forgotten: list[memoryview | PeerUnreachable] = []
    peer.ask(request(peer), forgotten.append).forget()
    peer.ask(request(peer), told.append)
    far.connection.send(answer_to(1))  # It is expected all the same.
    far.connection.close()
    assert [type(one) for one in told] == [PeerUnreachable]
    assert forgotten == []
    with pytest.raises(PeerUnreachable):
        peer.ask(request(peer), told.append)


@in_virtual_time
async def test_requests_may_be_sent_ahead_and_are_answered_in_order() -> None:
    far = FarEnd()
    answers = await asked(far, far.peer(), 3)
    far.connection.send(answer_to(1, b"a") + answer_to(2, b"b"))
    assert bodies(answers[:2]) == [b"a", b"b"]
    assert not answers[2].done()
    far.connection.send(answer_to(3, b"c"))
    assert bodies(answers) == [b"a", b"b", b"c"]


sizes = st.integers(0, 40) | st.integers(FIRST_BUFFER_BYTES - 20, FIRST_BUFFER_BYTES + 20)


@given(
    st.lists(sizes | st.sampled_from([200_000, 700_000]), min_size=1, max_size=6),
    st.sampled_from([1_000, 30_011, FIRST_BUFFER_BYTES, 2**30]),
)
def test_answers_of_any_size_in_pieces_of_any_size(size_bytes: list[int], chunk: int) -> None:
    async def story() -> None:
        far = FarEnd()
        answers = await asked(far, far.peer(), len(size_bytes))
        sent = [bytes([number % 251]) * size for number, size in enumerate(size_bytes)]
        stream = b"".join(answer_to(number + 1, body) for number, body in enumerate(sent))
        far.connection.send(stream, chunk_bytes=chunk)
        await asyncio.gather(*answers)  # Large ones take turns.
        assert bodies(answers) == sent

    in_a_story(story)


@in_virtual_time
async def test_an_answer_that_comes_byte_by_byte_is_whole_at_last() -> None:
    far = FarEnd()
    answers = await asked(far, far.peer(), 2)
    far.connection.send(answer_to(1, b"one") + answer_to(2, b"two"), chunk_bytes=1)
    assert bodies(answers) == [b"one", b"two"]


@in_virtual_time
async def test_an_answer_is_the_callers_own_whatever_comes_after_it() -> None:
    far = FarEnd()
    answers = await asked(far, far.peer(), 2)
    far.connection.send(answer_to(1, b"one"))
    far.connection.send(answer_to(2, b"two"))
    assert bodies(answers) == [b"one", b"two"]


@in_virtual_time
async def test_whoever_gives_up_does_not_disturb_the_order() -> None:
    far = FarEnd()
    answers = await asked(far, far.peer(), 2)
    answers[0].cancel()
    far.connection.send(answer_to(1, b"late") + answer_to(2, b"next"))
    assert bodies(answers[1:]) == [b"next"]
    assert not far.connection.is_closed


@in_virtual_time
async def test_requests_that_come_at_once_share_a_connection() -> None:
    far = FarEnd()
    peer = far.peer()
    asking = [asyncio.create_task(peer.request(request(peer))) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert far.attempts == 1
    assert len(far.connection.requests()) == 3
    far.connection.send(b"".join(answer_to(number) for number in (1, 2, 3)))
    await asyncio.gather(*asking)


@in_virtual_time
async def test_what_is_not_answered_takes_nobodys_place() -> None:
    far = FarEnd()
    peer = far.peer()
    with pytest.raises(PeerUnreachable, match="no connection"):
        peer.send_only(request(peer))
    await peer.connect()
    peer.send_only(request(peer))
    answer = peer.send(request(peer))
    far.connection.send(answer_to(3, b"yes"))
    assert bodies([answer]) == [b"yes"]
    peer.close()
    with pytest.raises(PeerUnreachable, match="no connection"):
        peer.send_only(request(peer))


# -- failures ------------------------------------------------------------------------------------


@in_virtual_time
async def test_silence_for_too_long_fails_everybody_on_the_connection() -> None:
    far = FarEnd()
    far.timeout_ms = 1_000
    peer = far.peer()
    (first,) = await asked(far, peer, 1)
    await asyncio.sleep(0.6)
    second = peer.send(request(peer))
    await asyncio.sleep(0.3)
    assert not first.done()
    await asyncio.sleep(0.2)
    for answer in (first, second):
        with pytest.raises(PeerUnreachable, match=r"no answer from far\.example:9092 for 1 s"):
            answer.result()
    assert far.connection.is_closed


@in_virtual_time
async def test_an_answer_in_time_ends_the_waiting_for_it() -> None:
    far = FarEnd()
    far.timeout_ms = 1_000
    peer = far.peer()
    await asked(far, peer, 1)
    await asyncio.sleep(0.9)
    far.connection.send(answer_to(1))
    await asyncio.sleep(5)
    assert not far.connection.is_closed


@in_virtual_time
async def test_a_broken_connection_fails_everybody_and_the_next_request_makes_a_new_one() -> None:
    far = FarEnd()
    peer = far.peer()
    answers = await asked(far, peer, 2)
    far.connection.send(answer_to(1) + answer_to(2)[:5])
    far.connection.close()
    assert answers[0].done()
    with pytest.raises(PeerUnreachable, match="lost"):
        answers[1].result()
    ahead = peer.send(request(peer))
    with pytest.raises(PeerUnreachable, match="no connection"):
        ahead.result()
    asking = asyncio.create_task(peer.request(request(peer)))
    await asyncio.sleep(0.1)
    assert len(far.connections) == 2
    far.connection.send(answer_to(4, b"again"))  # What was half there is forgotten.
    assert bytes((await asking)[4:]) == b"again"


@in_virtual_time
async def test_a_connection_that_is_refused_is_said_and_tried_again_by_the_next() -> None:
    far = FarEnd()
    far.is_refusing = True
    peer = far.peer()
    for _ in range(2):
        with pytest.raises(PeerUnreachable, match=r"cannot connect to far\.example:9092"):
            await peer.request(request(peer))
    assert far.attempts == 2
    far.is_refusing = False
    await peer.connect()


@in_virtual_time
async def test_a_connection_that_is_not_made_in_time_is_given_up() -> None:
    far = FarEnd()
    far.is_silent = True
    far.timeout_ms = 1_000
    with pytest.raises(PeerUnreachable, match="cannot connect"):
        await far.peer().request(b"")
    assert asyncio.get_running_loop().time() == pytest.approx(1)


@in_virtual_time
async def test_closing_tells_whoever_waits_also_for_the_connection() -> None:
    far = FarEnd()
    peer = far.peer()
    (answer,) = await asked(far, peer, 1)
    peer.close()
    with pytest.raises(PeerUnreachable, match="given up"):
        await answer
    assert far.connection.is_closed
    early = far.peer()
    connecting = asyncio.create_task(early.connect())
    await asyncio.sleep(0)
    early.close()
    with pytest.raises(PeerUnreachable, match="given up"):
        await connecting
    assert far.connection.is_closed


@in_virtual_time
async def test_closing_ends_the_waiting_for_a_connection_that_is_not_made() -> None:
    far = FarEnd()
    far.is_silent = True
    peer = far.peer()
    waiting = [asyncio.create_task(peer.connect()) for _ in range(2)]
    await asyncio.sleep(0.1)
    peer.close()
    for one in waiting:
        with pytest.raises(PeerUnreachable, match="given up"):
            await one
    assert asyncio.get_running_loop().time() == pytest.approx(0.1)
    assert far.attempts == 1


def hostile() -> dict[str, bytes]:
    return {
        "negative length": struct.pack(">ii", -1, 1),
        "no room for a correlation id": struct.pack(">ih", 2, 0),
        "larger than allowed": struct.pack(">ii", 2**20 + 1, 1),
        "as large as it gets": struct.pack(">ii", 2**31 - 1, 1),
        "another correlation id": answer_to(2),
        "the right one, but later": answer_to(7) + answer_to(1),
    }


@pytest.mark.parametrize("what", hostile())
@in_virtual_time
async def test_what_cannot_be_an_answer_ends_the_connection(what: str) -> None:
    far = FarEnd()
    (answer,) = await asked(far, far.peer(), 1)
    far.connection.send(hostile()[what])
    assert far.connection.is_closed
    with pytest.raises(PeerUnreachable):
        answer.result()


@in_virtual_time
async def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    far = FarEnd()
    (answer,) = await asked(far, far.peer(), 1)
    far.connection.send(answer_to(1, b"yes") + answer_to(2))
    assert bodies([answer]) == [b"yes"]
    assert far.connection.is_closed


@in_virtual_time
async def test_what_arrives_after_the_end_is_passed_over() -> None:
    far = FarEnd()
    peer = far.peer()
    (answer,) = await asked(far, peer, 1)
    connection: FarConnection = far.connection
    peer.close()
    connection._transport.is_closed = False  # Read from the socket already.
    connection.send(answer_to(1))
    with pytest.raises(PeerUnreachable):
        await answer


@in_virtual_time
async def test_answers_that_nobody_waits_for_any_more_may_fail() -> None:
    """Requests may be sent ahead: who hears that the first has failed does not ask for the rest.

    An exception that reaches the event loop ends a broker.
    """
    reached_the_loop: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reached_the_loop.append(context))
    far = FarEnd()
    peer = far.peer()
    answers = await asked(far, peer, 2)
    peer.close()
    with pytest.raises(PeerUnreachable, match="given up"):
        await answers[0]
    answers.clear()
    gc.collect()
    await asyncio.sleep(0)
    assert reached_the_loop == []
