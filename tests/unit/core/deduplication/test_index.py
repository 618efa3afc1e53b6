"""D5: what is a duplicate, by the log alone (G1-G6 of `core/deduplication/index.py`)."""

from array import array
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.support.hash_keys import HASH_KEY
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_ID, Offset
from tidelog.config.topic import remembered_ms
from tidelog.core.deduplication import index as index_module
from tidelog.core.deduplication.index import FORGOTTEN_AT_ONCE, Duplicates, IdIndex
from tidelog.records.digest import BatchDigest, BatchKind
from tidelog.records.id_table import NONE
from tidelog.records.ids import ENTRY, fingerprint, pack_deltas

WINDOW_MS = 100
IDS_MAX = 1_000


def entries(*ids: int | None) -> bytes:
    return b"".join(
        ENTRY.pack(fingerprint(b"%d" % one), at) for at, one in enumerate(ids) if one is not None
    )


def index(*, window_ms: int = WINDOW_MS, ids_max: int = IDS_MAX) -> IdIndex:
    return IdIndex(
        window_ms=window_ms,
        ids_max=ids_max,
        start_offset=Offset(0),
        log_time_ms=-1,
        hash_key=HASH_KEY,
    )


def batch(
    offset: int,
    *ids: int | None,
    at_ms: int = 0,
    producer: int = NO_PRODUCER_ID,
    kind: BatchKind = BatchKind.PLAIN,
) -> BatchDigest:
    last_offset = offset + max(0, len(ids) - 1)
    return BatchDigest(offset, last_offset, 0, 0, at_ms, producer, kind, entries(*ids))


def judge(
    asked: IdIndex,
    *ids: int | None,
    at_ms: int = 0,
    producer: int = NO_PRODUCER_ID,
    start: int = 0,
) -> Duplicates | None:
    return asked.judge(
        entries(*ids), timestamp_ms=at_ms, producer_id=producer, log_start_offset=Offset(start)
    )


def dropped(*pairs: tuple[int, int | None]) -> Duplicates:
    offsets = [NONE if offset is None else offset for _, offset in pairs]
    return Duplicates(
        pack_deltas(delta for delta, _ in pairs),
        array("q", offsets).tobytes(),
        min(offsets),
        max(offsets),
    )


def test_second_copy_is_a_duplicate_of_the_first() -> None:
    seen = index()
    seen.on_batch(batch(7, 1, 2))
    assert judge(seen, 3, 2) == dropped((1, 8))


def test_record_without_an_id_is_never_dropped() -> None:
    seen = index()
    seen.on_batch(batch(0, None, 1))
    assert judge(seen, None, None) is None
    assert judge(seen, None, 1) == dropped((1, 1))


def test_second_copy_in_the_same_batch_is_dropped() -> None:
    assert judge(index(), 1, 2, 1) == dropped((2, None))


def test_third_copy_in_a_batch_has_the_offset_of_the_first() -> None:
    seen = index()
    seen.on_batch(batch(5, 1))
    assert judge(seen, 1, 1) == dropped((0, 5), (1, 5))


@pytest.mark.parametrize(("age_ms", "is_new"), [(WINDOW_MS - 1, False), (WINDOW_MS, True)])
def test_id_is_new_again_when_its_window_has_passed(age_ms: int, is_new: bool) -> None:
    seen = index()
    seen.on_batch(batch(0, 1, at_ms=1_000))
    assert (judge(seen, 1, at_ms=1_000 + age_ms) is None) is is_new


def test_newer_copy_counts_once_the_older_is_too_old() -> None:
    seen = index()
    seen.on_batch(batch(0, 1, at_ms=1_000))
    seen.on_batch(batch(1, 1, at_ms=1_100))
    assert judge(seen, 1, at_ms=1_150) == dropped((0, 1))


def test_clock_that_is_ahead_does_not_close_the_window_of_others() -> None:
    seen = index()
    seen.on_batch(batch(0, 1, at_ms=1_000))
    seen.on_batch(batch(1, 2, at_ms=1_000 + remembered_ms(WINDOW_MS) - 1))
    assert judge(seen, 1, at_ms=1_001) == dropped((0, 0))


