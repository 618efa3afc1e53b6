"""Which records of a log need not be replayed: those that a later one under the same key outdates.

The log of a coordinator has every commit of every group since it was compacted last. What counts is
the last of each, and to find that out is much cheaper than to replay all of them. So the log is
read twice: once to *note* the newest offset of every key, and once to take the *remaining* ones.

What may be left out is up to the kind of a record, the int16 that its key begins with:

    R1  A record is outdated by a later one with the same key, if both have a value and are of one
        of `kinds`. The later one must be all that is said under the key: whoever replays it ends
        up with the same, whether the earlier one was replayed or not. A tombstone outdates nothing.
    R2  In a transaction the same holds for `kinds_in_transactions` alone. A record in one outdates
        others if that was committed, and then by its own place in the log, not by the marker's. It
        is outdated itself only if its transaction has ended, however it did: until then what is
        pending matters.
    R3  A marker is left out if nothing remains of its transaction.

What remains is in the order of the log. It need not be the least that there could be: all that is
left out is. So noting may stop: there are at most `keys_max` keys, those of transactions that are
open included, and whatever is under others remains. The compiled table has 48 to 96 bytes for each
key that is noted, and half as many again while it grows. What is pending takes 170 bytes and more,
where the last marker of a producer is 110: only as long as transactions are few do they not count.

Clients choose keys, and those of all groups of a partition are in one table. The compiled one knows
a key by its hash, so that must be one which nobody can aim at another key's: SipHash with a key
that is secret.

Where `_ids.pyx` was compiled, `_ids_superseded.pxi` does the same, without holding up other threads
where that is possible.
"""

from collections.abc import Collection
from struct import Struct
from typing import NamedTuple, Protocol

from tidelog.base.ports import BytesLike
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.compiled import compiled
from tidelog.records.control import ControlType, read_transaction_end
from tidelog.records.record import Record, decode_records

KEYS_MAX = 2**21
"""Noted of one log: a table of 100 MB."""

_KIND = Struct(">h")


class Remaining(NamedTuple):
    """A record, or the end of a transaction, which has no key."""

    key: bytes | None
    value: bytes | None
    producer: tuple[int, int] | None
    """Id and epoch of whose transaction this belongs to, or ends."""

    is_committed: bool
    """For the end of a transaction."""


class Superseded(Protocol):
    """Notes all of a log, then tells what remains of it. Data is whole batches, in their order."""

    def note(self, data: BytesLike, first_offset: int) -> int:
        """Take into account what is in `data` from `first_offset` on. Raises CorruptBatch.

        The offset behind it; -1 if there is no whole batch.
        """
        ...

    def spare(self, key: bytes) -> None:
        """Leave nothing out under `key`, of what was noted so far."""
        ...

    def remaining(
        self, data: BytesLike, first_offset: int
    ) -> tuple[list[tuple[bytes | None, bytes | None, tuple[int, int] | None, bool]], int]:
        """What remains of `data` from `first_offset` on, as the fields of `Remaining`; and as
        `note` returns it. Raises CorruptBatch."""
        ...


def new_superseded(
    kinds: Collection[int],
    kinds_in_transactions: Collection[int],
    hash_key: bytes,
    keys_max: int = KEYS_MAX,
) -> Superseded:
    """For one log. `hash_key`: 16 bytes that nobody outside knows."""
    if compiled is None:
        return SupersededInPython(kinds, kinds_in_transactions, hash_key, keys_max)
    table: Superseded = compiled.Superseded(kinds, kinds_in_transactions, hash_key, keys_max)
    return table


