"""Which records of a batch were sent before (D5): a question that the log alone answers.

An index is told every batch of a log in order, and is then asked about batches that want to be
appended. What it says depends on nothing but those batches, so whoever has the same log decides
alike: a new leader, a restarted one.

    log time     the largest timestamp of any batch of records so far; it never goes back
    seen at      the log time when a record was appended
    duplicate    the timestamp of its batch - seen at < window
    forgotten    log time - seen at >= window + grace, or `ids_max` others were stored after it

The grace keeps one producer's wrong clock from closing everybody's window: a batch from the future
moves the log time, but the timestamps of the others' batches are compared with what they were.
Markers of transactions do not move it: they have a broker's time, and records may tell of things
long past.

Rules:

    G1  A record is dropped if its id was seen within the window in this log, not below its start,
        and is not part of an aborted transaction; or stands in the same batch before it.
    G2  A record without an id is never dropped.
    G3  An id in an open transaction counts for that producer. To others it is undecided: the batch
        is refused with a code that makes clients try again, and nothing of it is stored.
    G4  A commit makes the ids of a transaction count from when they were appended; an abort takes
        them back.
    G5  What the index holds is bounded by `ids_max`; the oldest go first.
    G6  The answer is a function of the batches that it was told, in their order, since the oldest
        that is not forgotten.

Invariants:

    I1  `end_offset` is the end of the last batch that it was told
    I2  numbers in `_pending` are of entries that were added as pending, and not settled

Not here: reading the log (`storage/ids_file.py`), rewriting batches (`records/ids.py`), waiting
until a first copy is committed (`broker/deduplication.py`).
"""

from bisect import bisect_right
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_ID, Offset
from tidelog.config.topic import remembered_ms
from tidelog.records.digest import BatchDigest, BatchKind
from tidelog.records.id_table import NONE, Found, dropped_of, int64s_in, new_table, repeated
from tidelog.records.ids import DELTA_BYTES, ENTRY

FOREVER = 2**62

FORGOTTEN_AT_ONCE = 4_096
"""So many entries, and as many as a batch adds, are let go with it. When the log's time leaps, all
that there is may have passed: it does not count any more, and goes batch by batch."""


class Duplicates(NamedTuple):
    """The records of a batch that are to be dropped, by ascending offset delta."""

    deltas: bytes
    """Packed, as in `records/ids.py`."""
    offsets: bytes
    """Of their first copies, an int64 each; NONE: it is in the same batch, and kept."""
    smallest_offset: int
    largest_offset: int

    @property
    def record_count(self) -> int:
        return len(self.deltas) // DELTA_BYTES

    @property
    def first_copy_offset(self) -> Offset | None:
        """Of the first of them; None: it is in the same batch."""
        offset = int64s_in(self.offsets)[0]
        return None if offset == NONE else Offset(offset)

    @property
    def end_offset(self) -> Offset:
        """What has to be committed before the drop may be acknowledged."""
        return Offset(max(self.largest_offset, 0) + 1)

    def are_all_below(self, offset: Offset) -> bool:
        """Whether all first copies are in the log, and before `offset`."""
        return self.smallest_offset != NONE and self.largest_offset < offset


