"""Fetches from one leader broker, for all the partitions that follow it (R2).

One request for many partitions, again and again, in an incremental session (KIP-227): a request
names only the partitions whose position has changed since the last one, an answer only those with
something to say. So a fetcher with thousands of idle partitions sends a few bytes twice a second.

    followers ──changed──▶ request ──▶ leader: parked up to replica.fetch.wait.max.ms
        ▲                                  │
        └── append, truncate ◀── answer ◀──┘

A change of who is fetched for, or from where, does not wait for a parked fetch to end: a second
request goes out behind it, and the leader answers the first at once. Only within a session; so the
request that opens one asks for an answer without a wait.

What cannot be fetched now leaves the session until it can again: a partition whose log a thread
works on (until it is ready), and for `replica.fetch.backoff.ms` one that got an error, or that lags
and is throttled (KIP-73) while as much is fetched as may be. A connection that fails costs a rest
of the same length, and the next request opens a new session.

A fetcher is a lane: there is one for partitions with little to fetch at a time and one for those
with much (`replica_fetchers.py`). It says when a partition is in the wrong one.

Invariants:

    I1  `_told` is what the leader's session knows of each partition. It is empty if there is none.
    I2  At most OUTSTANDING_MAX requests are unanswered. Where an answer arrives it is taken in and
        the next request is sent, before the loop's next turn: under load a turn is milliseconds,
        and producers wait. The task of `run` does the rest: it connects, and deals with failures.
    I3  An answer counts for a partition only if it was asked for after the partition's position
        last changed: under another leader epoch the same offsets can hold other records.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ids import BrokerId
from tidelog.broker.follower_runner import FollowerRunner, Position, Verdict
from tidelog.broker.heavy_turns import SMALL_BYTES
from tidelog.broker.peers import AnswerShortcut, Peer, PeerUnreachable, Unanswered
from tidelog.broker.replication_throttle import ReplicationThrottle
from tidelog.config.replication import ReplicationConfig
from tidelog.core.sessions import next_epoch
from tidelog.wire.api import ApiKey, decode_response_header
from tidelog.wire.fetch import (
    NO_SESSION_ID,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from tidelog.wire.fetch_client import (
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
    fetch_request_form,
)

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
OPENING_EPOCH = 0
OUTSTANDING_MAX = 2
FIRST_REST_MS = 5
LULLS = 8
"""Answers in a row with little before a partition leaves the bulk lane again."""

Key = tuple[bytes, int]
"""Topic id and partition, as they stand in an answer."""


class Lane(Enum):
    """Which partitions a fetcher fetches for."""

    QUICK = "quick"
    """Those with little to fetch at a time: nobody waits behind megabytes."""
    BULK = "bulk"


class Told(NamedTuple):
    """What the leader was told of a partition, and in which request."""

    follower: FollowerRunner
    position: Position
    number: int


class FollowShortcut(AnswerShortcut, Protocol):
    """Takes in answers that bring what comes next; see `shortcuts.py`."""

    def take_in(self, answer: memoryview) -> bytes | bool | None:
        """The next request. True: to be made yet. None: nothing was done with the answer."""
        ...


class ReplicaFetcher:
    """Every method is called on the event loop."""

    def __init__(
        self,
        *,
        peer: Peer,
        leader: BrokerId,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        config: ReplicationConfig,
        throttle: ReplicationThrottle,
        loop: asyncio.AbstractEventLoop,
        lane: Lane,
        on_lost: Callable[[BrokerId], None],
        on_found: Callable[[BrokerId], None],
        on_misplaced: Callable[[FollowerRunner], None],
        shortcut: "Callable[[ReplicaFetcher], FollowShortcut | None]",
    ) -> None:
        """`throttle` is of what this broker fetches as follower; `on_lost` is told when the leader
        stops answering, `on_found` when it answers again, `on_misplaced` when a partition belongs
        in the other lane."""
        self._lane = lane
        self._on_misplaced = on_misplaced
        self._lulls: dict[Key, int] = {}
        self._on_lost = on_lost
        self._on_found = on_found
        self._throttle = throttle
        self._peer = peer
        self._leader = leader
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._config = config
        self._loop = loop
        self._client_id = f"broker-{broker_id}-fetcher-{leader}"
        self._followers: dict[Key, FollowerRunner] = {}
        self._changed: dict[Key, None] = {}
        self._resting: dict[Key, asyncio.TimerHandle] = {}
        self._refused: dict[Key, int] = {}
        self._told: dict[Key, Told] = {}
        self._session_id = NO_SESSION_ID
        self._session_epoch = OPENING_EPOCH
        self._left_session_id = NO_SESSION_ID
        """Of the session that the leader still has, and that the next request has it close."""
        self._hopes_for_session = True
        self._outstanding: deque[Unanswered] = deque()
        self._is_answered_now = False
        self._failure: Exception | None = None
        self._is_stopped = False
        self._sent_count = 0
        self._answered_count = 0
        self._wake = asyncio.Event()
        self._is_unreachable = False
        self._is_expecting = False
        self._next_rest_s = FIRST_REST_MS / 1_000
        self.is_bulk = lane is Lane.BULK
        self.bulk_bytes = config.tidelog_replica_bulk_bytes
        self.partition_max_bytes = config.replica_fetch_max_bytes
        self._shortcut = peer.shortcut = shortcut(self)

    @property
    def has_followers(self) -> bool:
        return bool(self._followers)

    @property
    def is_connected(self) -> bool:
        return self._peer.is_connected

    def expect(self) -> None:
        """Somebody would come if there were a connection."""
        self._is_expecting = True
        self._wake.set()

    # -- whom to fetch for -----------------------------------------------------------------------

    def add(self, follower: FollowerRunner) -> None:
        """Fetch for `follower` from now on."""
        key = _key(follower)
        self._forget_rest(key)
        self._followers[key] = follower
        follower.on_ready = self._on_ready
        self._note_changed(key)

    def remove(self, follower: FollowerRunner) -> None:
        """Fetch for it no more."""
        key = _key(follower)
        if self._followers.get(key) is follower:
            del self._followers[key]
            self._lulls.pop(key, None)
            self._forget_rest(key)
            self._note_changed(key)

    def on_leader_epoch(self, follower: FollowerRunner) -> None:
        """The same leader leads in a new epoch: try at once, whatever went wrong before."""
        key = _key(follower)
        self._forget_rest(key)
        self._note_changed(key)

    def _on_ready(self, follower: FollowerRunner) -> None:
        key = _key(follower)
        if self._followers.get(key) is follower and key not in self._resting:
            self._note_changed(key)

    def _note_changed(self, key: Key) -> None:
        self._changed[key] = None
        if not self._is_answered_now:
            self._wake.set()

    def _rest(self, key: Key, rest_s: float) -> None:
        """Leave it out for a while."""
        timer = self._resting.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._resting[key] = self._loop.call_later(rest_s, self._end_rest, key)
        self._note_changed(key)

    def on_refused(self, key: Key) -> None:
        """Leave it alone: longer each time, up to `replica.fetch.backoff.ms`.

        The first is short: a leader that was elected a moment ago may hear of it after we do, and
        writers wait for us meanwhile.
        """
        count = self._refused.get(key, 0)
        self._refused[key] = count + 1
        rest_ms = min(FIRST_REST_MS * 2 ** min(count, 20), self._config.replica_fetch_backoff_ms)
        self._rest(key, rest_ms / 1_000)

    def _end_rest(self, key: Key) -> None:
        self._resting.pop(key, None)
        self._note_changed(key)

    def _forget_rest(self, key: Key) -> None:
        self._refused.pop(key, None)
        timer = self._resting.pop(key, None)
        if timer is not None:
            timer.cancel()

    # -- fetching --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                await self._wake.wait()  # Ended by something to ask for, or a failure.
                self._wake.clear()
                try:
                    self._raise_failure()
                    if self._may_send():
                        await self._connect_and_send()
                except (PeerUnreachable, WireError) as error:
                    await self._on_failure(error)
        finally:
            self.stop()

    def stop(self) -> None:
        """Take in no more answers."""
        self._is_stopped = True
        self._peer.close()
        for timer in self._resting.values():
            timer.cancel()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _on_settled(self, result: memoryview | PeerUnreachable) -> None:
        """Called where an answer arrives, or when there will be none. I2"""
        if self._is_stopped or self._failure is not None:
            return
        self._is_answered_now = True
        try:
            taken_in = None
            if self._shortcut is not None and isinstance(result, memoryview):
                taken_in = self._shortcut.take_in(result)
            if isinstance(taken_in, bytes):
                self._ask(taken_in)
                return
            if taken_in is None:
                self._take_in(result)
            self.go_on()
        except Exception as error:  # noqa: BLE001 - the task raises it, and knows which may pass
            self.on_exception(error)
        finally:
            self._is_answered_now = False

    def go_on(self) -> None:
        """An answer was taken in: ask for what comes next, if there is anything to ask."""
        if self._may_send():
            self._send_if_any()

    def on_exception(self, error: Exception) -> None:
        """Let the task of `run` deal with it."""
        self._failure = error
        self._wake.set()

    def _take_in(self, result: memoryview | PeerUnreachable) -> None:
        self._outstanding.popleft()
        if isinstance(result, PeerUnreachable):
            raise result
        if self._is_unreachable:
            self._is_unreachable = False
            self._next_rest_s = FIRST_REST_MS / 1_000
            self._on_found(self._leader)
        _, position = decode_response_header(result, ApiKey.FETCH, FETCH_VERSION)
        self._on_response(decode_fetch_response(result, position, FETCH_VERSION))

    def _may_send(self) -> bool:
        if not self._outstanding:
            return True
        return (
            bool(self._changed)
            and self._session_id != NO_SESSION_ID
            and len(self._outstanding) < OUTSTANDING_MAX
        )

    async def _connect_and_send(self) -> None:
        if self._followers or self._is_expecting:
            self._is_expecting = False
            await self._peer.connect()
        self._send_if_any()

    def _send_if_any(self) -> None:
        """Ask for what has changed, or again for what has not."""
        request = self._request()
        if not self._told and not (self._outstanding and request.forgotten):
            # Nothing can be fetched now. Whoever can again says so; the session has ended by then,
            # unless a request is under way that goes on with it.
            if not self._outstanding:
                self._left_session_id = self._session_id or self._left_session_id
                self._session_id, self._session_epoch = NO_SESSION_ID, OPENING_EPOCH
            return
        frame = encode_fetch_request(
            FETCH_VERSION, self._peer.next_correlation_id(), self._client_id, request
        )
        self._sent_count += 1
        self._session_epoch = next_epoch(self._session_epoch)
        self._ask(frame)

    def _ask(self, frame: bytes) -> None:
        self._outstanding.append(self._peer.ask(frame, self._on_settled))

    async def _on_failure(self, error: Exception) -> None:
        if self._lane is Lane.BULK:
            # Perhaps the leader has only had enough of connections: the quick lane finds out.
            for follower in list(self._followers.values()):
                self._on_misplaced(follower)
        elif self._followers and not self._is_unreachable:
            # Once is enough; it is tried every second. Without anybody to fetch for it is not
            # tried, and nobody would find out that it answers again.
            logger.info("leader does not answer", extra={"leader": self._leader, "reason": error})
            self._is_unreachable = True
            self._on_lost(self._leader)
        self._end_session()
        await asyncio.sleep(self._next_rest_s)
        longest_s = self._config.replica_fetch_backoff_ms / 1_000
        self._next_rest_s = min(4 * self._next_rest_s, longest_s)

    def _end_session(self) -> None:
        """Begin anew: whatever is still on its way is not for the next session."""
        for unanswered in self._outstanding:
            unanswered.forget()
        self._outstanding.clear()
        self._answered_count = self._sent_count
        self._session_id, self._session_epoch = NO_SESSION_ID, OPENING_EPOCH
        self._told = {}  # I1
        self._changed = dict.fromkeys(self._followers)
        if self._changed:
            self._wake.set()

    def _request(self) -> FetchRequest:
        """What has changed since the leader was told last."""
        changed, self._changed = self._changed, {}
        topics: dict[bytes, list[FetchPartition]] = {}
        forgotten: dict[bytes, list[int]] = {}
        throttle = self._throttle
        is_holding_back = throttle.is_active and throttle.is_exceeded()
        for key in changed:
            follower = self._followers.get(key)
            if is_holding_back and key not in self._resting and self._is_throttled(follower):
                self._rest(key, self._config.replica_fetch_backoff_ms / 1_000)
            if follower is None or key in self._resting or not follower.may_fetch:
                if self._told.pop(key, None) is not None:
                    forgotten.setdefault(key[0], []).append(key[1])
                continue
            position = follower.position
            told = self._told.get(key)
            if told is not None and told.follower is follower and told.position == position:
                continue
            self._told[key] = Told(follower, position, self._sent_count + 1)
            topics.setdefault(key[0], []).append(self._wanted(key[1], position))
        return self._fetch_request(
            [(None, topic_id, partitions) for topic_id, partitions in topics.items()],
            [(None, topic_id, partitions) for topic_id, partitions in forgotten.items()],
        )

    def request_form(self) -> tuple[bytes, int]:
        """A request of this session for nothing new, and where its topics would be counted."""
        return fetch_request_form(FETCH_VERSION, self._client_id, self._fetch_request([], []))

    def _is_throttled(self, follower: FollowerRunner | None) -> bool:
        return (
            follower is not None
            and follower.is_lagging
            and self._throttle.names(follower.topic_partition)
        )

    def _wanted(self, partition: int, position: Position) -> FetchPartition:
        return FetchPartition(
            partition,
            position.leader_epoch,
            position.fetch_offset,
            position.last_fetched_epoch,
            position.log_start_offset,
            self.partition_max_bytes,
        )

    def _fetch_request(
        self, topics: list[FetchTopic], forgotten: list[ForgottenTopic]
    ) -> FetchRequest:
        is_opening = self._session_id == NO_SESSION_ID and self._hopes_for_session
        return FetchRequest(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=0 if is_opening else self._config.replica_fetch_wait_max_ms,
            min_bytes=self._config.replica_fetch_min_bytes,
            max_bytes=min(
                self._config.replica_fetch_response_max_bytes,
                self._config.tidelog_replica_fetch_answer_bytes,
            ),
            isolation_level=0,
            session_id=self._session_id or self._left_session_id,
            session_epoch=self._session_epoch,
            topics=topics,
            forgotten=forgotten,
            rack_id="",
            cluster_id=None,
        )

    # -- answers ---------------------------------------------------------------------------------

    def _on_response(self, response: FetchResponse) -> None:
        self._answered_count += 1
        self._left_session_id = NO_SESSION_ID
        if response.error_code != ErrorCode.NONE:
            self._end_session()  # The leader has forgotten the session; the next one is new.
            return
        number, told = self._answered_count, self._told
        if response.session_id == NO_SESSION_ID:
            # It has no room for another session, so it has to be told everything every time. Or
            # all of a session was forgotten, and it ended with that.
            self._hopes_for_session = self._session_id != NO_SESSION_ID
            self._end_session()
        else:
            self._session_id = response.session_id
            self._hopes_for_session = True
        for _, topic_id, partitions in response.topics:
            assert topic_id is not None
            for result in partitions:
                asked = told.get((bytes(topic_id), result.partition))
                if asked is not None and asked.number <= number:  # I3
                    self._on_result(asked, result)

    def _on_result(self, asked: Told, result: FetchPartitionResult) -> None:
        key = _key(asked.follower)
        if self._followers.get(key) is not asked.follower:
            return
        if self._throttle.is_active and self._is_throttled(asked.follower):
            self._throttle.record(len(result.records))
        if 0 < len(result.records) < SMALL_BYTES and not self.is_bulk:
            self._peer.turns.note_small()
        verdict = asked.follower.on_answer(asked.position, result)
        if verdict is Verdict.LATER:
            self._log_refusal(asked.follower, result)
            self.on_refused(key)
        else:
            self._refused.pop(key, None)
            self._note_changed(key)
            if self._is_misplaced(key, len(result.records)):
                self._on_misplaced(asked.follower)

    def _is_misplaced(self, key: Key, size_bytes: int) -> bool:
        """One large answer is enough to leave the quick lane; a few small ones bring it back."""
        is_bulk = size_bytes >= self._config.tidelog_replica_bulk_bytes
        if self._lane is Lane.QUICK:
            return is_bulk
        if is_bulk:
            self._lulls.pop(key, None)
            return False
        self._lulls[key] = self._lulls.get(key, 0) + 1
        return self._lulls[key] >= LULLS

    def _log_refusal(self, follower: FollowerRunner, result: FetchPartitionResult) -> None:
        logger.debug(
            "fetch refused",
            extra={
                "partition": follower.topic_partition,
                "leader": self._leader,
                "error": result.error_code,
            },
        )


def _key(follower: FollowerRunner) -> Key:
    return follower.topic_id.bytes, follower.topic_partition.partition
