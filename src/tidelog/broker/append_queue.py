"""Batches that cannot be appended yet, in the order in which they came, and what they wait for.

    push ──▶ ┌──────┬──────┬──────┐ ──▶ attempt ──▶ appended or refused: settle, then the next one
             │      │      │ head │        │
             └──────┴──────┴──────┘        └──▶ a thread is needed (`Preparation`), busy until then
                                                   roll      begin a new segment
                                                   rewrite   check or compress the head again
                                                   ids       know what was seen, judge the head

Their bytes are copies and count as held until they are appended or refused (`broker/memory.py`).
Giving memory back lets other requests in at once, perhaps to the same partition: so a batch is
taken off the queue only when nothing can overtake it any more.

Invariants:

    I1  Batches are attempted in the order of `push`.
    I2  Nothing is attempted while `is_busy`: the log is being rolled or moved, or the head
        rewritten.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ports import BytesLike, Clock
from tidelog.broker.append_terms import Terms
from tidelog.broker.memory import MemoryBound
from tidelog.broker.sent_ids import SentIds
from tidelog.wire.produce import PartitionProduceResult

logger = logging.getLogger(__name__)

Settle = Callable[[PartitionProduceResult], None]


class Preparation(Enum):
    """What has to happen on a thread before a batch can be appended."""

    ROLL = "roll"
    REWRITE = "rewrite"
    CATCH_UP = "catch up"
    """With the ids that were seen (`deduplication.py`)."""
    JUDGE = "judge"
    """Read the ids of a batch, find out which were seen, and make it without those."""


class QueuedAppend(NamedTuple):
    """A batch, how to judge it, and whom to tell what became of it."""

    records: bytearray
    acks: int
    settle: Settle
    terms: Terms
    is_rewritten: bool
    sent: SentIds | None

    @property
    def size_bytes(self) -> int:
        """What it takes of the broker's memory."""
        return len(self.records) + (0 if self.sent is None else self.sent.size_bytes)