def test_clock_that_is_far_ahead_does() -> None:
    """What is forgotten must depend on the log alone, and its time is that of its batches."""
    seen = index()
    seen.on_batch(batch(0, 1, at_ms=1_000))
    seen.on_batch(batch(1, 2, at_ms=1_000 + remembered_ms(WINDOW_MS)))
    assert judge(seen, 1, at_ms=1_001) is None


def test_clock_that_is_behind_finds_what_was_seen() -> None:
    seen = index()
    seen.on_batch(batch(0, 1, at_ms=1_000))
    seen.on_batch(batch(1, 2, at_ms=5))
    assert judge(seen, 2, at_ms=5) == dropped((0, 1))
    assert judge(seen, 1, at_ms=5) == dropped((0, 0))


def test_grace_is_an_hour_at_most() -> None:
    hour_ms = 3_600_000
    assert [remembered_ms(window_ms) for window_ms in (10, hour_ms, 5 * hour_ms)] == [
        20,
        2 * hour_ms,
        6 * hour_ms,
    ]


def test_what_is_below_the_log_start_is_not_known() -> None:
    seen = index()
    seen.on_batch(batch(0, 1, 2))
    assert judge(seen, 1, 2, start=1) == dropped((1, 1))


def test_oldest_ids_are_forgotten_beyond_the_bound() -> None:
    seen = index(ids_max=2)
    seen.on_batch(batch(0, 1, 2, 3))
    assert judge(seen, 1, 2, 3) == dropped((1, 1), (2, 2))
    assert (len(seen), seen.forgotten_early) == (2, 1)


def test_what_has_passed_goes_in_parts_and_does_not_count_meanwhile() -> None:
    """A leap of the log's time must not hold up the broker until all of it is gone."""
    seen = index(ids_max=3 * FORGOTTEN_AT_ONCE)
    seen.on_batch(batch(0, *range(3 * FORGOTTEN_AT_ONCE), at_ms=1_000))
    left = []
    for number in range(4):
        offset = 3 * FORGOTTEN_AT_ONCE + number
        seen.on_batch(batch(offset, -1 - number, at_ms=1_000 + remembered_ms(WINDOW_MS)))
        left.append(len(seen))
        assert judge(seen, 3 * FORGOTTEN_AT_ONCE - 1, -1, at_ms=1_001) == dropped(
            (1, 3 * FORGOTTEN_AT_ONCE)
        )
    assert left == [2 * FORGOTTEN_AT_ONCE, FORGOTTEN_AT_ONCE, 3, 4]
    assert seen.forgotten_early == 0


def test_what_has_to_be_committed_first_are_the_first_copies() -> None:
    assert dropped((0, 4), (1, None), (2, 9)).end_offset == 10


# -- transactions ----------------------------------------------------------------------------------


def in_transaction(offset: int, *ids: int, producer: int, at_ms: int = 0) -> BatchDigest:
    return batch(offset, *ids, producer=producer, kind=BatchKind.TRANSACTIONAL, at_ms=at_ms)


def marker(offset: int, kind: BatchKind, *, producer: int, at_ms: int = 0) -> BatchDigest:
    return batch(offset, producer=producer, kind=kind, at_ms=at_ms)


def test_id_in_its_own_open_transaction_is_a_duplicate() -> None:
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7))
    assert judge(seen, 1, producer=7) == dropped((0, 0))


@pytest.mark.parametrize("producer", [8, NO_PRODUCER_ID])
def test_id_in_another_open_transaction_is_undecided(producer: int) -> None:
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7))
    with pytest.raises(RequestRefused) as refused:
        judge(seen, 2, 1, producer=producer)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize("producer", [NO_PRODUCER_ID, -5])
def test_ids_of_a_transaction_without_a_producer_wait_for_no_marker(producer: int) -> None:
    """There will be none: nobody could send them again for as long as the window is."""
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=producer))
    assert judge(seen, 1) == dropped((0, 0))


def test_index_that_could_not_take_ids_does_not_say_that_it_has_them() -> None:
    seen = index()
    with patch.object(IdIndex, "_add", side_effect=MemoryError), pytest.raises(MemoryError):
        seen.on_batch(batch(0, 1))
    assert seen.end_offset == 0


