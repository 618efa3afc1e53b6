"""Bytes that wait leave in order, none early, none twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.lab.network.held_bytes import (
    HELD_MAX_BYTES,
    HELD_MAX_CHUNKS,
    TAKEN_MAX_CHUNKS,
    Ending,
    HeldBytes,
)


def due(held: HeldBytes, now_s: float, delay_s: float) -> bytes:
    return b"".join(held.due(now_s=now_s, delay_s=delay_s))


def test_bytes_are_due_after_the_delay() -> None:
    held = HeldBytes()
    held.put(b"one", now_s=1.0)
    held.put(b"two", now_s=1.5)
    assert due(held, 1.9, 1.0) == b""
    assert due(held, 2.0, 1.0) == b"one"
    assert due(held, 2.5, 1.0) == b"onetwo"
    assert held.next_due_s(delay_s=1.0) == 2.0


def test_without_delay_everything_is_due_that_a_longer_one_held_up() -> None:
    held = HeldBytes()
    held.put(b"one", now_s=1.0)
    assert due(held, 1.0, 60.0) == b""
    assert due(held, 1.0, 0.0) == b"one"


def test_part_of_a_chunk_may_leave() -> None:
    held = HeldBytes()
    held.put(b"one", now_s=1.0)
    held.put(b"two", now_s=1.0)
    held.take(4)
    assert due(held, 1.0, 0.0) == b"wo"
    assert held.size_bytes == 2


def test_ending_comes_after_the_last_byte_and_its_own_delay() -> None:
    held = HeldBytes()
    held.put(b"one", now_s=1.0)
    held.end(Ending.END, now_s=2.0)
    assert held.due_ending(now_s=9.0, delay_s=1.0) is None
    held.take(3)
    assert held.next_due_s(delay_s=1.0) == 3.0
    assert held.due_ending(now_s=2.9, delay_s=1.0) is None
    assert held.due_ending(now_s=3.0, delay_s=1.0) is Ending.END


def test_end_may_turn_out_to_be_a_reset() -> None:
    held = HeldBytes()
    held.end(Ending.END, now_s=1.0)
    held.end(Ending.RESET, now_s=2.0)
    assert held.due_ending(now_s=1.0, delay_s=0.0) is Ending.RESET


def test_nothing_comes_after_an_ending() -> None:
    held = HeldBytes()
    held.end(Ending.END, now_s=1.0)
    with pytest.raises(AssertionError):
        held.put(b"one", now_s=2.0)


def test_it_is_full_at_its_bounds() -> None:
    large, many = HeldBytes(), HeldBytes()
    large.put(bytes(HELD_MAX_BYTES - 1), now_s=1.0)
    assert not large.is_full
    large.put(b"x", now_s=1.0)
    assert large.is_full
    for _ in range(HELD_MAX_CHUNKS):
        assert not many.is_full
        many.put(b"x", now_s=1.0)
    assert many.is_full
    assert len(many.due(now_s=1.0, delay_s=0.0)) == TAKEN_MAX_CHUNKS
    many.clear()
    assert (many.size_bytes, many.next_due_s(delay_s=0.0)) == (0, None)


steps = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.tuples(st.floats(0, 2), st.integers(0, 50)),
)


@given(st.lists(steps, max_size=60), st.floats(0, 5))
def test_what_leaves_is_what_came_in_order_and_late_enough(
    done: list[bytes | tuple[float, int]], delay_s: float
) -> None:
    """`done` are bytes that come, and times that pass with at most so many bytes leaving."""
    held, now_s = HeldBytes(), 0.0
    came, times, left = b"", list[float](), b""
    for step in done:
        if isinstance(step, bytes):
            held.put(step, now_s=now_s)
            came += step
            times += [now_s] * len(step)
        else:
            now_s += step[0]
            leaving = due(held, now_s, delay_s)[: step[1]]
            held.take(len(leaving))
            assert all(at + delay_s <= now_s for at in times[len(left) :][: len(leaving)])
            left += leaving
    assert came.startswith(left)
    assert held.size_bytes == len(came) - len(left)
    while leaving := due(held, now_s + delay_s + 1.0, delay_s):
        held.take(len(leaving))
        left += leaving
    assert left == came
