"""Buffers that nobody has zeroed are buffers like any other."""

import pytest

from tidelog.base import buffers


@pytest.mark.parametrize("size_bytes", [0, 1, buffers.ZEROED_MAX_BYTES, 1 << 20])
def test_a_buffer_has_its_size_and_can_be_filled(size_bytes: int) -> None:
    content = bytes(range(256)) * (size_bytes // 256 + 1)

    first, second = buffers.new_buffer(size_bytes), buffers.new_buffer(size_bytes)
    first[:] = content[:size_bytes]
    second[:] = bytes(size_bytes)

    assert first == content[:size_bytes]
    assert type(first) is bytearray


def test_a_large_buffer_can_be_cut_as_a_short_read_does() -> None:
    buffer = buffers.new_buffer(1 << 20)
    buffer[:3] = b"abc"

    del buffer[3:]

    assert buffer == b"abc"


def test_a_python_without_that_function_makes_buffers_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "_make", None)

    assert buffers.new_buffer(1 << 20) == bytes(1 << 20)
