"""One partition's folder under test: batches in, records out, on any disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import BytesLike, Disk
from tidelog.config.topic import TopicConfig
from tidelog.records.batch import BatchHeader, Codec, iter_headers, read_header
from tidelog.records.producer import ProducerEntry
from tidelog.records.record import Record, decode_records, encode_batch
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import Log, LogConfig
from tidelog.storage.opening import OpenedLog, Replay, open_log

NOW_MS = 1_700_000_000_000
TOPIC_PARTITION = TopicPartition("orders", 3)
OPEN_FILES_MAX = 16


def log_config(
    *,
    segment_bytes: int = 2**30,
    index_interval_bytes: int = 4096,
    retention_bytes: int = -1,
    retention_ms: int = -1,
    segment_ms: int = 7 * 86_400_000,
    segment_index_bytes: int = 10 * 2**20,
    cleanup_policy: tuple[str, ...] = ("delete",),
) -> LogConfig:
    """A topic's settings, without the lower bounds that a client has to keep."""
    return replace(
        TopicConfig(),
        segment_bytes=segment_bytes,
        index_interval_bytes=index_interval_bytes,
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
        segment_ms=segment_ms,
        segment_index_bytes=segment_index_bytes,
        cleanup_policy=cleanup_policy,
    )


def batch_at(
    base_offset: int,
    count: int = 1,
    *,
    timestamps_ms: Sequence[int] | None = None,
    leader_epoch: int = 0,
    codec: Codec = Codec.NONE,
    value: bytes = b"value",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """`count` records from `base_offset` on, each with its offset in its value."""
    times = timestamps_ms or [NOW_MS] * count
    records = [
        Record(
            base_offset + number, times[number], None, b"%d %b" % (base_offset + number, value), ()
        )
        for number in range(count)
    ]
    return encode_batch(
        records,
        leader_epoch=leader_epoch,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=False,
        is_control=False,
    )


def append_batch(
    log: Log, batch: BytesLike, *, producers: Sequence[ProducerEntry] = (), now_ms: int = NOW_MS
) -> None:
    """Append like a partition does: roll if need be, then write."""
    header = read_header(batch, 0)
    last_offset = Offset(header.last_offset)
    if log.roll_needed(
        size_bytes=len(batch),
        max_timestamp_ms=header.max_timestamp_ms,
        now_ms=now_ms,
        last_offset=last_offset,
    ):
        log.roll(producers=producers, now_ms=now_ms)
    log.append(
        batch,
        base_offset=Offset(header.base_offset),
        last_offset=last_offset,
        max_timestamp_ms=header.max_timestamp_ms,
    )


def append_records(log: Log, batch_count: int, *, count: int = 1, value: bytes = b"value") -> None:
    """`batch_count` batches of `count` records at the end."""
    for _ in range(batch_count):
        append_batch(log, batch_at(log.log_end_offset, count, value=value))


def read_all(log: Log, *, max_bytes: int = 10_000) -> list[Record]:
    """Every record from log start on, read the way a consumer reads."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(
            offset, end_offset=log.log_end_offset, max_bytes=max_bytes, at_least_one=True
        )
        assert part.end_offset > offset
        records += [record for record in records_in(part.data) if record.offset >= offset]
        offset = part.end_offset
    return records


def records_in(data: BytesLike) -> list[Record]:
    """The records of a run of whole batches."""
    view = memoryview(data)
    records: list[Record] = []
    end = 0
    for position, header in iter_headers(view):
        end = position + header.size_bytes
        records += decode_records(view[position:end])
    assert end == len(view)
    return records


def offsets_of(log: Log) -> list[int]:
    return [record.offset for record in read_all(log)]


@dataclass
class LogFolder:
    """The folder of a partition and what opening it last reported."""

    disk: Disk
    folder: Path
    config: LogConfig = field(default_factory=log_config)
    topic_id: TopicId | None = None
    warnings: list[str] = field(default_factory=list)
    restored: list[ProducerEntry] = field(default_factory=list)
    replayed: list[BatchHeader] = field(default_factory=list)

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: Offset | None = None,
        log_start_offset: int = 0,
        has_been_compacted: bool = False,
        now_ms: int = NOW_MS,
    ) -> OpenedLog:
        self.warnings.clear()
        self.restored.clear()
        self.replayed.clear()
        return open_log(
            disk=self.disk,
            files=FileCache(self.disk, open_files_max=OPEN_FILES_MAX),
            folder=self.folder,
            topic_partition=TOPIC_PARTITION,
            topic_id=self.topic_id,
            config=self.config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=Offset(log_start_offset),
            has_been_compacted=has_been_compacted,
            replay=Replay(
                restore=self._restore, observe=lambda header, _end: self.replayed.append(header)
            ),
            warn=self.warnings.append,
            now_ms=now_ms,
        )

    def _restore(self, producers: Sequence[ProducerEntry], _offset: Offset) -> None:
        self.restored.extend(producers)

    def open_log(self, *, clean: bool = False, recovery_point: Offset | None = None) -> Log:
        return self.open(clean=clean, recovery_point=recovery_point).log

    def crash(self, log: Log) -> None:
        """The process dies; what it wrote is in the page cache."""
        log.close(clean=False, producers=())

    def stop(self, log: Log) -> None:
        log.note_leader_epochs(((LeaderEpoch(0), Offset(0)),), are_written=False)
        log.close(clean=True, producers=())

    def files(self) -> dict[str, bytes]:
        """Every file by name."""
        return {
            name: self.disk.read_file(self.folder / name)
            for name in self.disk.list_folder(self.folder)
        }

    def write(self, name: str, data: bytes) -> None:
        """Put `data` there as a fault of the disk would."""
        self.disk.replace_file(self.folder / name, data)

    def log_bytes(self, base_offset: int = 0) -> bytes:
        return self.disk.read_file(self.folder / f"{base_offset:020d}.log")
