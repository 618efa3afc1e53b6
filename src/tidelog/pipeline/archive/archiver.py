"""Archives a topic: takes offsets when they are enough for a file, writes them, commits, merges.

    ends of the topic ──▶ what to take ──▶ Spark job: a file for each chunk and hour
                          (planning)                    │
                 manifest ◀── commit: it counts now ◀───┘

The manifest is also how far the work is: there is no other checkpoint that it could disagree with.
A process that dies anywhere leaves files that nobody counts, and the next run goes on behind the
last commit. Everything here runs on the driver, called by one thread.
"""

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.base.ids import TopicPartition
from tidelog.client.topic_offsets import TopicOffsets
from tidelog.pipeline.archive.chunk_writer import WriteTerms, run_of
from tidelog.pipeline.archive.compaction import Merge, merged
from tidelog.pipeline.archive.data_source import (
    FORMAT,
    ArchiveDataSource,
    ChunkJob,
    Written,
    what_was_written,
)
from tidelog.pipeline.archive.errors import ArchiveError
from tidelog.pipeline.archive.files import ArchiveFiles
from tidelog.pipeline.archive.json_values import (
    checked_schema,
    inferred_schema,
    with_parsed_values,
)
from tidelog.pipeline.archive.manifest import (
    ArchiveInfo,
    Chunk,
    Manifest,
    applied,
    first_manifest,
)
from tidelog.pipeline.archive.manifest_log import ManifestLog, manifest_of, wall_clock_ms
from tidelog.pipeline.archive.planning import (
    Backlog,
    all_merges,
    chunk_offsets,
    due_merges,
    taken,
)
from tidelog.pipeline.errors import DataLoss, OptionError
from tidelog.pipeline.kafka_settings import COMMITTED
from tidelog.pipeline.offsets import to_checkpoint
from tidelog.pipeline.ranges import OffsetRange, cut, ranges_between
from tidelog.pipeline.running import Question
from tidelog.pipeline.source_cluster import SourceCluster
from tidelog.pipeline.source_options import stream_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET_BYTES: Final = 128 * 1024 * 1024
MAX_DELAY_S: Final = 600.0
INFER: Final = "infer"
RAW: Final = "raw"

CountWatch = Callable[[int, int], None]
"""Told how many there are of all that are to be."""

