"""D5: what a table of ids remembers, compiled or not."""

import struct
import sys
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.compiled import only_compiled
from tidelog.records.compiled import compiled
from tidelog.records.id_table import (
    NONE,
    Found,
    IdTable,
    IdTableInPython,
    dropped_of,
    dropped_of_in_python,
    int64s_in,
    repeated,
    repeated_in_python,
)
from tidelog.records.ids import (
    DELTA_BYTES,
    ENTRY,
    entries_without,
    entries_without_in_python,
    fingerprint,
)

LONG_AGO = -(2**62)
ALL = 2**62


def entries(*ids: int) -> bytes:
    return b"".join(ENTRY.pack(fingerprint(b"%d" % one), at) for at, one in enumerate(ids))


def found(
    table: IdTable, asked: bytes, oldest_ms: int, log_start_offset: int
) -> tuple[list[int], list[int], list[tuple[int, int]]] | None:
    """Places and offsets of what is found, and number and offset of what of it is pending."""
    answer = table.find(asked, oldest_ms, log_start_offset)
    if answer is None:
        return None
    offsets = int64s_in(answer[0])
    assert len(offsets) == len(asked) // ENTRY.size
    undecided = [] if answer[1] is None else list(zip(int64s_in(answer[1]), offsets, strict=True))
    places = [place for place, offset in enumerate(offsets) if offset != NONE]
    return (
        places,
        [offsets[place] for place in places],
        [(number, offset) for number, offset in undecided if number != NONE],
    )


def found_count(table: IdTable, asked: bytes) -> int:
    places, _, _ = found(table, asked, LONG_AGO, 0) or ([], [], [])
    return len(places)


@pytest.fixture(params=["python", pytest.param("compiled", marks=only_compiled)])
def table(request: pytest.FixtureRequest) -> Iterator[IdTable]:
    if request.param == "python":
        yield IdTableInPython(HASH_KEY)
    else:
        assert compiled is not None
        yield compiled.IdTable(HASH_KEY)


def test_what_was_added_is_found_with_its_offset(table: IdTable) -> None:
    table.add(entries(1, 2), 100, 5, False)
    assert found(table, entries(2, 3), LONG_AGO, 0) == ([0], [101], [])
    assert found(table, entries(3), LONG_AGO, 0) is None


def test_what_is_too_old_or_below_the_start_is_not_found(table: IdTable) -> None:
    table.add(entries(1), 100, 5, False)
    assert found(table, entries(1), 4, 100) is not None
    assert found(table, entries(1), 5, 100) is None
    assert found(table, entries(1), 4, 101) is None


def test_newest_copy_is_found_and_a_pending_one_only_if_it_is_alone(table: IdTable) -> None:
    table.add(entries(1), 0, 1, False)
    table.add(entries(1), 1, 2, False)
    table.add(entries(1), 2, 3, True)
    assert found(table, entries(1), LONG_AGO, 0) == ([0], [1], [])
    assert found(table, entries(1), 2, 0) == ([0], [2], [(2, 2)])


def test_what_an_aborted_copy_hid_is_found_again(table: IdTable) -> None:
    """The open one before it, and where that is aborted as well the decided one."""
    table.add(entries(1), 0, 1, False)
    for offset in (1, 2, 3):
        table.add(entries(1), offset, 2, True)
    table.settle(2, 1, False)
    assert found(table, entries(1), 1, 0) == ([0], [3], [(3, 3)])
    table.settle(3, 1, False)
    assert found(table, entries(1), 1, 0) == ([0], [1], [(1, 1)])
    table.settle(1, 1, False)
    assert found(table, entries(1), 1, 0) is None
    assert found(table, entries(1), 0, 0) == ([0], [0], [])


