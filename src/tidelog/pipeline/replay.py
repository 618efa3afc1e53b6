"""`format("tidelog-replay")`: an archive as a stream, in order of each partition, at a rate (X4).

What is read in a micro-batch is offsets of the archived topic, as with a topic itself, so Spark's
checkpoint says how far it is, and the sink's exactly-once holds: running it again with the same
checkpoint goes on where it was. Offsets mean the same records whatever becomes of files by merging.

    initialOffset      where the wanted offsets or times begin in the archive
    latestOffset       as many more as the rate allows; it waits for its turn
    partitions, read   a task for each partition, rows in order of their offsets

The rate is of offsets and holds over seconds: each micro-batch has those of the time since the last
one. Times choose records by their timestamps, wherever in the archive they are.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.json_values import UNPARSED, archived_ddl, with_written_values
from tidelog.pipeline.archive.manifest import ArchivedFile, Chunk, Manifest
from tidelog.pipeline.archive.manifest_log import manifest_of
from tidelog.pipeline.checkpoint_job import require_same_job
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.offsets import from_checkpoint, limited, to_checkpoint
from tidelog.pipeline.running import Outcome, RunTerms, run_stream
from tidelog.pipeline.target_topic import require_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "tidelog-replay"
OFFSETS_PER_BATCH: Final = 100_000
"""Where no rate says otherwise."""

_OPTION: Final = "replay"
_TURN_S: Final = 1.0
# A micro-batch that took longer is not made up for: nobody wants a burst of it.
_CREDIT_MAX_S: Final = 3.0
_MANIFEST_AGE_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What to take from an archive. Ends are exclusive; None: as far as there is any."""

    root: str
    manifest_root: str | None = None
    partitions: tuple[int, ...] | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    rate_per_s: float | None = None

    def has_time(self, file: ArchivedFile) -> bool:
        """Whether records of the file may be of the wanted time."""
        if self.start_ms is not None and file.last_timestamp_ms < self.start_ms:
            return False
        return self.end_ms is None or file.first_timestamp_ms < self.end_ms

    def require_partitions_of(self, manifest: Manifest) -> None:
        """Raises PipelineError if one is wanted that was never archived."""
        unknown = sorted(set(self.partitions or ()) - manifest.chunks.keys())
        if unknown:
            raise PipelineError(
                f"{self.root} has no partition {unknown[0]} of {manifest.info.topic}: it has "
                f"{', '.join(map(str, sorted(manifest.chunks))) or 'none'}"
            )

    def bounds(self, manifest: Manifest) -> dict[int, tuple[int, int]]:
        """Where to begin and to end in each partition that has anything wanted."""
        found = {}
        for partition, chunks in manifest.chunks.items():
            if self.partitions is not None and partition not in self.partitions:
                continue
            files = [file for chunk in chunks for file in chunk.files if self.has_time(file)]
            if not files:
                continue
            start = min(file.first_offset for file in files)
            end = max(file.last_offset for file in files) + 1
            start = start if self.start_offset is None else max(start, self.start_offset)
            end = end if self.end_offset is None else min(end, self.end_offset)
            if start < end:
                found[partition] = (start, end)
        return found


def replay_archive(
    spark: "SparkSession",
    wanted: Replay,
    *,
    target: str,
    kafka: Mapping[str, str],
    terms: RunTerms,
    keeps_partitions: bool = True,
) -> Outcome:
    """Write an archive to a topic, once. Raises PipelineError, ArchiveError, ClientError."""
    manifest = manifest_of(wanted.root, wanted.manifest_root)
    wanted.require_partitions_of(manifest)
    if keeps_partitions:
        count = 1 + max(wanted.bounds(manifest), default=0)
        require_partitions(kafka, target, count, otherwise="let keys decide (--by-key)")
    job = {"pipeline": "replay", "topic": manifest.info.topic, "target": target}
    require_same_job(terms.checkpoint, job)
    columns = ["key", "value", "headers", "timestamp", *(["partition"] if keeps_partitions else [])]
    writer = replayed(spark, wanted).select(*columns).writeStream.format("tidelog")
    options = {**kafka, "topic": target, "includeTimestamp": "true"}
    return run_stream(writer.options(**options), terms, lambda _progress: {})


def replayed(spark: "SparkSession", wanted: Replay) -> "DataFrame":
    """A stream with the columns of a topic; `value` is bytes also if JSON was archived."""
    manifest_of(wanted.root, wanted.manifest_root)  # Says if there is none, in fewer words.
    spark.dataSource.register(ReplayDataSource)
    options = {_OPTION: json.dumps({name: getattr(wanted, name) for name in wanted.__slots__})}
    rows = spark.readStream.format(FORMAT).options(**options).load()
    return with_written_values(rows) if UNPARSED in rows.columns else rows


