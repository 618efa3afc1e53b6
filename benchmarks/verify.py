"""X5: how long it takes to judge ten million records by their ledger, and in how much memory.

One broker and a topic of twelve partitions, filled by `tidelog produce --ledger`. Each run is the
command as it is typed, in a process of its own: Spark's start is part of it, and nothing is warm.
The heap is Spark's default, 1 GB, so that more records would not take more memory but more files.

    produce    records/s with a ledger, and without one
    topic      ledger against topic, through the broker
    folder     ledger against the broker's folder, without it
    replicas   the folder against a copy of it, byte by byte
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Bench, run_script
from benchmarks.results import Metric
from benchmarks.subjects import TIDELOG
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic
from tidelog.bench.process_stats import FamilyWatch
from tidelog.pipeline.segments import find_partitions

QUESTION = "How long does it take to judge ten million records by their ledger? (X5)"
WITH, WITHOUT = "with a ledger", "without"
TOPIC, FOLDER, REPLICAS = "topic", "folder", "replicas"
RECORD_COUNT = 10_000_000
PRODUCE_COUNT = 1_000_000
PARTITION_COUNT = 12
CHECKPOINT_WITHIN_S = 60.0
POLL_INTERVAL_S = 0.2


def measure(bench: Bench) -> None:
    broker = bench.start_subjects()[TIDELOG]
    assert isinstance(broker, BrokerProcess)
    _measure_produce(bench, broker)
    count = bench.count(RECORD_COUNT)
    ledger = bench.folder / "ledger.jsonl"
    bench.say(f"filling a topic with {count:,} records")
    create_topic(broker.bootstrap, TOPIC, partition_count=PARTITION_COUNT, config={})
    _produce(broker, TOPIC, count, ledger)
    _wait_for_checkpoints(broker, count)
    copy = bench.folder / "copy"
    shutil.copytree(broker.data_folder, copy)
    stored_bytes = sum(path.stat().st_size for path in copy.rglob("*.log"))
    bench.remarks.append(
        f"{count:,} records: {stored_bytes / 1e6:,.0f} MB of segments, "
        f"{ledger.stat().st_size / 1e6:,.0f} MB of ledger"
    )
    commands = {
        TOPIC: (TOPIC, "--ledger", str(ledger), "--bootstrap", broker.bootstrap),
        FOLDER: (TOPIC, "--ledger", str(ledger), "--path", str(broker.data_folder)),
        REPLICAS: ("--replicas", str(broker.data_folder), str(copy)),
    }
    took = bench.metric(Metric("the whole command", "s"))
    cpu = bench.metric(Metric("processor time", "us/record"))
    memory = bench.metric(Metric("largest memory of all its processes", "MiB"))
    for _ in range(bench.rounds):
        for name, arguments in commands.items():
            run = _Command("pipeline", "verify", *arguments, "--json")
            assert run.printed["clean"], run.printed
            took.record(name, run.took_s)
            cpu.record(name, run.cpu_s / count * 1e6)
            memory.record(name, run.peak_mib)


def _measure_produce(bench: Bench, broker: BrokerProcess) -> None:
    rate = bench.metric(Metric("tidelog produce", "records/s"))
    count = bench.count(PRODUCE_COUNT)
    for number in range(bench.rounds):
        for name in (WITHOUT, WITH):
            topic = f"produce-{name.replace(' ', '-')}-{number}"
            create_topic(broker.bootstrap, topic, partition_count=PARTITION_COUNT, config={})
            ledger = bench.folder / f"{topic}.jsonl" if name == WITH else None
            rate.record(name, _produce(broker, topic, count, ledger)["records_per_second"])


def _produce(broker: BrokerProcess, topic: str, count: int, ledger: Path | None) -> dict[str, Any]:
    noted = () if ledger is None else ("--ledger", str(ledger))
    return _Command(
        *("produce", topic, "--count", str(count), "--bootstrap", broker.bootstrap, "--json"),
        *noted,
    ).printed


def _wait_for_checkpoints(broker: BrokerProcess, count: int) -> None:
    """Until the high watermarks in the folder are those of the broker."""
    give_up_at_s = time.monotonic() + CHECKPOINT_WITHIN_S
    while _committed(broker) < count:
        if time.monotonic() > give_up_at_s:
            raise TimeoutError("the broker has not written its high watermarks down")
        time.sleep(POLL_INTERVAL_S)


def _committed(broker: BrokerProcess) -> int:
    folders = find_partitions([str(broker.data_folder)], topics=[TOPIC])
    return sum(each.high_watermark or 0 for each in folders)


class _Command:
    """A command that has run: what it printed, how long it took, and what it took."""

    def __init__(self, *arguments: str) -> None:
        started_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tidelog", *arguments], stdout=subprocess.PIPE
        )
        with FamilyWatch(process.pid) as watch:
            output, _ = process.communicate()
        assert process.returncode == 0, output
        self.printed: dict[str, Any] = json.loads(output)
        self.took_s = time.monotonic() - started_s
        self.cpu_s = watch.cpu_s
        self.peak_mib = watch.peak_mib


if __name__ == "__main__":
    sys.exit(run_script("verify", QUESTION, measure, subjects=(TIDELOG,)))
