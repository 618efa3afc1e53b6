"""Transactions of other people's clients, and Kafka's tool for them (D3, G1).

confluent-kafka and aiokafka announce partitions to the coordinator; the Java client and
kafka-python, by their versions, leave that to the brokers (KIP-890).
"""

import asyncio
import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AiokafkaPartition
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.compatibility.kafka_peer import Broker, new_broker
from tests.support.clients import CLIENT_TIMEOUT_S, NewRecord, Settings, send
from tests.support.confluent import new_consumer, read
from tests.support.dump_log_segments import DUMP_LOG_SEGMENTS
from tests.support.kafka_tools import KafkaTools, run_tool
from tests.support.server_process import wait_until
from tests.support.topics import new_topic
from tidelog.core.coordinators import partition_of

LONG_WAIT_S = 30.0

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One that looks for overdue transactions all the time."""
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with new_broker(tmp_path_factory.mktemp("transactions"), settings) as running:
        yield running


def unused_id() -> str:
    return f"transactions-{next(_numbers)}"


def producer_of(
    broker: Broker, transactional_id: str, settings: Settings | None = None
) -> Producer:
    """One that has its epoch."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "log_level": 0,
            **(settings or {}),
        }
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, values: Sequence[str], partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


def written(
    broker: Broker, topic: str, count: int, *, isolation: str = "read_committed"
) -> list[str]:
    """The first `count` values of a topic's first partition."""
    settings: Settings = {"isolation.level": isolation}
    with new_consumer(broker.bootstrap, settings) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [_text(message.value()) for message in read(consumer, count)]


def committed(broker: Broker, group: str, topic: str) -> int | None:
    """What a group has committed of a topic's first partition."""
    with new_consumer(broker.bootstrap, {"group.id": group}) as consumer:
        (position,) = consumer.committed([TopicPartition(topic, 0)], CLIENT_TIMEOUT_S)
    return None if position.offset < 0 else position.offset


def filled_topic(broker: Broker) -> str:
    """With the values 0 to 9 in its first partition, of no transaction."""
    topic = new_topic(broker.bootstrap)
    records = [NewRecord(None, str(number).encode(), 0, ()) for number in range(10)]
    send(broker.bootstrap, topic, records, partition=0, settings={})
    return topic


def _text(value: bytes | None) -> str:
    assert value is not None
    return value.decode()


@contextmanager
def fails_with(*codes: int) -> Iterator[None]:
    with pytest.raises(KafkaException) as refused:
        yield
    error = refused.value.args[0]
    assert error.code() in codes, error


