"""T1: from starting the process to the first acknowledged record.

The client is there first, with its record queued, and tries to connect every few milliseconds. Two
starts per round: in an empty folder, where the topic is created on first use, and again after a
stop, where it is there already. Kafka's data folder is formatted before the clock starts. The
floor is a bare Python interpreter that opens a port. The same for three brokers, started together:
the topic has three replicas, of which two must have the record.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.harness import Bench, run_script
from benchmarks.results import Metric, Target
from benchmarks.subjects import (
    FLOOR,
    KAFKA,
    TIDELOG,
    Broker,
    Cluster,
    new_broker,
    new_cluster,
)
from tests.support.broker_cluster import BrokerCluster
from tests.support.kafka_process import KafkaProcess
from tests.support.ports import free_port

QUESTION = "How long from starting brokers to the first acknowledged record? (T1)"
TOPIC = "first"
START_TIMEOUT_S = 60.0
KAFKA_STOP_TIMEOUT_S = 10.0
A_FIFTH_OF_KAFKA = Target(requirement="T1", of=TIDELOG, against=KAFKA, at_most=0.2)
BARE_SERVER = (
    "import socket, sys;"
    "s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
    "c, _ = s.accept(); c.sendall(b'x')"
)


def measure(bench: Bench) -> None:
    # Nothing stays warm in a process that has yet to start, but the files it reads do.
    bench.warm_up_rounds = 1
    for count, new in ((1, new_broker), (3, new_cluster)):
        of = "" if count == 1 else "three brokers, "
        empty = bench.metric(Metric(f"{of}in an empty folder", "s", (A_FIFTH_OF_KAFKA,)))
        again = bench.metric(Metric(f"{of}again after a stop", "s", (A_FIFTH_OF_KAFKA,)))
        names = [name for name in bench.subjects if count == 1 or name != FLOOR]
        for turn in bench.turns(f"starting {count}", names):
            if turn.name == FLOOR:
                turn.record(empty, _start_bare_server())
                continue
            started = new(turn.name, bench.folder / f"{turn.label}-{count}", {})
            turn.record(empty, _start_to_first_record(started))
            _stop_at_once(started)
            turn.record(again, _start_to_first_record(started))
            _stop_at_once(started)


def _start_to_first_record(started: Broker | Cluster) -> float:
    for broker in _brokers(started):
        if isinstance(broker, KafkaProcess):
            broker.format()
    acknowledged: list[float] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise ConnectionError(str(error))
        acknowledged.append(time.perf_counter())

    producer = _impatient_producer(started.bootstrap)
    producer.produce(TOPIC, b"first", on_delivery=on_delivery)
    started_s = time.perf_counter()
    for broker in _brokers(started):
        broker.launch()
    while not acknowledged:
        producer.poll(0.1)
        if time.perf_counter() - started_s > START_TIMEOUT_S:
            raise TimeoutError(started.log_text())
    return acknowledged[0] - started_s


def _brokers(started: Broker | Cluster) -> Sequence[Broker]:
    if isinstance(started, BrokerCluster):
        return list(started.brokers.values())
    return [started]


def _stop_at_once(started: Broker | Cluster) -> None:
    """End all, none waiting for another. Kafka's last ones cannot end cleanly: their controllers
    are no quorum any more, and they wait for one."""
    brokers = _brokers(started)
    with ThreadPoolExecutor() as threads:
        stops = [threads.submit(broker.stop) for broker in brokers]
        if isinstance(started, BrokerCluster) and isinstance(brokers[0], KafkaProcess):
            wait(stops, timeout=KAFKA_STOP_TIMEOUT_S)
            for broker in brokers:
                broker.kill()
        for stop in stops:
            stop.result()


def _impatient_producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 10,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "message.timeout.ms": int(START_TIMEOUT_S * 1_000),
            "log_level": 0,
        }
    )


def _start_bare_server() -> float:
    port = free_port()
    started = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", BARE_SERVER, str(port)], cwd=Path("/")) as server:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.recv(1)
                break
            except ConnectionRefusedError:
                time.sleep(0.001)
        elapsed_s = time.perf_counter() - started
        server.wait()
    return elapsed_s


if __name__ == "__main__":
    sys.exit(run_script("start_time", QUESTION, measure))