def test_committed_copy_hides_those_before_it_and_no_other(table: IdTable) -> None:
    for offset in range(4):
        table.add(entries(1), offset, offset, True)
    table.settle(1, 1, True)
    assert found(table, entries(1), LONG_AGO, 0) == ([0], [1], [])
    assert found(table, entries(1), 1, 0) == ([0], [3], [(3, 3)])
    table.settle(0, 1, True)
    table.settle(3, 1, False)
    assert found(table, entries(1), LONG_AGO, 0) == ([0], [1], [])
    assert found(table, entries(1), 1, 0) == ([0], [2], [(2, 2)])
    table.settle(2, 1, False)
    assert found(table, entries(1), 1, 0) is None


def test_forgotten_copy_is_not_found_when_the_newer_one_is_aborted(table: IdTable) -> None:
    table.add(entries(1, 1), 0, 1, True)
    assert table.forget(LONG_AGO, 1, ALL) == 1
    table.settle(1, 1, False)
    assert found(table, entries(1), LONG_AGO, 0) is None


def test_copy_that_is_decided_at_once_hides_the_open_ones_before_it(table: IdTable) -> None:
    table.add(entries(1, 1), 0, 1, True)
    table.add(entries(1), 2, 2, False)
    for is_committed in (True, False):
        table.settle(0 if is_committed else 1, 1, is_committed)
        assert found(table, entries(1), LONG_AGO, 0) == ([0], [2], [])
    assert table.forget(2, 100, ALL) == 3
    assert found(table, entries(1), LONG_AGO, 0) is None


def test_aborted_entry_is_gone_and_a_committed_one_counts(table: IdTable) -> None:
    aborted = table.add(entries(1, 2), 0, 1, True)
    committed = table.add(entries(3), 2, 1, True)
    table.settle(aborted, 2, False)
    table.settle(committed, 1, True)
    assert found(table, entries(1, 2), LONG_AGO, 0) is None
    assert found(table, entries(3), LONG_AGO, 0) == ([0], [2], [])


def test_oldest_are_forgotten_first(table: IdTable) -> None:
    table.add(entries(1, 2), 0, 1, False)
    table.add(entries(3, 4), 2, 2, False)
    assert table.forget(1, 100, ALL) == 2
    assert found(table, entries(1, 2), LONG_AGO, 0) is None
    assert table.forget(LONG_AGO, 1, ALL) == 1
    assert found(table, entries(3, 4), LONG_AGO, 0) == ([1], [3], [])
    assert (len(table), table.first_number, table.end_number) == (1, 3, 4)


def test_no_more_are_forgotten_than_is_said(table: IdTable) -> None:
    table.add(entries(*range(100)), 0, 1, False)
    assert [table.forget(1, ALL, 40) for _ in range(4)] == [40, 40, 20, 0]


def test_settling_what_was_forgotten_changes_nothing(table: IdTable) -> None:
    first = table.add(entries(1, 2), 0, 1, True)
    table.forget(LONG_AGO, 1, ALL)
    table.settle(first, 2, False)
    assert found(table, entries(1, 2), LONG_AGO, 0) is None


@pytest.mark.parametrize("find", [repeated, repeated_in_python])
def test_repetition_within_a_batch_is_marked(find: object) -> None:
    assert callable(find)
    assert find(entries(1, 2, 3), HASH_KEY) is None
    assert find(entries(1, 2, 1, 1, 2), HASH_KEY) == b"\0\0\1\1\1"
    assert find(b"", HASH_KEY) is None


ids_of_a_batch = st.lists(st.integers(0, 20), max_size=40)


@only_compiled
@given(ids_of_a_batch, ids_of_a_batch)
def test_what_is_dropped_is_the_same_in_python(known: list[int], asked: list[int]) -> None:
    assert compiled is not None
    table = compiled.IdTable(HASH_KEY)
    table.add(entries(*known), 7, 0, False)
    compare_dropped(table, entries(*asked))


