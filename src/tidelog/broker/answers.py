"""Answers that are not ready yet.

A connection answers in the order of its requests. Most answers are ready at once; a parked Fetch, a
Produce that waits for a roll or for followers, or an admin request that waits for the coordinator
is a `PendingAnswer` in the connection's queue until it is completed.
"""

from collections.abc import Callable
from typing import Protocol

from tidelog.base.ports import BytesLike

Buffers = list[BytesLike]


class AnswersInOrder(Protocol):
    """What a pending answer needs from its connection."""

    def answer_ready(self, size_bytes: int) -> None: ...

    @property
    def is_closed(self) -> bool: ...


class Pending(Protocol):
    """A place in a connection's queue of answers, as the connection sees it."""

    @property
    def exclusive(self) -> bool:
        """Whether it holds back the requests that follow until it is complete."""
        ...

    @property
    def gives_way(self) -> bool:
        """Whether to hurry as soon as the client asks for something else."""
        ...

    @property
    def buffers(self) -> Buffers | None: ...
    @property
    def size_bytes(self) -> int: ...
    def hurry(self) -> None: ...
    def abandon(self) -> None: ...


class PendingAnswer:
    """A place in a connection's queue of answers. Completed exactly once, or abandoned."""

    __slots__ = (
        "_connection",
        "_on_abandoned",
        "_on_hurried",
        "buffers",
        "exclusive",
        "gives_way",
        "size_bytes",
    )

    def __init__(self, connection: AnswersInOrder, *, exclusive: bool) -> None:
        """An `exclusive` answer holds back the requests that follow until it is complete."""
        self._connection = connection
        self.exclusive = exclusive
        self.gives_way = False
        """Whether to hurry as soon as the client asks for something else."""
        self._on_abandoned: Callable[[], None] | None = None
        self._on_hurried: Callable[[], None] | None = None
        self.buffers: Buffers | None = None
        self.size_bytes = 0

    @property
    def is_wanted(self) -> bool:
        """Whether anybody is still there to read it."""
        return not self._connection.is_closed

    def on_abandoned(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection goes away before the answer is complete."""
        self._on_abandoned = callback

    def on_hurried(self, callback: Callable[[], None]) -> None:
        """Call `callback` if there is no point in waiting: the connection is about to close, or the
        client has asked for something else and this answer gives way."""
        self._on_hurried = callback

    def complete(self, buffers: Buffers) -> None:
        """Fill the place; an empty list means that the client expects no answer."""
        assert self.buffers is None
        self.buffers = buffers
        self.size_bytes = sum(map(len, buffers))
        self._on_abandoned = self._on_hurried = None
        self._connection.answer_ready(self.size_bytes)

    def hurry(self) -> None:
        """Let whoever waits for something to happen answer with what there is."""
        callback, self._on_hurried = self._on_hurried, None
        if callback is not None:
            callback()

    def abandon(self) -> None:
        """The connection is gone: let whoever works on this answer stop."""
        callback, self._on_abandoned = self._on_abandoned, None
        if callback is not None:
            callback()
