"""Ids that were seen, in the order in which they were, with the offset and the time of each.

A table only remembers; what that means is decided in `core/deduplication/index.py`. Entries are
numbered from 0 on, without end. They are added at the end and forgotten from the start, so those
that are remembered are always a stretch of the log. An entry may be *pending*, and is then settled:
kept, or taken out.

One id may be there any number of times: in a log that is older than the setting, or when its window
has passed again and again. The newest counts, and one that is decided before any that is pending.
So whatever is before a decided one is *superseded*, and never asked for again: it has been there
for longer, and is forgotten first. Only the pending ones behind it can still become the newest, or
cease to be, and only those are kept apart. So no work depends on how many have one id.

The compiled table (`_ids_table.pxi`) takes 32 bytes for an entry, in the order of numbers, and 8
for a slot of an open-addressing table of which between a third and two thirds are used: 44 to 56
bytes in all; 32 for one that is superseded, and 4 more for those near pending ones that share an
id. Clients choose ids, and with them fingerprints; where an entry is searched for comes
from a hash of its fingerprint with a key that they do not know, so that nobody can have many of
them searched one after the other. Nothing that a table answers depends on that key.

What is found is packed, as entries are (`ids.py`): what a table answers, and for how long it keeps
others from running, must not grow into a million objects with a batch of a million records. Much of
it is done without the interpreter's lock.

The one here is for machines without a compiler, and to compare with; it takes about 300.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from tidelog.records.compiled import compiled
from tidelog.records.ids import ENTRY


class Found(NamedTuple):
    """Which ids of a batch are in the table: of each of its entries an int64, in their order."""

    offsets: bytes
    """Of the copy that is there; NONE: there is none."""
    undecided: bytes | None
    """The number of that copy if it is pending; NONE: it is not. None: none of them is."""


class Dropped(NamedTuple):
    """Entries of a batch that were seen before, in their order."""

    deltas: bytes
    """Their offset deltas, packed as in `ids.py`."""
    offsets: bytes
    """Of the copies that were seen, an int64 each; NONE: it is in the same batch."""
    smallest: int
    largest: int
    """Of those offsets, NONE among them."""


NONE = -1
"""In the place of an offset or of a number."""


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
        """Remember all of `entries`; the number of the first.

        Neither times nor offsets go back. (A batch that was stored unread may have its records in
        any order; what counts is then the last of them in it.)
        """
        ...

    def moved_by(self, count: int) -> int:
        """How many entries have to be put in other places before so many can be added."""
        ...

    def forget(self, time_ms: int, count_max: int, at_most: int) -> int:
        """Forget, from the start, what was added at `time_ms` or before, or is too much.

        But `at_most` of it now. How many it were.
        """
        ...

    def settle(self, first: int, count: int, is_committed: bool) -> None:
        """Entries from number `first` on are pending no more. Those that are gone are passed."""
        ...

    def find(
        self, entries: bytes, oldest_ms: int, log_start_offset: int
    ) -> tuple[bytes, bytes | None] | None:
        """Those of `entries` that were added after `oldest_ms` at `log_start_offset` or later.

        Of several with one id: the newest, and one that is pending only if no other is there.
        The fields of `Found`; None if there is none.
        """
        ...


class _Entry:
    __slots__ = ("fingerprint", "is_aborted", "is_pending", "number", "offset", "older", "time_ms")

    def __init__(
        self, number: int, fingerprint: bytes, offset: int, time_ms: int, is_pending: bool
    ) -> None:
        self.number = number
        self.fingerprint = fingerprint
        self.offset = offset
        self.time_ms = time_ms
        self.is_pending = is_pending
        self.is_aborted = False
        self.older = -1
        """Of one that was added as pending: the number of the newest such before it."""


class IdTableInPython:
    """A table of dictionaries, whose hash has a secret key of its own."""

    def __init__(self, _hash_key: bytes) -> None:
        self.first_number = 0
        self._entries: deque[_Entry] = deque()
        # Of each id, its newest entry that is decided, and its newest that is pending if that is
        # behind it. The entry, as it takes a deque long to find one by its number.
        self._decided: dict[bytes, _Entry] = {}
        self._pending: dict[bytes, _Entry] = {}

    @property
    def end_number(self) -> int:
        return self.first_number + len(self._entries)

    @property
    def size_bytes(self) -> int:
        return 300 * len(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _entry(self, number: int) -> _Entry:
        return self._entries[number - self.first_number]

    def add(self, entries: bytes, base_offset: int, time_ms: int, is_pending: bool) -> int:
        first = self.end_number
        for number, (fingerprint, delta) in enumerate(ENTRY.iter_unpack(entries), first):
            entry = _Entry(number, fingerprint, base_offset + delta, time_ms, is_pending)
            self._entries.append(entry)
            if not is_pending:
                self._decided[fingerprint] = entry
                self._pending.pop(fingerprint, None)
                continue
            if fingerprint in self._pending:
                entry.older = self._pending[fingerprint].number
            self._pending[fingerprint] = entry
        return first

    def moved_by(self, _count: int) -> int:
        return 0  # Dictionaries keep that to themselves.

    def forget(self, time_ms: int, count_max: int, at_most: int) -> int:
        before = self.first_number
        end = before + min(at_most, len(self._entries))
        while self.first_number < end:
            entry = self._entries[0]
            if entry.time_ms > time_ms and len(self._entries) <= count_max:
                break
            for newest in (self._decided, self._pending):
                if newest.get(entry.fingerprint) is entry:
                    del newest[entry.fingerprint]
            self._entries.popleft()
            self.first_number += 1
        return self.first_number - before

    def settle(self, first: int, count: int, is_committed: bool) -> None:
        for number in range(max(first, self.first_number), first + count):
            entry = self._entry(number)
            entry.is_pending = False
            entry.is_aborted = not is_committed
            decided = self._decided.get(entry.fingerprint)
            if is_committed and (decided is None or decided.number < number):
                decided = self._decided[entry.fingerprint] = entry
            if self._pending.get(entry.fingerprint) is entry:
                self._go_back(entry, -1 if decided is None else decided.number)

    def _go_back(self, entry: _Entry, decided: int) -> None:
        """The newest pending one is so no more. The next, behind `decided`, is in its place."""
        beyond = max(decided, self.first_number - 1)
        older = entry.older
        while older > beyond and self._entry(older).is_aborted:
            older = self._entry(older).older
        if older > beyond:
            self._pending[entry.fingerprint] = self._entry(older)
        else:
            del self._pending[entry.fingerprint]

    def find(
        self, entries: bytes, oldest_ms: int, log_start_offset: int
    ) -> tuple[bytes, bytes | None] | None:
        offsets, undecided = array("q"), array("q")
        for fingerprint, _ in ENTRY.iter_unpack(entries):
            offset = number = NONE
            for entry in self._newest(fingerprint):
                if entry.time_ms > oldest_ms and entry.offset >= log_start_offset:
                    offset = entry.offset
                    number = entry.number if entry.is_pending else NONE
                    break
            offsets.append(offset)
            undecided.append(number)
        if max(offsets, default=NONE) == NONE:
            return None
        return offsets.tobytes(), None if max(undecided) == NONE else undecided.tobytes()

    def _newest(self, fingerprint: bytes) -> Iterator[_Entry]:
        """What counts of an id, and what does where that does not any more."""
        if fingerprint in self._decided:
            yield self._decided[fingerprint]
        if fingerprint in self._pending:
            yield self._pending[fingerprint]


def repeated_in_python(entries: bytes, _hash_key: bytes) -> bytes | None:
    """See `repeated`."""
    before: set[bytes] = set()
    marks = bytearray()
    for fingerprint, _ in ENTRY.iter_unpack(entries):
        marks.append(fingerprint in before)
        before.add(fingerprint)
    return bytes(marks) if any(marks) else None


def dropped_of_in_python(
    entries: bytes, offsets: bytes | None, marks: bytes | None
) -> tuple[bytes, bytes, int, int]:
    """See `dropped_of`."""
    count = len(entries) // ENTRY.size
    copies = [NONE] * count if offsets is None else int64s_in(offsets)
    deltas, found = array("i"), array("q")
    for (_, delta), offset, is_marked in zip(
        ENTRY.iter_unpack(entries), copies, bytes(count) if marks is None else marks, strict=True
    ):
        if offset != NONE or is_marked:
            deltas.append(delta)
            found.append(offset)
    return deltas.tobytes(), found.tobytes(), min(found), max(found)


def int64s_in(packed: bytes) -> Sequence[int]:
    """The numbers in what was found."""
    return memoryview(packed).cast("q")


def new_table(hash_key: bytes) -> IdTable:
    """An empty table, the compiled one if there is one.

    `hash_key`: 16 bytes that nobody outside knows.
    """
    if compiled is None:
        return IdTableInPython(hash_key)
    table: IdTable = compiled.IdTable(hash_key)
    return table


def repeated(entries: bytes, hash_key: bytes) -> bytes | None:
    """Of each entry a byte: 1 if its id stands before it in the same batch. None: of none.

    `hash_key`: as for `new_table`.
    """
    if compiled is None:
        return repeated_in_python(entries, hash_key)
    marks: bytes | None = compiled.repeated(entries, hash_key)
    return marks


def dropped_of(entries: bytes, found: Found | None, marks: bytes | None) -> Dropped:
    """Those that a table has, and those that are repeated; there is one at least."""
    find = dropped_of_in_python if compiled is None else compiled.dropped_of
    return Dropped(*find(entries, None if found is None else found.offsets, marks))
