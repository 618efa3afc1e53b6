"""The newest offset of every key, in memory of a fixed size.

A key is remembered by a hash of 16 bytes, as in Kafka: two keys with the same one would be taken
for one, which nobody will live to see. A slot has 24 bytes, three numbers of 64 bits:

    first half of the hash (0: the slot is free) │ second half │ offset

Open addressing with a step that the second half of the hash gives. The number of slots is prime,
so that every step visits all of them; and at least a tenth of them stays free
(`log.cleaner.io.buffer.load.factor`), so that a search comes upon a free one soon.

There is no more memory than the offsets at hand could need: a record has one of its own.
"""

from array import array
from hashlib import blake2b
from struct import Struct

from tidelog.base.ids import NO_OFFSET, Offset

SLOT_BYTES = 24
_WORDS = SLOT_BYTES // 8
_SLOTS_MIN = 5
_HASH = Struct("<QQ")


class KeyOffsets:
    """Offsets by key. `count` never exceeds `keys_max`."""

    __slots__ = ("_slots", "_table", "count", "keys_max", "latest_offset")

    def __init__(self, *, memory_bytes: int, load_factor: float, keys_expected: int) -> None:
        """Room for `keys_expected`, or for as many as `memory_bytes` allow."""
        wanted = int(keys_expected / load_factor) + _SLOTS_MIN
        self._slots = _prime_at_most(max(_SLOTS_MIN, min(wanted + 64, memory_bytes // SLOT_BYTES)))
        self.keys_max = max(1, min(int(self._slots * load_factor), self._slots - 1))
        self._table = array("Q", [0]) * (self._slots * _WORDS)
        self.count = 0
        self.latest_offset = NO_OFFSET
        """The last offset that is taken into account; later records are none of its business."""

    @property
    def is_full(self) -> bool:
        return self.count >= self.keys_max

    @property
    def memory_bytes(self) -> int:
        return self._slots * SLOT_BYTES

    def put(self, key: bytes, offset: int) -> None:
        """`offset` is the newest of `key`. Not when it is full."""
        place, first, second = self._find(key)
        table = self._table
        if not table[place]:
            assert self.count < self.keys_max
            table[place] = first
            table[place + 1] = second
            self.count += 1
        table[place + 2] = offset

    def get(self, key: bytes) -> Offset:
        """The newest offset of `key`; NO_OFFSET if there is none."""
        place, _, _ = self._find(key)
        table = self._table
        return Offset(table[place + 2]) if table[place] else NO_OFFSET

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """The slot of `key`, or the free one where it belongs; and the two halves of its hash."""
        first, second = _HASH.unpack(blake2b(key, digest_size=_HASH.size).digest())
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
