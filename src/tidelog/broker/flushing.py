"""Brings one log's records to stable storage, and holds back the news of them where that is asked.

`flush.messages`: the batch with which so many records are not yet flushed is answered, and may be
read, only when it is on stable storage. What is appended behind it waits as well: records become
visible in the order of the log.

    append ──▶ enough unflushed? ──yes──▶ require ──▶ flush on the background thread ──▶ callbacks
                     │ no                                                                   ▲
                     ▼                                                                      │
           somebody waits already? ──yes──▶ then ───────────────────────────────────────────┘

A flusher belongs to one log. A log that is opened again after a failure has a new one, so that the
late end of an old flush says nothing about records that were appended since.

Invariants:

    I1  callbacks run in the order in which they were handed in
    I2  a callback runs once everything that was required by then is on stable storage, or by
        `give_up`
"""

import asyncio
from collections import deque
from collections.abc import Callable

from tidelog.base.errors import StorageError
from tidelog.base.ids import Offset
from tidelog.broker.disk_executor import DiskExecutor, as_storage_error
from tidelog.storage.log import Log


class Flusher:
    """Whoever appends counts in `unflushed_records`, here and not by a call: it is the hot path."""

    __slots__ = (
        "_executor",
        "_in_flight",
        "_log",
        "_on_failure",
        "_required_offset",
        "_waiting",
        "is_holding",
        "unflushed_records",
        "unflushed_since_ms",
    )

    def __init__(
        self, log: Log, executor: DiskExecutor, on_failure: Callable[[StorageError], None]
    ) -> None:
        self._log = log
        self._executor = executor
        self._on_failure = on_failure
        self._in_flight = 0
        self._required_offset = Offset(0)
        self._waiting: deque[tuple[Offset, Callable[[], None]]] = deque()
        self.is_holding = False
        """Whether the next batch has to wait behind another one."""
        self.unflushed_records = 0
        self.unflushed_since_ms = 0

    def require(self, end_offset: Offset) -> None:
        """Nobody may hear of what is below `end_offset` before it is flushed."""
        assert end_offset >= self._required_offset
        self._required_offset = end_offset
        self.is_holding = True
        if not self._in_flight:
            self.start()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when all that is required by now is flushed."""
        assert self.is_holding
        self._waiting.append((self._required_offset, callback))

    def start(self) -> "asyncio.Future[Offset]":
        """Flush everything there is; nobody has to wait for it."""
        self.unflushed_records = 0
        self._in_flight += 1
        flushed = self._executor.background(self._log.flush, up_to=self._log.log_end_offset)
        flushed.add_done_callback(self._on_flushed)
        return flushed

    def start_if_due(self, now_ms: int, *, flush_ms: int) -> None:
        """Flush if the oldest record that is not yet on disk is old enough."""
        if self._in_flight or self.unflushed_records == 0:
            return
        if now_ms - self.unflushed_since_ms >= flush_ms:
            self.start()

    def on_moved(self, end_offset: Offset) -> None:
        """All below `end_offset` is on stable storage in another place, and this log is done."""
        self._wake(end_offset)
        assert not self._waiting

    def give_up(self) -> None:
        """The log is not served any more: call everybody back, who will find out."""
        waiting, self._waiting = self._waiting, deque()
        self.is_holding = False
        self._required_offset = Offset(0)  # What was required may be cut off by who comes next.
        for _, callback in waiting:
            callback()

    def _on_flushed(self, future: "asyncio.Future[Offset]") -> None:
        self._in_flight -= 1
        error = future.exception()
        if error is not None:
            self._on_failure(as_storage_error(error))
            return
        self._wake(future.result())
        if self._waiting and not self._in_flight:
            self.start()

    def _wake(self, flushed_offset: Offset) -> None:
        # What a callback appends waits behind the others, by `is_holding`. I1
        while self._waiting and self._waiting[0][0] <= flushed_offset:
            self._waiting.popleft()[1]()
        self.is_holding = bool(self._waiting)