class AppendQueue:
    """The queue of one partition, and the only one who rolls its log."""

    __slots__ = (
        "_appends",
        "_attempt",
        "_clock",
        "_idle",
        "_is_working_off",
        "_memory",
        "_on_free",
        "_on_rolled",
        "_refused",
        "_start_reading_ids",
        "_start_rewrite",
        "_start_roll",
        "is_busy",
        "must_wait",
    )

    def __init__(
        self,
        *,
        memory: MemoryBound,
        clock: Clock,
        attempt: Callable[[QueuedAppend, int], PartitionProduceResult | Preparation | None],
        start_roll: "Callable[[int], asyncio.Future[None]]",
        on_rolled: "Callable[[asyncio.Future[None]], None]",
        on_free: Callable[[], None],
        start_rewrite: "Callable[[bytearray, int], asyncio.Future[BytesLike]]",
        start_reading_ids: (
            "Callable[[Preparation, QueuedAppend], asyncio.Future[SentIds | None]]"
        ),
        refused: Callable[[RequestRefused], PartitionProduceResult],
    ) -> None:
        """`attempt` appends a batch at `now_ms`, or says what has to come before; None: it calls
        `settle` itself. `on_free` is called whenever the queue was busy and is not any more:
        somebody else may have to do with the log by then."""
        self._memory = memory
        self._clock = clock
        self._attempt = attempt
        self._start_roll = start_roll
        self._on_rolled = on_rolled
        self._on_free = on_free
        self._start_rewrite = start_rewrite
        self._start_reading_ids = start_reading_ids
        self._refused = refused
        self._appends: deque[QueuedAppend] = deque()
        self._is_working_off = False
        self._idle: asyncio.Future[None] | None = None
        self.is_busy = False
        self.must_wait = False
        """Whether the next batch has to be pushed; otherwise it may be appended at once."""

    def push(self, records: BytesLike, acks: int, settle: Settle, terms: Terms) -> None:
        """Queue a copy of `records`."""
        self._memory.hold(len(records))
        self._appends.append(
            QueuedAppend(bytearray(records), acks, settle, terms, is_rewritten=False, sent=None)
        )
        self.must_wait = True

    async def idle(self) -> None:
        """Return once everything that was pushed so far is appended or refused."""
        while self.must_wait:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)  # Ended by the disk; others may wait for the same.

    def prepare(self, preparation: Preparation, now_ms: int) -> None:
        """Have a thread do what the head needs."""
        assert self._appends
        match preparation:
            case Preparation.ROLL:
                self.roll(now_ms)
            case Preparation.REWRITE:
                self._set_busy(True)
                self._start_rewrite(self._appends[0].records, now_ms).add_done_callback(
                    self._rewritten
                )
            case Preparation.CATCH_UP | Preparation.JUDGE:
                self._set_busy(True)
                reading = self._start_reading_ids(preparation, self._appends[0])
                reading.add_done_callback(self._ids_read)

    def roll(self, now_ms: int) -> "asyncio.Future[None]":
        """Begin a new segment. Batches queue up until the thread is done, whoever waits for it."""
        assert not self.is_busy  # I2
        self._set_busy(True)
        rolled = self._start_roll(now_ms)
        rolled.add_done_callback(self._rolled)
        return rolled

    def pause(self) -> None:
        """Attempt nothing until `resume`: the log is being put in another place."""
        assert not self.is_busy  # I2
        self._set_busy(True)

    def resume(self) -> None:
        self._set_busy(False)
        self._go_on()

    def work_off(self) -> None:
        """Go on with what queued up, until it is done or a thread is needed again."""
        if self._is_working_off:
            return  # A disk that fails under an append brings us here from within.
        self._is_working_off = True
        try:
            while self._appends and not self.is_busy:
                self._work_off_head()
        finally:
            self._is_working_off = False

    def _work_off_head(self) -> None:
        head = self._appends[0]
        now_ms = self._clock.now_ms()
        try:
            attempt = self._attempt(head, now_ms)
        except Exception as error:  # noqa: BLE001 - costs who has asked, not those behind it
            self._refuse_head(error)
            return
        if isinstance(attempt, Preparation):
            self.prepare(attempt, now_ms)
            return
        self._pop()
        if attempt is not None:
            head.settle(attempt)

    def _rolled(self, rolled: "asyncio.Future[None]") -> None:
        self._set_busy(False)
        self._on_rolled(rolled)
        self._go_on()

    def _rewritten(self, rewritten: "asyncio.Future[BytesLike]") -> None:
        self._set_busy(False)
        error = rewritten.exception()
        if error is None:
            records = bytearray(rewritten.result())
            self._replace_head(
                self._appends[0]._replace(records=records, is_rewritten=True, sent=None)
            )
        else:
            self._refuse_head(error)
        self._go_on()

    def _ids_read(self, read: "asyncio.Future[SentIds | None]") -> None:
        self._set_busy(False)
        error = read.exception()
        if error is None:
            self._replace_head(self._appends[0]._replace(sent=read.result()))
        else:
            self._refuse_head(error)
        self._go_on()

    def _go_on(self) -> None:
        self.work_off()
        if not self.is_busy:
            self._on_free()

    def _refuse_head(self, error: BaseException) -> None:
        settle = self._appends[0].settle
        self._pop()
        settle(self._refused(_as_refusal(error)))

    def _replace_head(self, prepared: QueuedAppend) -> None:
        before = self._appends[0]
        self._appends[0] = prepared
        self._memory.hold(prepared.size_bytes)
        self._memory.release(before.size_bytes)

    def _pop(self) -> None:
        popped = self._appends.popleft()
        self._find_out_who_waits()
        self._memory.release(popped.size_bytes)

    def _set_busy(self, is_busy: bool) -> None:
        self.is_busy = is_busy
        self._find_out_who_waits()

    def _find_out_who_waits(self) -> None:
        self.must_wait = self.is_busy or bool(self._appends)
        if self._idle is not None and not self.must_wait:
            self._idle.set_result(None)
            self._idle = None


def _as_refusal(error: BaseException) -> RequestRefused:
    """What a client is told whose batch could not be rewritten or judged."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, AssertionError) or not isinstance(error, Exception):
        raise error
    logger.error("batch cannot be appended", exc_info=error)
    return RequestRefused(ErrorCode.UNKNOWN_SERVER_ERROR)
