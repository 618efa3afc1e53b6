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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.pipeline import decided_rows
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink import offered_guarantee
from tidelog.pipeline.sink_options import Guarantee, SinkOptions
from tidelog.pipeline.source import TidelogDataSource
from tidelog.pipeline.task_producer import TaskIdentity, write_at_least_once, write_exactly_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "tidelog-micro-batch"

_QUERY_ID: Final = "sql.streaming.queryId"
_WRITE: Final = "tidelog.write"
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
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if query is None:
            raise PipelineError("Spark did not say which query this is")
        rows = decided_rows.decided(frame, number, checkpoint) if is_saved_first else frame
        writer = arranged(rows).write.format(FORMAT).options(**options)
        writer.option(_WRITE, query).option(_NUMBER, str(number)).mode("append").save()

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
        number = int(self.options[_NUMBER])
        return MicroBatchWriter(options, offered_guarantee(options), write, number)


@dataclass
class TaskDone(WriterCommitMessage):
    """There is nothing to tell."""


class MicroBatchWriter(DataSourceArrowWriter):
    """Each task commits for itself; who runs it again finds that out."""

    def __init__(self, options: SinkOptions, guarantee: Guarantee, write: str, number: int) -> None:
        self._options = options
        self._guarantee = guarantee
        self._write = write
        self._number = number

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        if self._guarantee is Guarantee.AT_LEAST_ONCE:
            write_at_least_once(self._options, iterator)
        else:
            identity = TaskIdentity(self._write, context.partitionId(), self._number)
            write_exactly_once(self._options, identity, iterator)
        return TaskDone()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All of it is visible already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark runs it again, and those tasks that were written are known by then."""
