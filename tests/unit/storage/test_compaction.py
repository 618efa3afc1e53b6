"""Of every key a compacted log keeps what was written last (S5)."""

import pytest

from tests.support.hash_keys import HASH_KEY
from tests.unit.storage.compacted_folder import (
    AMPLE,
    Transactions,
    append_pairs,
    cleanable_of,
    committed,
    compact,
    headers,
    keyed_batch,
    living_producer,
    marker,
)
from tests.unit.storage.log_folder import (
    NOW_MS,
    LogFolder,
    append_batch,
    log_config,
    offsets_of,
    read_all,
)
from tidelog.base.errors import DamagedLog
from tidelog.base.ids import Offset
from tidelog.records.batch import Codec, read_header, stamp_log_append_time
from tidelog.storage.compaction import Compaction, CompactionAborted, CompactionLimits, Replace
from tidelog.storage.log import Log

DAY_MS = 86_400_000
RETENTION_MS = DAY_MS  # The default of delete.retention.ms.


@pytest.fixture
def partition(partition: LogFolder) -> LogFolder:
    partition.config = log_config(cleanup_policy=("compact",))
    return partition


@pytest.fixture
def log(partition: LogFolder) -> Log:
    return partition.open_log()


class TestRecords:
    """Which of them stay."""

    def test_newest_of_every_key_stays_at_its_offset(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")], [(b"c", b"1")])
        compact(log)
        assert [(record.offset, record.key, record.value) for record in read_all(log)] == [
            (1, b"b", b"1"),
            (2, b"a", b"2"),
            (3, b"c", b"1"),
        ]
        assert log.log_end_offset == 4

    def test_nothing_goes_that_is_shadowed_by_the_active_segment_alone(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")])
        append_batch(log, keyed_batch(log.log_end_offset, [(b"a", b"2")]))
        compact(log)
        assert offsets_of(log) == [0, 1]

    def test_nothing_at_or_above_the_last_stable_offset_is_touched(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")], [(b"a", b"3")])
        assert compact(log, last_stable_offset=2).end_offset == 2
        assert offsets_of(log) == [1, 2]

    def test_records_without_a_key_go(self, log: Log) -> None:
        append_pairs(log, [(None, b"1"), (b"a", b"1")], [(None, b"2"), (b"z", b"")])
        compact(log)
        assert offsets_of(log) == [1, 3]

    def test_empty_value_is_no_tombstone(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"")], [(b"b", b"1")])
        for day in range(3):
            compact(log, now_ms=NOW_MS + day * RETENTION_MS)
        assert offsets_of(log) == [0, 1]

    def test_empty_key_is_a_key(self, log: Log) -> None:
        append_pairs(log, [(b"", b"1")], [(b"", b"2")])
        compact(log)
        assert offsets_of(log) == [1]

    @pytest.mark.parametrize("codec", Codec)
    def test_batch_that_loses_records_keeps_its_codec_and_its_place(
        self, log: Log, codec: Codec
    ) -> None:
        append_pairs(log, [(b"a", b"1"), (b"b", b"1" * 100), (b"c", b"1")], codec=codec)
        append_pairs(log, [(b"a", b"2"), (b"c", b"2")], codec=codec)
        compact(log)
        first, second = headers(log)
        assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
        assert (first.codec, second.codec) == (codec, codec)
        assert offsets_of(log) == [1, 3, 4]

    def test_batch_that_loses_nothing_is_copied_as_it_is(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1"), (b"b", b"1")], [(b"c", b"1")])
        before = log.read(Offset(0), end_offset=Offset(2), max_bytes=10_000, at_least_one=True).data
        compact(log)
        after = log.read(Offset(0), end_offset=Offset(2), max_bytes=10_000, at_least_one=True).data
        assert bytes(after) == bytes(before)

    def test_largest_timestamp_of_a_batch_is_that_of_what_is_left(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1"), (b"b", b"1")], [(b"b", b"2")])
        compact(log)
        assert headers(log)[0].max_timestamp_ms == NOW_MS

    def test_log_append_time_is_that_of_the_batch(self, log: Log) -> None:
        batch = keyed_batch(0, [(b"a", b"1"), (b"b", None)])
        stamp_log_append_time(batch, 0, NOW_MS + 77)
        append_batch(log, batch)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"2")])
        compact(log)
        assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS + 77, NOW_MS]