@only_compiled
@pytest.mark.parametrize("ids", [range(20_000), [5] * 20_000, [*range(10_000)] * 2])
@pytest.mark.parametrize("known", [[], [5], range(15_000), range(10_000, 30_000)])
@pytest.mark.parametrize("is_pending", [False, True])
def test_what_is_found_of_very_many_is_the_same_in_python(
    ids: Sequence[int], known: Sequence[int], is_pending: bool
) -> None:
    """Compiled code goes through them without the interpreter's lock."""
    assert compiled is not None
    tables = [IdTableInPython(HASH_KEY), compiled.IdTable(HASH_KEY)]
    asked = entries(*ids)
    for is_settled in (False, True):
        for table in tables:
            if is_settled:
                table.settle(0, len(known), True)
            else:
                table.add(entries(*known), 7, 0, is_pending)
        assert tables[0].find(asked, LONG_AGO, 0) == tables[1].find(asked, LONG_AGO, 0)
    compare_dropped(tables[1], asked)
    assert [table.forget(0, 1, ALL) for table in tables] == [len(known)] * 2


def compare_dropped(table: IdTable, asked: bytes) -> None:
    known = table.find(asked, LONG_AGO, 0)
    marks = repeated(asked, HASH_KEY)
    assert marks == repeated_in_python(asked, HASH_KEY)
    if known is None and marks is None:
        return
    found = None if known is None else Found(*known)
    dropped = dropped_of(asked, found, marks)
    assert dropped == dropped_of_in_python(asked, None if found is None else found.offsets, marks)
    kept = entries_without(asked, dropped.deltas)
    assert kept == entries_without_in_python(asked, dropped.deltas)
    assert len(kept) // ENTRY.size == len(asked) // ENTRY.size - len(dropped.deltas) // DELTA_BYTES


@only_compiled
@pytest.mark.parametrize("ids", [range(20_000), [5] * 20_000])
def test_what_is_found_is_few_objects_however_many_ids_there_are(ids: Sequence[int]) -> None:
    """A million of them held up a broker for half a second, only to be made."""
    assert compiled is not None
    table = compiled.IdTable(HASH_KEY)
    asked = entries(*ids)
    table.add(asked, 0, 0, True)
    before = sys.getallocatedblocks()
    known = table.find(asked, LONG_AGO, 0)
    marks = repeated(asked, HASH_KEY)
    dropped = dropped_of(asked, Found(*known), marks)
    kept = entries_without(asked, dropped.deltas)
    assert sys.getallocatedblocks() - before < 100
    assert (len(known), len(kept)) == (2, 0)


@only_compiled
def test_bytes_per_id_are_what_is_documented() -> None:
    assert compiled is not None
    table: IdTable = compiled.IdTable(HASH_KEY)
    for number in range(100_000):
        table.add(entries(number), number, 0, False)
        if number and number % 20_000 == 0:
            assert 32 + 8 * 1.5 <= table.size_bytes / number <= 32 + 8 * 3 + 1
    table.forget(0, 0, ALL)
    for _ in range(20):
        table.forget(0, 0, ALL)
    assert table.size_bytes < 40_000


def aimed_entries(count: int) -> bytes:
    """With fingerprints of which the low half is the same: for any there are ids, soon found."""
    return b"".join(ENTRY.pack(struct.pack("<QQ", 7, number), 0) for number in range(count))


