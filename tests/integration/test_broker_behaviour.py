"""What the parts of a broker do together, in a real process, under load."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import StartBroker
from tests.support.batches import header_of, idempotent_batch, plain_batch
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, read_partition
from tests.support.kio_codec import milliseconds
from tests.support.message_client import ConnectionClosed
from tests.support.raw_client import FetchFrom, RawClient, Topic
from tests.support.server_process import wait_until
from tidelog.records.batch import iter_headers
from tidelog.records.record import decode_records
from tidelog.wire.api import ApiKey

# The records of these tests are from the year 2023.
SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "retention.ms": "-1"}
A_MINUTE = milliseconds(60_000)
CLEAN_MARK = ".kafka_cleanshutdown"


def records_in(data: bytes) -> Iterator[tuple[int, bytes | None]]:
    """Offset and value."""
    for position, header in iter_headers(data):
        for record in decode_records(data[position : position + header.size_bytes]):
            yield record.offset, record.value


class Writer:
    """Appends batches one after the other, on a connection and in a thread of its own."""

    def __init__(self, broker: BrokerProcess, topic: Topic, partition: int) -> None:
        self._client = RawClient(broker.port)
        self._topic = topic
        self._partition = partition
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[tuple[int, int]] = []
        """First sequence and base offset of each batch that was acknowledged."""

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def _run(self) -> None:
        sequence = 0
        with self._client as client:
            while not self._stop.is_set():
                batch = idempotent_batch(
                    10, producer_id=10_000 + self._partition, base_sequence=sequence
                )
                try:
                    produced = client.produce(self._topic, batch, partition=self._partition)
                except (OSError, ConnectionClosed):
                    return  # The broker stopped.
                if produced.code != 0:
                    return  # The topic is gone.
                self.acknowledged.append((sequence, produced.base_offset))
                sequence += header_of(batch).record_count


def test_a_session_sees_every_record_that_is_written_meanwhile(start_broker: StartBroker) -> None:
    """Answers too small for all that is there, segments that roll under the reader's hands."""
    broker = start_broker({})
    create_topic(broker.bootstrap, "t", partition_count=4, config=SMALL_SEGMENTS)
    with RawClient(broker.port) as reader:
        topic = reader.topic("t")
        writers = [Writer(broker, topic, number) for number in range(4)]
        positions = [0] * 4
        session_id, epoch, changed = 0, 0, {0, 1, 2, 3}
        with writers[0].running(), writers[1].running(), writers[2].running(), writers[3].running():
            while sum(positions) < 12_000:
                answer = reader.fetch(
                    *(
                        FetchFrom(topic=topic, partition=number, offset=positions[number])
                        for number in sorted(changed)
                    ),
                    session_id=session_id,
                    session_epoch=epoch,
                    min_bytes=1,
                    max_wait_ms=500,
                    max_bytes=3_000,
                )
                assert answer.code == 0
                session_id, epoch, changed = answer.session_id, epoch + 1, set()
                for (_name, number), fetched in answer.partitions.items():
                    assert fetched.code == 0
                    for offset, _value in records_in(fetched.records):
                        if offset >= positions[number]:
                            assert offset == positions[number]
                            positions[number] += 1
                            changed.add(number)
        assert min(positions) > 0  # Nobody starved.


def test_a_stop_under_load_is_clean_and_loses_nothing(start_broker: StartBroker) -> None:
    """Rolls, retention and queued appends are under way when SIGTERM arrives."""
    broker = start_broker({"log.retention.check.interval.ms": "20"})
    create_topic(broker.bootstrap, "t", partition_count=2, config=SMALL_SEGMENTS)
    with RawClient(broker.port) as client:
        topic = client.topic("t")
    for _ in range(3):
        writers = [Writer(broker, topic, number) for number in range(2)]
        with writers[0].running(), writers[1].running():
            wait_until(
                lambda: all(len(one.acknowledged) > 100 for one in writers),  # noqa: B023
                within_s=30,
                what="there is load",
            )
            assert broker.stop() == 0
        assert (broker.data_folder / CLEAN_MARK).exists()
        broker.start()
        assert "recover" not in broker.log_text_of_this_start()
        for number, writer in enumerate(writers):
            stored = {record.offset for record in read_partition(broker.bootstrap, "t", number)}
            for _sequence, base_offset in writer.acknowledged:
                assert set(range(base_offset, base_offset + 10)) <= stored
            assert stored == set(range(len(stored)))  # Each once, without a gap.
        delete_and_create(broker, "t", partition_count=2)
        with RawClient(broker.port) as client:
            topic = client.topic("t")


