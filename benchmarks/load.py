"""The load generator: one confluent-kafka client in a process of its own.

Run as `python -m benchmarks.load TASK BOOTSTRAP TOPIC JSON`, where the JSON object holds the fields
of the task. Prints one JSON object. Topics exist already; connecting and fetching metadata happen
before the clock starts. Being a process of its own, a client can neither share a core's interpreter
lock with the one that measures nor carry anything from one round to the next.

    produce      batched records; the clock stops when the last one is acknowledged
    latency      one record at a time, each from `produce` to its delivery report
    consume      all partitions of a topic from their start
    bulk         batched records until SIGTERM, as a neighbour that others are measured beside
    failover     a record every millisecond to one partition; prints `running`, reads when the
                 leader was killed, and ends when that and others have taken a record sent since
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

CLIENT_TIMEOUT_S = 120.0
CALL_BATCH = 500
CONSUME_BATCH = 10_000
STEADY_INTERVAL_S = 0.001
STEADY_RECORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceTask:
    record_count: int
    value_size_bytes: int
    acks: str
    # True: produce_batch(), which costs the client least. False: produce() for every record.
    in_batches: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyTask:
    record_count: int
    value_size_bytes: int
    acks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeTask:
    partition_count: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkTask:
    value_size_bytes: int
    acks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverTask:
    # All of the topic; the producer knows them all and has a connection to each leader.
    partition_count: int
    # The first ones, which the one that dies leads and which get a record after it has died.
    awaited_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """`client_cpu_s` shows whether the client was the limit."""

    elapsed_s: float
    client_cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """`gap_s`: the longest time between two acknowledgements of one partition. `whole_s`: from the
    kill until all that are awaited had taken a record that was sent after it."""

    gap_s: float
    whole_s: float


def produce(bootstrap: str, topic: str, task: ProduceTask) -> Throughput:
    producer = _connected_producer(bootstrap, topic, task.acks)
    value = b"x" * task.value_size_bytes
    send = _send_in_batches if task.in_batches else _send_one_by_one
    started, cpu_started = time.perf_counter(), time.process_time()
    send(producer, topic, value, task.record_count)
    unsent = producer.flush(CLIENT_TIMEOUT_S)
    elapsed_s = time.perf_counter() - started
    if unsent != 0:
        raise TimeoutError(f"{unsent} of {task.record_count} records are not acknowledged")
    return Throughput(
        elapsed_s=elapsed_s,
        client_cpu_s=time.process_time() - cpu_started,
    )


def latency(bootstrap: str, topic: str, task: LatencyTask) -> Latencies:
    producer = _producer(bootstrap, {"acks": task.acks, "linger.ms": 0})
    value = b"x" * task.value_size_bytes
    report = _DeliveryReport()
    elapsed_ms: list[float] = []
    for n in range(task.record_count + 1):
        started = time.perf_counter()
        report.is_in = False
        producer.produce(topic, value, partition=0, on_delivery=report)
        while not report.is_in:
            producer.poll(1.0)
        if n > 0:  # The first one also connects.
            elapsed_ms.append((time.perf_counter() - started) * 1_000)
    elapsed_ms.sort()
    return Latencies(
        p50_ms=elapsed_ms[len(elapsed_ms) // 2],
        p99_ms=elapsed_ms[len(elapsed_ms) * 99 // 100],
        max_ms=elapsed_ms[-1],
    )


def consume(bootstrap: str, topic: str, task: ConsumeTask) -> Throughput:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,
            # With its defaults the client stops fetching to protect itself, and that is measured.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 2_000_000,
            "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 4_000_000,
            "receive.message.max.bytes": 100_000_000,
        }
    )
    consumer.list_topics(topic, timeout=CLIENT_TIMEOUT_S)
    started, cpu_started = time.perf_counter(), time.process_time()
    consumer.assign([TopicPartition(topic, n, 0) for n in range(task.partition_count)])
    left = task.record_count
    while left > 0:
        messages = consumer.consume(CONSUME_BATCH, timeout=CLIENT_TIMEOUT_S)
        if not messages:
            raise TimeoutError(f"{left} of {task.record_count} records did not arrive")
        left -= len(messages)
    elapsed_s, client_cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    consumer.close()
    return Throughput(elapsed_s=elapsed_s, client_cpu_s=client_cpu_s)


def bulk(bootstrap: str, topic: str, task: BulkTask) -> Throughput:
    producer = _connected_producer(bootstrap, topic, task.acks)
    value = b"x" * task.value_size_bytes
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopped.append(number))
    sys.stdout.write("running\n")
    sys.stdout.flush()
    started = time.perf_counter()
    while not stopped:
        _send_in_batches(producer, topic, value, CALL_BATCH)
    producer.flush(CLIENT_TIMEOUT_S)
    return Throughput(
        elapsed_s=time.perf_counter() - started,
        client_cpu_s=time.process_time(),
    )


def failover(bootstrap: str, topic: str, task: FailoverTask) -> Interruption:
    """The clock is the kernel's, which is the same for the one that kills."""
    producer = _producer(bootstrap, {"acks": "all"})
    steady, burst = _Acknowledged(), _Acknowledged()
    for n in range(task.partition_count):  # It connects, and knows every leader.
        producer.produce(topic, b"x", partition=n, on_delivery=_Acknowledged())
    producer.flush(CLIENT_TIMEOUT_S)
    killed: list[float] = []
    listener = threading.Thread(
        target=lambda: killed.append(float(sys.stdin.readline())), daemon=True
    )
    has_sent = False
    started = time.monotonic()
    while len(burst.at_s) < task.awaited_count:
        producer.produce(topic, b"x", partition=0, on_delivery=steady)
        if listener.ident is None and len(steady.at_s) >= STEADY_RECORDS:
            listener.start()
            sys.stdout.write("running\n")
            sys.stdout.flush()
        if killed and not has_sent:
            has_sent = True
            for n in range(task.awaited_count):
                producer.produce(topic, b"x", partition=n, on_delivery=burst)
        producer.poll(STEADY_INTERVAL_S)
        if time.monotonic() - started > CLIENT_TIMEOUT_S:
            raise TimeoutError(f"{len(burst.at_s)} of {task.awaited_count} partitions are back")
    producer.flush(CLIENT_TIMEOUT_S)
    gaps = [after - before for before, after in pairwise(steady.at_s)]
    return Interruption(gap_s=max(gaps), whole_s=max(burst.at_s) - killed[0])


