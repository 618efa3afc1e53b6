"""The newest offset of every key, in memory that is bounded (S5)."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hash_keys import GROUP, HASH_KEY, OTHER_GROUP
from tests.unit.records.test_superseded import commit_key
from tests.unit.storage.compacted_folder import Keyed, keyed_batch
from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import HEADER_SIZE_BYTES
from tidelog.records.compiled import compiled
from tidelog.records.ids import fingerprint_in_python
from tidelog.storage.key_offsets import (
    SLOT_BYTES,
    KeyOffsets,
    KeyOffsetsInPython,
    new_key_offsets,
)

NewTable = Callable[[int, int, bytes], KeyOffsets]

TABLES: list[NewTable] = [KeyOffsetsInPython]
if compiled is not None:
    TABLES.append(compiled.KeyTable)
BOTH = pytest.mark.parametrize("new_table", TABLES)
KEYS = st.sampled_from([b"a", b"b", b"", b"longer than sixteen bytes", None])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=12)


@BOTH
@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**63 - 1)), max_size=200))
def test_it_answers_as_a_dictionary(new_table: NewTable, pairs: list[tuple[bytes, int]]) -> None:
    offsets, model = new_table(251, 220, HASH_KEY), dict[bytes, int]()
    for key, offset in pairs:
        offsets.put(key, offset)
        model[key] = offset
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.count == len(model)
    assert offsets.get(b"none of them") == -1


def test_memory_is_bounded_and_filled_up_to_the_load_factor() -> None:
    memory_bytes = 100_000
    offsets = new_key_offsets(
        memory_bytes=memory_bytes, load_factor=0.9, keys_expected=10**9, hash_key=HASH_KEY
    )
    assert memory_bytes * 0.98 < offsets.memory_bytes <= memory_bytes
    count = 0
    while not offsets.is_full:
        offsets.put(b"%d" % count, count)
        count += 1
    assert 0.88 < count * SLOT_BYTES / offsets.memory_bytes <= 0.9
    assert [offsets.get(b"%d" % number) for number in range(count)] == list(range(count))
    assert offsets.get(b"-") == -1


@BOTH
def test_key_that_is_there_may_be_noted_again_when_it_is_full(new_table: NewTable) -> None:
    offsets = new_table(5, 2, HASH_KEY)
    offsets.put(b"a", 1)
    offsets.put(b"b", 2)
    assert offsets.is_full
    offsets.put(b"a", 3)
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.count) == (3, 2, 2)


def test_there_is_no_more_memory_than_offsets_could_need() -> None:
    offsets = new_key_offsets(
        memory_bytes=2**20, load_factor=0.9, keys_expected=10, hash_key=HASH_KEY
    )
    assert offsets.keys_max >= 10
    assert offsets.memory_bytes < 3_000


def test_room_for_one_key_is_the_least() -> None:
    offsets = new_key_offsets(memory_bytes=0, load_factor=0.01, keys_expected=0, hash_key=HASH_KEY)
    assert not offsets.is_full
    offsets.put(b"a", 1)
    assert offsets.get(b"a") == 1


@BOTH
def test_keys_that_were_made_to_collide_are_two(new_table: NewTable) -> None:
    """S5: of two keys with one hash the older record would be dropped for good."""
    keys = [commit_key(group) for group in (GROUP, OTHER_GROUP)]
    assert len({fingerprint_in_python(key) for key in keys}) == 1
    offsets = new_table(31, 20, HASH_KEY)
    pairs = [(keys[0], b"theirs"), (keys[1], b"mine")]
    assert offsets.note(payload_of(pairs), 2, 0, 0)
    assert [offsets.get(key) for key in keys] == [0, 1]
    assert offsets.retained(payload_of(pairs), 2, 0, True)[1] == 2


def payload_of(pairs: Sequence[Keyed]) -> bytes:
    return bytes(keyed_batch(0, pairs)[HEADER_SIZE_BYTES:])


@BOTH
def test_keys_of_a_batch_are_noted_from_an_offset_on(new_table: NewTable) -> None:
    offsets = new_table(31, 20, HASH_KEY)
    pairs = [(b"a", b"1"), (None, b"1"), (b"b", None), (b"a", b"2"), (b"", b"1")]
    assert offsets.note(payload_of(pairs), 5, 100, 102)
    assert [offsets.get(key) for key in (b"a", b"b", b"")] == [103, 102, 104]
    assert offsets.latest_offset == 104


@BOTH
def test_batch_is_taken_into_account_as_far_as_there_is_room(new_table: NewTable) -> None:
    offsets = new_table(5, 2, HASH_KEY)
    pairs = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    assert not offsets.note(payload_of(pairs), 3, 0, 0)
    assert (offsets.count, offsets.latest_offset) == (2, 1)


@pytest.mark.skipif(compiled is None, reason="nothing is compiled")
@given(PAIRS, PAIRS, st.integers(0, 5), st.integers(1, 6), st.booleans(), st.data())
def test_both_tables_leave_the_same_and_find_the_same_damage(
    noted: list[tuple[bytes | None, bytes | None]],
    asked: list[tuple[bytes | None, bytes | None]],
    first_offset: int,
    keys_max: int,
    keeps_tombstones: bool,
    data: st.DataObject,
) -> None:
    damaged = bytearray(payload_of(asked))
    if data.draw(st.booleans(), label="damaged"):
        damaged[data.draw(st.integers(0, len(damaged) - 1), label="where")] = data.draw(
            st.integers(0, 255), label="what"
        )
    outcomes = []
    for new_table in TABLES:
        offsets = new_table(7, keys_max, HASH_KEY)
        is_room = offsets.note(payload_of(noted), len(noted), 3, first_offset)
        outcome: list[object] = [is_room, offsets.count, offsets.latest_offset]
        with suppress(CorruptBatch):
            outcome.append(offsets.retained(bytes(damaged), len(asked), 0, keeps_tombstones))
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]
