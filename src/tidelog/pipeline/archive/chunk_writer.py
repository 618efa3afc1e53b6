"""Writes the rows of one chunk into Parquet files, a file for each hour among them.

Runs in a task. Names are never used twice: who runs the same task again, or runs on although its
driver is dead, writes files of its own, and cannot change one that counts. A file that reaches the
target is closed and another begun. At most `OPEN_FILES_MAX` hours are open at a time, so that
timestamps all over the calendar cost files, not memory.
"""

import re
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.manifest import ArchivedFile

OPEN_FILES_MAX: Final = 16
ROW_GROUP_BYTES: Final = 8 * 1024 * 1024
ROW_GROUP_ROWS: Final = 128 * 1024
COMPRESSION: Final = "zstd"

_HOUR_US: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Folders have dates that calendars know. A record of another time is in the first or last of them.
_FIRST_HOUR: Final = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
_LAST_HOUR: Final = (datetime(9999, 12, 31, 23, tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
_FIRST_US: Final = _FIRST_HOUR * _HOUR_US
_LAST_US: Final = _LAST_HOUR * _HOUR_US
_NAME: Final = re.compile(r"part-\d{5}-\d{20}-([0-9a-f]+)-[0-9a-f]+\.parquet")
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTerms:
    """What a task has to know beside its rows."""

    root: str
    run: str
    target_bytes: int


def hour_folder(hour: int) -> str:
    """Of a number of hours since 1970: `date=2026-11-17/hour=09`."""
    moment = _EPOCH + timedelta(hours=hour)
    return f"date={moment.date().isoformat()}/hour={moment:%H}"


def run_of(path: str) -> str | None:
    """Which run wrote the file; None if the name is none of ours."""
    found = _NAME.fullmatch(path.rpartition("/")[2])
    return None if found is None else found[1]


class ChunkWriter:
    """Takes rows in order of their offsets. After `close`, `files` is what was written."""

    def __init__(self, terms: WriteTerms, partition: int) -> None:
        self._terms = terms
        self._partition = partition
        self._system = ArchiveFiles(terms.root)
        self._attempt = uuid.uuid4().hex[:12]
        # A file is larger than the target by one of these at most.
        self._row_group_bytes = max(1, min(ROW_GROUP_BYTES, terms.target_bytes // 2))
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()
        self.files: list[ArchivedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        for hour, rows in _by_hour(with_utc(batch)):
            for piece in _pieces(rows, self._row_group_bytes):
                file = self._file_of(hour, piece)
                file.write(piece)
                if file.size_bytes >= self._terms.target_bytes:
                    self._close(hour)

    def close(self) -> list[ArchivedFile]:
        for hour in list(self._open):
            self._close(hour)
        self.files.sort(key=lambda each: (each.hour, each.first_offset))
        return self.files

    def _file_of(self, hour: int, rows: pa.RecordBatch) -> "_OpenFile":
        if hour in self._open:
            self._open.move_to_end(hour)
            return self._open[hour]
        if len(self._open) == OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        first_offset = rows.column("offset")[0].as_py()
        name = f"part-{self._partition:05}-{first_offset:020}-{self._terms.run}-{self._attempt}"
        path = f"{hour_folder(hour)}/{name}.parquet"
        self._open[hour] = _OpenFile(self._system, path, rows.schema, self._row_group_bytes)
        return self._open[hour]

    def _close(self, hour: int) -> None:
        self.files.append(self._open.pop(hour).close())


class _OpenFile:
    def __init__(
        self, system: ArchiveFiles, path: str, schema: pa.Schema, row_group_bytes: int
    ) -> None:
        self._row_group_bytes = row_group_bytes
        self._system = system
        self._path = path
        self._sink = system.create(path)
        self._writer = pq.ParquetWriter(self._sink, schema, compression=COMPRESSION)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_rows = 0
        self._rows = 0
        self._offsets: list[int] = []
        self._timestamps_ms: list[int] = []

    @property
    def size_bytes(self) -> int:
        """About: what is not written yet is not compressed either, and counts as nothing."""
        return int(self._sink.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_rows += batch.num_rows
        self._note(batch)
        if self._waiting_bytes >= self._row_group_bytes or self._waiting_rows >= ROW_GROUP_ROWS:
            self._write_row_group()

    def close(self) -> ArchivedFile:
        self._write_row_group()
        self._writer.close()
        self._sink.close()
        self._system.make_durable(self._path)
        size_bytes = self._system.size_bytes(self._path)
        assert size_bytes is not None
        return ArchivedFile(
            path=self._path,
            record_count=self._rows,
            size_bytes=size_bytes,
            first_offset=self._offsets[0],
            last_offset=self._offsets[-1],
            first_timestamp_ms=min(self._timestamps_ms),
            last_timestamp_ms=max(self._timestamps_ms),
        )

    def _write_row_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting))
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0

    def _note(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        offsets = batch.column("offset")
        self._offsets = [*self._offsets[:1], offsets[0].as_py(), offsets[-1].as_py()]
        found = pc.min_max(batch.column("timestamp").cast(pa.int64())).as_py()
        self._timestamps_ms += [found["min"] // 1000, found["max"] // 1000]
        self._timestamps_ms = [min(self._timestamps_ms), max(self._timestamps_ms)]


def copied(batches: Iterable[pa.RecordBatch], writer: ChunkWriter) -> list[ArchivedFile]:
    """Write all of them, and say into which files."""
    for batch in batches:
        if batch.num_rows:
            writer.write(batch)
    return writer.close()


def with_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with timestamps as files have them, whatever the time zone of the session is."""
    at = batch.schema.get_field_index("timestamp")
    field = pa.field("timestamp", _TIMESTAMP)
    if batch.schema.field(at).type == _TIMESTAMP:
        return batch
    return batch.set_column(at, field, batch.column(at).cast(_TIMESTAMP))


def _pieces(rows: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """The same rows, cut where about that many bytes are together."""
    # Rather more than less: one that is just too small would wait for another.
    count = 1 + rows.num_rows * size_bytes // max(rows.nbytes, 1)
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


def _by_hour(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    microseconds = batch.column("timestamp").cast(pa.int64())
    within: Any = pc.max_element_wise(pc.min_element_wise(microseconds, _LAST_US), _FIRST_US)
    # Counted from the first hour there is: division of integers goes towards zero.
    hours = pc.add(pc.divide(pc.subtract(within, _FIRST_US), _HOUR_US), _FIRST_HOUR)
    for hour in pc.unique(hours).to_pylist():
        is_of_hour = pc.equal(hours, hour)
        yield hour, batch if pc.all(is_of_hour).as_py() else batch.filter(is_of_hour)
