"""Start load generators and collect what they measured; make and drop the topics they use."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.load import (
    BulkTask,
    ConsumeTask,
    FailoverTask,
    Interruption,
    Latencies,
    LatencyTask,
    ProduceTask,
    Throughput,
)
from benchmarks.subjects import Cluster
from tests.support.clients import create_topic
from tests.support.server_process import wait_until

ROOT = Path(__file__).resolve().parent.parent
CLIENT_TIMEOUT_S = 60.0
LOAD_TIMEOUT_S = 300.0
REMOVAL_TIMEOUT_S = 300.0


class LoadFailed(Exception):
    """A load generator ended without an answer."""


def run_produce(bootstrap: str, topic: str, task: ProduceTask) -> Throughput:
    return Throughput(**_run("produce", bootstrap, topic, asdict(task)))


def run_latency(bootstrap: str, topic: str, task: LatencyTask) -> Latencies:
    return Latencies(**_run("latency", bootstrap, topic, asdict(task)))


def run_consume(bootstrap: str, topic: str, task: ConsumeTask) -> Throughput:
    return Throughput(**_run("consume", bootstrap, topic, asdict(task)))


@contextmanager
def running_bulk(bootstrap: str, topic: str, task: BulkTask) -> Iterator[None]:
    """A bulk producer at work between enter and exit."""
    command = _command("bulk", bootstrap, topic, asdict(task))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "running\n":
                raise LoadFailed("the bulk producer did not start")
            yield
        finally:
            process.terminate()
            process.communicate(timeout=LOAD_TIMEOUT_S)


class Interrupted:
    """A producer at work that is told when its leader was killed."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def result(self, killed_at_s: float) -> Interruption:
        """How long it was interrupted; waits until it is not any more."""
        stdout, _ = self._process.communicate(f"{killed_at_s!r}\n", timeout=LOAD_TIMEOUT_S)
        if self._process.returncode != 0:
            raise LoadFailed("the producer found nobody to go on with")
        return Interruption(**json.loads(stdout.splitlines()[-1]))


@contextmanager
def running_failover(bootstrap: str, topic: str, task: FailoverTask) -> Iterator[Interrupted]:
    """A producer that waits for its leader to be killed."""
    command = _command("failover", bootstrap, topic, asdict(task))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "running\n":
                raise LoadFailed("the producer did not start")
            yield Interrupted(process)
        finally:
            process.kill()


@contextmanager
def topic_for_a_while(
    bootstrap: str, topic: str, *, partition_count: int, config: Mapping[str, str] | None = None
) -> Iterator[None]:
    create_topic(bootstrap, topic, partition_count=partition_count, config=config or {})
    yield
    drop_topic(bootstrap, topic)


@contextmanager
def replicated_topic(cluster: Cluster, topic: str, *, partition_count: int) -> Iterator[None]:
    """With a replica on each of three brokers, all in sync, led by each in turn."""
    cluster.create(topic, *in_turn(partition_count))
    cluster.wait_whole(topic)
    yield
    drop_topic(cluster.bootstrap, topic)


def in_turn(partition_count: int) -> list[list[int]]:
    """Replicas of partitions that brokers 1, 2 and 3 lead in turn."""
    turns = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    return [turns[n % len(turns)] for n in range(partition_count)]


def drop_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(CLIENT_TIMEOUT_S)


def wait_until_removed(data_folder: Path, topic: str) -> None:
    """Or what comes next would wait for the folders of this one to go, or for room on the disk."""
    wait_until(
        lambda: not any(data_folder.glob(f"{topic}-*")),
        within_s=REMOVAL_TIMEOUT_S,
        what=f"no folder of {topic} is left",
    )


def stored_record_count(bootstrap: str, topic: str, *, partition_count: int) -> int:
    """What the broker holds, whatever the producer believes."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "count", "log_level": 0})
    try:
        watermarks = [
            consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=CLIENT_TIMEOUT_S)
            for n in range(partition_count)
        ]
    finally:
        consumer.close()
    return sum(high - low for low, high in watermarks)


def _run(
    task_name: str, bootstrap: str, topic: str, fields: Mapping[str, object]
) -> dict[str, float]:
    done = subprocess.run(
        _command(task_name, bootstrap, topic, fields),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=LOAD_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise LoadFailed(f"{task_name} against {bootstrap}: {done.stderr[-2_000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _command(task_name: str, bootstrap: str, topic: str, fields: Mapping[str, object]) -> list[str]:
    module = [sys.executable, "-m", "benchmarks.load"]
    return [*module, task_name, bootstrap, topic, json.dumps(fields)]
