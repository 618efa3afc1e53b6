"""The newest offset of every key, in memory that is bounded (S5)."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.storage.key_offsets import SLOT_BYTES, KeyOffsets


def ample(keys_expected: int = 100) -> KeyOffsets:
    return KeyOffsets(memory_bytes=2**20, load_factor=0.9, keys_expected=keys_expected)


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**63 - 1)), max_size=200))
def test_it_answers_as_a_dictionary(pairs: list[tuple[bytes, int]]) -> None:
    offsets, model = ample(200), dict[bytes, int]()
    for key, offset in pairs:
        offsets.put(key, offset)
        model[key] = offset
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.count == len(model)
    assert offsets.get(b"none of them") == -1


def test_memory_is_bounded_and_filled_up_to_the_load_factor() -> None:
    memory_bytes = 100_000
    offsets = KeyOffsets(memory_bytes=memory_bytes, load_factor=0.9, keys_expected=10**9)
    assert memory_bytes * 0.98 < offsets.memory_bytes <= memory_bytes
    count = 0
    while not offsets.is_full:
        offsets.put(b"%d" % count, count)
        count += 1
    assert 0.88 < count * SLOT_BYTES / offsets.memory_bytes <= 0.9
    assert [offsets.get(b"%d" % number) for number in range(count)] == list(range(count))
    assert offsets.get(b"-") == -1


def test_key_that_is_there_may_be_noted_again_when_it_is_full() -> None:
    offsets = KeyOffsets(memory_bytes=24 * 5, load_factor=0.5, keys_expected=10)
    offsets.put(b"a", 1)
    offsets.put(b"b", 2)
    assert offsets.is_full
    offsets.put(b"a", 3)
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.count) == (3, 2, 2)


def test_there_is_no_more_memory_than_offsets_could_need() -> None:
    assert ample(10).memory_bytes < 3_000


def test_room_for_one_key_is_the_least() -> None:
    offsets = KeyOffsets(memory_bytes=0, load_factor=0.01, keys_expected=0)
    assert not offsets.is_full
    offsets.put(b"a", 1)
    assert offsets.get(b"a") == 1