@only_compiled
def test_ids_that_were_made_for_it_do_not_fall_into_the_same_slots() -> None:
    """Also after the table has grown, and shrunk."""
    assert compiled is not None
    table = compiled.IdTable(HASH_KEY)
    aimed = aimed_entries(20_000)
    for number in range(20_000):
        table.add(aimed[number * ENTRY.size : (number + 1) * ENTRY.size], number, 0, False)
    assert 1 < table.longest_search < 200
    assert found_count(table, aimed) == 20_000
    while len(table) > 1_000:
        table.forget(LONG_AGO, len(table) // 2, ALL)
    assert 1 < table.longest_search < 200
    assert found_count(table, aimed) == len(table)


@only_compiled
def test_slots_of_ids_depend_on_the_key_alone() -> None:
    """Who knows the key can aim; the next broker has another."""
    assert compiled is not None
    prints = [struct.pack("<QQ", 7, number) for number in range(2**16)]
    aimed = [one for one in prints if compiled.siphash(HASH_KEY, one)[0] == 0]
    longest = []
    for key in (HASH_KEY, bytes(16)):
        table = compiled.IdTable(key)
        table.add(b"".join(ENTRY.pack(one, 0) for one in aimed), 0, 0, False)
        longest.append(table.longest_search)
    assert longest[0] > 10 * longest[1]


@only_compiled
def test_repetition_among_ids_that_were_made_for_it_is_found_as_quickly() -> None:
    """A hundredfold is allowed for; it was several hundredfold, and grew with the batch."""

    def took_s(batch: bytes) -> float:
        started_s = time.thread_time()
        assert repeated(batch, HASH_KEY) is None
        return time.thread_time() - started_s

    spread, aimed = entries(*range(50_000)), aimed_entries(50_000)
    assert min(took_s(aimed) for _ in range(3)) < 100 * min(took_s(spread) for _ in range(3))


COPIES = 5_000


@pytest.mark.parametrize("end", ["at once", "committed", "aborted"])
def test_copies_of_one_id_cost_no_more_than_different_ids(table: IdTable, end: str) -> None:
    """Tenfold is allowed for; it was thirtyfold and more, and grew with their number."""

    def took_s(ids: Sequence[int]) -> float:
        batches = [entries(*ids[start : start + 100]) for start in range(0, COPIES, 100)]
        started_s = time.thread_time()
        first = table.end_number
        for batch in batches:
            table.add(batch, 0, 0, end != "at once")
        if end != "at once":
            for number in range(first, table.end_number):
                table.settle(number, 1, end == "committed")
        for batch in batches[::10]:
            table.find(batch, LONG_AGO, 0)
        assert table.forget(0, 0, ALL) == COPIES
        return time.thread_time() - started_s

    copies_s = min(took_s([1] * COPIES) for _ in range(3))
    different_s = min(took_s(range(COPIES)) for _ in range(3))
    assert copies_s < 10 * different_s


@only_compiled
@pytest.mark.parametrize("is_pending", [False, True])
def test_copies_of_one_id_share_their_slots(is_pending: bool) -> None:
    assert compiled is not None
    table = compiled.IdTable(HASH_KEY)
    for number in range(0, 10_000, 100):
        table.add(entries(*[1] * 100), number, 0, is_pending)
    assert table.longest_search == 1
    assert table.size_bytes < 10_000 * (32 + 4 + 2)


class _Copy:
    """What the model knows of an entry."""

    def __init__(self, number: int, record_id: int, offset: int, time_ms: int, state: str) -> None:
        self.number, self.record_id, self.offset, self.time_ms = number, record_id, offset, time_ms
        self.state = state


class Model:
    """All entries in a list, which is gone through from end to end."""

    def __init__(self) -> None:
        self.copies: list[_Copy] = []
        self.end_number = 0

    def add(self, ids: list[int], offset: int, time_ms: int, is_pending: bool) -> int:
        state = "pending" if is_pending else "decided"
        first = self.end_number
        for at, one in enumerate(ids):
            self.copies.append(_Copy(first + at, one, offset + at, time_ms, state))
        self.end_number += len(ids)
        return first

    def settle(self, first: int, count: int, is_committed: bool) -> None:
        for copy in self.copies:
            if first <= copy.number < first + count:
                copy.state = "decided" if is_committed else "aborted"

    def forget(self, time_ms: int, count_max: int, at_most: int) -> int:
        gone = [
            at
            for at, copy in enumerate(self.copies[:at_most])
            if copy.time_ms <= time_ms or len(self.copies) - at > count_max
        ]
        del self.copies[: len(gone)]
        return len(gone)

    def find(
        self, ids: list[int], oldest_ms: int, log_start_offset: int
    ) -> tuple[list[int], list[int], list[tuple[int, int]]] | None:
        places, offsets, undecided = [], [], []
        for place, one in enumerate(ids):
            known = [
                copy
                for copy in self.copies
                if copy.record_id == one
                and copy.time_ms > oldest_ms
                and copy.offset >= log_start_offset
                and copy.state != "aborted"
            ]
            decided = [copy for copy in known if copy.state == "decided"]
            if known:
                newest = (decided or known)[-1]
                places.append(place)
                offsets.append(newest.offset)
                if not decided:
                    undecided.append((newest.number, newest.offset))
        return (places, offsets, undecided) if places else None


class Twins(RuleBasedStateMachine):
    """The two tables, and a model of them, are told and asked the same."""

    ids_max = 200
    batch_max = 60

    @initialize()
    def start(self) -> None:
        assert compiled is not None
        self.model = Model()
        self.tables: list[IdTable] = [IdTableInPython(HASH_KEY), compiled.IdTable(HASH_KEY)]
        self.time_ms = 0
        self.offset = 0
        self.pending: list[tuple[int, int]] = []

    @rule(
        ids=st.lists(st.integers(0, 200), min_size=1, max_size=60),
        later_ms=st.integers(0, 3),
        is_pending=st.booleans(),
    )
    def add(self, ids: list[int], later_ms: int, is_pending: bool) -> None:
        ids = [one % self.ids_max for one in ids[: self.batch_max]]
        self.time_ms += later_ms
        first = self.model.add(ids, self.offset, self.time_ms, is_pending)
        for table in self.tables:
            assert table.add(entries(*ids), self.offset, self.time_ms, is_pending) == first
        self.offset += len(ids)
        if is_pending:
            self.pending.append((first, len(ids)))

    @rule(number=st.integers(0, 10), is_committed=st.booleans(), part=st.integers(0, 60))
    def settle(self, number: int, is_committed: bool, part: int) -> None:
        """Also parts of what was added at once: who asks has other entries between them."""
        part = part % self.batch_max + 1
        if self.pending:
            first, count = self.pending.pop(number % len(self.pending))
            if count > part:
                self.pending.append((first + part, count - part))
            self.model.settle(first, min(count, part), is_committed)
            for table in self.tables:
                table.settle(first, min(count, part), is_committed)

    @rule(age_ms=st.integers(0, 10), count_max=st.integers(0, 200), at_most=st.integers(0, 60))
    def forget(self, age_ms: int, count_max: int, at_most: int) -> None:
        self.forget_some(self.time_ms - age_ms, count_max, at_most % (self.batch_max + 1))

    def forget_some(self, limit_ms: int, count_max: int, at_most: int) -> None:
        gone = self.model.forget(limit_ms, count_max, at_most)
        for table in self.tables:
            assert table.forget(limit_ms, count_max, at_most) == gone

    @rule(age_ms=st.integers(0, 10), start=st.integers(0, 300))
    def find(self, age_ms: int, start: int) -> None:
        asked = [*range(self.ids_max)]
        oldest_ms, start_offset = self.time_ms - age_ms, self.offset - start
        expected = self.model.find(asked, oldest_ms, start_offset)
        for table in self.tables:
            assert found(table, entries(*asked), oldest_ms, start_offset) == expected

    @invariant()
    def have_the_same_numbers(self) -> None:
        for table in self.tables if hasattr(self, "tables") else ():
            assert len(table) == len(self.model.copies)
            assert table.end_number == self.model.end_number
            assert table.first_number == table.end_number - len(table)

    def teardown(self) -> None:
        """What is forgotten has left nothing."""
        if hasattr(self, "tables"):
            self.forget_some(ALL, 0, ALL)
            self.find(ALL, ALL)
            assert self.tables[1].longest_search == 0  # type: ignore[attr-defined]


class TwinsOfFewIds(Twins):
    """Every id is there many times, and what comes and goes is never all that there is of it."""

    ids_max = 2
    batch_max = 4


TestTwins = only_compiled(Twins.TestCase)
TestTwins.settings = settings(stateful_step_count=60)
TestTwinsOfFewIds = only_compiled(TwinsOfFewIds.TestCase)
TestTwinsOfFewIds.settings = settings(stateful_step_count=60)
