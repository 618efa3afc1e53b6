"""Copies a topic by a stream, and kills the Python workers of a task of it with -9.

The task is in the middle of its work, and some of that is in the output topic already.
"""

import os
import signal
from pathlib import Path
from typing import TypedDict

from confluent_kafka import Consumer, TopicPartition
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.support.server_process import wait_until
from tidelog.lab.descendants import descendants

WITHIN_S = 90.0
HELD_PARTITION = 0
HELD_AT_OFFSET = 1_500
ROWS_PER_BATCH = "100"


class Killed(TypedDict):
    """How much the killed attempt had written, who was killed, and which attempts there were."""

    written_before: int
    killed: int
    attempts: list[int]


def copy_under_kill(
    spark: SparkSession, bootstrap: str, source: str, target: str, folder: Path
) -> Killed:
    """Records of a partition go to the same one of `target`. Of 1 KB each, there are 2,000."""
    folder.mkdir(parents=True)
    # So that rows reach the task that writes before the one before it has read all of them.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_BATCH)
    kafka = {"kafka.bootstrap.servers": bootstrap}
    rows = (
        spark.readStream.format("tidelog")
        .options(**kafka, subscribe=source, startingOffsets="earliest")
        .load()
    )
    query = (
        held_once(rows, folder)
        .writeStream.format("tidelog")
        .options(**kafka, topic=target, checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        held = folder / "attempt-0"
        wait_until(
            lambda: held.exists() or not query.isActive, within_s=WITHIN_S, what="a task is held"
        )
        wait_until(
            lambda: end_of(bootstrap, target) > 0 or not query.isActive,
            within_s=WITHIN_S,
            what="it has written",
        )
        written_before = end_of(bootstrap, target)
        killed = kill_workers(int(held.read_text())) if query.isActive else 0
        query.awaitTermination(int(WITHIN_S))
    finally:
        query.stop()
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    attempts = sorted(int(each.name.partition("-")[2]) for each in folder.glob("attempt-*"))
    return {"written_before": written_before, "killed": killed, "attempts": attempts}


def held_once(rows: DataFrame, folder: Path) -> DataFrame:
    """The same rows; of one partition, the first attempt stops in the middle until it is killed."""

    # Within, since workers do not have this module: a task gets the function itself.
    def hold(value: bytes, partition: int, offset: int) -> bytes:
        if (partition, offset) == (HELD_PARTITION, HELD_AT_OFFSET):
            context = TaskContext.get()
            assert context is not None
            said = folder / "said"
            said.write_text(str(os.getppid()))
            said.rename(folder / f"attempt-{context.attemptNumber()}")
            if context.attemptNumber() == 0:
                signal.pause()
        return value

    # Values go through it, not to be held up by buffers for want of bytes.
    held = f.udf(hold, "binary", useArrow=False)
    return rows.select("key", held("value", "partition", "offset").alias("value"), "partition")


def kill_workers(daemon: int) -> int:
    """All of an executor, those that read, hold and write; not the daemons that start them."""
    stat = Path(f"/proc/{daemon}/stat").read_text()
    executor = int(stat.rpartition(")")[2].split()[1])
    below = descendants(executor)
    workers = {worker.pid for each in below for worker in descendants(each.pid)}
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    return len(workers)


def end_of(bootstrap: str, topic: str) -> int:
    """Of the held partition, with what no transaction has decided yet."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ends",
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )
    try:
        held = TopicPartition(topic, HELD_PARTITION)
        _start, end = consumer.get_watermark_offsets(held, timeout=WITHIN_S)
        return int(end)
    finally:
        consumer.close()
