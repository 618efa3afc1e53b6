"""`format("tidelog-micro-batch")`: a micro-batch written to a topic once, by `foreachBatch`.

A streaming query can be written with `format("tidelog")` as long as it need not be sorted and does
not update what it said before; Spark refuses both to a streaming sink in Python. In `foreachBatch`
a micro-batch is a data frame like any other. What is missing there, which piece of which write a
task is (`task_producer.TaskIdentity`), comes in options: the query, and the number of the
micro-batch.

The rows of a micro-batch have to be the same when it is run again (`decided_rows`), and be cut into
the same tasks: `cut_by` does.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.pipeline import decided_rows
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink import QUERY_ID, RUN_ID, offered_guarantee, written_task
from tidelog.pipeline.sink_options import Guarantee, SinkOptions
from tidelog.pipeline.source import CHECKPOINT, TidelogDataSource
from tidelog.pipeline.task_producer import TaskIdentity
from tidelog.pipeline.written_tasks import require_no_others

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "tidelog-micro-batch"

_WRITE: Final = "tidelog.write"
_RUN: Final = "tidelog.run"
_NUMBER: Final = "tidelog.number"

BatchFunction = Callable[["DataFrame", int], None]


def topic_writer(
    spark: "SparkSession",
    options: Mapping[str, str],
    arranged: Callable[["DataFrame"], "DataFrame"],
    checkpoint: str,
) -> BatchFunction:
    """For `foreachBatch`: writes what `arranged` makes of a micro-batch, once."""
    spark.dataSource.register(MicroBatchDataSource)
    is_saved_first = decided_rows.is_needed(spark)

    def write(frame: "DataFrame", number: int) -> None:
        query, run = map(frame.sparkSession.sparkContext.getLocalProperty, (QUERY_ID, RUN_ID))
        if query is None or run is None:
            raise PipelineError("Spark did not say which query this is")
        rows = decided_rows.decided(frame, number, checkpoint) if is_saved_first else frame
        writer = arranged(rows).write.format(FORMAT).options(**options)
        writer = writer.option(_WRITE, query).option(_RUN, run).option(_NUMBER, str(number))
        writer = writer.option(CHECKPOINT, checkpoint)
        writer.mode("append").save()

    return write


def cut_by(frame: "DataFrame", column: str) -> "DataFrame":
    """The same rows in as many tasks as the query's shuffles have, equal values in one of them.

    By number: Spark joins small pieces where it is not told how many to make. The number is part
    of a query's checkpoint.
    """
    count = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return frame.repartition(count, column)


class MicroBatchDataSource(TidelogDataSource):
    """Write only."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        options = self._sink_options(schema, overwrite=overwrite)
        write = f"{options.transactional_id_prefix}-{self.options[_WRITE]}"
        number, run = int(self.options[_NUMBER]), self.options[_RUN]
        guarantee = offered_guarantee(options)
        self._require_marks_are_kept(options, guarantee)
        return MicroBatchWriter(options, guarantee, write, number, run)


class MicroBatchWriter(DataSourceArrowWriter):
    """Each task commits for itself; who runs it again finds that out."""

    def __init__(
        self, options: SinkOptions, guarantee: Guarantee, write: str, number: int, run: str
    ) -> None:
        self._options = options
        self._guarantee = guarantee
        self._write = write
        self._number = number
        self._run = run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        identity = TaskIdentity(self._write, context.partitionId(), self._number, self._run)
        return written_task(self._options, self._guarantee, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All of it is visible already."""
        require_no_others(self._options.kafka, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark runs it again, and those tasks that were written are known by then."""