_CHUNKS_PER_CORE: Final = 2
_ASKED_WITHIN_S: Final = 10.0
# Where retention is faster than that again and again, nothing is left to be archived.
_OVERTAKEN_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSettings:
    """How an archive is written. All but the topic may change from run to run."""

    topic: str
    root: str
    kafka: Mapping[str, str]
    """Options of the source: `kafka.bootstrap.servers` and what else the cluster asks for."""
    value_schema: str | None = None
    """Of JSON values; INFER: found in records; RAW: bytes. None: as the archive has it, or RAW."""
    manifest_root: str | None = None
    """Where the manifest is, if not in the archive itself."""
    target_bytes: int = TARGET_BYTES
    max_delay_s: float = MAX_DELAY_S
    allows_loss: bool = False
    """Go on behind records that retention has removed before they were archived."""

    @property
    def source(self) -> dict[str, str]:
        """Options of the source: only what was committed, unless `kafka` says otherwise."""
        return {**COMMITTED, **self.kafka}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one step has archived."""

    record_count: int
    size_bytes: int
    file_count: int
    chunk_count: int
    merged_count: int
    """Chunks that became one of fewer."""
    unparsed_count: int
    """Records whose bytes were kept, since the columns do not say everything of them."""
    took_s: float


def open_archive(
    spark: "SparkSession",
    settings: ArchiveSettings,
    *,
    clock_s: Callable[[], float] = time.monotonic,
) -> "Archiver":
    """Become the one who writes to this archive, which is made if it is not there.

    Raises OptionError, ArchiveError, ClientError.
    """
    spark.dataSource.register(ArchiveDataSource)
    log = ManifestLog(ArchiveFiles(settings.manifest_root or settings.root), now_ms=wall_clock_ms)
    run = uuid.uuid4().hex[:12]
    manifest = log.load()
    if manifest is None:
        _require_empty(settings)
        _topic_id(settings)  # Who has mistyped the topic need not remove the archive of it first.
        info = ArchiveInfo(topic=settings.topic, value_schema=_new_schema(spark, settings))
        made = log.commit(version=0, run=run, info=info, added=(), removed=())
        manifest = first_manifest(made)
    else:
        _require_same(settings, manifest.info)
        manifest = applied(
            manifest,
            log.commit(
                version=manifest.version + 1, run=run, info=manifest.info, added=(), removed=()
            ),
        )
    archiver = Archiver(spark, settings, log, manifest, clock_s)
    archiver.clean()
    return archiver


def _new_schema(spark: "SparkSession", settings: ArchiveSettings) -> str | None:
    if settings.value_schema == INFER:
        return inferred_schema(_reader(spark, settings, {}), settings.topic)
    if settings.value_schema is None or settings.value_schema == RAW:
        return None
    return checked_schema(settings.value_schema)


def _require_same(settings: ArchiveSettings, info: ArchiveInfo) -> None:
    _require_topic(settings.topic, settings.root, info)
    wanted = settings.value_schema
    if wanted is None or (wanted == INFER and info.value_schema is not None):
        return
    if info.value_schema is None:
        if wanted != RAW:
            raise OptionError(f"the archive {settings.root} has values as they are, not as JSON")
    elif wanted == RAW or checked_schema(wanted) != info.value_schema:
        raise OptionError(
            f"the archive {settings.root} has another schema of its own: {info.value_schema}"
        )


def require_archive(topic: str, root: str, *, manifest_root: str | None) -> None:
    """Raises ArchiveError if there is none, OptionError if it is of another topic."""
    _require_topic(topic, root, manifest_of(root, manifest_root).info)


def _require_topic(topic: str, root: str, info: ArchiveInfo) -> None:
    if topic != info.topic:
        raise OptionError(f"the archive {root} is of the topic {info.topic}, not of {topic}")


def _require_same_topic(settings: ArchiveSettings, info: ArchiveInfo, topic_id: str | None) -> None:
    """Offsets of another topic mean other records."""
    if None not in {info.topic_id, topic_id} and info.topic_id != topic_id:
        raise ArchiveError(
            f"the archive {settings.root} is of another topic that was called {info.topic}: its id "
            f"was {info.topic_id}, and is {topic_id} now. The topic was made anew, or is another "
            "cluster's, and needs an archive of its own"
        )


def _require_empty(settings: ArchiveSettings) -> None:
    """What no manifest names is removed when a run begins: it had better not be somebody's."""
    if any(run_of(found.path) is not None for found in ArchiveFiles(settings.root).below("")):
        raise OptionError(
            f"{settings.root} has files of an archive, and its manifest is not in "
            f"{settings.manifest_root or settings.root}: give the place where it is "
            "(--checkpoint), or another folder"
        )


def _topic_id(settings: ArchiveSettings) -> str | None:
    kafka = stream_options({**settings.source, "subscribe": settings.topic}).kafka
    with TopicOffsets(
        kafka.for_client(), is_committed_only=False, timeout_s=_ASKED_WITHIN_S
    ) as offsets:
        offsets.partitions_of({settings.topic})  # Names it, if it does not exist.
        return offsets.topic_id(settings.topic)


def _reader(
    spark: "SparkSession", settings: ArchiveSettings, options: Mapping[str, str]
) -> "DataFrame":
    reader = spark.read.format("tidelog").options(**settings.source)
    if not options:
        reader = reader.option("subscribe", settings.topic)
    return reader.options(**options).option("includeHeaders", "true").load()


