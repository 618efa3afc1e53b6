"""A crowd of hostile clients beside a good one (O5's promise that bad bytes cost one connection).

The good client produces and consumes all the time and must see no error. Afterwards the broker's
memory is bounded and its log has one line for each connection that broke the protocol.
"""

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, numbered_records, read_partition, send
from tests.support.server_process import wait_until

CONNECTION_COUNT = 2_000
MEMORY_BOUND_BYTES = 64 * 2**20
REFUSED = "connection refused"
TIMEOUT_S = 10.0


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int) -> bytes:
    return struct.pack(">hhih", api_key, version, 7, 4) + b"evil"


def random_bytes(chance: random.Random) -> bytes:
    """The first four bytes are a length; whatever they say is nonsense."""
    return chance.choice([b"\xff", b"\x7f", b"G"]) + chance.randbytes(chance.randrange(4, 4_000))


def random_body(chance: random.Random) -> bytes:
    api_key = chance.randrange(0, 76)
    return frame(header(api_key, chance.randrange(0, 19)) + chance.randbytes(chance.randrange(200)))


def huge_array(chance: random.Random) -> bytes:
    """A Metadata request that claims two billion topics."""
    return frame(header(3, 4) + struct.pack(">i", 2**31 - 1))


def truncated_produce(chance: random.Random) -> bytes:
    body = header(0, 3) + struct.pack(">hhii", -1, 1, 1_000, 1) + struct.pack(">h", 500) + b"topic"
    return frame(body)


def oversized(chance: random.Random) -> bytes:
    return struct.pack(">i", chance.choice([2**31 - 1, 104_857_601, 0, -1, -(2**31)]))


def unknown_api(chance: random.Random) -> bytes:
    return frame(header(chance.choice([-1, 500, 32_767, 58, 62]), 0))


ATTACKS: list[Callable[[random.Random], bytes]] = [
    random_bytes,
    random_body,
    huge_array,
    truncated_produce,
    oversized,
    unknown_api,
]


class GoodClient:
    """Produces and consumes without pause; every record must come back, in order."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.topic = topic
        self.errors: list[str] = []
        self.sent_count = 0
        self.received: list[int] = []
        self._stop = threading.Event()
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
            "error_cb": lambda error: self.errors.append(f"client: {error}"),
        }
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 0})
        self._consumer = Consumer({**settings, "group.id": "good", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._threads = [
            threading.Thread(target=self._produce),
            threading.Thread(target=self._consume),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        self.wait_for_more("it works at all")

    def wait_for_more(self, what: str) -> None:
        before = len(self.received)
        wait_until(
            lambda: len(self.received) > before + 10 or bool(self.errors), within_s=30, what=what
        )

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def _produce(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(
                self.topic,
                str(self.sent_count).encode(),
                partition=0,
                on_delivery=self._on_delivery,
            )
            self.sent_count += 1
            if self._producer.flush(TIMEOUT_S):
                self.errors.append("produce: not acknowledged in time")

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.errors.append(f"produce: {error}")

    def _consume(self) -> None:
        while not self._is_done():
            for message in self._consumer.consume(100, timeout=0.1):
                error = message.error()
                if error is not None:
                    self.errors.append(f"consume: {error}")
                else:
                    self.received.append(int(message.value() or b"-1"))

    def _is_done(self) -> bool:
        has_all = self._stop.is_set() and len(self.received) >= self.sent_count
        return has_all or bool(self.errors)


@contextmanager
def good_client(broker: BrokerProcess, topic: str) -> Iterator[None]:
    """A good client that works before, during and after the block, and sees no error."""
    client = GoodClient(broker, topic)
    try:
        client.start()
        yield
        client.wait_for_more("it goes on")
    finally:
        client.stop()
    assert client.errors == []
    assert client.received == list(range(client.sent_count))


def attack(broker: BrokerProcess, payload: bytes) -> None:
    """Send, then wait for the broker to hang up or answer."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as connection:
        try:
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65_536):
                pass
        except ConnectionError:
            pass  # Hanging up is what it should do.


