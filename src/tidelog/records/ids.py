"""The ids of a batch's records (D5): read out of it, as fingerprints, and records left out of it.

An *id* is the value of one header, the last of its name, or the record's key. A record without it,
or with an empty one, has no id. What is kept of an id is its fingerprint, 128 bits of Murmur3: the
chance that two of 10 million ids share one is 10^-25, unless somebody makes them so, which is easy
(docs/decisions/0014-deduplication.md says what that is good for).

*Entries* are what is passed on, in a form that compiled code and files take as it is:

    fingerprint 16 bytes │ offset delta int32      little-endian, one for each record with an id

and so are the offset deltas of records that are to be dropped, int32 each, ascending. One batch may
have a million of either: as objects of Python they would hold up everybody while they are made.

Where `_ids.pyx` was compiled, that does the work; the functions here do the same, slower.

Not here: which of them were seen before (`id_table.py`, `core/deduplication/`).
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tidelog.base.errors import CorruptBatch
from tidelog.base.ports import BytesLike
from tidelog.records.batch import BatchHeader
from tidelog.records.compiled import compiled
from tidelog.records.record import Record, decode_payload
from tidelog.records.retained import empty_batch, locate_records, retain

FINGERPRINT_BYTES = 16
ENTRY = struct.Struct("<16si")
DELTA_BYTES = 4

_MASK = 2**64 - 1
_FIRST = 0x87C37B91114253D5
_SECOND = 0x4CF5AD432745937F
_WORDS = struct.Struct("<QQ")


class IdSource(NamedTuple):
    """Where a topic's records have their ids. `header` None: in the key."""

    header: bytes | None


class Kept(NamedTuple):
    """What is left of the records of a batch."""

    payload: bytes
    record_count: int
    max_timestamp_delta_ms: int
    """-1 if nothing is left."""


def fingerprint_in_python(record_id: bytes) -> bytes:
    """MurmurHash3, x64, 128 bits, seed 0."""
    first = second = 0
    whole_bytes = len(record_id) & ~15
    for low, high in _WORDS.iter_unpack(record_id[:whole_bytes]):
        first ^= _rotated(low * _FIRST & _MASK, 31) * _SECOND & _MASK
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _rotated(high * _SECOND & _MASK, 33) * _FIRST & _MASK
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    if whole_bytes < len(record_id):
        low, high = _WORDS.unpack(record_id[whole_bytes:].ljust(16, b"\0"))
        second ^= _rotated(high * _SECOND & _MASK, 33) * _FIRST & _MASK
        first ^= _rotated(low * _FIRST & _MASK, 31) * _SECOND & _MASK
    first ^= len(record_id)
    second ^= len(record_id)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _mixed(first), _mixed(second)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    return _WORDS.pack(first, second)


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _mixed(number: int) -> int:
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33


def read_ids_in_python(
    payload: BytesLike, record_count: int, header_name: bytes | None, must_be_consecutive: bool
) -> bytes:
    """The entries of the records in an uncompressed payload. Raises CorruptBatch.

    `must_be_consecutive`: a producer numbers its records from 0; what is stored may have gaps.
    """
    entries = bytearray()
    for number, record in enumerate(_decoded(payload, record_count)):
        if must_be_consecutive and record.offset != number:
            raise CorruptBatch(f"record {number} of the batch has offset {record.offset}")
        record_id = _id_of(record, header_name)
        if record_id:
            entries += ENTRY.pack(fingerprint_in_python(record_id), record.offset)
    return bytes(entries)


def deltas_in(packed: bytes) -> Sequence[int]:
    """The numbers in packed offset deltas."""
    return memoryview(packed).cast("i")


def pack_deltas(deltas: Iterable[int]) -> bytes:
    return array("i", deltas).tobytes()


def without_in_python(
    payload: BytesLike, record_count: int, dropped: bytes
) -> tuple[bytes, int, int]:
    """The payload without the records whose offset deltas are `dropped`.

    Also how many are left, and the largest of their timestamp deltas; -1 if there is none.
    """
    gone = set(deltas_in(dropped))
    data = bytes(payload)
    kept = [
        record for record in locate_records(data, record_count) if record.offset_delta not in gone
    ]
    return (
        b"".join(data[record.start : record.end] for record in kept),
        len(kept),
        max((record.timestamp_delta for record in kept), default=-1),
    )


def entries_without_in_python(entries: bytes, dropped: bytes) -> bytes:
    """The entries but those with the offset deltas `dropped`, which they all have."""
    gone = set(deltas_in(dropped))
    return b"".join(
        ENTRY.pack(fingerprint, delta)
        for fingerprint, delta in ENTRY.iter_unpack(entries)
        if delta not in gone
    )


def _decoded(payload: BytesLike, record_count: int) -> list[Record]:
    """With offset and timestamp deltas in the place of offsets and timestamps."""
    return decode_payload(_DELTAS._replace(record_count=record_count), payload)


def _id_of(record: Record, header_name: bytes | None) -> bytes | None:
    if header_name is None:
        return record.key
    for name, value in reversed(record.headers):
        if name.encode("utf-8", "surrogateescape") == header_name:
            return value
    return None


_DELTAS = BatchHeader(0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0)

fingerprint: Callable[[bytes], bytes] = (
    fingerprint_in_python if compiled is None else compiled.fingerprint
)
_read_ids: Callable[[BytesLike, int, bytes | None, bool], bytes] = (
    read_ids_in_python if compiled is None else compiled.read_ids
)
_without: Callable[[BytesLike, int, bytes], tuple[bytes, int, int]] = (
    without_in_python if compiled is None else compiled.without
)
entries_without: Callable[[bytes, bytes], bytes] = (
    entries_without_in_python if compiled is None else compiled.entries_without
)


def read_ids(
    payload: BytesLike, record_count: int, source: IdSource, *, must_be_consecutive: bool
) -> bytes:
    """The entries of the records in an uncompressed payload. Raises CorruptBatch."""
    return _read_ids(payload, record_count, source.header, must_be_consecutive)


def without(payload: BytesLike, record_count: int, dropped: bytes) -> Kept:
    """The records of an uncompressed payload but those with the offset deltas `dropped`."""
    return Kept(*_without(payload, record_count, dropped))


def rewritten(header: BatchHeader, kept: Kept, *, log_time_ms: int, level: int | None) -> bytearray:
    """The batch with the records that are kept, as compaction would leave it.

    First and last offset and the sequences stay, so that offsets which a client computed are right
    and its next batch follows. With nothing left it is a header without records, which only the
    producer's state is read from. It is not younger than the log, whose largest timestamp should
    be a record's: who looks for it by time would find nothing.
    """
    if not kept.record_count:
        timestamp_ms = min(header.max_timestamp_ms, log_time_ms)
        return empty_batch(header._replace(max_timestamp_ms=timestamp_ms))
    return retain(
        header,
        kept.payload,
        record_count=kept.record_count,
        largest_timestamp_delta_ms=kept.max_timestamp_delta_ms,
        level=level,
    )