def test_ids_of_transactions_that_take_turns_are_told_apart() -> None:
    seen = index()
    for offset in range(6):
        seen.on_batch(
            in_transaction(2 * offset, 2 * offset, 2 * offset + 1, producer=7 + offset % 2)
        )
    assert judge(seen, 0, 1, 5, 8, producer=7) == dropped((0, 0), (1, 1), (2, 5), (3, 8))
    assert judge(seen, 2, 11, producer=8) == dropped((0, 2), (1, 11))
    for own, others in ((7, 6), (7, 11), (8, 0), (8, 5)):
        with pytest.raises(RequestRefused):
            judge(seen, others, producer=own)


def test_commit_decides_that_it_is_a_duplicate() -> None:
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7))
    seen.on_batch(marker(1, BatchKind.COMMIT, producer=7))
    assert judge(seen, 1) == dropped((0, 0))


def test_marker_does_not_move_the_time_of_the_log() -> None:
    """A broker stamps it with its own clock; records may tell of things long past."""
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7, at_ms=1_000))
    long_after_ms = 1_000 + remembered_ms(WINDOW_MS)
    seen.on_batch(marker(1, BatchKind.COMMIT, producer=7, at_ms=long_after_ms))
    assert judge(seen, 1, at_ms=1_000) == dropped((0, 0))


def test_abort_decides_that_it_is_new() -> None:
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7))
    seen.on_batch(in_transaction(1, 2, producer=8))
    seen.on_batch(marker(2, BatchKind.ABORT, producer=7))
    assert judge(seen, 1) is None
    with pytest.raises(RequestRefused):
        judge(seen, 2)


def test_next_transaction_of_a_producer_is_another_one() -> None:
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7))
    seen.on_batch(marker(1, BatchKind.COMMIT, producer=7))
    seen.on_batch(in_transaction(2, 2, producer=7))
    seen.on_batch(marker(3, BatchKind.ABORT, producer=7))
    assert judge(seen, 1, 2) == dropped((0, 0))


def test_other_control_batches_settle_nothing() -> None:
    seen = index()
    seen.on_batch(in_transaction(0, 1, producer=7))
    seen.on_batch(batch(1, kind=BatchKind.OTHER))
    with pytest.raises(RequestRefused):
        judge(seen, 1)


# -- against a model -------------------------------------------------------------------------------


@dataclass
class Log:
    """All that was stored; a duplicate is looked for from end to end."""

    batches: list[BatchDigest] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def records(self) -> list[tuple[bytes, int, int, str, int]]:
        """(fingerprint, offset, seen at, state, producer) of everything with an id, in order."""
        found = []
        log_time_ms = -1
        for at, one in enumerate(self.batches):
            if one.kind in (BatchKind.PLAIN, BatchKind.TRANSACTIONAL):
                log_time_ms = max(log_time_ms, one.max_timestamp_ms)
            state = self._state(one, at)
            found += [
                (print_, one.base_offset + delta, log_time_ms, state, one.producer_id)
                for print_, delta in ENTRY.iter_unpack(one.entries)
            ]
        still = log_time_ms - remembered_ms(WINDOW_MS)
        return [one for one in found if one[2] > still][-MODEL_IDS_MAX:]

    def _state(self, one: BatchDigest, at: int) -> str:
        if one.kind is not BatchKind.TRANSACTIONAL:
            return "counts"
        for later in self.batches[at:]:
            if later.producer_id == one.producer_id and later.kind is BatchKind.COMMIT:
                return "counts"
            if later.producer_id == one.producer_id and later.kind is BatchKind.ABORT:
                return "aborted"
        return "open"

    def first_copy(self, print_: bytes, *, at_ms: int, producer: int, start: int) -> int | None:
        copies = [
            one
            for one in self.records()
            if one[0] == print_
            and one[1] >= start
            and at_ms - one[2] < WINDOW_MS
            and one[3] != "aborted"
        ]
        decided = [one for one in copies if one[3] == "counts"]
        if decided:
            return decided[-1][1]
        if copies and not (copies[-1][4] == producer and producer != NO_PRODUCER_ID):
            raise RequestRefused(ErrorCode.NOT_ENOUGH_REPLICAS)
        return copies[-1][1] if copies else None