def resident_bytes(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_thousands_of_bad_connections_cost_the_good_client_nothing(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({})
    create_topic(broker.bootstrap, "good", partition_count=1, config={})
    chance = random.Random(5)
    with good_client(broker, "good"):
        attack(broker, huge_array(chance))  # Whatever is loaded at the first request is loaded.
        before_bytes = resident_bytes(broker)
        for number in range(CONNECTION_COUNT):
            attack(broker, ATTACKS[number % len(ATTACKS)](chance))
        assert resident_bytes(broker) < before_bytes + MEMORY_BOUND_BYTES
    assert broker.is_running
    assert "Traceback" not in broker.log_text()


@pytest.mark.parametrize("make", [huge_array, truncated_produce, oversized, unknown_api])
def test_each_bad_connection_is_one_log_line(
    start_broker: StartBroker, make: Callable[[random.Random], bytes]
) -> None:
    broker = start_broker({})
    before = len(broker.log_text().splitlines())
    for number in range(20):
        attack(broker, make(random.Random(number)))
    wait_until(
        lambda: broker.log_text().count(REFUSED) >= 20, within_s=10, what="all are in the log"
    )
    lines = broker.log_text().splitlines()[before:]
    assert len([line for line in lines if REFUSED in line]) == 20
    assert [line for line in lines if REFUSED not in line] == []


def test_half_frames_and_slow_senders_hold_nobody_up(start_broker: StartBroker) -> None:
    """Connections that never finish a request stay open and cost next to nothing."""
    broker = start_broker({"socket.request.max.bytes": "104857600"})
    create_topic(broker.bootstrap, "good", partition_count=1, config={})
    before_bytes = resident_bytes(broker)
    held = []
    try:
        with good_client(broker, "good"):
            for number in range(300):
                connection = socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)
                held.append(connection)
                connection.sendall(struct.pack(">i", 100_000_000) + header(0, 3)[: number % 15])
            for _ in range(10):
                for connection in held:
                    connection.sendall(b"x")
            assert resident_bytes(broker) < before_bytes + MEMORY_BOUND_BYTES
    finally:
        for connection in held:
            connection.close()


def test_requests_that_fill_the_memory_are_refused_and_the_good_client_works_on(
    start_broker: StartBroker,
) -> None:
    """Clients that send 90 MB of a 100 MB request and stop: the largest ones are closed."""
    broker = start_broker({"queued.max.request.bytes": str(MEMORY_BOUND_BYTES)})
    create_topic(broker.bootstrap, "good", partition_count=1, config={})
    before_bytes = resident_bytes(broker)
    held = []
    try:
        with good_client(broker, "good"):
            for _ in range(4):
                connection = socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)
                held.append(connection)
                with suppress(ConnectionError):  # Closed, as it should be.
                    connection.sendall(struct.pack(">i", 100_000_000) + bytes(90_000_000))
            assert resident_bytes(broker) < before_bytes + 3 * MEMORY_BOUND_BYTES
        assert "queued.max.request.bytes" in broker.log_text()
    finally:
        for connection in held:
            connection.close()


def test_consumers_that_do_not_read_cost_a_bounded_amount(start_broker: StartBroker) -> None:
    broker = start_broker(
        {
            "tidelog.response.memory.bytes": str(MEMORY_BOUND_BYTES),
            "tidelog.slow.reader.timeout.ms": "2000",
        }
    )
    create_topic(broker.bootstrap, "good", partition_count=1, config={})
    create_topic(broker.bootstrap, "big", partition_count=1, config={})
    records = numbered_records(40_000, value_size_bytes=1_000, seed="big")
    send(broker.bootstrap, "big", records, partition=0, settings={"linger.ms": 20})
    before_bytes = resident_bytes(broker)
    fetch = frame(
        header(1, 4)
        + struct.pack(">iiiib", -1, 100, 1, 50_000_000, 0)
        + struct.pack(">i", 1)
        + struct.pack(">h", 3)
        + b"big"
        + struct.pack(">iiqi", 1, 0, 0, 50_000_000)
    )
    held = []
    try:
        with good_client(broker, "good"):
            for _ in range(30):
                connection = socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)
                held.append(connection)
                connection.sendall(fetch * 3)
            wait_until(
                lambda: broker.log_text().count("does not read its answers") > 0,
                within_s=30,
                what="a client that does not read is closed",
            )
            assert resident_bytes(broker) < before_bytes + 3 * MEMORY_BOUND_BYTES
    finally:
        for connection in held:
            connection.close()
    assert len(read_partition(broker.bootstrap, "big", 0)) == 40_000
