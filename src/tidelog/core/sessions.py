"""Incremental fetch sessions (KIP-227): say once what is wanted, and then only what changed.

    epoch 0       open: the request names every partition, the answer too
    epoch 1..     incremental: the request names what was added, changed or forgotten, the answer
                  what has data, an error, or offsets the client has not been told
    epoch -1      close, and answer this one request without a session

A session may hold thousands of partitions of which a few have news, so a request must not cost a
look at all of them. A session keeps the *dirty* ones, in the order they are served:

    named by a request ─────┐                ┌─ nothing to tell ────▶ clean
    news of the partition ──┴──▶ dirty ──look┤
                                  ▲          ├─ offsets to tell ────▶ dirty, until told
                                  ├──────────┼─ data ───────────────▶ dirty, at the end of the queue
                                  └──────────┴─ data, but no room ──▶ dirty, where it was

A look is `candidates`, then for each `note_result`, `note_left_out` or `note_error`. It ends with
`on_answered` if an answer is sent; if the request is parked instead, the next look starts afresh. A
look may stop early when the answer is full, except at a fetch that `is_full`: its answer has every
partition.

Invariants:

    I1  a partition that is not dirty had nothing to read when last looked at, and its client
        knows its offsets as they were then
    I2  a session has at least one partition, or is as it was opened
    I3  the cache holds at most `slots_max` sessions and `partitions_max` partitions

Sessions belong to no connection and die by eviction alone: an idle one first, else a smaller one by
a larger one, followers before consumers.

Not here: reading logs, waiting, and which topic an id stands for. A partition whose topic is
unknown is one with an error (UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID): it is in every answer until
that ends.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import Offset

NO_SESSION_ID = 0
OPENING_EPOCH = 0
CLOSING_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
SESSION_EVICTION_MS = 120_000
"""Unused for this long, a session gives way to any other; younger, it is safe from consumers'."""


class PartitionFetch(Protocol):
    """What a request asks of one partition; `wire/fetch.py` has the values."""

    @property
    def partition(self) -> int: ...
    @property
    def current_leader_epoch(self) -> int: ...
    @property
    def fetch_offset(self) -> int: ...
    @property
    def last_fetched_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...


TopicFetch = tuple[str | None, bytes | None, Sequence[PartitionFetch]]
TopicForgotten = tuple[str | None, bytes | None, Sequence[int]]