class _Acknowledged:
    """When records were acknowledged."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise ConnectionError(str(error))
        self.at_s.append(time.monotonic())


class _DeliveryReport:
    """Remembers that the record sent last was acknowledged."""

    def __init__(self) -> None:
        self.is_in = False

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            raise ConnectionError(str(error))
        self.is_in = True


def _connected_producer(bootstrap: str, topic: str, acks: str) -> Producer:
    """The client's own defaults for batches, and room enough that it never waits for itself."""
    settings: dict[str, str | int] = {
        "acks": acks,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    producer = _producer(bootstrap, settings)
    producer.list_topics(topic, timeout=CLIENT_TIMEOUT_S)
    return producer


def _producer(bootstrap: str, settings: Mapping[str, str | int]) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})


def _send_one_by_one(producer: Producer, topic: str, value: bytes, record_count: int) -> None:
    for _record in range(record_count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)


def _send_in_batches(producer: Producer, topic: str, value: bytes, record_count: int) -> None:
    left = record_count
    while left > 0:
        messages = [{"value": value} for _record in range(min(left, CALL_BATCH))]
        queued = producer.produce_batch(topic, messages)
        left -= queued
        if queued < len(messages):
            producer.poll(0.01)


def main(task_name: str, bootstrap: str, topic: str, fields: str) -> None:
    tasks: Mapping[str, Callable[[Mapping[str, object]], object]] = {
        "produce": lambda data: produce(bootstrap, topic, ProduceTask(**data)),  # type: ignore[arg-type]
        "latency": lambda data: latency(bootstrap, topic, LatencyTask(**data)),  # type: ignore[arg-type]
        "consume": lambda data: consume(bootstrap, topic, ConsumeTask(**data)),  # type: ignore[arg-type]
        "failover": lambda data: failover(bootstrap, topic, FailoverTask(**data)),  # type: ignore[arg-type]
        "bulk": lambda data: bulk(bootstrap, topic, BulkTask(**data)),  # type: ignore[arg-type]
    }
    answer = tasks[task_name](json.loads(fields))
    sys.stdout.write(json.dumps(asdict(answer)) + "\n")  # type: ignore[call-overload]


if __name__ == "__main__":
    main(*sys.argv[1:])
