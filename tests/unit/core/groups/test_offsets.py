"""Committed and pending offsets: rules O1 to O4 of `core/groups/offsets.py`."""

from tidelog.base.ids import ProducerId, TopicPartition
from tidelog.core.groups.offsets import Offsets
from tidelog.records.groups import CommittedOffset, OffsetCommitRecord

PARTITION = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
PRODUCER = ProducerId(7)


def commit(
    offset: int, partition: TopicPartition = PARTITION, at_ms: int = 0
) -> OffsetCommitRecord:
    return OffsetCommitRecord("group", partition, CommittedOffset(offset, -1, "", at_ms))


def committed(offsets: Offsets, partition: TopicPartition = PARTITION) -> int | None:
    value = offsets.committed("group", partition)
    return None if value is None else value.offset


def test_the_last_commit_counts() -> None:
    offsets = Offsets()
    offsets.apply(commit(5))
    offsets.apply(commit(3))
    assert committed(offsets) == 3
    assert committed(offsets, OTHER) is None
    assert offsets.partitions("group") == [PARTITION]


def test_a_tombstone_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.apply(commit(5))
    offsets.apply(OffsetCommitRecord("group", PARTITION, None))
    assert committed(offsets) is None
    assert not offsets.has_any("group")
    assert not offsets.groups()


def test_a_pending_commit_counts_from_its_marker_on() -> None:
    offsets = Offsets()
    offsets.apply_pending(commit(5), PRODUCER)
    assert committed(offsets) is None
    assert offsets.has_pending("group", PARTITION)
    assert not offsets.has_pending("group", OTHER)
    assert offsets.has_any("group")
    offsets.apply_marker(PRODUCER, is_commit=True)
    assert committed(offsets) == 5
    assert not offsets.has_open_transaction("group")


def test_an_aborted_transaction_leaves_nothing() -> None:
    offsets = Offsets()
    offsets.apply(commit(2))
    offsets.apply_pending(commit(5), PRODUCER)
    offsets.apply_marker(PRODUCER, is_commit=False)
    assert committed(offsets) == 2
    assert not offsets.has_open_transaction("group")


def test_of_two_commits_the_later_in_the_log_wins_whenever_the_marker_comes() -> None:
    offsets = Offsets()
    offsets.apply_pending(commit(5), PRODUCER)
    offsets.apply(commit(9))
    offsets.apply_marker(PRODUCER, is_commit=True)
    assert committed(offsets) == 9


def test_a_marker_ends_the_transaction_of_its_producer_alone() -> None:
    offsets = Offsets()
    offsets.apply_pending(commit(5), PRODUCER)
    offsets.apply_pending(commit(6), ProducerId(8))
    offsets.apply_marker(PRODUCER, is_commit=True)
    assert committed(offsets) == 5
    assert offsets.has_pending("group", PARTITION)
    offsets.apply_marker(ProducerId(8), is_commit=True)
    assert committed(offsets) == 6


def test_a_marker_of_a_producer_without_offsets_means_nothing() -> None:
    offsets = Offsets()
    offsets.apply_marker(PRODUCER, is_commit=True)
    assert not offsets.groups()


def test_a_tombstone_takes_back_what_is_pending() -> None:
    offsets = Offsets()
    offsets.apply_pending(commit(5), PRODUCER)
    offsets.apply_pending(commit(1, OTHER), PRODUCER)
    assert {record.partition for record in offsets.all_tombstones("group")} == {PARTITION, OTHER}
    offsets.apply(OffsetCommitRecord("group", PARTITION, None))
    offsets.apply_marker(PRODUCER, is_commit=True)
    assert committed(offsets) is None
    assert committed(offsets, OTHER) == 1


def test_tombstones_are_for_what_is_there() -> None:
    offsets = Offsets()
    offsets.apply(commit(5))
    wanted = offsets.tombstones("group", [PARTITION, OTHER])
    assert list(wanted) == [OffsetCommitRecord("group", PARTITION, None)]


def test_an_offset_expires_by_its_age() -> None:
    offsets = Offsets()
    offsets.apply(commit(5, at_ms=1_000))
    assert not _expired(offsets, now_ms=1_099)
    assert _expired(offsets, now_ms=1_100) == [PARTITION]


def test_an_offset_expires_at_the_time_that_it_was_given() -> None:
    offsets = Offsets()
    value = CommittedOffset(5, -1, "", 1_000, 1_010)
    offsets.apply(OffsetCommitRecord("group", PARTITION, value))
    assert not _expired(offsets, now_ms=1_009)
    assert _expired(offsets, now_ms=1_010) == [PARTITION]


def test_an_offset_that_a_transaction_is_about_to_change_does_not_expire() -> None:
    offsets = Offsets()
    offsets.apply(commit(5, at_ms=0))
    offsets.apply_pending(commit(6), PRODUCER)
    assert not _expired(offsets, now_ms=10_000)


def _expired(offsets: Offsets, *, now_ms: int) -> list[TopicPartition]:
    def age_base(value: CommittedOffset) -> int:
        return value.commit_timestamp_ms

    return offsets.expired("group", age_base, now_ms=now_ms, retention_ms=100)