class TestTombstones:
    """They stay for `delete.retention.ms` after the first compaction that met them (KIP-534)."""

    def test_tombstone_takes_the_values_before_it_away(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"a", None)], [(b"b", b"1")])
        compact(log)
        assert offsets_of(log) == [1, 2]

    def test_delete_horizon_counts_from_the_first_compaction(self, log: Log) -> None:
        append_pairs(log, [(b"a", None), (b"b", b"1")], [(b"c", b"1")])
        compact(log, now_ms=NOW_MS + 5)
        assert headers(log)[0].delete_horizon_ms == NOW_MS + 5 + RETENTION_MS
        compact(log, now_ms=NOW_MS + 9)
        assert headers(log)[0].delete_horizon_ms == NOW_MS + 5 + RETENTION_MS
        assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS, NOW_MS + 1, NOW_MS]

    def test_tombstone_goes_when_its_horizon_has_passed_and_not_before(self, log: Log) -> None:
        append_pairs(log, [(b"a", None), (b"b", b"1")], [(b"c", b"1")])
        compact(log)
        compact(log, now_ms=NOW_MS + RETENTION_MS - 1)
        assert offsets_of(log) == [0, 1, 2]
        compact(log, now_ms=NOW_MS + RETENTION_MS)
        assert offsets_of(log) == [1, 2]

    def test_tombstone_that_is_not_taken_into_account_yet_gets_no_horizon(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"b", b"1"), (b"c", b"1")])
        append_batch(log, keyed_batch(3, [(b"a", None)]))
        append_pairs(log, [(b"d", b"1")])
        tight = CompactionLimits(memory_bytes=24 * 5, load_factor=0.5, read_bytes=4_096)
        assert compact(log, limits=tight).end_offset == 2
        assert all(header.delete_horizon_ms is None for header in headers(log))

    @pytest.mark.parametrize("codec", Codec)
    def test_horizon_is_set_in_compressed_batches_as_well(self, log: Log, codec: Codec) -> None:
        append_pairs(log, [(b"a", None), (b"b", b"1")], [(b"b", b"2")], codec=codec)
        compact(log)
        header = headers(log)[0]
        assert (header.codec, header.delete_horizon_ms) == (codec, NOW_MS + RETENTION_MS)
        assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS, NOW_MS]


class TestProducers:
    """Who may send next is found in the log after a restart (D2)."""

    def test_last_batch_of_a_living_producer_stays_without_its_records(self, log: Log) -> None:
        batch = keyed_batch(
            0,
            [(b"a", b"1"), (b"b", b"1")],
            producer_id=7,
            producer_epoch=3,
            base_sequence=40,
            codec=Codec.ZSTD,
        )
        append_batch(log, batch)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"2"), (b"b", b"2")])
        compact(log, producers=[living_producer(read_header(batch, 0))])
        emptied = headers(log)[0]
        assert (emptied.producer_id, emptied.producer_epoch) == (7, 3)
        assert (emptied.base_sequence, emptied.last_sequence) == (40, 41)
        assert (emptied.base_offset, emptied.last_offset) == (0, 1)
        assert (emptied.record_count, emptied.size_bytes) == (0, 61)
        assert emptied.max_timestamp_ms == NOW_MS + 1
        assert offsets_of(log) == [2, 3]

    def test_emptied_batch_goes_with_the_next_one_of_its_producer(self, log: Log) -> None:
        writer = Transactions(log)
        writer.write(7, [(b"a", b"1")], is_transactional=False)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"2")])
        compact(log, producers=writer.entries())
        writer.write(7, [(b"b", b"1")], is_transactional=False)
        compact(log, producers=writer.entries())
        assert [header.base_offset for header in headers(log)] == [1, 2]

    def test_batch_of_a_producer_that_was_forgotten_goes(self, log: Log) -> None:
        writer = Transactions(log)
        writer.write(7, [(b"a", b"1")], is_transactional=False)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"2")])
        compact(log)
        assert [header.base_offset for header in headers(log)] == [1]

    def test_marker_stays_that_is_all_there_is_of_an_epoch(self, log: Log) -> None:
        writer = Transactions(log)
        writer.end(7, is_abort=True)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"1")])
        known = living_producer(read_header(marker(0, 7, is_abort=True), 0))._replace(batches=())
        for day in range(3):
            compact(log, producers=[known], now_ms=NOW_MS + day * RETENTION_MS)
        first = headers(log)[0]
        assert (first.producer_id, first.is_control, first.record_count) == (7, True, 0)

    def test_marker_of_a_former_epoch_goes(self, log: Log) -> None:
        """With transaction version 2 every transaction leaves one."""
        endings = [marker(at, 7, is_abort=False, producer_epoch=at) for at in range(3)]
        for ending in endings:
            append_batch(log, ending)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"1")])
        known = living_producer(read_header(endings[-1], 0))._replace(batches=())
        for day in range(3):
            compact(log, producers=[known], now_ms=NOW_MS + day * RETENTION_MS)
        assert [(one.base_offset, one.record_count) for one in headers(log)] == [(2, 0), (3, 1)]

    def test_last_batch_of_all_stays_so_that_the_end_is_known(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(None, b"1")])
        compact(log)
        assert [(header.base_offset, header.record_count) for header in headers(log)] == [
            (0, 1),
            (1, 0),
        ]


