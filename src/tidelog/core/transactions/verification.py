"""Whether a transactional batch belongs to a transaction that its coordinator knows of (KIP-890).

A marker ends a transaction in the partitions that the coordinator knows to be part of it. A batch
that reaches a partition which is not, or reaches it behind the marker, would begin a transaction
that nobody ever ends: nothing behind it could be read by those who read committed records. So the
first batch of a transaction in a partition is held until the coordinator has vouched for it:

    first batch ──▶ begin ──▶ guard ──▶ the coordinator is asked ──▶ judge(batch, guard) ──▶ append
    the next    ──▶ begin ──▶ None: the transaction is open here, which says enough

Rules:

    V1  A transactional batch is appended into an open transaction of its producer and epoch, or
        with the guard that was given out for it last: INVALID_TXN_STATE otherwise.
    V2  A guard is worth nothing once something of its producer was appended, a marker above all.
        What the coordinator said before the marker is not true of what comes after. With
        transaction version 2 a marker has the epoch of the next transaction, which may begin while
        the markers of the last are on their way: one that is not newer than the guard ends an
        earlier transaction, and leaves the guard alone.
    V3  Of the batches that wait for the same guard, the first in sequence goes first:
        OUT_OF_ORDER_SEQUENCE_NUMBER for those that overtake it. Whoever is next in sequence does
        not: a lower one that waits as well was sent again, and is in the log.
    V4  A producer whose coordinator numbers each transaction anew (transaction version 2), and of
        whom no batch is known here, begins at sequence 0: OUT_OF_ORDER_SEQUENCE_NUMBER otherwise.
    V5  A guard that was not used expires with `producer.id.expiration.ms`, as producers do.
"""

from collections.abc import Iterator

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.records.batch import BatchHeader


class Guard:
    """One question to the coordinator, as who asked it remembers it. Compared by identity."""

    __slots__ = ("_began_ms", "_bumps_epoch", "_epoch", "_lowest_sequence")

    def __init__(self, *, sequence: int, epoch: int, bumps_epoch: bool, now_ms: int) -> None:
        self._began_ms = now_ms
        self._bumps_epoch = bumps_epoch
        self._epoch = epoch
        self._lowest_sequence = sequence

    def note(self, *, sequence: int, epoch: int) -> None:
        """Another batch of the same producer waits for the same answer."""
        if epoch > self._epoch:
            self._epoch, self._lowest_sequence = epoch, sequence
        elif epoch == self._epoch:
            self._lowest_sequence = min(self._lowest_sequence, sequence)

    def require_first(self, header: BatchHeader, *, has_batches: bool) -> None:
        """Refuse a batch that is not the first of its transaction. V3, V4"""
        expected = 0 if self._bumps_epoch and not has_batches else self._lowest_sequence
        if header.base_sequence > expected:
            raise RequestRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} epoch {header.producer_epoch} begins a transaction "
                f"with sequence {header.base_sequence}, expected {expected}",
            )

    def is_after(self, marker_epoch: int) -> bool:
        """Whether a marker with this epoch ends an earlier transaction. V2"""
        return self._bumps_epoch and self._epoch >= marker_epoch

    def is_expired(self, now_ms: int, *, expiration_ms: int) -> bool:
        return now_ms - self._began_ms >= expiration_ms


class Guards:
    """The guards of one partition, at most one for each producer."""

    __slots__ = ("_expiration_ms", "_guards", "_guards_max")

    def __init__(self, *, expiration_ms: int, guards_max: int) -> None:
        self._expiration_ms = expiration_ms
        self._guards_max = guards_max
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def __iter__(self) -> Iterator[int]:
        return iter(self._guards)

    def begin(
        self, producer_id: int, epoch: int, *, sequence: int, bumps_epoch: bool, now_ms: int
    ) -> Guard:
        """The guard that a batch has to bring along, when the coordinator has vouched for it."""
        guard = self._guards.get(producer_id)
        if guard is None:
            self._make_room()
            guard = Guard(sequence=sequence, epoch=epoch, bumps_epoch=bumps_epoch, now_ms=now_ms)
            self._guards[producer_id] = guard
        else:
            guard.note(sequence=sequence, epoch=epoch)
        return guard

    def require(self, producer_id: int, epoch: int, guard: Guard | None) -> None:
        """Refuse a batch that does not bring along what was given out for it last. V1"""
        if guard is None or self._guards.get(producer_id) is not guard:
            raise RequestRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch of producer {producer_id} epoch {epoch} is not part of an ongoing "
                "transaction",
            )

    def of(self, producer_id: int) -> Guard | None:
        return self._guards.get(producer_id)

    def forget(self, producer_id: int) -> None:
        """Something of the producer was appended. V2"""
        self._guards.pop(producer_id, None)

    def on_marker(self, producer_id: int, marker_epoch: int) -> None:
        """A marker was appended. V2"""
        guard = self._guards.get(producer_id)
        if guard is not None and not guard.is_after(marker_epoch):
            del self._guards[producer_id]

    def on_tick(self, now_ms: int) -> None:
        """Forget guards that nobody came back with. V5"""
        expired = [
            producer_id
            for producer_id, guard in self._guards.items()
            if guard.is_expired(now_ms, expiration_ms=self._expiration_ms)
        ]
        for producer_id in expired:
            del self._guards[producer_id]

    def _make_room(self) -> None:
        # Producer ids are in the hands of clients. Whoever's guard is dropped asks again.
        if len(self._guards) >= self._guards_max:
            del self._guards[next(iter(self._guards))]