class ReplayDataSource(DataSource):
    """Streams only: `archive.archived` is for batches."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        wanted = self._wanted()
        return archived_ddl(manifest_of(wanted.root, wanted.manifest_root).info.value_schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return ReplayStreamReader(self._wanted(), tuple(field.name for field in schema.fields))

    def _wanted(self) -> Replay:
        found = json.loads(self.options[_OPTION])
        if found["partitions"] is not None:
            found["partitions"] = tuple(found["partitions"])
        return Replay(**found)


class ReplayPartition(InputPartition):
    """A task: offsets of a partition, and the chunks that have them."""

    def __init__(self, start_offset: int, end_offset: int, chunks: Sequence[Chunk]) -> None:
        super().__init__((start_offset, end_offset))
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.chunks = chunks


class ReplayStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One object on the driver plans; copies of it in tasks only read."""

    def __init__(self, wanted: Replay, columns: tuple[str, ...]) -> None:
        self._wanted = wanted
        self._columns = columns
        self._known: tuple[float, Manifest] | None = None
        self._available: dict[TopicPartition, int] | None = None
        self._last_turn_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_wanted": self._wanted, "_columns": self._columns}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        return to_checkpoint(self._places(lambda start, _end: start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        return ReadMaxRows(OFFSETS_PER_BATCH)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self._available = self._places(lambda _start, end: end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        return to_checkpoint(self._places(lambda _start, end: end))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = self._complete(from_checkpoint(start))
        ends = self._available or self._places(lambda _start, end: end)
        end = {each: max(at, begun.get(each, at)) for each, at in ends.items()}
        if isinstance(limit, ReadAllAvailable) or end == begun:
            return to_checkpoint({**begun, **end})
        allowed = self._allowed(sum(at > begun.get(each, at) for each, at in end.items()))
        return to_checkpoint({**begun, **limited({**end, **begun}, end, allowed)})

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = self._complete(from_checkpoint(start)), from_checkpoint(end)
        manifest = self._manifest()
        return [
            ReplayPartition(
                begun[each], at, _overlapping(manifest, each.partition, begun[each], at)
            )
            for each, at in sorted(ended.items())
            if at > begun[each]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReplayPartition):
            return  # What Spark makes up where there is nothing to read.
        files = ArchiveFiles(self._wanted.root)
        for chunk in partition.chunks:
            yield from _rows(files, chunk, partition, self._wanted, self._columns)

    def _complete(self, begun: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """With partitions that were archived for the first time since."""
        return {**self._places(lambda start, _end: start), **begun}

    def _places(self, choose: Any) -> dict[TopicPartition, int]:
        manifest = self._manifest()
        return {
            TopicPartition(manifest.info.topic, partition): choose(*bounds)
            for partition, bounds in self._wanted.bounds(manifest).items()
        }

    def _manifest(self) -> Manifest:
        now_s = time.monotonic()
        if self._known is None or now_s - self._known[0] > _MANIFEST_AGE_S:
            self._known = now_s, manifest_of(self._wanted.root, self._wanted.manifest_root)
        return self._known[1]

    def _allowed(self, partition_count: int) -> int:
        """How many offsets the rate allows now; waits until there is one for each partition."""
        rate = self._wanted.rate_per_s
        if rate is None:
            return OFFSETS_PER_BATCH
        now_s = time.monotonic()
        # Each is given one at least (`limited`): none starves, and none looks as if it had ended.
        turn_s = max(_TURN_S, partition_count / rate)
        last_s = now_s - turn_s if self._last_turn_s is None else self._last_turn_s
        if (early_s := last_s + turn_s - now_s) > 0:
            time.sleep(early_s)
            now_s += early_s
        self._last_turn_s = now_s
        return max(1, int(rate * min(now_s - last_s, max(_CREDIT_MAX_S, turn_s))))


def _overlapping(
    manifest: Manifest, partition: int, start_offset: int, end_offset: int
) -> list[Chunk]:
    return [
        replace(chunk, files=files)
        for chunk in manifest.chunks.get(partition, ())
        if chunk.start_offset < end_offset
        and chunk.end_offset > start_offset
        and (
            files := tuple(
                file
                for file in chunk.files
                if file.first_offset < end_offset and file.last_offset >= start_offset
            )
        )
    ]


def _rows(
    files: ArchiveFiles,
    chunk: Chunk,
    task: ReplayPartition,
    wanted: Replay,
    columns: tuple[str, ...],
) -> Iterator[pa.RecordBatch]:
    """Of one chunk, in order. Those of a micro-batch are in memory at once, no more."""
    tables = [
        _selected(group, task, wanted)
        for file in chunk.files
        if wanted.has_time(file)
        for group in _row_groups(files, file, task, columns)
    ]
    if not tables:
        return
    whole = pa.concat_tables(tables)
    if len(chunk.files) > 1:
        # Hours may be mixed in the topic; each file has its own.
        whole = whole.take(pc.sort_indices(whole, sort_keys=[("offset", "ascending")]))
    yield from whole.combine_chunks().to_batches()


def _row_groups(
    files: ArchiveFiles, file: ArchivedFile, task: ReplayPartition, columns: tuple[str, ...]
) -> Iterator[pa.Table]:
    with files.open(file.path) as opened:
        parquet = pq.ParquetFile(opened)
        names = [
            parquet.metadata.schema.column(at).path for at in range(parquet.metadata.num_columns)
        ]
        position = names.index("offset")
        for number in range(parquet.num_row_groups):
            known = parquet.metadata.row_group(number).column(position).statistics
            if known.min < task.end_offset and known.max >= task.start_offset:
                yield parquet.read_row_group(number).select(list(columns))


def _selected(rows: pa.Table, task: ReplayPartition, wanted: Replay) -> pa.Table:
    offsets = rows.column("offset")
    chosen = pc.and_(
        pc.greater_equal(offsets, task.start_offset), pc.less(offsets, task.end_offset)
    )
    microseconds = rows.column("timestamp").cast(pa.int64())
    if wanted.start_ms is not None:
        chosen = pc.and_(chosen, pc.greater_equal(microseconds, wanted.start_ms * 1000))
    if wanted.end_ms is not None:
        chosen = pc.and_(chosen, pc.less(microseconds, wanted.end_ms * 1000))
    return rows.filter(chosen)