MODEL_IDS_MAX = 24
PRODUCERS = (5, 6)


class Histories(RuleBasedStateMachine):
    """Batches, markers, truncations, and new leaders that have but the log."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.asked = index(ids_max=MODEL_IDS_MAX)
        self.now_ms = 0

    ids = st.lists(st.none() | st.integers(0, 8), min_size=1, max_size=4)
    copies = st.lists(st.integers(0, 2), min_size=1, max_size=8)
    producer = st.sampled_from((NO_PRODUCER_ID, *PRODUCERS))
    skew_ms = st.sampled_from((0, 0, 0, 50, 120, 250, -150))

    @rule(
        ids=ids,
        producer=producer,
        later_ms=st.integers(0, 40),
        skew_ms=skew_ms,
        back=st.integers(0, 20),
    )
    def send(
        self, ids: list[int | None], producer: int, later_ms: int, skew_ms: int, back: int
    ) -> None:
        self.now_ms += later_ms
        at_ms = max(0, self.now_ms + skew_ms)
        start = max(0, self.log.end_offset - 4 * back)
        try:
            expected: dict[int, int | None] | None = self.expected(ids, at_ms, producer, start)
        except RequestRefused:
            expected = None
        try:
            said = judge(self.asked, *ids, at_ms=at_ms, producer=producer, start=start)
        except RequestRefused:
            assert expected is None
            return
        assert expected is not None
        assert said == (dropped(*sorted(expected.items())) if expected else None)
        kept = [None if at in expected else one for at, one in enumerate(ids)]
        kind = BatchKind.PLAIN if producer == NO_PRODUCER_ID else BatchKind.TRANSACTIONAL
        self.store(batch(self.log.end_offset, *kept, at_ms=at_ms, producer=producer, kind=kind))

    def expected(
        self, ids: list[int | None], at_ms: int, producer: int, start: int
    ) -> dict[int, int | None]:
        first_copies: dict[int, int | None] = {}
        for at, one in enumerate(ids):
            if one is None:
                continue
            copy = self.log.first_copy(
                fingerprint(b"%d" % one), at_ms=at_ms, producer=producer, start=start
            )
            if copy is not None or one in ids[:at]:
                first_copies[at] = copy
        return first_copies

    def store(self, stored: BatchDigest) -> None:
        self.log.batches.append(stored)
        self.asked.on_batch(stored)

    @rule(ids=copies, producer=producer, later_ms=st.integers(0, 40))
    def store_unasked(self, ids: list[int], producer: int, later_ms: int) -> None:
        """As before the topic was told to look for duplicates: copies, and copies of copies."""
        self.now_ms += later_ms
        kind = BatchKind.PLAIN if producer == NO_PRODUCER_ID else BatchKind.TRANSACTIONAL
        self.store(
            batch(self.log.end_offset, *ids, at_ms=self.now_ms, producer=producer, kind=kind)
        )

    @rule(
        producer=st.sampled_from(PRODUCERS),
        kind=st.sampled_from((BatchKind.COMMIT, BatchKind.ABORT)),
        skew_ms=skew_ms,
    )
    def end(self, producer: int, kind: BatchKind, skew_ms: int) -> None:
        at_ms = max(0, self.now_ms + skew_ms)
        self.store(batch(self.log.end_offset, producer=producer, kind=kind, at_ms=at_ms))

    @precondition(lambda self: self.log.batches)
    @rule(cut=st.integers(0, 3))
    def elect(self, cut: int) -> None:
        """Another leader, whose log may lack what was not committed."""
        if cut:
            del self.log.batches[-cut:]
        self.asked = index(ids_max=MODEL_IDS_MAX)
        for one in self.log.batches:
            self.asked.on_batch(one)


class HistoriesOfSlowForgetting(Histories):
    """With every batch no more is let go than it brings."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(index_module, "FORGOTTEN_AT_ONCE", 0)

    def teardown(self) -> None:
        self.patched.undo()


TestHistories = Histories.TestCase
TestHistoriesOfSlowForgetting = HistoriesOfSlowForgetting.TestCase
