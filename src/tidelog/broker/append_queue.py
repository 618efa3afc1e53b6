"""Batches that cannot be appended yet, in the order in which they came.

Their bytes are copies and count as held until they are appended or refused (`broker/memory.py`).
Giving memory back lets other requests in at once, perhaps to the same partition: so a batch is
taken off the queue only when nothing can overtake it any more.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.broker.memory import MemoryBound
from tidelog.wire.produce import PartitionProduceResult

Settle = Callable[[PartitionProduceResult], None]


class QueuedAppend(NamedTuple):
    """One client's batch and whom to tell what became of it."""

    records: bytearray
    acks: int
    settle: Settle
    is_rewritten: bool


class AppendQueue:
    """The queue of one partition."""

    __slots__ = ("_appends", "_memory")

    def __init__(self, memory: MemoryBound) -> None:
        self._memory = memory
        self._appends: deque[QueuedAppend] = deque()

    def __len__(self) -> int:
        return len(self._appends)

    @property
    def head(self) -> QueuedAppend:
        return self._appends[0]

    def push(self, records: memoryview, acks: int, settle: Settle) -> None:
        self._memory.hold(len(records))
        self._appends.append(QueuedAppend(bytearray(records), acks, settle, is_rewritten=False))

    def replace_head(self, rewritten: bytearray) -> None:
        """The head has become `rewritten`; it keeps its place."""
        before = self._appends[0]
        self._appends[0] = before._replace(records=rewritten, is_rewritten=True)
        self._memory.hold(len(rewritten))
        self._memory.release(len(before.records))

    def pop(self) -> None:
        """The head is appended, or refused."""
        self._memory.release(len(self._appends.popleft().records))
