"""D5: which id a record has, and a batch without some of its records."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.broker.compiled import only_compiled
from tidelog.base.errors import CorruptBatch
from tidelog.records import ids
from tidelog.records.batch import HEADER_SIZE_BYTES, Codec, checksum_matches, read_header
from tidelog.records.compiled import compiled, source_checksum
from tidelog.records.ids import ENTRY, IdSource, fingerprint_in_python
from tidelog.records.record import (
    Record,
    decode_records,
    encode_batch,
    encode_plain_batch,
    uncompressed_payload,
)

BY_KEY = IdSource(None)
BY_HEADER = IdSource(b"guid")


def record(
    offset: int,
    *,
    key: bytes | None = None,
    guid: bytes | None = None,
    timestamp_ms: int = 1_000,
) -> Record:
    headers = () if guid is None else (("other", b"x"), ("guid", guid))
    return Record(offset, timestamp_ms, key, b"value", headers)


def payload_of(records: Sequence[Record]) -> bytes:
    return bytes(encode_plain_batch(records, Codec.NONE)[HEADER_SIZE_BYTES:])


def read(records: Sequence[Record], source: IdSource) -> list[tuple[bytes, int]]:
    entries = ids.read_ids(payload_of(records), len(records), source, must_be_consecutive=True)
    return [*ENTRY.iter_unpack(entries)]


@pytest.mark.parametrize(
    ("record_id", "expected"),
    [
        # Those of the reference implementation, seed 0, both words little-endian.
        (b"", "00000000000000000000000000000000"),
        (b"hello", "029bbd41b3a7d8cb191dae486a901e5b"),
        (b"hello, world", "8ebc5e3a62ac2f344d41429607bcdc4c"),
        (b"The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
    ],
)
def test_fingerprint_is_murmur3(record_id: bytes, expected: str) -> None:
    assert fingerprint_in_python(record_id).hex() == expected
    assert ids.fingerprint(record_id).hex() == expected


def test_id_is_in_the_header_or_the_key() -> None:
    records = [record(0, key=b"k", guid=b"g")]
    assert read(records, BY_HEADER) == [(ids.fingerprint(b"g"), 0)]
    assert read(records, BY_KEY) == [(ids.fingerprint(b"k"), 0)]


def test_record_without_an_id_has_no_entry() -> None:
    records = [record(0), record(1, key=b"", guid=b""), record(2, key=b"k", guid=b"g")]
    assert [delta for _, delta in read(records, BY_HEADER)] == [2]
    assert [delta for _, delta in read(records, BY_KEY)] == [2]


def test_last_header_of_the_name_counts() -> None:
    twice = Record(0, 0, None, None, (("guid", b"a"), ("guid", b"b")))
    taken_back = Record(0, 0, None, None, (("guid", b"a"), ("guid", None)))
    assert read([twice], BY_HEADER) == [(ids.fingerprint(b"b"), 0)]
    assert read([taken_back], BY_HEADER) == []


def test_producer_numbers_its_records_from_zero() -> None:
    stored = [record(0, key=b"a"), record(2, key=b"b")]
    with pytest.raises(CorruptBatch):
        read(stored, BY_KEY)
    entries = ids.read_ids(payload_of(stored), 2, BY_KEY, must_be_consecutive=False)
    assert [delta for _, delta in ENTRY.iter_unpack(entries)] == [0, 2]


@pytest.mark.parametrize("codec", list(Codec))
def test_rewritten_batch_keeps_offsets_and_sequences(codec: Codec) -> None:
    records = [record(n, key=b"%d" % n, timestamp_ms=1_000 + n) for n in range(4)]
    batch = encode_batch(
        records,
        leader_epoch=3,
        codec=codec,
        producer_id=9,
        producer_epoch=1,
        base_sequence=40,
        is_transactional=True,
        is_control=False,
    )
    header = read_header(batch, 0)
    kept = ids.without(uncompressed_payload(header, batch), 4, ids.pack_deltas([1, 3]))
    smaller = ids.rewritten(header, kept, log_time_ms=0, level=None)
    now = read_header(smaller, 0)
    assert decode_records(smaller) == [records[0], records[2]]
    assert checksum_matches(smaller, 0, len(smaller))
    assert (now.base_sequence, now.last_sequence, now.last_offset) == (40, 43, 3)
    assert (now.record_count, now.max_timestamp_ms, now.codec) == (2, 1_002, codec)
    assert now.is_transactional


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_batch_without_records_still_states_its_sequences(codec: Codec) -> None:
    batch = encode_plain_batch([record(0), record(1)], codec)
    header = read_header(batch, 0)
    kept = ids.without(uncompressed_payload(header, batch), 2, ids.pack_deltas([0, 1]))
    sequenced = header._replace(base_sequence=5)
    empty = ids.rewritten(sequenced, kept, log_time_ms=900, level=None)
    now = read_header(empty, 0)
    assert (len(empty), now.record_count, now.codec) == (HEADER_SIZE_BYTES, 0, Codec.NONE)
    assert (now.base_sequence, now.last_sequence) == (5, 6)
    assert (header.max_timestamp_ms, now.max_timestamp_ms) == (1_000, 900)
    assert decode_records(empty) == []
    older = read_header(ids.rewritten(sequenced, kept, log_time_ms=5_000, level=None), 0)
    assert older.max_timestamp_ms == 1_000


# -- the compiled twin -----------------------------------------------------------------------------

IDS = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(
        lambda key, value, headers, timestamp_ms: Record(0, timestamp_ms, key, value, headers),
        IDS,
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.sampled_from(["guid", "gui", "guidx", ""]), IDS), max_size=4).map(
            tuple
        ),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=20,
).map(lambda records: [one._replace(offset=at) for at, one in enumerate(records)])


def outcome(read: Callable[[], object]) -> object:
    try:
        return read()
    except CorruptBatch:
        return CorruptBatch


@only_compiled
@given(st.binary(max_size=100))
def test_compiled_fingerprint_is_the_same(record_id: bytes) -> None:
    assert compiled is not None
    assert compiled.fingerprint(record_id) == fingerprint_in_python(record_id)


@only_compiled
@given(RECORDS, st.sampled_from([None, b"guid"]), st.data())
def test_compiled_reader_reads_the_same(
    records: list[Record], name: bytes | None, data: st.DataObject
) -> None:
    assert compiled is not None
    payload = payload_of(records)
    dropped = ids.pack_deltas(sorted(data.draw(st.sets(st.integers(0, len(records) - 1)))))
    count = len(records)
    assert compiled.read_ids(payload, count, name, True) == ids.read_ids_in_python(
        payload, count, name, True
    )
    assert compiled.without(payload, count, dropped) == ids.without_in_python(
        payload, count, dropped
    )


@only_compiled
@given(RECORDS, st.integers(0, 2**32), st.sampled_from([None, b"guid"]))
def test_compiled_reader_refuses_the_same(
    records: list[Record], seed: int, name: bytes | None
) -> None:
    """Whatever bytes come from outside."""
    chance = random.Random(seed)
    damaged = bytearray(payload_of(records))
    for _ in range(chance.randint(1, 3)):
        damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 2, 127, 128, 255])
    payload = bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])])
    count = len(records) + chance.choice([0, 0, 0, 1])
    for consecutive in (True, False):
        assert outcome(
            lambda consecutive=consecutive: compiled.read_ids(payload, count, name, consecutive)  # type: ignore[union-attr,misc]
        ) == outcome(
            lambda consecutive=consecutive: ids.read_ids_in_python(  # type: ignore[misc]
                payload, count, name, consecutive
            )
        )


@only_compiled
def test_compiled_file_is_that_of_the_source() -> None:
    assert compiled is not None
    assert source_checksum(Path(ids.__file__).parent) == compiled.SOURCE_CHECKSUM
