"""D5: what a table of ids remembers, compiled or not."""

import struct
import time
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.hash_keys import HASH_KEY
from tests.unit.broker.compiled import only_compiled
from tidelog.records.compiled import compiled
from tidelog.records.id_table import IdTable, IdTableInPython, repeated, repeated_in_python
from tidelog.records.ids import ENTRY, fingerprint

LONG_AGO = -(2**62)


def entries(*ids: int) -> bytes:
    return b"".join(ENTRY.pack(fingerprint(b"%d" % one), at) for at, one in enumerate(ids))


@pytest.fixture(params=["python", pytest.param("compiled", marks=only_compiled)])
def table(request: pytest.FixtureRequest) -> Iterator[IdTable]:
    if request.param == "python":
        yield IdTableInPython(HASH_KEY)
    else:
        assert compiled is not None
        yield compiled.IdTable(HASH_KEY)


def test_what_was_added_is_found_with_its_offset(table: IdTable) -> None:
    table.add(entries(1, 2), 100, 5, False)
    assert table.find(entries(2, 3), LONG_AGO, 0) == [(0, 1, 101, False)]
    assert table.find(entries(3), LONG_AGO, 0) is None


def test_what_is_too_old_or_below_the_start_is_not_found(table: IdTable) -> None:
    table.add(entries(1), 100, 5, False)
    assert table.find(entries(1), 4, 100) is not None
    assert table.find(entries(1), 5, 100) is None
    assert table.find(entries(1), 4, 101) is None


def test_newest_copy_is_found_and_a_pending_one_only_if_it_is_alone(table: IdTable) -> None:
    table.add(entries(1), 0, 1, False)
    table.add(entries(1), 1, 2, False)
    table.add(entries(1), 2, 3, True)
    assert table.find(entries(1), LONG_AGO, 0) == [(0, 1, 1, False)]
    assert table.find(entries(1), 2, 0) == [(0, 2, 2, True)]


def test_aborted_entry_is_gone_and_a_committed_one_counts(table: IdTable) -> None:
    aborted = table.add(entries(1, 2), 0, 1, True)
    committed = table.add(entries(3), 2, 1, True)
    table.settle(aborted, 2, False)
    table.settle(committed, 1, True)
    assert table.find(entries(1, 2), LONG_AGO, 0) is None
    assert table.find(entries(3), LONG_AGO, 0) == [(0, 2, 2, False)]


def test_oldest_are_forgotten_first(table: IdTable) -> None:
    table.add(entries(1, 2), 0, 1, False)
    table.add(entries(3, 4), 2, 2, False)
    assert table.forget(1, 100) == 2
    assert table.find(entries(1, 2), LONG_AGO, 0) is None
    assert table.forget(LONG_AGO, 1) == 1
    assert table.find(entries(3, 4), LONG_AGO, 0) == [(1, 3, 3, False)]
    assert (len(table), table.first_number, table.end_number) == (1, 3, 4)


def test_settling_what_was_forgotten_changes_nothing(table: IdTable) -> None:
    first = table.add(entries(1, 2), 0, 1, True)
    table.forget(LONG_AGO, 1)
    table.settle(first, 2, False)
    assert table.find(entries(1, 2), LONG_AGO, 0) is None


@pytest.mark.parametrize("find", [repeated, repeated_in_python])
def test_repetition_within_a_batch_names_the_first(find: object) -> None:
    assert callable(find)
    assert find(entries(1, 2, 3), HASH_KEY) is None
    assert find(entries(1, 2, 1, 1, 2), HASH_KEY) == [(2, 0), (3, 0), (4, 1)]
    assert find(b"", HASH_KEY) is None


@only_compiled
def test_bytes_per_id_are_what_is_documented() -> None:
    assert compiled is not None
    table: IdTable = compiled.IdTable(HASH_KEY)
    for number in range(100_000):
        table.add(entries(number), number, 0, False)
        if number and number % 20_000 == 0:
            assert 32 + 8 * 1.5 <= table.size_bytes / number <= 32 + 8 * 3 + 1
    table.forget(0, 0)
    for _ in range(20):
        table.forget(0, 0)
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
    assert len(table.find(aimed, LONG_AGO, 0)) == 20_000
    while len(table) > 1_000:
        table.forget(LONG_AGO, len(table) // 2)
    assert 1 < table.longest_search < 200
    assert len(table.find(aimed, LONG_AGO, 0)) == len(table)


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


class Twins(RuleBasedStateMachine):
    """The two tables are told and asked the same."""

    @initialize()
    def start(self) -> None:
        assert compiled is not None
        self.python = IdTableInPython(HASH_KEY)
        self.compiled: IdTable = compiled.IdTable(HASH_KEY)
        self.time_ms = 0
        self.offset = 0
        self.pending: list[tuple[int, int]] = []

    ids = st.lists(st.integers(0, 200), min_size=1, max_size=60)

    @rule(ids=ids, later_ms=st.integers(0, 3), is_pending=st.booleans())
    def add(self, ids: list[int], later_ms: int, is_pending: bool) -> None:
        self.time_ms += later_ms
        added = entries(*ids)
        first = self.python.add(added, self.offset, self.time_ms, is_pending)
        assert self.compiled.add(added, self.offset, self.time_ms, is_pending) == first
        self.offset += len(ids)
        if is_pending:
            self.pending.append((first, len(ids)))

    @rule(number=st.integers(0, 10), is_committed=st.booleans())
    def settle(self, number: int, is_committed: bool) -> None:
        if self.pending:
            first, count = self.pending.pop(number % len(self.pending))
            self.python.settle(first, count, is_committed)
            self.compiled.settle(first, count, is_committed)

    @rule(age_ms=st.integers(0, 10), count_max=st.integers(0, 400))
    def forget(self, age_ms: int, count_max: int) -> None:
        limit_ms = self.time_ms - age_ms
        assert self.python.forget(limit_ms, count_max) == self.compiled.forget(limit_ms, count_max)

    @rule(age_ms=st.integers(0, 10), start=st.integers(0, 300))
    def find(self, age_ms: int, start: int) -> None:
        asked = entries(*range(200))
        start_offset = self.offset - start
        assert self.python.find(asked, self.time_ms - age_ms, start_offset) == self.compiled.find(
            asked, self.time_ms - age_ms, start_offset
        )

    @invariant()
    def have_the_same_numbers(self) -> None:
        if hasattr(self, "python"):
            assert len(self.python) == len(self.compiled)
            assert self.python.first_number == self.compiled.first_number


TestTwins = only_compiled(Twins.TestCase)
TestTwins.settings = settings(stateful_step_count=60)