class IdIndex:
    """The ids that one partition's log has seen within the window."""

    __slots__ = (
        "_forgotten_early",
        "_hash_key",
        "_ids_max",
        "_pending",
        "_pending_counts",
        "_remembered_ms",
        "_table",
        "_window_ms",
        "end_offset",
        "log_time_ms",
    )

    def __init__(
        self,
        *,
        window_ms: int,
        ids_max: int,
        start_offset: Offset,
        log_time_ms: int,
        hash_key: bytes,
    ) -> None:
        """As of `start_offset`: what is before is told by `log_time_ms`, and forgotten.

        `hash_key` is for `new_table`.
        """
        assert window_ms > 0
        assert ids_max > 0
        self._window_ms = window_ms
        self._remembered_ms = remembered_ms(window_ms)
        self._ids_max = ids_max
        self._hash_key = hash_key
        self._table = new_table(hash_key)
        # Of each producer with an open transaction, the entries it added: (first number, count),
        # ascending.
        self._pending: dict[int, list[tuple[int, int]]] = {}
        self._pending_counts: dict[int, int] = {}
        self._forgotten_early = 0
        self.end_offset = start_offset
        self.log_time_ms = log_time_ms

    def __len__(self) -> int:
        return len(self._table)

    @property
    def size_bytes(self) -> int:
        return self._table.size_bytes

    @property
    def forgotten_early(self) -> int:
        """How many ids went because of `ids_max`, whose window had not passed (G5)."""
        return self._forgotten_early

    def judge(
        self,
        entries: bytes,
        *,
        timestamp_ms: int,
        producer_id: int,
        log_start_offset: Offset,
    ) -> Duplicates | None:
        """Which records of a batch with these ids are duplicates; None if none is.

        `producer_id` is that of a transactional batch, else NO_PRODUCER_ID. Raises RequestRefused
        if that is not decided yet (G3). Changes nothing that anybody could tell, but may put things
        elsewhere in the table: nobody else may use the index meanwhile.
        """
        if not entries:
            return None  # G2
        oldest_ms = max(timestamp_ms - self._window_ms, self._forgotten_ms)
        known = self._table.find(entries, oldest_ms, log_start_offset)
        within = repeated(entries, self._hash_key)
        if known is None and within is None:
            return None
        found = None if known is None else Found(*known)
        if found is not None and found.undecided is not None:
            self._refuse_undecided(found.offsets, found.undecided, producer_id)
        return Duplicates(*dropped_of(entries, found, within))

    def _refuse_undecided(self, offsets: bytes, undecided: bytes, producer_id: int) -> None:
        first = end = 0
        for place, number in enumerate(int64s_in(undecided)):
            if number == NONE or first <= number < end:
                continue
            first, end = self._pending_of(producer_id, number)
            if number >= end or producer_id == NO_PRODUCER_ID:
                raise self._undecided(number, int64s_in(offsets)[place])  # G3

    def _undecided(self, number: int, offset: int) -> RequestRefused:
        holder = self._holder(number)
        return RequestRefused(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"a record's id is in an open transaction of producer {holder}, at offset "
            f"{offset}: whether it is a duplicate is known when that ends",
        )

    def _pending_of(self, producer_id: int, number: int) -> tuple[int, int]:
        """First and end of the last entries that it added up to `number`, or of none."""
        ranges = self._pending.get(producer_id, ())
        after = bisect_right(ranges, number, key=lambda added: added[0])
        if not after:
            return 0, 0
        first, count = ranges[after - 1]
        return first, first + count

    def _holder(self, number: int) -> int:
        for producer_id in self._pending:
            if number < self._pending_of(producer_id, number)[1]:
                return producer_id
        raise AssertionError(f"nobody's entry {number} is pending")  # I2

    def entries_touched_by(self, digest: BatchDigest) -> int:
        """How much there is to do for `on_batch`."""
        if digest.kind in (BatchKind.COMMIT, BatchKind.ABORT):
            return self._pending_counts.get(digest.producer_id, 0)
        count = len(digest.entries) // ENTRY.size
        return count + self._table.moved_by(count)

    def on_batch(self, digest: BatchDigest) -> None:
        """The log has this batch next, whoever wrote it."""
        assert digest.base_offset >= self.end_offset, (digest, self.end_offset)
        match digest.kind:
            case BatchKind.COMMIT:
                self._settle(digest.producer_id, is_committed=True)
            case BatchKind.ABORT:
                self._settle(digest.producer_id, is_committed=False)
            case BatchKind.OTHER:
                pass
            case BatchKind.PLAIN | BatchKind.TRANSACTIONAL:
                self._add(digest)
        # Last: who could not be told of the ids, for want of memory, must not take them for known.
        self.end_offset = Offset(digest.last_offset + 1)  # I1
        self._forget(len(digest.entries) // ENTRY.size)

    def _add(self, digest: BatchDigest) -> None:
        self.log_time_ms = max(self.log_time_ms, digest.max_timestamp_ms)
        if not digest.entries:
            return
        # Without a producer there is no marker to come, nor a transaction that it would end.
        is_pending = digest.kind is BatchKind.TRANSACTIONAL and digest.producer_id >= 0
        first = self._table.add(digest.entries, digest.base_offset, self.log_time_ms, is_pending)
        if is_pending:
            producer_id, count = digest.producer_id, len(digest.entries) // ENTRY.size
            self._pending.setdefault(producer_id, []).append((first, count))
            self._pending_counts[producer_id] = self._pending_counts.get(producer_id, 0) + count

    @property
    def _forgotten_ms(self) -> int:
        """What was seen at this time or before does not count, also if it is there for a while."""
        return self.log_time_ms - self._remembered_ms

    def _forget(self, added_count: int) -> None:
        at_most = FORGOTTEN_AT_ONCE + added_count
        self._table.forget(self._forgotten_ms, FOREVER, at_most)
        # So many were added at most, or more than that were just forgotten.
        beyond = len(self._table) - self._ids_max
        if beyond > 0:
            self._forgotten_early += self._table.forget(-FOREVER, self._ids_max, beyond)  # G5

    def _settle(self, producer_id: int, *, is_committed: bool) -> None:
        self._pending_counts.pop(producer_id, None)
        for first, count in reversed(self._pending.pop(producer_id, ())):
            self._table.settle(first, count, is_committed)  # G4