class KnownOffsets(NamedTuple):
    """What an answer says of a partition beside its records."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class FetchTarget:
    """One partition of a session or of a request without one. Compared by identity."""

    __slots__ = ("is_wanted", "told", "topic", "topic_id", "wanted")

    def __init__(self, topic: str | None, topic_id: bytes | None, wanted: PartitionFetch) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.wanted = wanted
        self.is_wanted = True
        """False once it is forgotten."""
        self.told: KnownOffsets | None = None
        """None if the client has been told nothing, or of an error."""


class SessionlessFetch:
    """A request that names all it wants and is remembered by nobody."""

    __slots__ = ("_targets",)

    session_id = NO_SESSION_ID
    is_full = True

    def __init__(self, topics: Iterable[TopicFetch]) -> None:
        self._targets = [
            FetchTarget(topic, topic_id, wanted)
            for topic, topic_id, partitions in topics
            for wanted in partitions
        ]

    def start_at(self, share: float) -> None:
        """Look at the first `share` of the partitions after the others."""
        split = int(share * len(self._targets))
        self._targets = self._targets[split:] + self._targets[:split]

    def __len__(self) -> int:
        return len(self._targets)

    def targets(self) -> Sequence[FetchTarget]:
        return self._targets

    def candidates(self) -> Sequence[FetchTarget]:
        return self._targets

    def note_result(self, target: FetchTarget, offsets: KnownOffsets, *, has_data: bool) -> bool:
        """Every partition is in the answer, whatever was found."""
        return True

    def note_left_out(self, target: FetchTarget, offsets: KnownOffsets) -> bool:
        """It is in the answer without records."""
        return True

    def note_error(self, target: FetchTarget) -> None:
        """Errors are in the answer like everything else."""

    def on_answered(self) -> None:
        """There is nothing to remember."""

    def on_news(self, target: FetchTarget) -> None:
        """Every look is at all partitions anyway."""


class FetchSession:
    """What one client wants to be told of, and what it has been told."""

    __slots__ = (
        "_dirty",
        "_noted",
        "_size",
        "_topics",
        "created_ms",
        "epoch",
        "is_full",
        "last_used_ms",
        "privileged",
        "session_id",
        "standing",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, privileged: bool, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.session_id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(OPENING_EPOCH)
        """The epoch that the next request has to carry."""
        self.standing: Standing | None = None
        """As the cache has it listed."""
        self._topics: dict[str | bytes | None, dict[int, FetchTarget]] = {}
        self._size = 0
        # Not a plain dict: walking one costs as much as it ever held.
        self._dirty: OrderedDict[FetchTarget, None] = OrderedDict()
        self._noted: list[tuple[FetchTarget, KnownOffsets | None, bool]] = []
        self.is_full = True
        """The answer has every partition; so until the first one."""

    def __len__(self) -> int:
        return self._size

    def targets(self) -> Sequence[FetchTarget]:
        """All partitions, dirty or not."""
        return [target for topic in self._topics.values() for target in topic.values()]

    def apply(
        self, topics: Iterable[TopicFetch], forgotten: Iterable[TopicForgotten]
    ) -> tuple[list[FetchTarget], list[FetchTarget]]:
        """Take in what a request names. Returns the partitions that were added and removed."""
        added: list[FetchTarget] = []
        for name, topic_id, partitions in topics:
            if not partitions:
                continue  # Nothing would ever take an empty topic away again.
            targets = self._topics.setdefault(topic_id if self.uses_topic_ids else name, {})
            for wanted in partitions:
                target = targets.get(wanted.partition)
                if target is None:
                    target = targets[wanted.partition] = FetchTarget(name, topic_id, wanted)
                    added.append(target)
                else:
                    target.wanted = wanted
                self._dirty[target] = None
        self._size += len(added)
        removed = [
            target
            for name, topic_id, indexes in forgotten
            for target in self._forget(topic_id if self.uses_topic_ids else name, indexes)
        ]
        return added, removed

    def candidates(self) -> Sequence[FetchTarget]:
        """Start a look: the partitions that may have something to tell, first served first."""
        self._noted.clear()
        return list(self._dirty)

    def note_result(self, target: FetchTarget, offsets: KnownOffsets, *, has_data: bool) -> bool:
        """The partition was looked at. Returns whether it belongs in the answer.

        Without data it has nothing to read for this client, not merely no room for it.
        """
        if has_data or self.is_full or offsets != target.told:
            self._noted.append((target, offsets, has_data))
            return True
        # At once and not when the answer leaves: news that arrives in between must count.
        self._dirty.pop(target, None)  # I1
        return False

    def note_left_out(self, target: FetchTarget, offsets: KnownOffsets) -> bool:
        """There are records to read that this answer has no room for, or that are not in memory.

        The partition keeps its place. Returns whether it belongs in the answer even so.
        """
        belongs = self.is_full or offsets != target.told
        if belongs:
            self._noted.append((target, offsets, False))
        return belongs

    def note_error(self, target: FetchTarget) -> None:
        """The answer has an error code, a diverging epoch or another replica to read from.

        It is in every answer while that lasts, and in the next one after it has ended.
        """
        self._noted.append((target, None, False))

    def on_answered(self) -> None:
        """What was noted is on its way to the client.

        Nothing leaves the dirty set here: a partition may have news that this answer, made up
        some time ago, does not contain. The next look finds out.
        """
        for target, offsets, has_data in self._noted:
            target.told = offsets
            if has_data and target in self._dirty:
                # So that one busy partition cannot starve the rest.
                self._dirty.move_to_end(target)
        self._noted.clear()
        self.is_full = False

    def on_news(self, target: FetchTarget) -> None:
        """The partition's end, start, high watermark, leader or existence changed."""
        if target.is_wanted:
            self._dirty[target] = None

    def _forget(self, topic: str | bytes | None, indexes: Iterable[int]) -> Iterable[FetchTarget]:
        targets = self._topics.get(topic, {})
        for index in indexes:
            target = targets.pop(index, None)
            if target is not None:
                self._size -= 1
                target.is_wanted = False
                self._dirty.pop(target, None)
                yield target
        if not targets:
            self._topics.pop(topic, None)


Rank = tuple[bool, int, int]
"""Privileged, number of partitions, session id: the smallest gives way first."""


class Standing(NamedTuple):
    """Where a session stands among those that may be evicted."""

    rank: Rank
    is_old: bool


Fetch = FetchSession | SessionlessFetch


class Opened(NamedTuple):
    """Serve `fetch`. Listen for news of `added`, no longer for that of `removed` and `ended`."""

    fetch: Fetch
    added: Sequence[FetchTarget]
    removed: Sequence[FetchTarget]
    ended: Sequence[FetchSession]


class Refused(NamedTuple):
    """Answer with `code` for the whole request and session id 0. The client then opens anew."""

    code: ErrorCode
    ended: Sequence[FetchSession]


class Chance(Protocol):
    """The part of `random.Random` that is needed."""

    def randint(self, a: int, b: int) -> int: ...


