"""The job of `tidelog lab pipeline`, as a process of its own: its driver is what gets killed.

    python -m tidelog.lab.pipeline_job KIND BOOTSTRAP INPUT OUTPUT FOLDER

`copy` streams INPUT to the same partitions of the topic OUTPUT and commits its progress to a group
of OUTPUT's name; `archive` writes INPUT to Parquet in the folder OUTPUT. Both keep in FOLDER what
they need to go on, and whoever starts it again has it go on.

It ends when its standard input does, so that it does not outlive whoever started it, and with
GAVE_UP when Spark has given up, which killed workers may lead to.
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tidelog.pipeline.archive import ArchiveSettings, open_archive
from tidelog.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAVE_UP: Final = 3
COPY: Final = "copy"
ARCHIVE: Final = "archive"
# Tasks are tried again: a worker that dies is not the end of the job.
_MASTER: Final = "local[2,4]"
_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_OFFSETS_PER_TRIGGER: Final = 4_000
_FILE_BYTES: Final = 256 * 1024
_IDLE_S: Final = 0.2


def main(arguments: Sequence[str]) -> int:
    kind, bootstrap, topic, output, folder = arguments
    threading.Thread(target=_end_with_whoever_started_it, daemon=True).start()
    spark = spark_session(app_name="tidelog-lab", master=_MASTER, settings=_SETTINGS)
    jobs: dict[str, Callable[[SparkSession, str, str, str, str], None]] = {
        COPY: _copy,
        ARCHIVE: _archive,
    }
    try:
        jobs[kind](spark, bootstrap, topic, output, folder)
    except Exception as error:  # noqa: BLE001 - whatever Spark makes of a killed worker
        print(f"gave up: {str(error)[-500:]}", file=sys.stderr)  # noqa: T201
        os._exit(GAVE_UP)  # Spark's own threads would keep it from ending.
    return 0


def _copy(spark: "SparkSession", bootstrap: str, topic: str, output: str, folder: str) -> None:
    rows = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _OFFSETS_PER_TRIGGER)
        .option("commitGroup", output)
        .load()
    )
    query = (
        rows.select("value", "partition")
        .writeStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", output)
        .option("checkpointLocation", folder)
        .start()
    )
    query.awaitTermination()


def _archive(spark: "SparkSession", bootstrap: str, topic: str, output: str, _folder: str) -> None:
    settings = ArchiveSettings(
        topic=topic,
        root=output,
        kafka={"kafka.bootstrap.servers": bootstrap},
        target_bytes=_FILE_BYTES,
        max_delay_s=_IDLE_S,
    )
    archiver = open_archive(spark, settings)
    idle = threading.Event()
    while True:
        if archiver.step(takes_all=True) is None:
            idle.wait(_IDLE_S)


def _end_with_whoever_started_it() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