class TestTransactions:
    """Aborted records go, markers when nothing is left that they decide (D3)."""

    def test_records_of_an_aborted_transaction_go_whatever_their_keys(self, log: Log) -> None:
        writer = Transactions(log)
        append_pairs(log, [(b"a", b"1")])
        writer.write(7, [(b"a", b"2"), (b"b", b"1")])
        writer.end(7, is_abort=True)
        log.roll(producers=(), now_ms=NOW_MS)
        compact(log)
        assert [(record.offset, record.value) for record in committed(log)] == [(0, b"1")]

    def test_aborted_transaction_stays_in_the_index_while_its_marker_decides(
        self, log: Log
    ) -> None:
        writer = Transactions(log)
        writer.write(7, [(b"a", b"2")])
        writer.end(7, is_abort=True)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"b", b"1")])
        compact(log)
        assert len(log.aborted_transactions(Offset(0), end_offset=Offset(2))) == 1
        compact(log)
        assert log.aborted_transactions(Offset(0), end_offset=Offset(2)) == ()

    @pytest.mark.parametrize("is_abort", [True, False])
    def test_marker_goes_when_nothing_of_its_transaction_is_left(
        self, log: Log, is_abort: bool
    ) -> None:
        writer = Transactions(log)
        writer.write(7, [(b"a", b"1")])
        writer.end(7, is_abort=is_abort)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"a", b"2")])
        compact(log)  # The records go.
        assert [header.base_offset for header in headers(log)] == [1, 2]
        assert headers(log)[0].delete_horizon_ms is None
        compact(log, now_ms=NOW_MS + 1)  # The marker is alone.
        assert headers(log)[0].delete_horizon_ms == NOW_MS + 1 + RETENTION_MS
        compact(log, now_ms=NOW_MS + RETENTION_MS)
        assert [header.base_offset for header in headers(log)] == [1, 2]
        compact(log, now_ms=NOW_MS + 1 + RETENTION_MS)
        assert [header.base_offset for header in headers(log)] == [2]

    def test_commit_marker_stays_while_a_record_of_its_transaction_does(self, log: Log) -> None:
        writer = Transactions(log)
        writer.write(7, [(b"a", b"1")])
        writer.end(7, is_abort=False)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"b", b"2")])
        for day in range(3):
            compact(log, now_ms=NOW_MS + day * RETENTION_MS)
        assert [header.base_offset for header in headers(log)] == [0, 1, 2]

    def test_transaction_over_several_segments_is_one(self, log: Log) -> None:
        writer = Transactions(log)
        writer.write(7, [(b"a", b"1")])
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"b", b"1")])
        writer.write(7, [(b"b", b"2")])
        log.roll(producers=(), now_ms=NOW_MS)
        writer.end(7, is_abort=True)
        append_pairs(log, [(b"c", b"1")])
        compact(log)
        assert [record.offset for record in committed(log)] == [1, 4]

    def test_record_of_an_aborted_transaction_shadows_nothing(self, log: Log) -> None:
        writer = Transactions(log)
        append_pairs(log, [(b"a", b"1")])
        writer.write(7, [(b"a", None)])
        writer.end(7, is_abort=True)
        log.roll(producers=(), now_ms=NOW_MS)
        append_pairs(log, [(b"b", b"1")])
        for day in range(3):
            compact(log, now_ms=NOW_MS + day * RETENTION_MS)
        assert [record.key for record in committed(log)] == [b"a", b"b"]


