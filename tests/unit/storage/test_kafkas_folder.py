"""Folders that Kafka 4.3.0 wrote: opened, served, and equal to what we would have written (S3).

`golden/kafka-4.3.0` is a log dir after a clean stop. `golden-0` has every codec, five idempotent
producers and timestamps that go up and down, in two segments, with `index.interval.bytes` 200.
`golden-txn-0` has four transactions, every other one aborted.
"""

import shutil
from pathlib import Path

import pytest

from tests.unit.storage.log_folder import (
    LogFolder,
    append_batch,
    log_config,
    offsets_of,
    read_all,
)
from tidelog.base.ids import BrokerId, Offset, TopicPartition
from tidelog.core.transactions.producers import ProducerStates
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.records.producer import ProducerEntry
from tidelog.storage.disk import RealDisk
from tidelog.storage.log_dir import LogDir, open_log_dir
from tidelog.storage.opening import OpenedLog, Replay
from tidelog.storage.producer_snapshot import read_snapshot

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.3.0"
GOLDEN_PARTITION = TopicPartition("golden", 0)
TRANSACTIONS = TopicPartition("golden-txn", 0)
CONFIG = log_config(index_interval_bytes=200, segment_bytes=3000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "logs"))


def open_dir(path: Path) -> LogDir:
    warnings: list[str] = []
    log_dir = open_log_dir(
        RealDisk(),
        path,
        broker_id=BrokerId(1),
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
        open_files_max=16,
        warn=warnings.append,
    )
    assert warnings == []
    return log_dir


class Opened:
    """A partition of Kafka's and what was learned about its producers."""

    def __init__(self, log_dir: LogDir, partition: TopicPartition) -> None:
        self.producers: list[ProducerEntry] = []
        self.replayed: list[BatchHeader] = []
        self.opened: OpenedLog = log_dir.open_partition(
            partition,
            topic_id=None,
            config=CONFIG,
            replay=Replay(
                restore=lambda entries, _: self.producers.extend(entries),
                observe=lambda header, _end: self.replayed.append(header),
            ),
            now_ms=0,
        )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_clean_stop_is_recognised(path: Path) -> None:
    log_dir = open_dir(path)
    assert log_dir.was_clean
    assert log_dir.partitions() == (GOLDEN_PARTITION, TRANSACTIONS)
    assert log_dir.high_watermark(GOLDEN_PARTITION) == 60


def test_records_of_every_codec_are_served(path: Path) -> None:
    log = Opened(open_dir(path), GOLDEN_PARTITION).opened.log
    records = read_all(log, max_bytes=500)
    assert [record.offset for record in records] == list(range(60))
    assert [record.key for record in records] == [b"key-%d" % number for number in range(60)]
    codecs = [dict(record.headers)["codec"] for record in records[::12]]
    assert codecs == [b"none", b"gzip", b"snappy", b"lz4", b"zstd"]


def test_producers_are_restored_without_a_scan(path: Path) -> None:
    partition = Opened(open_dir(path), GOLDEN_PARTITION)
    assert partition.replayed == []
    assert partition.opened.scanned_bytes == 0
    last_sequences = [entry.batches[-1].last_sequence for entry in partition.producers]
    assert last_sequences == [11] * 5


def test_opening_and_closing_changes_no_file(path: Path) -> None:
    log_dir = open_dir(path)
    for partition in log_dir.partitions():
        Opened(log_dir, partition).opened.log.close(clean=True, producers=())
        assert contents(path / str(partition)) == contents(GOLDEN / str(partition))


@pytest.mark.parametrize(
    ("name", "index_interval_bytes"), [("golden-0", 200), ("golden-txn-0", 4096)]
)
def test_indexes_made_from_the_log_are_kafkas(
    path: Path, name: str, index_interval_bytes: int
) -> None:
    config = log_config(index_interval_bytes=index_interval_bytes)
    partition = LogFolder(RealDisk(), path / name, config)
    for file in (path / name).glob("*index"):
        if file.suffix != ".txnindex":
            file.unlink()
    log = partition.open_log(clean=True)
    log.close(clean=True, producers=())
    kept = {file: data for file, data in contents(path / name).items() if "snapshot" not in file}
    golden = contents(GOLDEN / name)
    assert kept == {file: data for file, data in golden.items() if "snapshot" not in file}


