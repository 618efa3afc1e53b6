"""How far the groups of one shard have come.

    committed                   by group and partition
    pending, per producer       in a transaction that is still open (D3)

Rules, Kafka's:

    O1  What a transaction commits counts from its marker on. An aborted one leaves nothing.
    O2  Of two commits for one partition the later *in the log* wins, even if it is a transactional
        one whose marker comes after an ordinary commit: an order that compaction does not change.
    O3  A tombstone takes back pending commits too: whoever deletes a topic or a group does not want
        them to come back with a marker.
    O4  An offset expires by age (`offsets.retention.minutes`) or at the time that it was given, if
        its group lets it, its topic is not subscribed to, and no transaction is about to change it.

The order in the log is counted here (`_order`), because records are applied in the order in which
they are in the log, while the shard leads and while it is loaded.
"""

from collections.abc import Iterable, Iterator, Set
from itertools import count
from typing import NamedTuple

from tidelog.base.ids import NO_TIMESTAMP, ProducerId, TopicPartition
from tidelog.core.groups.group import AgeBase
from tidelog.records.groups import CommittedOffset, OffsetCommitRecord


class _Commit(NamedTuple):
    order: int
    value: CommittedOffset


class Offsets:
    """The offsets of all groups of one shard. Records are applied, never decided upon, here."""

    __slots__ = ("_committed", "_open", "_order", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, _Commit]] = {}
        self._pending: dict[ProducerId, dict[tuple[str, TopicPartition], _Commit]] = {}
        # Which producers have pending commits for a partition of a group: the same from behind.
        self._open: dict[str, dict[TopicPartition, set[ProducerId]]] = {}
        self._order = count()

    def groups(self) -> Set[str]:
        """All groups that have committed anything, or are about to."""
        return self._committed.keys() | self._open.keys()

    def committed(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """What `group_id` has committed last, transactions that are open aside."""
        commit = self._committed.get(group_id, {}).get(partition)
        return None if commit is None else commit.value

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Where the group has committed something, in the order in which it first did."""
        return list(self._committed.get(group_id, ()))

    def has_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Is a transaction about to change this offset?"""
        return partition in self._open.get(group_id, ())

    def has_open_transaction(self, group_id: str) -> bool:
        """Is a transaction about to change any offset of the group?"""
        return group_id in self._open

    def apply(self, record: OffsetCommitRecord) -> None:
        """An ordinary commit, or a tombstone."""
        if record.value is None:
            self._forget(record.group_id, record.partition)
            return
        commit = _Commit(next(self._order), record.value)
        self._committed.setdefault(record.group_id, {})[record.partition] = commit

    def apply_pending(self, record: OffsetCommitRecord, producer_id: ProducerId) -> None:
        """A commit that counts if the transaction of `producer_id` is committed. O1"""
        assert record.value is not None
        commit = _Commit(next(self._order), record.value)
        key = record.group_id, record.partition
        self._pending.setdefault(producer_id, {})[key] = commit
        group = self._open.setdefault(record.group_id, {})
        group.setdefault(record.partition, set()).add(producer_id)

    def apply_marker(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The transaction of `producer_id` has ended. O1, O2"""
        pending = self._pending.pop(producer_id, {})
        for (group_id, partition), commit in pending.items():
            self._close(group_id, partition, producer_id)
            if is_commit:
                group = self._committed.setdefault(group_id, {})
                known = group.get(partition)
                if known is None or known.order < commit.order:
                    group[partition] = commit

    def tombstones(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Iterator[OffsetCommitRecord]:
        """What takes back the offsets for those of `partitions` that have any, pending or not."""
        committed = self._committed.get(group_id, {})
        pending = self._open.get(group_id, {})
        for partition in partitions:
            if partition in committed or partition in pending:
                yield OffsetCommitRecord(group_id, partition, None)

    def touched(self, group_id: str) -> Iterator[TopicPartition]:
        """Where the group has committed something, or is about to; each once."""
        committed = self._committed.get(group_id, {})
        yield from committed
        yield from (one for one in self._open.get(group_id, ()) if one not in committed)

    def all_tombstones(self, group_id: str) -> list[OffsetCommitRecord]:
        """What takes back every offset of the group. O3"""
        return list(self.tombstones(group_id, self.touched(group_id)))

    def expired(
        self, group_id: str, age_base: AgeBase, *, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Whose offset is too old, if nothing else speaks for it. O4"""
        return [
            partition
            for partition, (_, value) in self._committed.get(group_id, {}).items()
            if not self.has_pending(group_id, partition)
            and now_ms >= _expiry_ms(value, age_base, retention_ms)
        ]

    def has_any(self, group_id: str) -> bool:
        """Is there an offset left that has to be kept, or may come to be?"""
        return group_id in self._committed or group_id in self._open

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        group = self._committed.get(group_id, {})
        group.pop(partition, None)
        if not group:
            self._committed.pop(group_id, None)
        for producer_id in tuple(self._open.get(group_id, {}).get(partition, ())):  # O3
            self._close(group_id, partition, producer_id)
            pending = self._pending[producer_id]
            del pending[group_id, partition]
            if not pending:
                del self._pending[producer_id]

    def _close(self, group_id: str, partition: TopicPartition, producer_id: ProducerId) -> None:
        group = self._open[group_id]
        group[partition].remove(producer_id)
        if not group[partition]:
            del group[partition]
        if not group:
            del self._open[group_id]


def _expiry_ms(value: CommittedOffset, age_base: AgeBase, retention_ms: int) -> int:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return value.expire_timestamp_ms
    return age_base(value) + retention_ms
