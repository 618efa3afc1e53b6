"""T7: what a second core gives to Spark that reads a topic.

Two processes with a Spark session each, `local[1]` and `local[2]`, read the same topic of one
broker in turns, through us, through Spark's own connector and from files. A session of one core
runs one task at a time; its JVM, its Python worker and the broker are processes all the same, so
that on a machine of two cores they share those whatever the number of tasks.
"""

import sys

from benchmarks.harness import Bench, run_script
from benchmarks.results import Metric
from benchmarks.spark_reader import SparkReader
from benchmarks.spark_source import ALONE, FILES, FORMATS, SIZES, fill, read_options
from benchmarks.subjects import TIDELOG
from tests.support.broker_process import BrokerProcess
from tidelog.lab.peers import connector_jars

QUESTION = "How do rows a second grow from one core to two? (T7)"
MASTERS = {"1 core": "local[1]", "2 cores": "local[2]"}


def measure(bench: Bench) -> None:
    broker = BrokerProcess(bench.folder / TIDELOG, ALONE)
    bench.running.enter_context(broker)
    readers = {
        cores: bench.running.enter_context(SparkReader(master)) for cores, master in MASTERS.items()
    }
    names = [*FORMATS, FILES] if connector_jars() else [TIDELOG, FILES]
    for size, (value_bytes, full_count) in SIZES.items():
        count = bench.count(full_count)
        topic = f"rows-{value_bytes}"
        fill(broker, topic, count, value_bytes)
        for name in names:
            metric = bench.metric(Metric(f"{name}, {size}", "rows/s"))
            options = read_options(broker, name, topic)
            for turn in bench.turns(f"{name}, {size}", [*readers]):
                took_s = readers[turn.name].seconds(FORMATS.get(name, "tidelog"), options)
                turn.record(metric, count / took_s)


if __name__ == "__main__":
    sys.exit(run_script("spark_cores", QUESTION, measure, subjects=(TIDELOG,)))
