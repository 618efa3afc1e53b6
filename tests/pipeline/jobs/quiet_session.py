"""Does what makes Spark talk: starts, fails, shuffles, streams, stops. Then asks for its log."""

import sys
import tempfile

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.server_process import wait_until
from tests.support.spark_job import CORE_COUNT, SETTINGS
from tidelog.pipeline.registration import register
from tidelog.pipeline.session import spark_session

MASTER = f"local[{CORE_COUNT}]"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_jobs(spark: SparkSession) -> None:
    numbers = spark.range(1_000)
    say(f"counted {numbers.groupBy(numbers.id % 7).count().count()}")
    try:
        spark.sql("SELECT raise_error('on purpose')").collect()
    except PySparkException as error:
        say(f"failed {'on purpose' in str(error)}")
    with tempfile.TemporaryDirectory() as checkpoint:
        stream = spark.readStream.format("rate").load().writeStream.format("noop")
        query = stream.option("checkpointLocation", checkpoint).trigger(once=True).start()
        query.awaitTermination()
    say("streamed")


def stop_in_the_middle(spark: SparkSession) -> None:
    """Of a micro-batch that a function writes."""

    def write(frame: DataFrame, _number: int) -> None:
        asleep = frame.selectExpr("reflect('java.lang.Thread', 'sleep', 600000L)")
        asleep.write.format("noop").mode("append").save()

    rows = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    query = rows.writeStream.foreachBatch(write).start()
    running = spark.sparkContext.statusTracker()
    wait_until(
        lambda: bool(running.getActiveStageIds()),
        within_s=60,
        what="a micro-batch is being written",
    )
    query.stop()
    say(f"stopped {query.exception() is None}")


def main() -> None:
    spark = spark_session(app_name="quiet", master=MASTER, settings=SETTINGS)
    [row] = spark.sql("SELECT reflect('java.lang.System', 'getProperty', 'java.version')").collect()
    say(row[0])
    run_jobs(spark)
    stop_in_the_middle(spark)
    spark.stop()
    say("----")
    spark = spark_session(app_name="loud", master=MASTER, settings=SETTINGS, is_verbose=True)
    register(spark)  # The second time, of which Spark warns.
    spark.stop()


if __name__ == "__main__":
    main()
