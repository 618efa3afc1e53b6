"""Readers of committed records, whoever wrote them: librdkafka, aiokafka and Kafka's tools (D3).

Transactions are written by librdkafka. What it and others read is worked out by hand, and holds of
a real Kafka as well (`TIDELOG_SUBJECT=kafka`).
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.compatibility.kafka_peer import Broker, StartBroker
from tests.support.clients import CLIENT_TIMEOUT_S, Settings, read_committed
from tests.support.confluent import new_consumer
from tests.support.kafka_tools import KafkaTools
from tests.support.server_process import wait_until
from tests.support.topics import new_topic, unused_name

READ_COMMITTED: Settings = {"isolation.level": "read_committed"}
TRANSACTIONS_COMMAND = "org.apache.kafka.tools.TransactionsCommand"
LONG_WAIT_S = 20.0


@contextmanager
def producing(bootstrap: str, transactional_id: str | None = None) -> Iterator[Producer]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id or unused_name(),
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    yield producer
    producer.purge()  # What is not sent by now is not wanted.


def write(producer: Producer, topic: str, *values: bytes) -> None:
    """Each in a batch of its own, and stored when this returns."""
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(CLIENT_TIMEOUT_S) == 0


def interleaved(bootstrap: str, topic: str) -> None:
    """Four transactions of two producers: a and d are committed, b and c aborted."""
    with producing(bootstrap) as first, producing(bootstrap) as second:
        first.begin_transaction()
        second.begin_transaction()
        write(first, topic, b"a0")
        write(second, topic, b"b0", b"b1")
        write(first, topic, b"a1")
        first.commit_transaction(CLIENT_TIMEOUT_S)
        write(second, topic, b"b2")
        first.begin_transaction()
        write(first, topic, b"c0")
        second.abort_transaction(CLIENT_TIMEOUT_S)
        second.begin_transaction()
        write(second, topic, b"d0")
        first.abort_transaction(CLIENT_TIMEOUT_S)
        write(second, topic, b"d1")
        second.commit_transaction(CLIENT_TIMEOUT_S)


COMMITTED = [b"a0", b"a1", b"d0", b"d1"]
EVERYTHING = [b"a0", b"b0", b"b1", b"a1", b"b2", b"c0", b"d0", b"d1"]


def values(records: object) -> list[bytes]:
    return [record.value for record in records]  # type: ignore[attr-defined]


def read_everything(bootstrap: str, topic: str) -> list[bytes]:
    """Also what was aborted, and what is not decided."""
    found: list[bytes] = []
    end, _ = _ends(bootstrap, topic)
    with new_consumer(bootstrap, {"isolation.level": "read_uncommitted"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline_s = time.monotonic() + CLIENT_TIMEOUT_S
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end - 1:
            message = consumer.poll(0.2)
            assert time.monotonic() < deadline_s
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
    return found


class TestLibrdkafka:
    def test_what_is_committed_is_read_in_order_and_nothing_else(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        interleaved(broker.bootstrap, topic)
        assert values(read_committed(broker.bootstrap, topic, 0)) == COMMITTED
        assert read_everything(broker.bootstrap, topic) == EVERYTHING

    def test_transactions_that_span_segments_are_told_apart(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap, config={"segment.bytes": str(2**20)})
        large = 400_000
        with producing(broker.bootstrap) as producer:
            for number, commits in enumerate((False, True, False, True)):
                producer.begin_transaction()
                for _ in range(4):
                    write(producer, topic, bytes([number]) * large)
                if commits:
                    producer.commit_transaction(CLIENT_TIMEOUT_S)
                else:
                    producer.abort_transaction(CLIENT_TIMEOUT_S)
        read = values(read_committed(broker.bootstrap, topic, 0))
        assert [value[0] for value in read] == [1] * 4 + [3] * 4

    def test_an_open_transaction_holds_up_what_lies_behind_it(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        with (
            producing(broker.bootstrap) as open_one,
            producing(broker.bootstrap) as quick,
            new_consumer(broker.bootstrap, READ_COMMITTED) as consumer,
        ):
            quick.begin_transaction()
            write(quick, topic, b"before")
            quick.commit_transaction(CLIENT_TIMEOUT_S)
            open_one.begin_transaction()
            write(open_one, topic, b"open")
            quick.begin_transaction()
            write(quick, topic, b"behind")
            quick.commit_transaction(CLIENT_TIMEOUT_S)
            assert values(read_committed(broker.bootstrap, topic, 0)) == [b"before"]
            assert _ends(broker.bootstrap, topic) == (5, 2)
            partition = TopicPartition(topic, 0)
            assert consumer.get_watermark_offsets(partition, CLIENT_TIMEOUT_S) == (0, 2)
            open_one.abort_transaction(CLIENT_TIMEOUT_S)
            assert values(read_committed(broker.bootstrap, topic, 0)) == [b"before", b"behind"]
            assert _ends(broker.bootstrap, topic) == (6, 6)

    def test_who_waits_hears_of_a_commit_at_once(self, broker: Broker) -> None:
        """R4"""
        topic = new_topic(broker.bootstrap)
        waiting: Settings = {
            **READ_COMMITTED,
            "fetch.wait.max.ms": int(LONG_WAIT_S * 1000),
            "socket.timeout.ms": 60_000,
        }
        with (
            producing(broker.bootstrap) as producer,
            new_consumer(broker.bootstrap, waiting) as consumer,
        ):
            consumer.assign([TopicPartition(topic, 0, 0)])
            producer.begin_transaction()
            write(producer, topic, b"value")
            assert consumer.poll(1.0) is None
            began_s = time.monotonic()
            producer.commit_transaction(CLIENT_TIMEOUT_S)
            message = consumer.poll(LONG_WAIT_S)
            assert message is not None
            assert message.value() == b"value"
            assert time.monotonic() - began_s < LONG_WAIT_S / 2

    def test_a_producer_that_was_replaced_writes_nothing_more(self, broker: Broker) -> None:
        topic, name = new_topic(broker.bootstrap), unused_name()
        with producing(broker.bootstrap, name) as old:
            old.begin_transaction()
            write(old, topic, b"old")
            with producing(broker.bootstrap, name) as new:
                old.produce(topic, b"late", partition=0)
                with pytest.raises(KafkaException) as refused:
                    old.commit_transaction(CLIENT_TIMEOUT_S)
                assert refused.value.args[0].code() == KafkaError._FENCED
                new.begin_transaction()
                write(new, topic, b"new")
                new.commit_transaction(CLIENT_TIMEOUT_S)
        assert values(read_committed(broker.bootstrap, topic, 0)) == [b"new"]
        assert b"late" not in read_everything(broker.bootstrap, topic)

    @pytest.mark.one_broker
    def test_a_transaction_goes_on_after_the_broker_was_killed(
        self, start_broker: StartBroker, tmp_path: Path
    ) -> None:
        broker = start_broker(tmp_path, {})
        topic = new_topic(broker.bootstrap)
        with producing(broker.bootstrap) as producer, producing(broker.bootstrap) as other:
            other.begin_transaction()
            write(other, topic, b"aborted")
            other.abort_transaction(CLIENT_TIMEOUT_S)
            producer.begin_transaction()
            write(producer, topic, b"before")
            broker.kill()
            broker.start()
            assert values(read_committed(broker.bootstrap, topic, 0)) == []
            write(producer, topic, b"after")
            producer.commit_transaction(CLIENT_TIMEOUT_S)
        assert values(read_committed(broker.bootstrap, topic, 0)) == [b"before", b"after"]


class TestAiokafka:
    def test_what_is_committed_is_read_in_order_and_nothing_else(self, broker: Broker) -> None:
        topic = new_topic(broker.bootstrap)
        interleaved(broker.bootstrap, topic)
        assert asyncio.run(_read_with_aiokafka(broker.bootstrap, topic)) == COMMITTED


async def _read_with_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    partition = AioPartition(topic, 0)
    found: list[bytes] = []
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        async with asyncio.timeout(CLIENT_TIMEOUT_S):
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [record.value for record in records]
    finally:
        await consumer.stop()
    return found


class TestKafkasTools:
    def test_console_consumer_reads_what_is_committed(
        self, broker: Broker, tools: KafkaTools
    ) -> None:
        topic = new_topic(broker.bootstrap)
        interleaved(broker.bootstrap, topic)
        printed = tools.console_consumer(
            *("--topic", topic, "--partition", "0", "--offset", "earliest"),
            *("--isolation-level", "read_committed", "--max-messages", str(len(COMMITTED))),
        )
        assert printed.split() == [value.decode() for value in COMMITTED]

    def test_a_hanging_transaction_is_seen_and_aborted(
        self, broker: Broker, tools: KafkaTools
    ) -> None:
        """KIP-664. It does not really hang: its coordinator would end it in a minute."""
        topic = new_topic(broker.bootstrap)
        with producing(broker.bootstrap) as producer:
            producer.begin_transaction()
            write(producer, topic, b"value")
            described = tools.attempt(
                TRANSACTIONS_COMMAND, "describe-producers", "--topic", topic, "--partition", "0"
            )
            assert described.exit_code == 0, str(described)
            _head, row = described.stdout.splitlines()
            assert row.split()[-1] == "0"  # Where its transaction begins.
            aborted = tools.attempt(
                *(TRANSACTIONS_COMMAND, "abort", "--topic", topic),
                *("--partition", "0", "--start-offset", "0"),
            )
            assert aborted.exit_code == 0, str(aborted)
            wait_until(
                lambda: _ends(broker.bootstrap, topic) == (2, 2),
                within_s=CLIENT_TIMEOUT_S,
                what="the end of the transaction",
            )
        assert values(read_committed(broker.bootstrap, topic, 0)) == []


def _ends(bootstrap: str, topic: str) -> tuple[int, int]:
    """The latest offset of everything, and of what is committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    found = []
    for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = admin.list_offsets({partition: latest}, isolation_level=level)
        found.append(asked[partition].result(CLIENT_TIMEOUT_S).offset)
    return found[0], found[1]