def delete_and_create(broker: BrokerProcess, name: str, *, partition_count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(30)
    create_topic(broker.bootstrap, name, partition_count=partition_count, config=SMALL_SEGMENTS)


def test_a_topic_deleted_and_created_under_load_costs_nobody_else(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({})
    create_topic(broker.bootstrap, "good", partition_count=1, config=SMALL_SEGMENTS)
    create_topic(broker.bootstrap, "t", partition_count=2, config=SMALL_SEGMENTS)
    with RawClient(broker.port) as client:
        good = Writer(broker, client.topic("good"), 0)
        with good.running():
            for _ in range(15):
                writers = [Writer(broker, client.topic("t"), number) for number in range(2)]
                with writers[0].running(), writers[1].running():
                    wait_until(
                        lambda: bool(writers[0].acknowledged),  # noqa: B023
                        within_s=30,
                        what="there is load",
                    )
                    delete_and_create(broker, "t", partition_count=2)
        topic = client.topic("t")
        assert client.produce(topic, plain_batch(1)).base_offset == 0
    assert "offline" not in broker.log_text()
    assert len(read_partition(broker.bootstrap, "good", 0)) == 10 * len(good.acknowledged)


def test_a_topic_created_again_keeps_its_records_after_a_kill(start_broker: StartBroker) -> None:
    """The old topic's log start offset was far beyond the end of the new one."""
    broker = start_broker({"log.flush.offset.checkpoint.interval.ms": "100"})
    create_topic(broker.bootstrap, "t", partition_count=1, config={})
    with RawClient(broker.port) as client:
        for _ in range(10):
            client.produce(client.topic("t"), plain_batch(100))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for deletion in admin.delete_records([TopicPartition("t", 0, 900)]).values():
            deletion.result(30)
        delete_and_create(broker, "t", partition_count=1)
        assert client.produce(client.topic("t"), plain_batch(5)).base_offset == 0
    broker.kill()
    broker.start()
    assert [record.offset for record in read_partition(broker.bootstrap, "t", 0)] == [0, 1, 2, 3, 4]


def test_a_deletion_that_a_kill_cuts_short_does_not_block_the_name(
    start_broker: StartBroker,
) -> None:
    """Killed at some moment between the decision and the last folder."""
    broker = start_broker({})
    for moment_ms in range(8):
        create_topic(broker.bootstrap, "t", partition_count=8, config={})
        with RawClient(broker.port) as client:
            topic = client.topic("t")
            for number in range(8):
                assert client.produce(topic, plain_batch(3), partition=number).base_offset == 0
            client.tell(ApiKey.DELETE_TOPICS, 5, {"topic_names": ("t",), "timeout": A_MINUTE})
            threading.Event().wait(moment_ms / 1000)
            broker.kill()
        broker.start()
        with RawClient(broker.port) as client:
            if client.metadata({"name": "t", "topic_id": None}).error_code == 0:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
                admin.delete_topics(["t"])["t"].result(30)
    create_topic(broker.bootstrap, "t", partition_count=8, config={})
    assert "log directory offline" not in broker.log_text()


def test_answers_nobody_reads_are_bounded_behind_a_parked_fetch(start_broker: StartBroker) -> None:
    """Each connection asks for 50 times 1 MB behind a fetch that waits for a minute."""
    broker = start_broker({})
    create_topic(broker.bootstrap, "t", partition_count=1, config={})
    with RawClient(broker.port) as client:
        topic = client.topic("t")
        for _ in range(60):
            client.produce(topic, plain_batch(800))
        before_bytes = resident_bytes(broker)
        held = [parked_then_many(broker, topic) for _ in range(20)]
        assert client.produce(topic, plain_batch(1)).code == 0
        assert resident_bytes(broker) < before_bytes + 64 * 2**20
        for connection in held:
            connection.close()


def parked_then_many(broker: BrokerProcess, topic: Topic) -> socket.socket:
    def fetch(offset: int, max_wait_ms: int) -> bytes:
        name = topic.name.encode()
        body = (
            struct.pack(">hhih", 1, 4, 7, -1)
            + struct.pack(">iiiib", -1, max_wait_ms, 1, 2**30, 0)
            + struct.pack(">ih", 1, len(name))
            + name
            + struct.pack(">iiqi", 1, 0, offset, 2**20)
        )
        return struct.pack(">i", len(body)) + body

    connection = socket.create_connection(("127.0.0.1", broker.port), timeout=30)
    connection.sendall(fetch(60 * 800, 60_000) + 50 * fetch(0, 0))
    return connection


def resident_bytes(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
