"""T7: topics in Spark, through us, through Spark's own Kafka connector, and from files.

One broker of ours with twelve partitions and one Spark session on two cores, in which both
connectors take turns. A read goes to Spark's `noop` sink, which takes every column of every row and
does nothing with it. A stream reads the same topic in one micro-batch. Rows are written from
memory, by each sink with the guarantee that it has by default, by ours also with the lesser one.

    batch       spark.read ... noop
    stream      readStream, availableNow, from the beginning
    write       df.write, append; exactly once is ours, at least once Spark's own
    files       the same batch from the broker's segment files, without it (X6)
"""

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.clients import run_produce, stored_record_count, topic_for_a_while
from benchmarks.harness import Bench, run_script
from benchmarks.load import ProduceTask
from benchmarks.results import Metric, Target
from benchmarks.spark_reader import benchmark_session, seconds_of_noop
from benchmarks.subjects import TIDELOG, Subject
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic
from tidelog.lab.peers import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUESTION = "How many rows a second does Spark read and write, beside its own connector? (T7)"
OFFICIAL, FILES, AT_LEAST_ONCE = "connector", "files", "at least once"
FORMATS = {TIDELOG: "tidelog", OFFICIAL: "kafka"}
PARTITION_COUNT = 12
SIZES = {"100 B": (100, 3_000_000), "1 KB": (1_024, 800_000)}
WRITE_COUNTS = {"100 B": 1_200_000, "1 KB": 400_000}
# What a broker by itself needs to have replicas of its own topics.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
TWICE = Target(requirement="T7", of=TIDELOG, against=OFFICIAL, at_least=2.0)
MORE = Target(requirement="T7", of=FILES, against=TIDELOG, at_least=1.0)


def measure(bench: Bench) -> None:
    broker = BrokerProcess(bench.folder / TIDELOG, ALONE)
    bench.running.enter_context(broker)
    spark = benchmark_session("local[2]")
    names = [TIDELOG, OFFICIAL] if connector_jars() else [TIDELOG]
    try:
        for size, (value_bytes, full_count) in SIZES.items():
            count = bench.count(full_count)
            topic = f"rows-{value_bytes}"
            fill(broker, topic, count, value_bytes)
            _measure_batches(bench, spark, broker, topic, size, count, [*names, FILES])
            _measure_streams(bench, spark, broker, topic, size, count, names)
            _measure_writes(bench, spark, broker, size, [*names, AT_LEAST_ONCE])
    finally:
        spark.stop()


def fill(broker: Subject, topic: str, count: int, value_bytes: int) -> None:
    create_topic(broker.bootstrap, topic, partition_count=PARTITION_COUNT, config={})
    task = ProduceTask(record_count=count, value_size_bytes=value_bytes, acks="1", in_batches=True)
    run_produce(broker.bootstrap, topic, task)
    stored = stored_record_count(broker.bootstrap, topic, partition_count=PARTITION_COUNT)
    assert stored == count, f"{stored} of {count} records are stored"


def read_options(broker: BrokerProcess, name: str, topic: str) -> dict[str, str]:
    """To read the topic in this way."""
    if name == FILES:
        # High watermarks are written down by the broker every few seconds only.
        place = {"path": str(broker.data_folder), "beyondHighWatermark": "true"}
    else:
        place = {"kafka.bootstrap.servers": broker.bootstrap}
    return {**place, "subscribe": topic}


def _measure_batches(
    bench: Bench,
    spark: "SparkSession",
    broker: BrokerProcess,
    topic: str,
    size: str,
    count: int,
    names: list[str],
) -> None:
    metric = bench.metric(Metric(f"batch, {size}", "rows/s", (TWICE, MORE)))
    for turn in bench.turns(f"reading batches of {size}", names):
        reader = spark.read.format(FORMATS.get(turn.name, "tidelog"))
        rows = reader.options(**read_options(broker, turn.name, topic)).load()
        if turn.round_index == 0:
            found = rows.count()
            assert found == count, f"{turn.name}: {found} rows of {count}"
        turn.record(metric, count / seconds_of_noop(rows))


def _measure_streams(
    bench: Bench,
    spark: "SparkSession",
    broker: BrokerProcess,
    topic: str,
    size: str,
    count: int,
    names: list[str],
) -> None:
    metric = bench.metric(Metric(f"stream, {size}", "rows/s", (TWICE,)))
    for turn in bench.turns(f"reading streams of {size}", names):
        checkpoint = bench.folder / "checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        turn.record(metric, count / _seconds_of_batch(spark, broker, topic, turn.name, checkpoint))


def _seconds_of_batch(
    spark: "SparkSession", broker: Subject, topic: str, name: str, checkpoint: Path
) -> float:
    """That Spark says its one micro-batch took."""
    query = (
        spark.readStream.format(FORMATS[name])
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (progress,) = [each for each in query.recentProgress if each.numInputRows]
    return progress.batchDuration / 1_000


def _measure_writes(
    bench: Bench, spark: "SparkSession", broker: BrokerProcess, size: str, names: list[str]
) -> None:
    value_bytes, count = SIZES[size][0], bench.count(WRITE_COUNTS[size])
    metric = bench.metric(Metric(f"write, {size}", "rows/s"))
    rows = spark.range(0, count, 1, PARTITION_COUNT).selectExpr(
        "CAST(id AS STRING) AS key", f"CAST(repeat('x', {value_bytes}) AS BINARY) AS value"
    )
    rows = rows.cache()
    rows.count()
    for turn in bench.turns(f"writing {size}", names):
        topic = f"written-{value_bytes}-{turn.label.replace(' ', '-')}"
        guarantee = {"deliveryGuarantee": "at-least-once"} if turn.name == AT_LEAST_ONCE else {}
        with topic_for_a_while(broker.bootstrap, topic, partition_count=PARTITION_COUNT, config={}):
            started_s = time.perf_counter()
            (
                rows.write.format(FORMATS.get(turn.name, "tidelog"))
                .mode("append")
                .option("kafka.bootstrap.servers", broker.bootstrap)
                .option("topic", topic)
                .options(**guarantee)
                .save()
            )
            turn.record(metric, count / (time.perf_counter() - started_s))
    rows.unpersist()


if __name__ == "__main__":
    sys.exit(run_script("spark_source", QUESTION, measure, subjects=(TIDELOG,)))
