"""A micro-batch whose rows could come out otherwise the second time, decided once.

Which of two duplicates is the first, and the last digit of a sum, depend on the order in which rows
arrive from other tasks. Within one process that order is always the same. On a cluster it is not;
a micro-batch that is run again after a crash would have other rows than those of its tasks that
were written already, and the sink would refuse it (`task_producer`), rightly and for ever.

So on a cluster the rows are saved beside the checkpoint before any of them is written, and written
from there. A second time they are as they were the first time.
"""

from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER: Final = "decided"


def is_needed(spark: "SparkSession") -> bool:
    """Whether rows of other tasks come in any order."""
    return not is_local(spark.sparkContext.master or "")


def decided(frame: "DataFrame", number: int, checkpoint: str) -> "DataFrame":
    """The rows that micro-batch `number` had when it was first run.

    What the one before had is removed: Spark does not run it again once this one has begun.
    """
    spark = frame.sparkSession
    folder = f"{checkpoint.rstrip('/')}/{FOLDER}"
    path = f"{folder}/{number}"
    if _exists(spark, f"{path}/_SUCCESS"):
        # It has to run: what Spark remembers from micro-batch to micro-batch comes of that.
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.mode("overwrite").parquet(path)
    _delete(spark, f"{folder}/{number - 1}")
    return spark.read.schema(frame.schema).parquet(path)


def _exists(spark: "SparkSession", path: str) -> bool:
    system, found = _file_system(spark, path)
    return bool(system.exists(found))


def _delete(spark: "SparkSession", path: str) -> None:
    system, found = _file_system(spark, path)
    system.delete(found, True)


def _file_system(spark: "SparkSession", path: str) -> tuple[Any, Any]:
    """Hadoop's, as for the checkpoint."""
    context: Any = spark.sparkContext
    found = context._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(context._jsc.hadoopConfiguration()), found