class SupersededInPython:
    """For machines without a compiler, and to compare with.

    It has the keys themselves, in a dictionary, whose hash has a secret key of its own.
    """

    __slots__ = (
        "_ended",
        "_keys_max",
        "_kinds",
        "_kinds_in_transactions",
        "_latest",
        "_open",
        "_pending_count",
        "_unfinished",
    )

    def __init__(
        self,
        kinds: Collection[int],
        kinds_in_transactions: Collection[int],
        _hash_key: bytes,
        keys_max: int,
    ) -> None:
        self._keys_max = keys_max
        self._kinds = frozenset(kinds)
        self._kinds_in_transactions = frozenset(kinds_in_transactions)
        self._latest: dict[bytes, int] = {}
        # While noting: what producers have pending, and where the last marker of each is.
        self._open: dict[int, list[tuple[bytes, int]]] = {}
        self._pending_count = 0
        self._ended: dict[int, int] = {}
        # While taking: of whose transactions something remains.
        self._unfinished: set[int] = set()

    def note(self, data: BytesLike, first_offset: int) -> int:
        end_offset = -1
        view = memoryview(data)
        for position, header in iter_headers(view):
            end_offset = header.end_offset
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                if header.last_offset >= first_offset:
                    self._note_end(header, batch)
                continue
            for record in decode_records(batch):
                if record.offset >= first_offset:
                    self._note_record(header, record)
        return end_offset

    def _note_end(self, header: BatchHeader, batch: BytesLike) -> None:
        is_committed = _is_committed(header, batch)
        if is_committed is None:
            return
        if len(self._ended) < self._keys_max or header.producer_id in self._ended:
            self._ended[header.producer_id] = header.last_offset
        pending = self._open.pop(header.producer_id, [])
        self._pending_count -= len(pending)
        if is_committed:
            for key, offset in pending:
                self._put(key, offset)

    def _note_record(self, header: BatchHeader, record: Record) -> None:
        key, offset = record.key, record.offset
        if key is None or not self._may_be_outdated(header, record):
            return
        if not header.is_transactional:
            self._put(key, offset)
        elif self._has_room:
            self._open.setdefault(header.producer_id, []).append((key, offset))
            self._pending_count += 1

    @property
    def _has_room(self) -> bool:
        return len(self._latest) + self._pending_count < self._keys_max

    def _put(self, key: bytes, offset: int) -> None:
        """Unless it has a newer one, or there are too many."""
        if key in self._latest or self._has_room:
            self._latest[key] = max(offset, self._latest.get(key, -1))

    def _may_be_outdated(self, header: BatchHeader, record: Record) -> bool:
        kinds = self._kinds_in_transactions if header.is_transactional else self._kinds
        return record.value is not None and kind_of(record.key) in kinds

    def spare(self, key: bytes) -> None:
        self._latest.pop(key, None)

    def remaining(
        self, data: BytesLike, first_offset: int
    ) -> tuple[list[tuple[bytes | None, bytes | None, tuple[int, int] | None, bool]], int]:
        remaining: list[tuple[bytes | None, bytes | None, tuple[int, int] | None, bool]] = []
        end_offset = -1
        view = memoryview(data)
        for position, header in iter_headers(view):
            end_offset = header.end_offset
            producer = None
            if header.is_transactional:
                producer = header.producer_id, header.producer_epoch
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                is_committed = _is_committed(header, batch)
                if (
                    is_committed is not None
                    and header.last_offset >= first_offset
                    and header.producer_id in self._unfinished
                ):
                    self._unfinished.remove(header.producer_id)
                    remaining.append((None, None, producer, is_committed))
                continue
            for record in decode_records(batch):
                if record.offset < first_offset or record.key is None:
                    continue
                if not self._is_outdated(header, record):
                    if producer is not None:
                        self._unfinished.add(producer[0])
                    remaining.append((record.key, record.value, producer, False))
        return remaining, end_offset

    def _is_outdated(self, header: BatchHeader, record: Record) -> bool:
        if not self._may_be_outdated(header, record):
            return False
        if header.is_transactional and self._ended.get(header.producer_id, -1) < record.offset:
            return False
        assert record.key is not None
        return self._latest.get(record.key, -1) > record.offset


def _is_committed(header: BatchHeader, batch: BytesLike) -> bool | None:
    """How a transaction ended, if this control batch says so."""
    end = read_transaction_end(batch) if header.is_transactional else None
    return None if end is None else end.control_type is ControlType.COMMIT


def kind_of(key: bytes | None) -> int | None:
    """What the record is about; None if its key does not say."""
    if key is None or len(key) < _KIND.size:
        return None
    (kind,) = _KIND.unpack_from(key)
    return int(kind)
