"""Write down the classes of Spark that a small job loads, in the form that Java reads fast.

A session of Spark spends most of its start on reading, checking and linking some fifteen thousand
classes. Java takes them from an archive instead (class data sharing), in half the time; the tests
start two dozen sessions (`tests/support/spark_job.py`).

    python scripts/share_spark_classes.py .venv/spark-classes.jsa

The archive fits one Java and one set of jars: `make` writes it anew with every installation of
Spark, and a Java that it does not fit goes on without it.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkContext

from tidelog.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
ROW_COUNT: Final = 100
WRITTEN_WITHIN_S: Final = 180.0


def main() -> None:
    archive = Path(sys.argv[1]).resolve()
    unfinished = archive.with_name(f"{archive.name}.unfinished")
    session = spark_session(
        app_name="share-classes",
        master="local[2]",
        settings={
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={unfinished} {QUICK}",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    gateway = SparkContext._gateway
    assert gateway is not None
    folder = Path(tempfile.mkdtemp(prefix="tidelog-classes-"))
    try:
        use(session, folder)
        session.stop()
        # Ends with its input, as it would with this process: which has to wait for the archive.
        java: subprocess.Popen[bytes] = gateway.proc
        gateway.shutdown()
        assert java.stdin is not None
        java.stdin.close()
        java.wait(WRITTEN_WITHIN_S)
        unfinished.replace(archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.unlink(missing_ok=True)


def use(session: "SparkSession", folder: Path) -> None:
    """A little of what the tests do: files, groups, workers of Python, a stream with state."""
    rows = session.range(ROW_COUNT).selectExpr(
        "id", "id % 7 AS part", "cast(id AS string) AS text", "timestamp_seconds(id) AS at"
    )
    rows.write.partitionBy("part").parquet(str(folder / "rows"))
    read = session.read.schema("id long, text string, at timestamp, part int")
    counted = read.parquet(str(folder / "rows")).groupBy("part").count().orderBy("part").collect()
    assert len(counted) == 7
    assert rows.rdd.map(lambda row: row.id).sum() == sum(range(ROW_COUNT))
    session.createDataFrame([(1, "{}")], "id int, text string").toArrow()
    stream = (
        session.readStream.schema("id long, text string, at timestamp, part int")
        .parquet(str(folder / "rows"))
        .withWatermark("at", "1 minute")
        .dropDuplicatesWithinWatermark(["id"])
    )
    query = (
        stream.writeStream.trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(count)
        .start()
    )
    query.awaitTermination()


def count(frame: "DataFrame", _number: int) -> None:
    frame.count()


if __name__ == "__main__":
    main()
