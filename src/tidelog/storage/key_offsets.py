"""The newest offset of every key, in memory of a fixed size.

A key is remembered by a hash of 16 bytes, as in Kafka: two keys with the same one would be taken
for one, and a record dropped for good. The hash has a key that nobody outside knows, so that nobody
can look for such a pair, nor for keys that all belong into the same slots; and by chance nobody
will live to see one. A slot has 24 bytes, three numbers of 64 bits:

    first half of the hash (0: the slot is free) │ second half │ offset

Open addressing with a step that the second half of the hash gives. The number of slots is prime,
so that every step visits all of them; and at least a tenth of them stays free
(`log.cleaner.io.buffer.load.factor`), so that a search comes upon a free one soon.

There is no more memory than the offsets at hand could need: a record has one of its own.

Where `records/_ids.pyx` was compiled, its table does the same without holding up other threads, a
hundred times as fast.
"""

from array import array
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple, Protocol

from tidelog.base.ids import NO_OFFSET
from tidelog.base.ports import BytesLike
from tidelog.records.compiled import compiled
from tidelog.records.retained import locate_records

SLOT_BYTES = 24
_WORDS = SLOT_BYTES // 8
_SLOTS_MIN = 5
_HASH = Struct("<QQ")


class Retention(NamedTuple):
    """What stays of the records of a batch."""

    payload: bytes
    record_count: int
    largest_timestamp_delta_ms: int
    has_tombstones: bool


class KeyOffsets(Protocol):
    """Offsets by key. `count` never exceeds `keys_max`."""

    latest_offset: int
    """The last offset that is taken into account; later records are none of its business."""

    @property
    def count(self) -> int: ...
    @property
    def keys_max(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def memory_bytes(self) -> int: ...

    def put(self, key: bytes, offset: int) -> None:
        """`offset` is the newest of `key`. Not for a new key when it is full."""
        ...

    def get(self, key: bytes) -> int:
        """The newest offset of `key`; NO_OFFSET if there is none."""
        ...

    def note(
        self, payload: BytesLike, record_count: int, base_offset: int, first_offset: int
    ) -> bool:
        """Put the keys of all records from `first_offset` on, and take them into account.

        False if there is no room for all of them: then up to where there was. Raises CorruptBatch.
        """
        ...

    def retained(
        self, payload: BytesLike, record_count: int, base_offset: int, keeps_tombstones: bool
    ) -> tuple[bytes, int, int, bool]:
        """What stays, as the fields of a `Retention`, by the rules K1, K2 and K4 of
        `batch_filter.py`. Raises CorruptBatch."""
        ...


def new_key_offsets(
    *, memory_bytes: int, load_factor: float, keys_expected: int, hash_key: bytes
) -> KeyOffsets:
    """Room for `keys_expected`, or for as many as `memory_bytes` allow.

    `hash_key`: 16 bytes that nobody outside knows.
    """
    slots, keys_max = _sizes(memory_bytes, load_factor, keys_expected)
    if compiled is None:
        return KeyOffsetsInPython(slots, keys_max, hash_key)
    table: KeyOffsets = compiled.KeyTable(slots, keys_max, hash_key)
    return table


def _sizes(memory_bytes: int, load_factor: float, keys_expected: int) -> tuple[int, int]:
    wanted = int(keys_expected / load_factor) + _SLOTS_MIN
    slots = _prime_at_most(max(_SLOTS_MIN, min(wanted + 64, memory_bytes // SLOT_BYTES)))
    return slots, max(1, min(int(slots * load_factor), slots - 1))


class KeyOffsetsInPython:
    """For machines without a compiler, and to compare with."""

    __slots__ = ("_hash_key", "_slots", "_table", "count", "keys_max", "latest_offset")

    def __init__(self, slots: int, keys_max: int, hash_key: bytes) -> None:
        self._hash_key = hash_key
        self._slots = slots
        self.keys_max = keys_max
        self._table = array("Q", [0]) * (slots * _WORDS)
        self.count = 0
        self.latest_offset: int = NO_OFFSET

    @property
    def is_full(self) -> bool:
        return self.count >= self.keys_max

    @property
    def memory_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    def put(self, key: bytes, offset: int) -> None:
        place, first, second = self._find(key)
        table = self._table
        if not table[place]:
            assert self.count < self.keys_max
            table[place] = first
            table[place + 1] = second
            self.count += 1
        table[place + 2] = offset

    def get(self, key: bytes) -> int:
        place, _, _ = self._find(key)
        table = self._table
        return table[place + 2] if table[place] else NO_OFFSET

    def note(
        self, payload: BytesLike, record_count: int, base_offset: int, first_offset: int
    ) -> bool:
        for record in locate_records(bytes(payload), record_count):
            offset = base_offset + record.offset_delta
            if record.key is None or offset < first_offset:
                continue
            if self.is_full:
                return False
            self.put(record.key, offset)
            self.latest_offset = offset
        return True

    def retained(
        self, payload: BytesLike, record_count: int, base_offset: int, keeps_tombstones: bool
    ) -> tuple[bytes, int, int, bool]:
        data = bytes(payload)
        kept = [
            record
            for record in locate_records(data, record_count)
            if base_offset + record.offset_delta > self.latest_offset
            or (
                record.key is not None
                and (record.has_value or keeps_tombstones)
                and base_offset + record.offset_delta >= self.get(record.key)
            )
        ]
        return (
            b"".join([data[record.start : record.end] for record in kept]),
            len(kept),
            max((record.timestamp_delta for record in kept), default=0),
            not all(record.has_value for record in kept),
        )

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_HASH.size, key=self._hash_key).digest()

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """The slot of `key`, or the free one where it belongs; and the two halves of its hash."""
        first, second = _HASH.unpack(self._hash(key))
        first = first or 1  # 0 is a free slot.
        slots, table = self._slots, self._table
        slot = first % slots
        step = 1 + second % (slots - 1)
        while True:
            place = slot * _WORDS
            found = table[place]
            if not found or (found == first and table[place + 1] == second):
                return place, first, second
            slot += step
            if slot >= slots:
                slot -= slots


def _prime_at_most(number: int) -> int:
    while not _is_prime(number):
        number -= 1
    return number


def _is_prime(number: int) -> bool:
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True
