"""A process with a Spark session that reads when it is told to, for `spark_cores.py`.

    python -m benchmarks.spark_reader MASTER

Each line of its input is a JSON object with the format and the options of a read; each line of its
output is how many seconds that took.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidelog.lab.peers import connector_jars
from tidelog.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parent.parent
STOP_WITHIN_S = 30


def benchmark_session(master: str) -> "SparkSession":
    """One that knows both connectors, if Spark's own is there."""
    jars = ",".join(map(str, connector_jars()))
    settings = {"spark.jars": jars} if jars else {}
    return spark_session(app_name="benchmark", master=master, settings=settings)


def seconds_of_noop(rows: "DataFrame") -> float:
    """To have every column of every row, and do nothing with it."""
    started_s = time.perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started_s


class SparkReader:
    """The other end: starts the process and tells it what to read."""

    def __init__(self, master: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark_reader", master],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._process.communicate(timeout=STOP_WITHIN_S)

    def seconds(self, source: str, options: Mapping[str, str]) -> float:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(json.dumps({"format": source, "options": dict(options)}) + "\n")
        asked.flush()
        answer = answered.readline()
        assert answer, f"the reader ended with {self._process.wait()}"
        return float(answer)


def main(master: str) -> int:
    spark = benchmark_session(master)
    try:
        for line in sys.stdin:
            wanted = json.loads(line)
            rows = spark.read.format(wanted["format"]).options(**wanted["options"]).load()
            sys.stdout.write(f"{seconds_of_noop(rows)}\n")
            sys.stdout.flush()
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