class TestSegments:
    """They are merged, within the limits of one."""

    def test_segments_are_merged_into_one(self, partition: LogFolder, log: Log) -> None:
        append_pairs(log, *[[(b"%d" % number, b"1")] for number in range(5)])
        compact(log)
        assert [segment.base_offset for segment in log.segments] == [0, 5]
        assert offsets_of(log) == [0, 1, 2, 3, 4]
        names = [name for name in partition.files() if name.endswith(".log")]
        assert names == ["00000000000000000000.log", "00000000000000000005.log"]

    def test_merged_segments_have_no_more_than_segment_bytes(self, log: Log) -> None:
        append_pairs(log, *[[(b"%d" % number, b"1")] for number in range(6)])
        size_bytes = log.segments[0].size_bytes
        log.reconfigure(log_config(segment_bytes=2 * size_bytes, cleanup_policy=("compact",)))
        compact(log)
        assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6]

    def test_merged_segments_have_offsets_that_an_index_can_hold(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")])
        append_batch(log, keyed_batch(2**31 - 1, [(b"b", b"1")]))
        log.roll(producers=(), now_ms=NOW_MS)
        append_batch(log, keyed_batch(2**31, [(b"c", b"1")]))
        log.roll(producers=(), now_ms=NOW_MS)
        compact(log)
        assert [segment.base_offset for segment in log.segments] == [0, 2**31, 2**31 + 1]
        assert offsets_of(log) == [0, 2**31 - 1, 2**31]

    def test_snapshots_of_segments_that_are_gone_go_with_them(
        self, partition: LogFolder, log: Log
    ) -> None:
        append_pairs(log, *[[(b"%d" % number, b"1")] for number in range(3)])
        compact(log)
        assert [name for name in partition.files() if "snapshot" in name] == [
            "00000000000000000003.snapshot"
        ]

    def test_a_hundred_segments_at_most_are_taken_out_at_a_time(self, log: Log) -> None:
        append_pairs(log, *([(b"%d" % number, b"1")] for number in range(101)))
        compact(log)
        assert [segment.base_offset for segment in log.segments] == [0, 100, 101]

    def test_reader_in_a_gap_gets_the_next_batch(self, log: Log) -> None:
        append_pairs(log, *[[(b"a", b"%d" % number)] for number in range(5)])
        compact(log)
        for offset in range(5):
            read = log.read(
                Offset(offset), end_offset=Offset(5), max_bytes=10_000, at_least_one=True
            )
            assert read_header(read.data, 0).base_offset == 4

    def test_log_is_found_by_time_after_compaction(self, log: Log) -> None:
        for number in range(5):
            batch = keyed_batch(number, [(b"%d" % (number % 2), b"1")], timestamp_ms=number * 100)
            append_batch(log, batch)
            log.roll(producers=(), now_ms=NOW_MS)
        assert log.offset_by_timestamp(0) is not None
        compact(log)
        found = [log.offset_by_timestamp(number * 100) for number in range(5)]
        assert [one.offset for one in found if one] == [3, 3, 3, 3, 4]

    def test_indexes_are_those_that_would_be_made_from_the_log(self, partition: LogFolder) -> None:
        partition.config = log_config(cleanup_policy=("compact",), index_interval_bytes=100)
        log = partition.open_log()
        append_pairs(log, *[[(b"%d" % (n % 20), b"%d" % n)] for n in range(60)])
        compact(log)
        index, time_index = f"{0:020d}.index", f"{0:020d}.timeindex"
        before = partition.files()
        partition.stop(log)
        partition.disk.remove(partition.folder / index)
        partition.open_log(clean=True)
        after = partition.files()
        assert (after[index], after[time_index]) == (before[index], before[time_index])
        assert len(before[index]) > 0


class TestMemory:
    """What does not fit is for the next time."""

    def test_keys_that_do_not_fit_are_taken_up_by_the_next_compaction(self, log: Log) -> None:
        for number in range(40):
            append_batch(log, keyed_batch(number, [(b"%d" % (number % 10), b"%d" % number)]))
        log.roll(producers=(), now_ms=NOW_MS)
        tight = CompactionLimits(memory_bytes=24 * 7, load_factor=0.5, read_bytes=100)
        cleaned_offset, rounds = 0, 0
        while cleaned_offset < 40:
            compaction = compact(log, cleaned_offset=cleaned_offset, limits=tight)
            assert compaction.end_offset > cleaned_offset
            cleaned_offset = compaction.end_offset
            rounds += 1
        assert rounds > 3
        assert offsets_of(log) == list(range(30, 40))

    def test_map_that_is_full_within_a_batch_is_no_hindrance(self, log: Log) -> None:
        append_pairs(log, [(b"%d" % (number % 10), b"1") for number in range(40)])
        tight = CompactionLimits(memory_bytes=24 * 7, load_factor=0.5, read_bytes=100)
        cleaned_offset = 0
        while cleaned_offset < 40:
            cleaned_offset = compact(log, cleaned_offset=cleaned_offset, limits=tight).end_offset
        assert offsets_of(log) == list(range(30, 40))


class TestInterruption:
    """A log that is closed or cut is left alone."""

    def test_compaction_ends_when_the_log_is_closed(self, partition: LogFolder, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        steps = _compaction(log).steps()
        next(steps)
        partition.crash(log)
        with pytest.raises(CompactionAborted):
            list(steps)

    def test_compaction_ends_when_the_log_is_cut(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        steps = _compaction(log).steps()
        next(steps)
        log.truncate_to(Offset(1))
        with pytest.raises(CompactionAborted):
            list(steps)

    def test_segment_is_not_put_in_place_of_what_was_cut_meanwhile(
        self, partition: LogFolder, log: Log
    ) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        compaction = _compaction(log)
        replace = next(step for step in compaction.steps() if isinstance(step, Replace))
        log.truncate_to(Offset(1))
        log.begin_replacing()
        assert log.replace(replace.cleaned, truncation_count=compaction.truncation_count) is None
        assert not log.is_replacing
        compaction.discard()
        assert offsets_of(log) == [0]
        assert not [name for name in partition.files() if name.endswith((".swap", ".cleaned"))]

    def test_damaged_batch_is_not_written_anew(self, partition: LogFolder, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")], [(b"a", b"2")])
        log.flush(up_to=log.log_end_offset)
        damaged = bytearray(partition.log_bytes(0))
        damaged[-1] ^= 1
        partition.write(f"{0:020d}.log", bytes(damaged))
        log.files.forget_folder(partition.folder)
        with pytest.raises(DamagedLog, match=r"0000\.log"):
            compact(log)
        assert partition.log_bytes(0) == bytes(damaged)

    def test_nobody_reads_on_the_loop_while_names_change(self, log: Log) -> None:
        append_pairs(log, [(b"a", b"1")])
        log.begin_replacing()
        assert (
            log.read_cached(Offset(0), end_offset=Offset(1), max_bytes=100, at_least_one=True)
            is None
        )
        assert log.aborted_cached(Offset(0), end_offset=Offset(1)) is None


def _compaction(log: Log) -> Compaction:
    return Compaction(
        log, cleanable_of(log), producers=(), limits=AMPLE, hash_key=HASH_KEY, now_ms=NOW_MS
    )
