"""`format("tidelog")`: the data source that Spark sees (X1).

Everything is Spark's to call, in processes of its choosing: schema and planning on the driver,
`read` in the tasks. What is behind it: `source_options`, `source_cluster`, `range_reader`.

A stream's life on the driver:

    initialOffset ──▶ latestOffset ──▶ partitions ──▶ tasks read ──▶ latestOffset ──▶ ...
                        │ how far the next micro-batch goes             │
                        └ with `start` being where the last one ended,  ┘ which is done by then:
                          what is before it may be committed to a group

Each stream is planned in a new process, which waits for what is imported here: what only archives
and sinks need is imported by those.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.base.ids import TopicPartition
from tidelog.client.bootstrap import Address
from tidelog.pipeline.errors import DataLoss, OptionError, in_a_sentence
from tidelog.pipeline.forgotten_marks import require_marks_are_kept
from tidelog.pipeline.group_progress import GroupProgress
from tidelog.pipeline.notices import warn
from tidelog.pipeline.offsets import (
    Offsets,
    count_between,
    from_checkpoint,
    limited,
    text_of,
    to_checkpoint,
)
from tidelog.pipeline.range_reader import RangeReader, ReadSettings
from tidelog.pipeline.ranges import OffsetRange, cut, ranges_between
from tidelog.pipeline.rows import ddl, simple_string
from tidelog.pipeline.sink_options import Guarantee, SinkOptions, sink_options
from tidelog.pipeline.source_cluster import SourceCluster
from tidelog.pipeline.source_options import SourceOptions, batch_options, stream_options

CHECKPOINT: Final = "checkpointLocation"


class TidelogDataSource(DataSource):
    """A topic, or several, of tidelog or of any broker that speaks Kafka's protocol."""

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> str:
        return ddl(has_headers=self._has_headers())

    @in_a_sentence()
    def reader(self, schema: StructType) -> DataSourceReader:
        _require(has_own_columns=self._has_own_columns(schema))
        if "path" in self.options:
            from tidelog.pipeline.segment_source import SegmentReader, segment_options  # noqa: PLC0415

            return SegmentReader(segment_options(self.options))
        return TopicReader(batch_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        own = self._has_own_columns(schema)
        return TopicStreamReader(dict(self.options), has_own_columns=own)

    @in_a_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from tidelog.pipeline.sink import TopicWriter, offered_guarantee  # noqa: PLC0415

        options = self._sink_options(schema, overwrite=overwrite)
        return TopicWriter(options, offered_guarantee(options))

    @in_a_sentence()
    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        from tidelog.pipeline.sink import (  # noqa: PLC0415
            TopicStreamWriter,
            earlier_tasks,
            offered_guarantee,
        )

        options = self._sink_options(schema, overwrite=overwrite)
        guarantee = offered_guarantee(options)
        self._require_marks_are_kept(options, guarantee)
        earlier = earlier_tasks(options, guarantee, self.options.get(CHECKPOINT))
        return TopicStreamWriter(options, guarantee, earlier)

    def _has_own_columns(self, schema: StructType) -> bool:
        """Whether nobody has given columns of their own with `schema(...)`."""
        own = simple_string(has_headers=self._has_headers())
        return schema.simpleString().lower() == own

    def _has_headers(self) -> bool:
        return self.options.get("includeheaders", "false").lower() == "true"

    def _require_marks_are_kept(self, options: SinkOptions, guarantee: Guarantee) -> None:
        checkpoint = self.options.get(CHECKPOINT)
        if checkpoint is not None and guarantee is Guarantee.EXACTLY_ONCE:
            require_marks_are_kept(checkpoint, options.kafka)

    def _sink_options(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use the mode append")
        types = {field.name: field.dataType.simpleString() for field in schema.fields}
        return sink_options(self.options, types)


class RangePartition(InputPartition):
    """A task: a range, and who led its partition when it was planned."""

    def __init__(self, wanted: OffsetRange, leader: Address | None) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.leader = leader


class TopicReader(DataSourceReader):
    """`spark.read`: everything from where it begins to where it ends when it is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @in_a_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        cluster = SourceCluster(self._options)
        start, end = cluster.bounds(cluster.partitions())
        return _planned(self._options, cluster, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. One object on the driver plans; copies of it in tasks only read.

    Options are looked at when Spark first asks for something: of an error that is raised while a
    reader is made it would tell only that there is no `reader` to stop.
    """

    def __init__(self, given: Mapping[str, str], *, has_own_columns: bool) -> None:
        self._given = given
        self._has_own_columns = has_own_columns
        self._known_cluster: SourceCluster | None = None
        self._available: Offsets | None = None
        """Where to stop with `availableNow`."""
        self._latest: Offsets | None = None
        """Where logs ended when they were last asked for."""
        self._delayed_since_s: float | None = None
        self._progress: GroupProgress | None = None
        self._initial: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need the options."""
        return {"_options": self._options}

    @cached_property
    def _options(self) -> SourceOptions:
        _require(has_own_columns=self._has_own_columns)
        return stream_options(self._given)

    @property
    def _cluster(self) -> SourceCluster:
        if self._known_cluster is None:
            self._known_cluster = SourceCluster(self._options)
        return self._known_cluster

    @in_a_sentence()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        # Spark asks twice, and has to be told the same.
        if self._initial is None:
            self._initial = self._cluster.beginning(self._cluster.partitions())
        return to_checkpoint(self._initial)

    @in_a_sentence()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @in_a_sentence()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self._available = self._cluster.ends(self._cluster.partitions())

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's
        # For people to look at: what was found out for the last micro-batch is new enough.
        return None if self._latest is None else to_checkpoint(self._latest)

    @in_a_sentence()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begun = from_checkpoint(start)
        self._note_progress(begun)
        end = self._end_behind(begun)
        if isinstance(limit, ReadAllAvailable):
            return to_checkpoint(end)
        complete_start = {**self._starts_of_new(begun, end), **begun}
        if self._is_to_wait(complete_start, end):
            return start
        most = self._options.max_offsets_per_trigger
        return to_checkpoint(end if most is None else limited(complete_start, end, most))

    @in_a_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = from_checkpoint(start), from_checkpoint(end)
        complete_start = {**self._starts_of_new(begun, ended), **begun}
        return _planned(self._options, self._cluster, complete_start, ended)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._note_progress(from_checkpoint(end))

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.close()

    # -- what is new -------------------------------------------------------------------------------

    def _end_behind(self, begun: Offsets) -> Offsets:
        """Up to where there is something to read; partitions that are gone are not in it."""
        end = self._cluster.ends_behind(begun)
        self._latest = end
        if gone := begun.keys() - end.keys():
            self._report(DataLoss(f"{text_of(gone)} does not exist any more"))
        if shorter := {each for each in begun.keys() & end.keys() if end[each] < begun[each]}:
            each = min(shorter)
            self._report(
                DataLoss(f"{each} ends at {end[each]}, before {begun[each]}, where it was read to")
            )
        if self._available is None:
            return end
        # Where it begins may have been asked after where it ends.
        return {
            each: min(end[each], max(at, begun.get(each, at)))
            for each, at in self._available.items()
            if each in end
        }

    def _starts_of_new(self, begun: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Where partitions begin that are there since the last micro-batch."""
        new = frozenset(end.keys() - begun.keys())
        if not new:
            return {}
        starts = self._cluster.starts(new)
        late = {each for each, offset in starts.items() if offset > 0}
        if late:
            self._report(
                DataLoss(f"{text_of(late)} is new, and its first records are gone already")
            )
        return starts

    def _report(self, loss: DataLoss) -> None:
        if self._options.fails_on_data_loss:
            raise loss
        warn(f"records were missed: {loss.what}")

    def _is_to_wait(self, start: Offsets, end: Offsets) -> bool:
        """Whether there is so little that it is left for later (`minOffsetsPerTrigger`)."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._available is not None:
            return False
        now_s = time.monotonic()
        if self._delayed_since_s is None:
            # What is there when it starts is not waited for.
            self._delayed_since_s = now_s
            return False
        waited_ms = (now_s - self._delayed_since_s) * 1000
        if count_between(start, end) < least and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._delayed_since_s = now_s
        return False

    def _note_progress(self, done: Offsets) -> None:
        """All before `done` is written and logged."""
        if self._options.commit_group is None:
            return
        if self._progress is None:
            self._progress = GroupProgress(self._options.kafka, self._options.commit_group)
        self._progress.commit(done)


def _require(*, has_own_columns: bool) -> None:
    if not has_own_columns:
        raise OptionError(
            "the columns of a topic are always the same: leave out schema(...), and select and "
            "cast what there is"
        )


def _planned(
    options: SourceOptions, cluster: SourceCluster, start: Offsets, end: Offsets
) -> list[InputPartition]:
    ranges = cut(
        ranges_between(start, end),
        min_count=options.min_partitions,
        max_size=options.max_records_per_partition,
    )
    leaders = cluster.leaders(frozenset(each.partition for each in ranges)) if ranges else {}
    return [RangePartition(each, leaders.get(each.partition)) for each in ranges]


def _rows(options: SourceOptions, task: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(task, RangePartition):
        return iter(())  # What Spark makes up where there is nothing to read.
    settings = ReadSettings(
        kafka=options.kafka,
        has_headers=options.has_headers,
        fails_on_data_loss=options.fails_on_data_loss,
        read_timeout_ms=options.read_timeout_ms,
    )
    return iter(RangeReader(settings, task.wanted, task.leader))
