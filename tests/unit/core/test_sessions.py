"""KIP-227: what an incremental fetch is told, and whose session gives way."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import Offset
from tidelog.core.sessions import (
    CLOSING_EPOCH,
    EPOCH_MAX,
    NO_SESSION_ID,
    OPENING_EPOCH,
    SESSION_EVICTION_MS,
    Fetch,
    FetchSession,
    FetchSessionCache,
    FetchTarget,
    KnownOffsets,
    Opened,
    Refused,
    SessionlessFetch,
    TopicFetch,
    TopicForgotten,
    next_epoch,
)

TOPIC = "orders"
TOPIC_ID = UUID(int=77).bytes


class Wanted(NamedTuple):
    partition: int
    fetch_offset: int = 0
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    max_bytes: int = 1_000_000


def topics(*partitions: int, fetch_offset: int = 0) -> list[TopicFetch]:
    return [(TOPIC, None, [Wanted(index, fetch_offset) for index in partitions])]


def forget(*partitions: int) -> list[TopicForgotten]:
    return [(TOPIC, None, list(partitions))]


def cache_of(slots_max: int = 10, partitions_max: int = 1_000) -> FetchSessionCache:
    return FetchSessionCache(
        slots_max=slots_max, partitions_max=partitions_max, chance=random.Random(1)
    )


def open_fetch(
    cache: FetchSessionCache,
    named: Sequence[TopicFetch] = (),
    forgotten: Sequence[TopicForgotten] = (),
    *,
    session_id: int = NO_SESSION_ID,
    epoch: int = OPENING_EPOCH,
    uses_topic_ids: bool = False,
    privileged: bool = False,
    now_ms: int = 0,
) -> Opened | Refused:
    return cache.open(
        session_id=session_id,
        session_epoch=epoch,
        topics=named,
        forgotten=forgotten,
        uses_topic_ids=uses_topic_ids,
        privileged=privileged,
        now_ms=now_ms,
    )


def opened(outcome: Opened | Refused) -> Opened:
    assert isinstance(outcome, Opened)
    return outcome


def new_session(
    cache: FetchSessionCache,
    partition_count: int = 1,
    *,
    privileged: bool = False,
    now_ms: int = 0,
) -> FetchSession:
    fetch = opened(
        open_fetch(cache, topics(*range(partition_count)), privileged=privileged, now_ms=now_ms)
    ).fetch
    assert isinstance(fetch, FetchSession)
    return fetch


def again(
    cache: FetchSessionCache,
    session: FetchSession,
    named: Sequence[TopicFetch] = (),
    forgotten: Sequence[TopicForgotten] = (),
    *,
    now_ms: int = 0,
) -> Opened:
    return opened(
        open_fetch(
            cache,
            named,
            forgotten,
            session_id=session.session_id,
            epoch=session.epoch,
            now_ms=now_ms,
        )
    )


def partitions(targets: Sequence[FetchTarget]) -> list[int]:
    return [target.wanted.partition for target in targets]


def offsets(high_watermark: int, log_start: int = 0) -> KnownOffsets:
    return KnownOffsets(Offset(high_watermark), Offset(high_watermark), Offset(log_start))


def look(fetch: Fetch, high_watermark: int = 0) -> list[int]:
    """Look at every candidate, all at the same offsets and without data."""
    return [
        target.wanted.partition
        for target in fetch.candidates()
        if fetch.note_result(target, offsets(high_watermark), has_data=False)
    ]


def answer(fetch: Fetch, high_watermark: int = 0) -> list[int]:
    told = look(fetch, high_watermark)
    fetch.on_answered()
    return told


def quiet_session(cache: FetchSessionCache, partition_count: int = 3) -> FetchSession:
    """A session whose client knows everything."""
    session = new_session(cache, partition_count)
    answer(session)
    assert answer(session) == []
    assert partitions(session.candidates()) == []
    return session


def target_of(session: FetchSession, partition: int) -> FetchTarget:
    return next(t for t in session.targets() if t.wanted.partition == partition)


def test_first_answer_names_every_partition() -> None:
    session = new_session(cache_of(), 3)
    assert session.is_full
    assert answer(session) == [0, 1, 2]
    assert not session.is_full


def test_parked_first_request_still_gets_every_partition() -> None:
    session = new_session(cache_of(), 2)
    look(session)
    assert answer(session) == [0, 1]


def test_partition_without_news_is_not_looked_at() -> None:
    quiet_session(cache_of(partitions_max=2_000), 2_000)


def test_partition_with_news_is_looked_at_again() -> None:
    session = quiet_session(cache_of())
    session.on_news(target_of(session, 1))
    assert partitions(session.candidates()) == [1]


def test_partition_named_by_the_request_is_looked_at_again() -> None:
    cache = cache_of()
    session = quiet_session(cache)
    again(cache, session, topics(2, fetch_offset=9))
    assert [target.wanted.fetch_offset for target in session.candidates()] == [9]


@pytest.mark.parametrize(
    "changed",
    [
        KnownOffsets(Offset(1), Offset(0), Offset(0)),
        KnownOffsets(Offset(0), Offset(1), Offset(0)),
        KnownOffsets(Offset(0), Offset(0), Offset(1)),
    ],
)
def test_changed_offset_is_told_once(changed: KnownOffsets) -> None:
    session = quiet_session(cache_of())
    target = target_of(session, 1)
    session.on_news(target)
    session.candidates()
    assert session.note_result(target, changed, has_data=False)
    session.on_answered()
    session.candidates()
    assert not session.note_result(target, changed, has_data=False)


def test_changed_offset_is_kept_while_the_request_is_parked() -> None:
    session = quiet_session(cache_of())
    session.on_news(target_of(session, 1))
    assert look(session, 5) == [1]
    assert answer(session, 5) == [1]
    assert answer(session, 5) == []


def test_news_between_look_and_answer_is_not_lost() -> None:
    session = quiet_session(cache_of())
    target = target_of(session, 1)
    session.on_news(target)
    look(session, 5)
    session.on_news(target)
    session.on_answered()
    assert answer(session, 6) == [1]


def test_news_after_a_fruitless_look_is_not_lost() -> None:
    session = quiet_session(cache_of())
    target = target_of(session, 1)
    session.on_news(target)
    assert look(session) == []
    session.on_news(target)
    session.on_answered()
    assert partitions(session.candidates()) == [1]


def test_partition_with_data_stays_and_goes_to_the_end() -> None:
    session = new_session(cache_of(), 3)
    answer(session)
    first = session.candidates()[0]
    session.note_result(first, offsets(0), has_data=True)
    session.on_answered()
    assert partitions(session.candidates()) == [1, 2, 0]


def test_partition_that_a_full_answer_left_out_comes_first_next_time() -> None:
    session = new_session(cache_of(), 4)
    answer(session)
    served = []
    for _ in range(4):
        target = session.candidates()[0]  # There is room for one partition.
        session.note_result(target, offsets(1), has_data=True)
        session.on_answered()
        served.append(target.wanted.partition)
    assert sorted(served) == [0, 1, 2, 3]


def test_partition_left_out_for_lack_of_room_is_looked_at_again() -> None:
    session = quiet_session(cache_of())
    for index in (0, 1):
        session.on_news(target_of(session, index))
    served, left_out = session.candidates()
    session.note_result(served, offsets(0), has_data=True)
    assert not session.note_left_out(left_out, offsets(0))
    session.on_answered()
    assert partitions(session.candidates()) == [1, 0]


def test_offsets_are_told_of_a_partition_that_is_left_out() -> None:
    session = quiet_session(cache_of())
    target = target_of(session, 1)
    session.on_news(target)
    session.candidates()
    assert session.note_left_out(target, offsets(5))
    session.on_answered()
    session.candidates()
    assert not session.note_left_out(target, offsets(5))


def test_first_answer_names_partitions_that_are_left_out() -> None:
    session = new_session(cache_of(), 2)
    first, second = session.candidates()
    assert session.note_result(first, offsets(0), has_data=True)
    assert session.note_left_out(second, offsets(0))


def test_error_is_in_every_answer_while_it_lasts() -> None:
    session = quiet_session(cache_of())
    target = target_of(session, 1)
    session.on_news(target)
    for _ in range(3):
        assert partitions(session.candidates()) == [1]
        session.note_error(target)
        session.on_answered()


def test_end_of_an_error_is_told() -> None:
    session = quiet_session(cache_of())
    target = target_of(session, 1)
    session.on_news(target)
    session.candidates()
    session.note_error(target)
    session.on_answered()
    assert answer(session) == [1]
    assert answer(session) == []


def test_added_partitions_are_reported_for_listening() -> None:
    cache = cache_of()
    session = quiet_session(cache)
    outcome = again(cache, session, topics(2, 3))
    assert partitions(outcome.added) == [3]
    assert len(session) == 4


def test_forgotten_partition_is_no_longer_looked_at() -> None:
    cache = cache_of()
    session = new_session(cache, 3)
    outcome = again(cache, session, (), forget(1, 9))
    assert partitions(outcome.removed) == [1]
    assert answer(session) == [0, 2]


def test_news_of_a_forgotten_partition_is_ignored() -> None:
    cache = cache_of()
    session = quiet_session(cache)
    target = target_of(session, 1)
    again(cache, session, (), forget(1))
    session.on_news(target)
    assert partitions(session.candidates()) == []


def test_partition_forgotten_before_its_answer_does_not_come_back() -> None:
    cache = cache_of()
    session = new_session(cache, 2)
    for target in session.candidates():
        session.note_result(target, offsets(0), has_data=True)
    again(cache, session, (), forget(1))
    session.on_answered()
    assert partitions(session.candidates()) == [0]


def test_forgotten_topic_leaves_nothing_behind() -> None:
    cache = cache_of()
    session = new_session(cache, 1)
    again(cache, session, [("other", None, [Wanted(0)])])
    again(cache, session, (), [("other", None, [0]), ("unknown", None, [0])])
    assert len(session) == 1
    assert cache.partition_count == 1


def test_topic_named_without_partitions_is_not_remembered() -> None:
    cache = cache_of()
    session = new_session(cache, 1)
    again(cache, session, [(f"empty-{number}", None, []) for number in range(100)])
    assert [target.topic for target in session.targets()] == [TOPIC]


def test_topics_are_told_apart_by_id_from_version_13_on() -> None:
    cache = cache_of()
    other = UUID(int=78).bytes
    fetch = opened(
        open_fetch(
            cache,
            [(None, TOPIC_ID, [Wanted(0)]), (None, other, [Wanted(0)])],
            uses_topic_ids=True,
        )
    ).fetch
    assert [target.topic_id for target in fetch.targets()] == [TOPIC_ID, other]


def test_session_cannot_go_from_names_to_ids() -> None:
    cache = cache_of()
    session = new_session(cache)
    outcome = open_fetch(
        cache, session_id=session.session_id, epoch=session.epoch, uses_topic_ids=True
    )
    assert outcome == Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ())


def test_unknown_session_is_refused() -> None:
    outcome = open_fetch(cache_of(), session_id=99, epoch=1)
    assert outcome == Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ())


def test_epoch_that_is_not_the_next_is_refused() -> None:
    cache = cache_of()
    session = new_session(cache)
    outcome = open_fetch(cache, session_id=session.session_id, epoch=session.epoch + 1)
    assert outcome == Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())


def test_repeated_request_is_refused() -> None:
    cache = cache_of()
    session = new_session(cache)
    epoch = session.epoch
    again(cache, session)
    outcome = open_fetch(cache, session_id=session.session_id, epoch=epoch)
    assert outcome == Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ())


def test_epoch_after_the_largest_is_one() -> None:
    assert next_epoch(EPOCH_MAX) == 1
    cache = cache_of()
    session = new_session(cache)
    session.epoch = EPOCH_MAX
    again(cache, session)
    assert session.epoch == 1


def test_opening_ends_the_session_the_request_names() -> None:
    cache = cache_of()
    session = new_session(cache)
    outcome = opened(open_fetch(cache, topics(0), session_id=session.session_id))
    assert outcome.ended == (session,)
    assert len(cache) == 1


def test_closing_ends_the_session_and_serves_the_request() -> None:
    cache = cache_of()
    session = new_session(cache)
    outcome = opened(
        open_fetch(cache, topics(4), session_id=session.session_id, epoch=CLOSING_EPOCH)
    )
    assert outcome.ended == (session,)
    assert outcome.fetch.session_id == NO_SESSION_ID
    assert answer(outcome.fetch) == [4]
    assert (len(cache), cache.partition_count) == (0, 0)


def test_session_that_forgets_everything_ends() -> None:
    cache = cache_of()
    session = new_session(cache, 2)
    outcome = again(cache, session, (), forget(0, 1))
    assert outcome.ended == (session,)
    assert isinstance(outcome.fetch, SessionlessFetch)
    assert len(outcome.fetch) == 0
    assert len(cache) == 0


def test_sessionless_fetch_tells_everything_every_time() -> None:
    fetch = SessionlessFetch(topics(0, 1))
    assert fetch.is_full
    assert partitions(fetch.targets()) == [0, 1]
    fetch.on_news(fetch.targets()[0])
    fetch.note_error(fetch.targets()[1])
    assert fetch.note_left_out(fetch.targets()[0], offsets(0))
    assert answer(fetch) == [0, 1]
    assert answer(fetch) == [0, 1]


@pytest.mark.parametrize(
    ("share", "order"),
    [(0.0, [0, 1, 2]), (0.32, [0, 1, 2]), (0.34, [1, 2, 0]), (0.99, [2, 0, 1])],
)
def test_sessionless_fetch_starts_where_it_is_told(share: float, order: list[int]) -> None:
    fetch = SessionlessFetch(topics(0, 1, 2))
    fetch.start_at(share)
    assert partitions(fetch.candidates()) == order
    assert partitions(fetch.targets()) == order


def test_session_ids_are_never_reused_while_in_use() -> None:
    class Stubborn:
        def __init__(self) -> None:
            self.draws = [5, 5, 5, 6]

        def randint(self, a: int, b: int) -> int:
            assert a > NO_SESSION_ID
            assert b <= 2**31 - 1
            return self.draws.pop(0)

    cache = FetchSessionCache(slots_max=2, partitions_max=10, chance=Stubborn())
    assert new_session(cache).session_id == 5
    assert new_session(cache).session_id == 6


def fill(cache: FetchSessionCache, sizes: Sequence[int], now_ms: int = 0) -> list[FetchSession]:
    return [new_session(cache, size, now_ms=now_ms) for size in sizes]


def test_full_cache_serves_without_a_session() -> None:
    cache = cache_of(slots_max=2)
    fill(cache, [1, 1])
    outcome = opened(open_fetch(cache, topics(*range(9))))
    assert isinstance(outcome.fetch, SessionlessFetch)
    assert outcome.ended == ()


def test_cache_without_slots_serves_without_a_session() -> None:
    outcome = opened(open_fetch(cache_of(slots_max=0), topics(0)))
    assert isinstance(outcome.fetch, SessionlessFetch)


def test_idle_session_gives_way() -> None:
    cache = cache_of(slots_max=2)
    idle, busy = fill(cache, [5, 5])
    again(cache, busy, now_ms=SESSION_EVICTION_MS)
    outcome = opened(open_fetch(cache, topics(0), now_ms=SESSION_EVICTION_MS + 1))
    assert outcome.ended == (idle,)
    assert isinstance(outcome.fetch, FetchSession)


def old_but_used(sizes: Sequence[int]) -> tuple[FetchSessionCache, list[FetchSession]]:
    cache = cache_of(slots_max=len(sizes))
    sessions = fill(cache, sizes)
    for session in sessions:
        again(cache, session, now_ms=SESSION_EVICTION_MS + 1)
    return cache, sessions


def test_smallest_old_session_gives_way_to_a_larger_one() -> None:
    cache, sessions = old_but_used([3, 2, 4])
    outcome = opened(open_fetch(cache, topics(0, 1, 2), now_ms=SESSION_EVICTION_MS + 1))
    assert outcome.ended == (sessions[1],)


def test_smaller_session_does_not_drive_out_a_larger_one() -> None:
    cache, _ = old_but_used([3, 2])
    outcome = opened(open_fetch(cache, topics(0), now_ms=SESSION_EVICTION_MS + 1))
    assert isinstance(outcome.fetch, SessionlessFetch)


def test_follower_drives_out_a_young_consumer() -> None:
    cache = cache_of(slots_max=2)
    _, consumer = fill(cache, [2, 1])
    outcome = opened(open_fetch(cache, topics(0), privileged=True))
    assert outcome.ended == (consumer,)


def test_consumer_does_not_drive_out_a_young_consumer() -> None:
    cache = cache_of(slots_max=1)
    fill(cache, [1])
    assert opened(open_fetch(cache, topics(0, 1))).ended == ()


def test_follower_does_not_drive_out_a_young_follower() -> None:
    cache = cache_of(slots_max=1)
    new_session(cache, 1, privileged=True)
    assert opened(open_fetch(cache, topics(0, 1), privileged=True)).ended == ()


def test_consumer_does_not_drive_out_an_old_follower() -> None:
    cache = cache_of(slots_max=1)
    follower = new_session(cache, 1, privileged=True)
    again(cache, follower, now_ms=SESSION_EVICTION_MS + 1)
    outcome = opened(open_fetch(cache, topics(0, 1), now_ms=SESSION_EVICTION_MS + 1))
    assert outcome.ended == ()


def test_size_of_a_session_counts_as_it_is_now() -> None:
    cache, (grown, small) = old_but_used([1, 2])
    again(cache, grown, topics(0, 1, 2), now_ms=SESSION_EVICTION_MS + 1)
    outcome = opened(open_fetch(cache, topics(0, 1, 2), now_ms=SESSION_EVICTION_MS + 1))
    assert outcome.ended == (small,)


def test_remembered_partitions_are_bounded() -> None:
    cache = cache_of(partitions_max=5)
    new_session(cache, 4)
    assert isinstance(opened(open_fetch(cache, topics(0, 1))).fetch, SessionlessFetch)
    assert cache.partition_count == 4


def test_session_that_outgrows_the_bound_ends() -> None:
    cache = cache_of(partitions_max=5)
    session = new_session(cache, 4)
    outcome = open_fetch(cache, topics(4, 5), session_id=session.session_id, epoch=session.epoch)
    assert outcome == Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (session,))
    assert cache.partition_count == 0


@dataclass
class Partition:
    """One partition of the world that the model looks at in full."""

    high_watermark: int = 0
    log_start: int = 0
    is_broken: bool = False

    @property
    def offsets(self) -> KnownOffsets:
        return offsets(self.high_watermark, self.log_start)


Told = dict[int, tuple[KnownOffsets | None, bool]]
"""By partition: its offsets or None for an error, and whether there was data."""

PARTITIONS = range(4)


class TellsWhatAFullScanWouldTell(RuleBasedStateMachine):
    """Looking only at dirty partitions finds what looking at all of them finds."""

    def __init__(self) -> None:
        super().__init__()
        self.world = [Partition() for _ in PARTITIONS]
        self.cache = cache_of()
        self.listening: set[FetchTarget] = set()
        self.wanted: dict[int, int] = {0: 0, 1: 0}  # partition -> fetch offset
        self.told: dict[int, KnownOffsets | None] = {}
        self.on_its_way: Told = {}
        self.is_waiting = True
        outcome = opened(open_fetch(self.cache, topics(0, 1)))
        assert isinstance(outcome.fetch, FetchSession)
        self.session = outcome.fetch
        self.listening.update(outcome.added)

    def scan(self) -> Told:
        """The model: every partition of the session, compared with what the client knows."""
        found: Told = {}
        for index, fetch_offset in self.wanted.items():
            partition = self.world[index]
            if partition.is_broken:
                found[index] = (None, False)
                continue
            has_data = fetch_offset < partition.high_watermark
            is_new = self.told.get(index) != partition.offsets
            if has_data or is_new or self.session.is_full:
                found[index] = (partition.offsets, has_data)
        return found

    def look(self, room: int) -> Told:
        """Serve data of up to `room` partitions, and compare with the model."""
        expected = self.scan()
        found: Told = {}
        left_out: Told = {}
        for target in self.session.candidates():
            index = target.wanted.partition
            partition = self.world[index]
            if partition.is_broken:
                self.session.note_error(target)
                found[index] = (None, False)
            elif target.wanted.fetch_offset >= partition.high_watermark:
                if self.session.note_result(target, partition.offsets, has_data=False):
                    found[index] = (partition.offsets, False)
            elif room > 0:
                room -= 1
                assert self.session.note_result(target, partition.offsets, has_data=True)
                found[index] = (partition.offsets, True)
            else:
                left_out[index] = (partition.offsets, True)
                if self.session.note_left_out(target, partition.offsets):
                    found[index] = (partition.offsets, False)
        assert {**found, **left_out} == expected
        return found

    def change(self, index: int) -> None:
        for target in self.listening:
            if target.wanted.partition == index:
                self.session.on_news(target)

    @rule(index=st.sampled_from(PARTITIONS), count=st.integers(1, 3))
    def append(self, index: int, count: int) -> None:
        self.world[index].high_watermark += count
        self.change(index)

    @rule(index=st.sampled_from(PARTITIONS))
    def delete_records(self, index: int) -> None:
        self.world[index].log_start = self.world[index].high_watermark
        self.change(index)

    @rule(index=st.sampled_from(PARTITIONS))
    def break_or_mend(self, index: int) -> None:
        self.world[index].is_broken = not self.world[index].is_broken
        self.change(index)

    @precondition(lambda self: not self.is_waiting)
    @rule(
        named=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 6)),
        dropped=st.sets(st.sampled_from(PARTITIONS), max_size=1),
    )
    def request(self, named: dict[int, int], dropped: set[int]) -> None:
        if not {**self.wanted, **named}.keys() - dropped:
            return
        self.wanted.update(named)
        for index in dropped & self.wanted.keys():
            del self.wanted[index]
            self.told.pop(index, None)
        outcome = again(
            self.cache,
            self.session,
            [(TOPIC, None, [Wanted(index, offset) for index, offset in named.items()])],
            forget(*dropped),
        )
        self.listening.update(outcome.added)
        self.listening.difference_update(outcome.removed)
        self.is_waiting = True

    @precondition(lambda self: self.is_waiting)
    @rule(room=st.integers(0, 4))
    def look_and_park(self, room: int) -> None:
        self.look(room)
        self.on_its_way = {}

    @precondition(lambda self: self.is_waiting)
    @rule(room=st.integers(0, 4))
    def look_for_an_answer(self, room: int) -> None:
        self.on_its_way = self.look(room)

    @precondition(lambda self: self.is_waiting and self.on_its_way)
    @rule()
    def answer(self) -> None:
        """Perhaps long after the look, with news in between."""
        self.session.on_answered()
        self.told.update({index: known for index, (known, _) in self.on_its_way.items()})
        self.on_its_way = {}
        self.is_waiting = False

    @precondition(lambda self: self.is_waiting)
    @rule(room=st.integers(0, 4))
    def look_and_answer(self, room: int) -> None:
        self.look_for_an_answer(room)
        self.answer()

    def teardown(self) -> None:
        assert sorted(partitions(self.session.targets())) == sorted(self.wanted)


TestTellsWhatAFullScanWouldTell = TellsWhatAFullScanWouldTell.TestCase


class CacheIsBoundedAndConsistent(RuleBasedStateMachine):
    """Whoever comes and goes, the cache knows its size and keeps to its bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = cache_of(slots_max=3, partitions_max=12)
        self.sessions: dict[int, FetchSession] = {}
        self.now_ms = 0

    def take(self, outcome: Opened | Refused) -> None:
        for ended in outcome.ended:
            del self.sessions[ended.session_id]
        if isinstance(outcome, Opened) and isinstance(outcome.fetch, FetchSession):
            self.sessions[outcome.fetch.session_id] = outcome.fetch
        assert len(self.cache) == len(self.sessions) <= 3
        assert self.cache.partition_count == sum(map(len, self.sessions.values())) <= 12

    @rule(elapsed_ms=st.sampled_from((0, 1, SESSION_EVICTION_MS // 2, SESSION_EVICTION_MS + 1)))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule(size=st.integers(1, 6), privileged=st.booleans())
    def open(self, size: int, privileged: bool) -> None:
        self.take(
            open_fetch(self.cache, topics(*range(size)), privileged=privileged, now_ms=self.now_ms)
        )

    @precondition(lambda self: self.sessions)
    @rule(
        data=st.data(),
        named=st.sets(st.integers(0, 6)),
        dropped=st.sets(st.integers(0, 6)),
        epoch_step=st.sampled_from((0, 0, 0, 1)),
    )
    def go_on(
        self, data: st.DataObject, named: set[int], dropped: set[int], epoch_step: int
    ) -> None:
        session = data.draw(st.sampled_from(list(self.sessions.values())))
        self.take(
            open_fetch(
                self.cache,
                topics(*named),
                forget(*dropped),
                session_id=session.session_id,
                epoch=session.epoch + epoch_step,
                now_ms=self.now_ms,
            )
        )

    @precondition(lambda self: self.sessions)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        session_id = data.draw(st.sampled_from(list(self.sessions)))
        self.take(open_fetch(self.cache, session_id=session_id, epoch=CLOSING_EPOCH))


TestCacheIsBoundedAndConsistent = CacheIsBoundedAndConsistent.TestCase
