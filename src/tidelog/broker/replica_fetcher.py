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

Invariants:

    I1  `_told` is what the leader's session knows of each partition. It is empty if there is none.
    I2  Only the task of `run` sends requests; at most OUTSTANDING_MAX are unanswered.
    I3  An answer counts for a partition only if it was asked for after the partition's position
        last changed: under another leader epoch the same offsets can hold other records.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.broker.follower_runner import FollowerRunner, Position, Verdict
from tidelog.broker.peers import Peer, PeerUnreachable
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
from tidelog.wire.fetch_client import FetchResponse, decode_fetch_response, encode_fetch_request

logger = logging.getLogger(__name__)

FETCH_VERSION = 17
OPENING_EPOCH = 0
OUTSTANDING_MAX = 2
FIRST_REST_MS = 5

Key = tuple[bytes, int]
"""Topic id and partition, as they stand in an answer."""


class _Told(NamedTuple):
    """What the leader was told of a partition, and in which request."""

    follower: FollowerRunner
    position: Position
    number: int


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
        on_lost: Callable[[BrokerId], None],
        on_found: Callable[[BrokerId], None],
    ) -> None:
        """`throttle` is of what this broker fetches as follower; `on_lost` is told when the leader
        stops answering, `on_found` when it answers again."""
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
        self._told: dict[Key, _Told] = {}
        self._session_id = NO_SESSION_ID
        self._session_epoch = OPENING_EPOCH
        self._hopes_for_session = True
        self._outstanding: deque[asyncio.Future[memoryview]] = deque()
        self._sent_count = 0
        self._answered_count = 0
        self._wake = asyncio.Event()
        self._is_unreachable = False
        self._next_rest_s = FIRST_REST_MS / 1_000

    def __len__(self) -> int:
        return len(self._followers)

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
        self._wake.set()

    def _rest(self, key: Key, rest_s: float) -> None:
        """Leave it out for a while."""
        timer = self._resting.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._resting[key] = self._loop.call_later(rest_s, self._end_rest, key)
        self._note_changed(key)

    def _rest_after_refusal(self, key: Key) -> None:
        """Longer each time, up to `replica.fetch.backoff.ms`.

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
                await self._wake.wait()  # Ended by an answer, or by something to ask for.
                self._wake.clear()
                try:
                    await self._go_on()
                except (PeerUnreachable, WireError) as error:
                    await self._on_failure(error)
        finally:
            self._peer.close()
            for timer in self._resting.values():
                timer.cancel()

    async def _go_on(self) -> None:
        while self._outstanding and self._outstanding[0].done():
            answer = self._outstanding.popleft().result()
            if self._is_unreachable:
                self._is_unreachable = False
                self._next_rest_s = FIRST_REST_MS / 1_000
                self._on_found(self._leader)
            _, position = decode_response_header(answer, ApiKey.FETCH, FETCH_VERSION)
            self._on_response(decode_fetch_response(answer, position, FETCH_VERSION))
        if self._outstanding and not self._changed:
            return
        if not self._outstanding or (
            self._session_id != NO_SESSION_ID and len(self._outstanding) < OUTSTANDING_MAX
        ):
            await self._send()

    async def _send(self) -> None:
        request = self._request()
        if not self._told and not (self._outstanding and request.forgotten):
            # Nothing can be fetched now. Whoever can again says so; the session has ended by then,
            # unless a request is under way that goes on with it.
            if not self._outstanding:
                self._session_id, self._session_epoch = NO_SESSION_ID, OPENING_EPOCH
            return
        await self._peer.connect()
        frame = encode_fetch_request(
            FETCH_VERSION, self._peer.next_correlation_id(), self._client_id, request
        )
        self._sent_count += 1
        self._session_epoch = next_epoch(self._session_epoch)
        answer = self._peer.send(frame)
        answer.add_done_callback(lambda _: self._wake.set())
        self._outstanding.append(answer)

    async def _on_failure(self, error: Exception) -> None:
        if not self._is_unreachable:  # Once is enough; it is tried every second.
            logger.info("leader does not answer", extra={"leader": self._leader, "reason": error})
            self._on_lost(self._leader)
        self._is_unreachable = True
        self._end_session()
        await asyncio.sleep(self._next_rest_s)
        longest_s = self._config.replica_fetch_backoff_ms / 1_000
        self._next_rest_s = min(4 * self._next_rest_s, longest_s)

    def _end_session(self) -> None:
        """Begin anew: whatever is still on its way is not for the next session."""
        for answer in self._outstanding:
            answer.cancel()
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
            self._told[key] = _Told(follower, position, self._sent_count + 1)
            topics.setdefault(key[0], []).append(self._wanted(key[1], position))
        return self._fetch_request(
            [(None, topic_id, partitions) for topic_id, partitions in topics.items()],
            [(None, topic_id, partitions) for topic_id, partitions in forgotten.items()],
        )

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
            self._config.replica_fetch_max_bytes,
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
            max_bytes=self._config.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=topics,
            forgotten=forgotten,
            rack_id="",
            cluster_id=None,
        )

    # -- answers ---------------------------------------------------------------------------------

    def _on_response(self, response: FetchResponse) -> None:
        self._answered_count += 1
        if response.error_code != ErrorCode.NONE:
            self._end_session()  # The leader has forgotten the session; the next one is new.
            return
        number, told = self._answered_count, self._told
        if response.session_id == NO_SESSION_ID:
            # It has no room for another session, so it has to be told everything every time.
            self._end_session()
            self._hopes_for_session = False
        else:
            self._session_id = response.session_id
            self._hopes_for_session = True
        for _, topic_id, partitions in response.topics:
            assert topic_id is not None
            for result in partitions:
                asked = told.get((bytes(topic_id), result.partition))
                if asked is not None and asked.number <= number:  # I3
                    self._on_result(asked, result)

    def _on_result(self, asked: _Told, result: FetchPartitionResult) -> None:
        key = _key(asked.follower)
        if self._followers.get(key) is not asked.follower:
            return
        if self._throttle.is_active and self._is_throttled(asked.follower):
            self._throttle.record(len(result.records))
        verdict = asked.follower.on_answer(asked.position, result)
        if verdict is Verdict.LATER:
            self._log_refusal(asked.follower, result)
            self._rest_after_refusal(key)
        else:
            self._refused.pop(key, None)
            self._note_changed(key)

    def _log_refusal(self, follower: FollowerRunner, result: FetchPartitionResult) -> None:
        logger.debug(
            "fetch refused",
            extra={
                "partition": follower.topic_partition,
                "leader": self._leader,
                "error": result.error_code,
            },
        )


class ReplicaFetchers:
    """The fetchers of a broker: `num.replica.fetchers` for each leader that is followed."""

    def __init__(
        self,
        *,
        connect: Callable[[BrokerId], Peer | None],
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        config: ReplicationConfig,
        throttle: ReplicationThrottle,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        on_lost: Callable[[BrokerId], None],
        on_found: Callable[[BrokerId], None],
    ) -> None:
        """`connect` knows where a broker listens; None if it does not. `on_lost` is told when a
        leader stops answering, `on_found` when it answers again."""
        self._on_lost = on_lost
        self._on_found = on_found
        self._connect = connect
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._config = config
        self._throttle = throttle
        self._loop = loop
        self._tasks = tasks
        self._fetchers: dict[tuple[BrokerId, int], ReplicaFetcher] = {}
        self._running: dict[ReplicaFetcher, asyncio.Task[None]] = {}
        self._used_by: dict[FollowerRunner, ReplicaFetcher] = {}
        self._unplaced: dict[FollowerRunner, None] = {}
        """Those whose leader nobody knows the address of."""

    def follow(self, follower: FollowerRunner) -> None:
        """Fetch for `follower` from the leader that its machine names."""
        leader = follower.machine.leader
        number = _share(follower.topic_partition) % self._config.num_replica_fetchers
        fetcher = self._fetchers.get((leader, number))
        used = self._used_by.get(follower)
        if used is None or used is not fetcher:
            self.unfollow(follower)
        if fetcher is None:
            fetcher = self._start(leader, number)
            if fetcher is None:
                self._unplaced[follower] = None
                return
        if used is fetcher:
            fetcher.on_leader_epoch(follower)
            return
        self._used_by[follower] = fetcher
        fetcher.add(follower)

    def unfollow(self, follower: FollowerRunner) -> None:
        self._unplaced.pop(follower, None)
        fetcher = self._used_by.pop(follower, None)
        if fetcher is not None:
            fetcher.remove(follower)
            self._end_if_idle(fetcher)

    def on_address_changed(self, leader: BrokerId) -> None:
        """A broker is there, listens elsewhere, or is gone: who follows it begins anew."""
        followers = [one for one in self._unplaced if one.machine.leader == leader]
        for (followed, number), fetcher in list(self._fetchers.items()):
            if followed == leader:
                placed = [one for one, used in self._used_by.items() if used is fetcher]
                for follower in placed:
                    del self._used_by[follower]
                del self._fetchers[followed, number]
                self._running.pop(fetcher).cancel()
                followers += placed
        for follower in followers:
            if not follower.is_stopped:
                self.follow(follower)

    def stop(self) -> list["asyncio.Task[None]"]:
        """End all; whoever waits for the tasks knows when nothing is appended any more."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        self._fetchers.clear()
        self._running.clear()
        self._used_by.clear()
        self._unplaced.clear()
        return running

    def _start(self, leader: BrokerId, number: int) -> ReplicaFetcher | None:
        peer = self._connect(leader)
        if peer is None:
            return None
        fetcher = ReplicaFetcher(
            peer=peer,
            leader=leader,
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch,
            config=self._config,
            throttle=self._throttle,
            loop=self._loop,
            on_lost=self._on_lost,
            on_found=self._on_found,
        )
        self._fetchers[leader, number] = fetcher
        self._running[fetcher] = self._tasks.create_task(fetcher.run())
        return fetcher

    def _end_if_idle(self, fetcher: ReplicaFetcher) -> None:
        if len(fetcher):
            return
        for place, known in list(self._fetchers.items()):
            if known is fetcher:
                del self._fetchers[place]
                self._running.pop(fetcher).cancel()


def _key(follower: FollowerRunner) -> Key:
    return follower.topic_id.bytes, follower.topic_partition.partition


def _share(topic_partition: TopicPartition) -> int:
    """Any number, but always the same for one partition."""
    return sum(topic_partition.topic.encode()) * 31 + topic_partition.partition