def test_batches_appended_again_give_kafkas_files(tmp_path: Path) -> None:
    """Log, indexes and, at the roll, the last batch of every producer in the snapshot."""
    partition = LogFolder(RealDisk(), tmp_path / "golden-0", CONFIG)
    producers = ProducerStates(producer_id_expiration_ms=1, producers_max=100)
    log = partition.open_log()
    for base_offset in (0, 42):
        data = (GOLDEN / "golden-0" / f"{base_offset:020d}.log").read_bytes()
        for position, header in iter_headers(data):
            batch = data[position : position + header.size_bytes]
            append_batch(log, batch, producers=_last_batches(producers))
            producers.on_replayed(header)
    log.close(clean=True, producers=_last_batches(producers))
    ours, golden = contents(tmp_path / "golden-0"), contents(GOLDEN / "golden-0")
    assert set(golden) - set(ours) == {"leader-epoch-checkpoint", "partition.metadata"}
    for name, data in ours.items():
        if name.endswith(".snapshot"):
            assert sorted(_lines(data)) == sorted(_lines(golden[name]))
        else:
            assert data == golden[name]


def _last_batches(producers: ProducerStates) -> list[ProducerEntry]:
    return [entry._replace(batches=entry.batches[-1:]) for entry in producers.entries()]


def _lines(snapshot: bytes) -> list[bytes]:
    return [snapshot[start : start + 46] for start in range(10, len(snapshot), 46)]


def test_records_are_found_by_time(path: Path) -> None:
    log = Opened(open_dir(path), GOLDEN_PARTITION).opened.log
    records = read_all(log)
    for timestamp_ms in range(1_699_999_999_000, 1_700_000_052_000, 500):
        found = log.offset_by_timestamp(timestamp_ms)
        expected = next((r.offset for r in records if r.timestamp_ms >= timestamp_ms), None)
        assert (found and found.offset) == expected


def test_aborted_transactions_are_told(path: Path) -> None:
    log = Opened(open_dir(path), TRANSACTIONS).opened.log
    assert offsets_of(log) == list(range(16))
    aborted = log.aborted_transactions(Offset(0), end_offset=Offset(16))
    assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [(4, 7), (12, 15)]
    assert [
        entry.first_offset for entry in log.aborted_transactions(Offset(8), end_offset=Offset(16))
    ] == [12]
    assert len(log.aborted_transactions(Offset(0), end_offset=Offset(8))) == 1


def test_folder_without_the_clean_mark_is_recovered(path: Path) -> None:
    (path / ".kafka_cleanshutdown").unlink()
    index = path / "golden-0" / "00000000000000000042.index"
    index.write_bytes(index.read_bytes() + bytes(10_485_760 - 16))  # As Kafka has it while it runs.
    log_dir = open_dir(path)
    opened = Opened(log_dir, GOLDEN_PARTITION).opened
    assert offsets_of(opened.log) == list(range(60))
    assert index.read_bytes() == (GOLDEN / "golden-0" / index.name).read_bytes()


@pytest.mark.parametrize("has_snapshots", [True, False])
def test_aborted_transactions_found_after_a_crash_are_kafkas(
    path: Path, has_snapshots: bool
) -> None:
    folder, golden = path / "golden-txn-0", GOLDEN / "golden-txn-0"
    (index,) = folder.glob("*.txnindex")
    index.unlink()
    for snapshot in () if has_snapshots else folder.glob("*.snapshot"):
        snapshot.unlink()
    partition = LogFolder(RealDisk(), folder, log_config())
    partition.open_log(recovery_point=Offset(0))
    assert index.read_bytes() == (golden / index.name).read_bytes()


def test_producers_of_a_log_with_transactions_are_those_that_kafka_knew(path: Path) -> None:
    """D3: with the epoch of the coordinator that ended their last transaction (M1)."""
    folder = path / "golden-txn-0"
    known = read_snapshot(RealDisk(), folder / "00000000000000000016.snapshot")
    assert any(producer.coordinator_epoch >= 0 for producer in known)
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    producers = ProducerStates(producer_id_expiration_ms=86_400_000, producers_max=100)
    open_dir(path).open_partition(
        TRANSACTIONS,
        topic_id=None,
        config=CONFIG,
        replay=Replay(
            restore=lambda entries, end_offset: producers.restore(entries, end_offset=end_offset),
            observe=producers.on_replayed,
        ),
        now_ms=0,
    )
    assert sorted(map(_in_a_snapshot, producers.entries())) == sorted(map(_in_a_snapshot, known))


def _in_a_snapshot(producer: ProducerEntry) -> tuple[object, ...]:
    """A file has the last batch only, and for its time the producer's."""
    last = producer.batches[-1]
    return (*producer[:-1], last.last_sequence, last.base_offset, last.last_offset)