class TestConfluentKafka:
    def test_what_is_committed_is_read_and_what_is_aborted_is_not(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        producer = producer_of(broker, unused_id())
        for number in range(6):
            producer.begin_transaction()
            write(producer, topic, [f"a{number}"], partition=0)
            write(producer, topic, [f"b{number}"], partition=1)
            if number % 3 == 1:
                producer.abort_transaction(CLIENT_TIMEOUT_S)
            else:
                producer.commit_transaction(CLIENT_TIMEOUT_S)
        assert written(broker, topic, 4) == ["a0", "a2", "a3", "a5"]
        everything = written(broker, topic, 6, isolation="read_uncommitted")
        assert everything == [f"a{number}" for number in range(6)]

    def test_empty_transactions_end_as_well(self, broker: Broker) -> None:
        producer = producer_of(broker, unused_id())
        for _ in range(3):
            producer.begin_transaction()
            producer.commit_transaction(CLIENT_TIMEOUT_S)
            producer.begin_transaction()
            producer.abort_transaction(CLIENT_TIMEOUT_S)

    def test_new_instance_fences_the_old_one(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        transactional_id = unused_id()
        old = producer_of(broker, transactional_id)
        old.begin_transaction()
        write(old, topic, ["old"])
        new = producer_of(broker, transactional_id)
        new.begin_transaction()
        write(new, topic, ["new"])
        new.commit_transaction(CLIENT_TIMEOUT_S)
        with fails_with(KafkaError._FENCED):
            old.commit_transaction(CLIENT_TIMEOUT_S)
        assert written(broker, topic, 1) == ["new"]

    def test_transaction_that_is_left_is_aborted_when_its_time_is_up(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        left = producer_of(broker, unused_id(), {"transaction.timeout.ms": 1_000})
        left.begin_transaction()
        write(left, topic, ["left"])
        other = producer_of(broker, unused_id())
        other.begin_transaction()
        write(other, topic, ["other"])
        other.commit_transaction(CLIENT_TIMEOUT_S)
        # Nobody reads beyond an open transaction.
        assert written(broker, topic, 1) == ["other"]
        with fails_with(
            KafkaError.INVALID_TXN_STATE, KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH
        ):
            left.commit_transaction(CLIENT_TIMEOUT_S)

    def test_offsets_are_committed_with_the_records_or_not_at_all(self, broker: Broker) -> None:
        source, target = (new_topic(broker.bootstrap) for _ in range(2))
        filling = producer_of(broker, unused_id())
        filling.begin_transaction()
        write(filling, source, [str(number) for number in range(10)])
        filling.commit_transaction(CLIENT_TIMEOUT_S)
        group = unused_id()
        producer = producer_of(broker, unused_id())
        for is_committed in (False, True):
            with self._consumer(broker, source, group) as consumer:
                messages = read(consumer, 10)
                producer.begin_transaction()
                write(producer, target, [f"{_text(each.value())}!" for each in messages])
                producer.send_offsets_to_transaction(
                    consumer.position(consumer.assignment()),
                    consumer.consumer_group_metadata(),
                    CLIENT_TIMEOUT_S,
                )
                if is_committed:
                    producer.commit_transaction(CLIENT_TIMEOUT_S)
                else:
                    producer.abort_transaction(CLIENT_TIMEOUT_S)
        assert written(broker, target, 10) == [f"{number}!" for number in range(10)]
        with self._consumer(broker, source, group) as consumer:
            (position,) = consumer.committed([TopicPartition(source, 0)], CLIENT_TIMEOUT_S)
            # Behind ten records and the marker of their own transaction.
            assert position.offset in (10, 11)

    @contextmanager
    def _consumer(self, broker: Broker, topic: str, group: str) -> Iterator[Consumer]:
        settings: Settings = {
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
        with new_consumer(broker.bootstrap, settings) as consumer:
            consumer.subscribe([topic])
            yield consumer


class TestAiokafka:
    def test_transactions_end(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        asyncio.run(self._write(broker.bootstrap, topic))
        assert written(broker, topic, 3) == ["0", "2", "4"]

    async def _write(self, bootstrap: str, topic: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unused_id())
        await producer.start()
        try:
            for number in range(5):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, str(number).encode())
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    def test_offsets_are_committed_with_the_records_or_not_at_all(self, broker: Broker) -> None:
        source, target, group = filled_topic(broker), new_topic(broker.bootstrap), unused_id()
        for is_committed in (False, True):
            asyncio.run(
                self._transform(broker.bootstrap, source, target, group, is_committed=is_committed)
            )
            assert committed(broker, group, source) == (10 if is_committed else None)
        assert written(broker, target, 10) == [f"{number}!" for number in range(10)]

    async def _transform(
        self, bootstrap: str, source: str, target: str, group: str, *, is_committed: bool
    ) -> None:
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unused_id())
        await asyncio.gather(consumer.start(), producer.start())
        try:
            await producer.begin_transaction()
            offsets = {}
            for _ in range(10):
                record = await asyncio.wait_for(consumer.getone(), LONG_WAIT_S)
                await producer.send_and_wait(target, record.value + b"!")
                offsets[AiokafkaPartition(record.topic, record.partition)] = record.offset + 1
            await producer.send_offsets_to_transaction(offsets, group)
            if is_committed:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        finally:
            await asyncio.gather(consumer.stop(), producer.stop())


class TestKafkaPython:
    def test_transactions_end(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=unused_id(), acks="all"
        )
        producer.init_transactions()
        for number in range(5):
            producer.begin_transaction()
            producer.send(topic, str(number).encode())
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()
        assert written(broker, topic, 3) == ["0", "2", "4"]

    def test_offsets_are_committed_with_the_records_or_not_at_all(self, broker: Broker) -> None:
        source, target, group = filled_topic(broker), new_topic(broker.bootstrap), unused_id()
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=unused_id(), acks="all"
        )
        producer.init_transactions()
        for is_committed in (False, True):
            self._transform(broker, producer, source, target, group, is_committed=is_committed)
            assert committed(broker, group, source) == (10 if is_committed else None)
        producer.close()
        assert written(broker, target, 10) == [f"{number}!" for number in range(10)]

    def _transform(
        self,
        broker: Broker,
        producer: KafkaProducer,
        source: str,
        target: str,
        group: str,
        *,
        is_committed: bool,
    ) -> None:
        consumer = KafkaConsumer(
            source,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=int(LONG_WAIT_S * 1000),
        )
        producer.begin_transaction()
        for _, record in zip(range(10), consumer, strict=False):
            producer.send(target, record.value + b"!")
        position = KafkaPythonPartition(source, 0)
        offsets = {position: OffsetAndMetadata(consumer.position(position), "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if is_committed:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        consumer.close()


class TestJavaClient:
    def test_transactions_end(self, broker: Broker, tools: KafkaTools) -> None:
        topic = new_topic(broker.bootstrap)
        transactional_id = unused_id()
        tools.producer_performance(
            *("--topic", topic, "--num-records", "20000", "--record-size", "100"),
            *("--throughput", "-1", "--transactional-id", transactional_id),
            # One begins while markers of the one before are on their way.
            *("--transaction-duration-ms", "3"),
        )
        assert len(written(broker, topic, 20_000)) == 20_000
        (line,) = _rows(tools.transactions("list"), transactional_id)
        assert "CompleteCommit" in line

    def test_epoch_is_bumped_by_each_transaction(self, broker: Broker, tools: KafkaTools) -> None:
        """As Kafka's clients do that find transaction.version 2."""
        topic = new_topic(broker.bootstrap)
        transactional_id = unused_id()
        tools.producer_performance(
            *("--topic", topic, "--num-records", "2000", "--record-size", "100"),
            *("--throughput", "10000", "--transactional-id", transactional_id),
            *("--transaction-duration-ms", "10"),
        )
        described = tools.transactions("describe", "--transactional-id", transactional_id)
        (line,) = _rows(described, transactional_id)
        epoch = int(line[3])
        assert epoch > 2


class TestTransactionsCommand:
    def test_open_transaction_is_listed_and_described(
        self, broker: Broker, tools: KafkaTools
    ) -> None:
        topic = new_topic(broker.bootstrap, partition_count=2)
        transactional_id = unused_id()
        producer = producer_of(broker, transactional_id)
        producer.begin_transaction()
        write(producer, topic, ["a"], partition=0)
        write(producer, topic, ["b"], partition=1)
        (line,) = _rows(tools.transactions("list"), transactional_id)
        assert line[3] == "Ongoing"
        none = tools.transactions("list", "--transactional-id-pattern", "nothing.*")
        assert _rows(none, transactional_id) == []
        (one,) = _rows(
            tools.transactions("list", "--transactional-id-pattern", f"{transactional_id[:-1]}.*"),
            transactional_id,
        )
        assert one == line
        described = tools.transactions("describe", "--transactional-id", transactional_id)
        (line,) = _rows(described, transactional_id)
        assert line[4] == "Ongoing"
        assert set(line[-1].split(",")) == {f"{topic}-0", f"{topic}-1"}
        producer.abort_transaction(CLIENT_TIMEOUT_S)
        wait_until(
            lambda: _rows(tools.transactions("list"), transactional_id)[0][3] == "CompleteAbort",
            within_s=LONG_WAIT_S,
            what="the transaction is aborted",
        )

    def test_producer_is_fenced_by_the_tool(self, broker: Broker, tools: KafkaTools) -> None:
        topic = new_topic(broker.bootstrap)
        transactional_id = unused_id()
        producer = producer_of(broker, transactional_id)
        producer.begin_transaction()
        write(producer, topic, ["a"])
        tools.transactions("forceTerminateTransaction", "--transactionalId", transactional_id)
        with fails_with(KafkaError._FENCED, KafkaError.INVALID_TXN_STATE):
            producer.commit_transaction(CLIENT_TIMEOUT_S)


@pytest.mark.one_broker
def test_what_the_coordinator_writes_is_read_by_kafka(broker: Broker, kafka_jars: None) -> None:
    topic = new_topic(broker.bootstrap)
    transactional_id = unused_id()
    producer = producer_of(broker, transactional_id)
    for _ in range(2):
        producer.begin_transaction()
        write(producer, topic, ["a"])
        producer.commit_transaction(CLIENT_TIMEOUT_S)
    number = partition_of(transactional_id, 50)
    (file,) = (broker.data_folder / f"__transaction_state-{number}").glob("*.log")
    dump = run_tool(
        DUMP_LOG_SEGMENTS, "--transaction-log-decoder", "--print-data-log", "--files", str(file)
    )
    assert dump.exit_code == 0
    told = [line for line in dump.stdout.splitlines() if transactional_id in line]
    states = [
        int(number) for line in told for number in re.findall(r'"transactionStatus":(\d)', line)
    ]
    assert states[:4] == [0, 1, 2, 4], dump
    assert f'"topic":"{topic}","partitionIds":[0]' in told[1]


def _rows(table: str, first: str) -> list[list[str]]:
    """The rows of a printed table about `first`; the coordinator is in one of the columns."""
    rows = [line.split() for line in table.splitlines()]
    return [row for row in rows if first in row]
