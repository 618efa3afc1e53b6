"""Ids that were seen, in the order in which they were, with the offset and the time of each.

A table only remembers; what that means is decided in `core/deduplication/index.py`. Entries are
numbered from 0 on, without end. They are added at the end and forgotten from the start, so those
that are remembered are always a stretch of the log. An entry may be *pending*, and is then settled:
kept, or taken out. One id may be there several times.

The compiled table (`_ids_table.pxi`) takes 32 bytes for an entry, in the order of numbers, and 8
for a slot of an open-addressing table of which between a third and two thirds are used: 44 to 56
bytes in all. Clients choose ids, and with them fingerprints; where an entry is searched for comes
from a hash of its fingerprint with a key that they do not know, so that nobody can have many of
them searched one after the other. Nothing that a table answers depends on that key.

The one here is for machines without a compiler, and to compare with; it takes about 300.
"""

from collections import deque
from typing import NamedTuple, Protocol

from tidelog.records.compiled import compiled
from tidelog.records.ids import ENTRY


class Found(NamedTuple):
    """An id of a batch that is in the table."""

    place: int
    """Which of the batch's entries."""
    number: int
    offset: int
    is_pending: bool


class IdTable(Protocol):
    """See the module docstring."""

    @property
    def first_number(self) -> int: ...
    @property
    def end_number(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...

    def __len__(self) -> int:
        """How many entries there are, those that were taken out included."""
        ...

    def add(self, entries: bytes, base_offset: int, time_ms: int, is_pending: bool) -> int:
        """Remember all of `entries`; the number of the first. Times must not go back."""
        ...

    def forget(self, time_ms: int, count_max: int) -> int:
        """Forget, from the start, what was added at `time_ms` or before, or is too much."""
        ...

    def settle(self, first: int, count: int, is_committed: bool) -> None:
        """Entries from number `first` on are pending no more. Those that are gone are passed."""
        ...

    def find(
        self, entries: bytes, oldest_ms: int, log_start_offset: int
    ) -> list[tuple[int, int, int, bool]] | None:
        """Those of `entries` that were added after `oldest_ms` at `log_start_offset` or later.

        Of several with one id: the newest, and one that is pending only if no other is there.
        """
        ...


class _Entry:
    __slots__ = ("fingerprint", "is_dead", "is_pending", "offset", "time_ms")

    def __init__(self, fingerprint: bytes, offset: int, time_ms: int, is_pending: bool) -> None:
        self.fingerprint = fingerprint
        self.offset = offset
        self.time_ms = time_ms
        self.is_pending = is_pending
        self.is_dead = False


class IdTableInPython:
    """A table of dictionaries, whose hash has a secret key of its own."""

    def __init__(self, _hash_key: bytes) -> None:
        self.first_number = 0
        self._entries: deque[_Entry] = deque()
        self._numbers: dict[bytes, tuple[int, ...]] = {}

    @property
    def end_number(self) -> int:
        return self.first_number + len(self._entries)

    @property
    def size_bytes(self) -> int:
        return 300 * len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: bytes, base_offset: int, time_ms: int, is_pending: bool) -> int:
        first = self.end_number
        for fingerprint, delta in ENTRY.iter_unpack(entries):
            numbers = self._numbers.get(fingerprint, ())
            self._numbers[fingerprint] = (*numbers, self.end_number)
            self._entries.append(_Entry(fingerprint, base_offset + delta, time_ms, is_pending))
        return first

    def forget(self, time_ms: int, count_max: int) -> int:
        before = self.first_number
        entries = self._entries
        while entries and (entries[0].time_ms <= time_ms or len(entries) > count_max):
            if not entries[0].is_dead:
                self._take(self.first_number, entries[0])
            entries.popleft()
            self.first_number += 1
        return self.first_number - before

    def _take(self, number: int, entry: _Entry) -> None:
        left = tuple(one for one in self._numbers[entry.fingerprint] if one != number)
        if left:
            self._numbers[entry.fingerprint] = left
        else:
            del self._numbers[entry.fingerprint]

    def settle(self, first: int, count: int, is_committed: bool) -> None:
        for number in range(max(first, self.first_number), first + count):
            entry = self._entries[number - self.first_number]
            entry.is_pending = False
            if not is_committed:
                self._take(number, entry)
                entry.is_dead = True

    def find(
        self, entries: bytes, oldest_ms: int, log_start_offset: int
    ) -> list[tuple[int, int, int, bool]] | None:
        found = []
        for place, (fingerprint, _) in enumerate(ENTRY.iter_unpack(entries)):
            best = self._newest(fingerprint, oldest_ms, log_start_offset)
            if best is not None:
                number, entry = best
                found.append((place, number, entry.offset, entry.is_pending))
        return found or None

    def _newest(
        self, fingerprint: bytes, oldest_ms: int, log_start_offset: int
    ) -> tuple[int, _Entry] | None:
        known = [
            (number, self._entries[number - self.first_number])
            for number in self._numbers.get(fingerprint, ())
        ]
        known = [
            (number, entry)
            for number, entry in known
            if entry.time_ms > oldest_ms and entry.offset >= log_start_offset
        ]
        return max(known, key=lambda one: (not one[1].is_pending, one[0]), default=None)


def repeated_in_python(entries: bytes, _hash_key: bytes) -> list[tuple[int, int]] | None:
    """Places of entries whose id stands before them in the same batch, and where."""
    places: dict[bytes, int] = {}
    found = []
    for place, (fingerprint, _) in enumerate(ENTRY.iter_unpack(entries)):
        first = places.setdefault(fingerprint, place)
        if first != place:
            found.append((place, first))
    return found or None


def new_table(hash_key: bytes) -> IdTable:
    """An empty table, the compiled one if there is one.

    `hash_key`: 16 bytes that nobody outside knows.
    """
    if compiled is None:
        return IdTableInPython(hash_key)
    table: IdTable = compiled.IdTable(hash_key)
    return table


def repeated(entries: bytes, hash_key: bytes) -> list[tuple[int, int]] | None:
    """Places of entries whose id stands before them in the same batch, and where.

    `hash_key`: as for `new_table`.
    """
    if compiled is None:
        return repeated_in_python(entries, hash_key)
    found: list[tuple[int, int]] | None = compiled.repeated(entries, hash_key)
    return found
