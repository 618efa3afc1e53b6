"""Fetch (1): the other half of the hot path.

    request ──▶ session ──▶ look at the partitions that may have news ──▶ enough? ──▶ answer
                                          ▲                                │ no
                                          └── news, or time is up ── park ─┘

A fetch that finds less than `min_bytes` waits up to `max_wait_ms` (R4); an error does not wait.
Bytes that are not in memory are fetched by a thread, so that a consumer of last week's data does
not hold up everybody else. While clients leave more than the bound of answers unread, fetches wait
for that.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from tidelog.base.errors import RequestRefused, StorageError
from tidelog.base.ids import Offset
from tidelog.base.ports import Clock
from tidelog.broker.after_read import AfterRead
from tidelog.broker.answers import Buffers, PendingAnswer
from tidelog.broker.connection import Answer, Connection, RequestShortcut
from tidelog.broker.fetch_interest import FetchInterest, ParkedFetch
from tidelog.broker.fetch_reader import (
    ColdRead,
    FetchReader,
    Look,
    ReadByThread,
    TopicResults,
)
from tidelog.broker.heavy_turns import HEAVY_BYTES, HeavyTurns
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_ports import LogDirectory
from tidelog.broker.partition_runner import DiskRead
from tidelog.broker.request_tasks import AtTheCostOf
from tidelog.core.sessions import (
    NO_SESSION_ID,
    FetchSession,
    FetchSessionCache,
    Refused,
    SessionlessFetch,
)
from tidelog.wire.api import ApiKey, RequestHeader
from tidelog.wire.fetch import FetchRequest, decode_fetch, encode_fetch_response

_FIRST_WITH_TOPIC_ID = 13


class FetchHandler:
    """Reads what clients ask for, now or when there is enough of it."""

    def __init__(
        self,
        *,
        reader: FetchReader,
        sessions: FetchSessionCache,
        answer_memory: MemoryBound,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        after_read: AfterRead,
        turns: HeavyTurns,
        shortcut: "FetchShortcut",
    ) -> None:
        self.reader = reader
        self.answer_memory = answer_memory
        self.loop = loop
        self.after_read = after_read
        self.turns = turns
        self.sessions = sessions
        self.monotonic_ms = clock.monotonic_ms
        self._turns = Random(0)  # Nobody gains by guessing these.
        self.interests: dict[int, FetchInterest] = {}
        """Of all sessions, by id."""
        self._shortcut = shortcut

    def answer(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        request = decode_fetch(frame, header.body_position, header.api_version)
        opened = self.sessions.open(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten=request.forgotten,
            uses_topic_ids=header.api_version >= _FIRST_WITH_TOPIC_ID,
            privileged=request.replica_id >= 0,
            now_ms=self.monotonic_ms(),
        )
        for session in opened.ended:
            interest = self.interests.pop(session.session_id, None)
            if interest is not None:
                interest.end()
        if isinstance(opened, Refused):
            return encode_answer(header, opened.code, NO_SESSION_ID, [])
        fetch = opened.fetch
        if isinstance(fetch, SessionlessFetch) and (
            request.replica_id >= 0 or request.max_bytes > self.reader.fetch_max_bytes
        ):
            # Partitions share what an answer holds in the order of the request. A consumer that has
            # bounded the answer itself sees to its turns; others, and followers, may always ask in
            # one order, and the last ones would never be read.
            fetch.start_at(self._turns.random())
        interest = self.interests.get(fetch.session_id)
        if interest is None:
            interest = FetchInterest(
                fetch,
                listener_name=connection.listener_name,
                is_follower=request.replica_id >= 0,
                hurries=self.reader.is_rack_aware,
            )
            if isinstance(fetch, FetchSession):
                self.interests[fetch.session_id] = interest
        interest.unwatch(opened.removed)
        if request.replica_id >= 0:
            if request.session_id == fetch.session_id:
                connection.use_shortcut(
                    self._shortcut(self, connection, interest, header, request, frame)
                )
            self.reader.note_positions(request)
        return self.start(connection, header, request, interest, False)

    def start(
        self,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        interest: FetchInterest,
        has_turn: bool,
    ) -> Answer:
        """Answer a request of which the session has heard, now or later.

        `has_turn`: the caller has taken it.
        """
        return _Attempt(self, connection, header, request, interest, has_turn).start()

    def take_over(
        self,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        interest: FetchInterest,
        place: "PlaceOfAnswer",
        *,
        is_expired: bool,
        has_turn: bool,
        wait_s: float,
    ) -> None:
        """Go on with a request that has waited elsewhere, for another `wait_s` at most."""
        attempt = _Attempt(self, connection, header, request, interest, has_turn)
        attempt.go_on(place, is_expired=is_expired, wait_s=wait_s)

    def encode_nothing(self, header: RequestHeader, session_id: int) -> Buffers:
        """The answer to whom there is nothing to tell."""
        return encode_answer(header, 0, session_id, [])


class PlaceOfAnswer(Protocol):
    """A `PendingAnswer`, as who completes it sees it."""

    @property
    def is_wanted(self) -> bool: ...
    def on_abandoned(self, callback: Callable[[], None]) -> None: ...
    def on_hurried(self, callback: Callable[[], None]) -> None: ...
    def complete(self, buffers: Buffers) -> None: ...


FetchShortcut = Callable[
    [FetchHandler, Connection, FetchInterest, RequestHeader, FetchRequest, memoryview],
    RequestShortcut | None,
]


def no_fetch_shortcut(
    _handler: FetchHandler,
    _connection: Connection,
    _interest: FetchInterest,
    _header: RequestHeader,
    _request: FetchRequest,
    _frame: memoryview,
) -> RequestShortcut | None:
    """All through Python."""
    return None


class _Attempt:
    """One Fetch request until it is answered."""

    __slots__ = (
        "_connection",
        "_handler",
        "_has_turn",
        "_header",
        "_interest",
        "_is_done",
        "_is_expired",
        "_is_reading",
        "_pending",
        "_request",
        "_wait_s",
    )

    def __init__(
        self,
        handler: FetchHandler,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        interest: FetchInterest,
        has_turn: bool,
    ) -> None:
        self._handler = handler
        self._connection = connection
        self._header = header
        self._request = request
        self._interest = interest
        self._pending: PlaceOfAnswer | None = None
        self._wait_s = request.max_wait_ms / 1000
        self._is_expired = request.max_wait_ms <= 0
        self._is_reading = False
        self._has_turn = has_turn
        self._is_done = False

    def start(self) -> Answer:
        interest = self._interest
        if interest.attempt is not None:
            interest.attempt.give_way()
        interest.attempt = self
        if self._handler.answer_memory.is_exhausted:
            self._handler.answer_memory.when_available(self._look_again)
            return self._wait()
        if not self._may_take_turn():
            return self._wait()
        buffers = self._look(None)
        return self._wait() if buffers is None else buffers

    def _may_take_turn(self) -> bool:
        """Whether to look now; if not, we are called when it is our turn."""
        has_turn, self._has_turn = self._has_turn, False
        if not self._interest.is_heavy or has_turn:
            return True
        return self._handler.turns.take_or_wait(self._look_again)

    def _wait(self) -> PendingAnswer:
        # Exclusive, as in Kafka: what is asked for behind it could not be answered before it, and
        # large answers would pile up.
        pending = PendingAnswer(self._connection, exclusive=True)
        # A follower that has something else to say has a reason: it follows more partitions now.
        pending.gives_way = self._request.replica_id >= 0
        self._fill(pending)
        return pending

    def _fill(self, place: PlaceOfAnswer) -> None:
        self._pending = place
        place.on_abandoned(self._finish)
        place.on_hurried(self._expire)

    def go_on(self, place: PlaceOfAnswer, *, is_expired: bool, wait_s: float) -> None:
        """The request has a place for its answer already, and has waited a while."""
        assert self._interest.attempt is None
        self._interest.attempt = self
        self._fill(place)
        self._is_expired = is_expired
        self._wait_s = wait_s
        self._look_again()

    def _look(self, read_by_thread: ReadByThread | None) -> Buffers | None:
        """The answer, or None if there is nothing to say yet; then somebody calls again."""
        look = self._handler.reader.look(self._interest, self._request, read_by_thread)
        if look.cold is not None and (read_by_thread is None or look.size_bytes == 0):
            self._read_on_thread(look.cold)
            return None
        if not self._is_expired and not self._is_enough(look):
            self._park(look.size_bytes)
            return None
        self._finish()
        is_heavy = look.size_bytes >= HEAVY_BYTES
        if is_heavy and not self._interest.is_heavy:
            self._handler.turns.take()  # Whoever has a turn now has it in vain.
        self._interest.is_heavy = is_heavy
        self._interest.fetch.on_answered()
        if look.throttled_bytes:
            self._handler.reader.throttle.record(look.throttled_bytes)
        return self._encode(look.topics)

    def _is_enough(self, look: Look) -> bool:
        return (
            look.must_tell
            or look.is_full  # More than that will not come by waiting.
            or look.size_bytes >= self._request.min_bytes
            or len(self._interest.fetch) == 0
        )

    def _look_again(self) -> None:
        # Else the thread's end is near, and looks again.
        if not self._is_done and not self._is_reading and self._may_take_turn():
            self._complete(None)

    def _complete(self, read_by_thread: ReadByThread | None) -> None:
        if self._is_done:
            return
        with AtTheCostOf(self._connection, ApiKey.FETCH):
            buffers = self._look(read_by_thread)
            if buffers is not None:
                assert self._pending is not None
                self._pending.complete(buffers)

    def _encode(self, topics: TopicResults) -> Buffers:
        return encode_answer(self._header, 0, self._interest.fetch.session_id, topics)

    # -- waiting for news ------------------------------------------------------------------------

    def _park(self, available_bytes: int) -> None:
        interest = self._interest
        if not isinstance(interest.fetch, FetchSession):
            for target in interest.fetch.targets():
                # There is one for each: an error would have been answered at once.
                interest.watch(target, self._handler.reader.runner(target, self._request))
        if interest.parked is not None:
            interest.parked.available_bytes = available_bytes
            return
        interest.parked = ParkedFetch(
            loop=self._handler.loop,
            after_read=self._handler.after_read,
            min_bytes=self._request.min_bytes,
            available_bytes=available_bytes,
            timeout_s=self._wait_s,
            look_again=self._look_again,
            expire=self._expire,
        )

    def _expire(self) -> None:
        self._is_expired = True
        self._look_again()

    def give_way(self) -> None:
        """Another request of the session has come, or the session has ended."""
        self._finish()
        # Not now: somebody is in the middle of something, perhaps on this very connection.
        self._handler.loop.call_soon(self._answer_nothing)

    def _answer_nothing(self) -> None:
        with AtTheCostOf(self._connection, ApiKey.FETCH):
            if self._pending is not None and self._pending.is_wanted:
                self._pending.complete(self._encode([]))

    def _finish(self) -> None:
        self._is_done = True
        interest = self._interest
        if interest.attempt is not self:
            return
        interest.attempt = None
        if interest.parked is not None:
            interest.parked.cancel()
            interest.parked = None
        if not isinstance(interest.fetch, FetchSession):
            interest.unwatch_all()

    # -- waiting for the disk --------------------------------------------------------------------

    def _read_on_thread(self, cold: ColdRead) -> None:
        self._is_reading = True
        directory = cold.runner.log_directory  # By then the log may be in another one.
        future = cold.runner.read_from_disk(
            Offset(cold.target.wanted.fetch_offset),
            end_offset=cold.end_offset,
            max_bytes=cold.max_bytes,
        )
        future.add_done_callback(lambda done: self._on_read(cold, directory, done))

    def _on_read(
        self, cold: ColdRead, directory: LogDirectory, future: "asyncio.Future[DiskRead]"
    ) -> None:
        self._is_reading = False
        error = future.exception()
        if isinstance(error, StorageError):
            self._complete(ReadByThread(cold, cold.runner.refuse_reader(error, directory)))
        elif isinstance(error, RequestRefused):
            self._complete(None)  # Retention was faster; the next look says so.
        else:
            with AtTheCostOf(self._connection, ApiKey.FETCH):
                self._complete(ReadByThread(cold, future.result()))


def encode_answer(
    header: RequestHeader, code: int, session_id: int, topics: TopicResults
) -> Buffers:
    """The whole frame, as buffers to be written one after the other."""
    return encode_fetch_response(
        header.api_version,
        header.correlation_id,
        throttle_ms=0,
        error_code=code,
        session_id=session_id,
        topics=topics,
        node_endpoints=(),
    )