class Archiver:
    """Writes to one archive, until somebody else does."""

    def __init__(
        self,
        spark: "SparkSession",
        settings: ArchiveSettings,
        log: ManifestLog,
        manifest: Manifest,
        clock_s: Callable[[], float],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._log = log
        self._clock_s = clock_s
        self._files = ArchiveFiles(settings.root)
        self._waiting_since_s: dict[int, float] = {}
        options = {**settings.source, "subscribe": settings.topic}
        self._cluster = SourceCluster(stream_options(options))
        self._allows_loss = settings.allows_loss
        self._fixed_ends: dict[int, int] | None = None
        self.manifest = manifest
        self.lag = 0
        """Offsets that were not archived when it was last looked, up to where it is to end."""

    def fix_ends(self) -> None:
        """From now on go no further than where the topic ends now, whatever else is sent to it."""
        self._fixed_ends = self._ends()

    def step(self, *, takes_all: bool) -> Round | None:
        """Archive something, and merge what is due; None if there was nothing to take.

        `takes_all`: however little there is. Raises DataLoss, ArchiveError, ClientError.
        """
        began_s = self._clock_s()
        written = self._written_next(takes_all=takes_all)
        if written is None:
            return None
        chunks = written.chunks
        # Ids never come back: all that was read is of the topic that is there now.
        topic_id = _topic_id(self._settings)
        _require_same_topic(self._settings, self.manifest.info, topic_id)
        info = replace(self.manifest.info, topic_id=topic_id or self.manifest.info.topic_id)
        self._commit(info=info, added=chunks, removed=())
        self.lag -= sum(chunk.offset_count for chunk in chunks)
        for chunk in chunks:
            self._waiting_since_s.pop(chunk.partition, None)
        return Round(
            record_count=sum(chunk.record_count for chunk in chunks),
            size_bytes=sum(chunk.size_bytes for chunk in chunks),
            file_count=sum(len(chunk.files) for chunk in chunks),
            chunk_count=len(chunks),
            merged_count=self._merge_due(),
            unparsed_count=written.unparsed_count,
            took_s=self._clock_s() - began_s,
        )

    def compact(
        self,
        *,
        on_progress: CountWatch = lambda _done, _all: None,
        is_stopped: Question = lambda: False,
    ) -> int:
        """Merge all that is small, as far as its neighbours allow; returns how many chunks.

        In portions, each of which is a commit. Who is asked to stop ends behind one.
        """
        due = self._all_merges()
        portion = _CHUNKS_PER_CORE * self._spark.sparkContext.defaultParallelism
        chunk_count = sum(len(chunks) for chunks in due)
        merged_count = 0
        on_progress(0, chunk_count)
        for first in range(0, len(due), portion):
            if is_stopped():
                break
            merged_count += self._merge(due[first : first + portion])
            on_progress(merged_count, chunk_count)
        return merged_count

    def small_chunk_count(self) -> int:
        """How many chunks `compact` would merge."""
        return sum(len(chunks) for chunks in self._all_merges())

    def clean(self) -> int:
        """Remove files that no manifest names and nobody can commit any more.

        Those are left over by runs before this one, and what merges have replaced. What this run
        writes stays.
        """
        counting = {each.path for each in self.manifest.files()} | self._log.recently_removed()
        removed = 0
        for found in list(self._files.below("")):
            run = run_of(found.path)
            if run in {None, self.manifest.run} or found.path in counting:
                continue
            self._files.delete(found.path)
            removed += 1
        return removed

    # -- what there is -----------------------------------------------------------------------------

    def _backlogs(self, *, takes_all: bool) -> dict[int, Backlog]:
        done = self.manifest.next_offsets()
        ends = self._ends() if self._fixed_ends is None else self._fixed_ends
        begins = self._begins(ends)
        found = {
            partition: Backlog(
                # Retention may have gone beyond an end that was fixed a while ago.
                min(self._start(partition, done.get(partition), begins[partition], end), end),
                end,
                takes_all or self._has_waited(partition),
            )
            for partition, end in ends.items()
        }
        self.lag = sum(each.size for each in found.values())
        return {partition: each for partition, each in found.items() if each.size > 0}

    def _ends(self) -> dict[int, int]:
        topic = self._settings.topic
        done = self.manifest.next_offsets()
        ends = self._cluster.ends_behind(
            {TopicPartition(topic, partition): at for partition, at in done.items()}
        )
        return {each.partition: at for each, at in ends.items()}

    def _begins(self, partitions: Iterable[int]) -> dict[int, int]:
        topic = self._settings.topic
        found = self._cluster.starts(frozenset(TopicPartition(topic, each) for each in partitions))
        return {each.partition: at for each, at in found.items()}

    def _start(self, partition: int, done: int | None, begins: int, end: int) -> int:
        if done is None:
            return begins
        if done > end:
            raise ArchiveError(
                f"partition {partition} of {self._settings.topic} ends at {end}, but was archived "
                f"up to {done}: records were lost, or it is another topic of the same name, which "
                "needs an archive of its own"
            )
        if begins > done:
            if not self._allows_loss:
                raise DataLoss(
                    f"partition {partition} of {self._settings.topic} begins at {begins}, but was "
                    f"archived up to {done}",
                    remedy="allow it (--allow-loss)",
                )
            return begins
        return done

    def _has_waited(self, partition: int) -> bool:
        now_s = self._clock_s()
        since_s = self._waiting_since_s.setdefault(partition, now_s)
        return now_s - since_s >= self._settings.max_delay_s

    # -- writing -----------------------------------------------------------------------------------

    def _terms(self) -> WriteTerms:
        return WriteTerms(
            root=self._settings.root,
            run=self.manifest.run,
            target_bytes=self._settings.target_bytes,
        )

    def _written_next(self, *, takes_all: bool) -> Written | None:
        """What is to be taken now; None if there is nothing.

        Of records that retention removes between planning and reading, the read is to fail rather
        than to leave them out: chunks would say that they have them. What is there still is planned
        anew then, with the hole that it leaves, if holes are allowed.
        """
        from pyspark.errors import PySparkException  # noqa: PLC0415 - needs the extra

        fill = chunk_offsets(self.manifest, target_bytes=self._settings.target_bytes)
        chunk_count_max = _CHUNKS_PER_CORE * self._spark.sparkContext.defaultParallelism
        overtaken_count = 0
        while True:
            backlogs = self._backlogs(takes_all=takes_all)
            ends = taken(backlogs, chunk_offsets=fill, chunk_count_max=chunk_count_max)
            if not ends:
                return None
            starts = {partition: backlogs[partition].start_offset for partition in ends}
            try:
                return self._write(starts, ends, fill)
            except PySparkException:
                overtaken_count += 1
                begins = self._begins(starts)
                is_overtaken = any(begins[each] > start for each, start in starts.items())
                if not is_overtaken or overtaken_count == _OVERTAKEN_MAX:
                    raise

    def _write(self, starts: Mapping[int, int], ends: Mapping[int, int], fill: int) -> Written:
        topic = self._settings.topic
        start = {TopicPartition(topic, partition): at for partition, at in starts.items()}
        end = {TopicPartition(topic, partition): at for partition, at in ends.items()}
        # As the source does it, with the same numbers.
        ranges = cut(ranges_between(start, end), min_count=None, max_size=fill)
        rows = _reader(
            self._spark,
            self._settings,
            {
                "assign": json.dumps({topic: sorted(ends)}),
                "startingOffsets": json.dumps(to_checkpoint(start)),
                "endingOffsets": json.dumps(to_checkpoint(end)),
                "maxRecordsPerPartition": str(fill),
                "failOnDataLoss": "true",
            },
        )
        if self.manifest.info.value_schema is not None:
            rows = with_parsed_values(rows, self.manifest.info.value_schema)
        return self._written(rows, ranges)

    def _written(self, rows: "DataFrame", ranges: list[OffsetRange]) -> Written:
        with tempfile.TemporaryDirectory(prefix="tidelog-archive-") as folder:
            job = ChunkJob(
                terms=self._terms(),
                ranges=tuple(ranges),
                receipt=str(Path(folder, "receipt.json")),
            )
            rows.write.format(FORMAT).options(**job.to_options()).mode("append").save()
            return what_was_written(job)

    def _merge_due(self) -> int:
        """Again and again: what was merged may be one of many of its size now."""
        count = 0
        while due := due_merges(self.manifest, target_bytes=self._settings.target_bytes):
            count += self._merge(due)
        return count

    def _all_merges(self) -> list[tuple[Chunk, ...]]:
        return all_merges(self.manifest, target_bytes=self._settings.target_bytes)

    def _merge(self, groups: list[tuple[Chunk, ...]]) -> int:
        if not groups:
            return 0
        merges = [Merge(chunks, self._terms()) for chunks in groups]
        made = self._spark.sparkContext.parallelize(merges, len(merges)).map(merged).collect()
        removed = tuple(chunk for chunks in groups for chunk in chunks)
        self._commit(info=self.manifest.info, added=tuple(made), removed=removed)
        return len(removed)

    def _commit(
        self, *, info: ArchiveInfo, added: tuple[Chunk, ...], removed: tuple[Chunk, ...]
    ) -> None:
        made = self._log.commit(
            version=self.manifest.version + 1,
            run=self.manifest.run,
            info=info,
            added=added,
            removed=removed,
        )
        self.manifest = applied(self.manifest, made)
        for path in self._log.tidy(self.manifest):
            self._files.delete(path)
