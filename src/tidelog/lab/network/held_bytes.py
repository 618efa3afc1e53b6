"""What was read of one direction of a connection and has not left: late, or not wanted yet.

    put ──▶ [ read 3 ms ago ][ read 2 ms ago ][ read now ][ END ] ◀── no put after an ending
              └── due once it was read `delay_s` ago

How late a byte is, is decided when it is to leave, by the delay of that moment: bytes on a link
that is healed leave at once, and in order, which they would not if each had its time written on it.

Invariants:

    I1  What is taken is what was put, in order, nothing twice.
    I2  Nothing is put after an ending, and the ending is the last to be taken.
    I3  No chunk is empty.

Not here: that no more is put than there is room for. `is_full` tells, and whoever reads stops;
one read may go beyond the bound, which is therefore `HELD_MAX_BYTES` and one read.
"""

from collections import deque
from enum import Enum
from typing import Final

HELD_MAX_BYTES: Final = 8 * 1024 * 1024
# A chunk of one byte takes a hundred.
HELD_MAX_CHUNKS: Final = 16 * 1024
# What one system call takes: IOV_MAX is 1,024 where it is smallest.
TAKEN_MAX_CHUNKS: Final = 64


class Ending(Enum):
    """How a direction came to its end."""

    END = "end"
    """Nothing more is written; the other direction may go on."""
    RESET = "reset"
    """The connection is no more, in either direction."""


class HeldBytes:
    """One direction's bytes, with the time at which each was read, and the ending if it has one."""

    __slots__ = ("_chunks", "_ended_at_s", "ending", "size_bytes")

    def __init__(self) -> None:
        self._chunks: deque[tuple[float, memoryview]] = deque()
        self._ended_at_s = 0.0
        self.size_bytes = 0
        self.ending: Ending | None = None

    @property
    def is_full(self) -> bool:
        return self.size_bytes >= HELD_MAX_BYTES or len(self._chunks) >= HELD_MAX_CHUNKS

    def put(self, data: bytes, *, now_s: float) -> None:
        assert data  # I3
        assert self.ending is None  # I2
        self._chunks.append((now_s, memoryview(data)))
        self.size_bytes += len(data)

    def end(self, ending: Ending, *, now_s: float) -> None:
        """Nothing comes after this; a second call may only turn an END into a RESET."""
        assert self.ending is None or ending is Ending.RESET
        if self.ending is None:
            self._ended_at_s = now_s
        self.ending = ending

    def clear(self) -> None:
        """Forget all bytes: nobody is left to have them."""
        self._chunks.clear()
        self.size_bytes = 0

    def due(self, *, now_s: float, delay_s: float) -> list[memoryview]:
        """The first bytes that were read so long ago, not all of them if they are many."""
        found: list[memoryview] = []
        for read_at_s, chunk in self._chunks:
            if read_at_s + delay_s > now_s or len(found) == TAKEN_MAX_CHUNKS:
                break
            found.append(chunk)
        return found

    def take(self, size_bytes: int) -> None:
        """The first so many bytes have left."""
        assert 0 <= size_bytes <= self.size_bytes  # I1
        self.size_bytes -= size_bytes
        while size_bytes:
            read_at_s, chunk = self._chunks[0]
            if size_bytes < len(chunk):
                self._chunks[0] = (read_at_s, chunk[size_bytes:])
                return
            size_bytes -= len(chunk)
            self._chunks.popleft()

    def due_ending(self, *, now_s: float, delay_s: float) -> Ending | None:
        """How it ends, if all bytes have left and the end came so long ago."""
        if self._chunks or self.ending is None or self._ended_at_s + delay_s > now_s:
            return None
        return self.ending  # I2

    def next_due_s(self, *, delay_s: float) -> float | None:
        """When the first of what is held may leave; None if there is nothing."""
        if self._chunks:
            return self._chunks[0][0] + delay_s
        return None if self.ending is None else self._ended_at_s + delay_s