class FetchSessionCache:
    """All sessions of a broker, `max.incremental.fetch.session.cache.slots` at most."""

    __slots__ = (
        "_chance",
        "_evictable_by_all",
        "_evictable_by_privileged",
        "_partition_count",
        "_partitions_max",
        "_sessions",
        "_slots_max",
    )

    def __init__(self, *, slots_max: int, partitions_max: int, chance: Chance) -> None:
        """`partitions_max` is ours: without it a client could make us remember without limit."""
        self._slots_max = slots_max
        self._partitions_max = partitions_max
        self._chance = chance
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self._evictable_by_privileged: list[Rank] = []
        self._evictable_by_all: list[Rank] = []
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return self._partition_count

    def open(
        self,
        *,
        session_id: int,
        session_epoch: int,
        topics: Sequence[TopicFetch],
        forgotten: Sequence[TopicForgotten],
        uses_topic_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> Opened | Refused:
        """Find or make what serves this request. Only followers are `privileged`."""
        if session_epoch in (OPENING_EPOCH, CLOSING_EPOCH):
            ended = self.close(session_id)
            if session_epoch == CLOSING_EPOCH:
                return Opened(SessionlessFetch(topics), (), (), ended)
            return self._open_new(topics, ended, uses_topic_ids, privileged, now_ms)
        session = self._sessions.get(session_id)
        if session is None:
            return Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())
        if session_epoch != session.epoch:
            return Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())
        if uses_topic_ids != session.uses_topic_ids:
            return Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ())
        return self._continue(session, topics, forgotten, now_ms)

    def close(self, session_id: int) -> Sequence[FetchSession]:
        """Forget a session, if there is one of this id."""
        session = self._sessions.pop(session_id, None)
        if session is None:
            return ()
        self._unlist(session)
        return (session,)

    def _open_new(
        self,
        topics: Sequence[TopicFetch],
        ended: Sequence[FetchSession],
        uses_topic_ids: bool,
        privileged: bool,
        now_ms: int,
    ) -> Opened:
        size = _count(topics)
        if len(self._sessions) >= self._slots_max:
            ended = (*ended, *self._evict_for(size, privileged=privileged, now_ms=now_ms))
        if len(self._sessions) >= self._slots_max or not self.has_room_for(size):
            return Opened(SessionlessFetch(topics), (), (), ended)
        session = FetchSession(
            self._unused_id(), privileged=privileged, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        added, _ = session.apply(topics, ())
        self._sessions[session.session_id] = session
        self.touch(session, now_ms)
        return Opened(session, added, (), ended)

    def _continue(
        self,
        session: FetchSession,
        topics: Sequence[TopicFetch],
        forgotten: Sequence[TopicForgotten],
        now_ms: int,
    ) -> Opened | Refused:
        if not self.has_room_for(_count(topics)):
            return Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, self.close(session.session_id))
        added, removed = session.apply(topics, forgotten)
        if len(session) == 0:  # I2
            return Opened(SessionlessFetch(topics), (), removed, self.close(session.session_id))
        session.epoch = next_epoch(session.epoch)
        self.touch(session, now_ms)
        return Opened(session, added, removed, ())

    def has_room_for(self, size: int) -> bool:
        """Whether `size` more partitions may be remembered."""
        return self._partition_count + size <= self._partitions_max

    def _evict_for(self, size: int, *, privileged: bool, now_ms: int) -> Sequence[FetchSession]:
        """Make a slot free if somebody has to give way to a session of `size` partitions."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.last_used_ms > SESSION_EVICTION_MS:
            return self.close(oldest.session_id)
        evictable = self._evictable_by_privileged if privileged else self._evictable_by_all
        if not evictable or (privileged, size, 0) < evictable[0]:
            return ()
        return self.close(evictable[0][2])

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """It is used, and may have changed its size."""
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        standing, size = session.standing, len(session)
        is_old = now_ms - session.created_ms > SESSION_EVICTION_MS
        if standing is None or standing.is_old is not is_old or standing.rank[1] != size:
            rank = (session.privileged, size, session.session_id)
            self._unlist(session)
            self._list(session, Standing(rank, is_old))

    def _list(self, session: FetchSession, standing: Standing) -> None:
        session.standing = standing
        self._partition_count += len(session)
        if standing.is_old:
            insort(self._evictable_by_all, standing.rank)
        if standing.is_old or not session.privileged:
            insort(self._evictable_by_privileged, standing.rank)

    def _unlist(self, session: FetchSession) -> None:
        if session.standing is None:
            return
        rank = session.standing.rank
        session.standing = None
        self._partition_count -= rank[1]
        for ranks in (self._evictable_by_privileged, self._evictable_by_all):
            place = bisect_left(ranks, rank)
            if place < len(ranks) and ranks[place] == rank:
                del ranks[place]

    def _unused_id(self) -> int:
        while True:
            session_id = self._chance.randint(1, SESSION_ID_MAX)
            if session_id not in self._sessions:
                return session_id


def next_epoch(epoch: int) -> int:
    """After the largest epoch comes 1: 0 would open a new session."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def _count(topics: Iterable[TopicFetch]) -> int:
    return sum(len(partitions) for _, _, partitions in topics)
