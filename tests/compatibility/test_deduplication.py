"""D5: gaps in offsets and batches without records are nothing that others' programs mind.

They are what compaction leaves, so every client knows them; these are the ones that read here.
"""

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from tests.compatibility.kafka_peer import Broker, StartBroker
from tests.support.clients import Settings, create_topic
from tests.support.dump_log_segments import dump_folder
from tests.support.identified import DEDUP, send_ids
from tests.support.kafka_tools import KafkaTools
from tests.support.subject import SUBJECT

pytestmark = [
    pytest.mark.one_broker,
    pytest.mark.skipif(SUBJECT == "kafka", reason="Kafka has no such topics"),
]

IDEMPOTENT: Settings = {"enable.idempotence": True, "linger.ms": 100}
IDS = [f"id-{number}" for number in range(50)]
LAST = ["last"]


def fill(bootstrap: str, topic: str) -> list[str]:
    """Whole batches, a batch of duplicates, a batch with some, and one more at the end."""
    create_topic(bootstrap, topic, partition_count=1, config=DEDUP)
    send_ids(bootstrap, topic, IDS, settings=IDEMPOTENT)
    send_ids(bootstrap, topic, IDS, settings=IDEMPOTENT)
    some = [one for number in range(0, 50, 2) for one in (IDS[number], f"new-{number}")]
    send_ids(bootstrap, topic, some, settings=IDEMPOTENT)
    send_ids(bootstrap, topic, LAST, settings=IDEMPOTENT)
    send_ids(bootstrap, topic, IDS, settings=IDEMPOTENT)
    return [*IDS, *(f"new-{number}" for number in range(0, 50, 2)), *LAST]


@pytest.fixture(scope="module")
def expected(broker: Broker) -> list[str]:
    return fill(broker.bootstrap, "seen")


def test_kafka_python_reads_past_what_was_dropped(broker: Broker, expected: list[str]) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=None, consumer_timeout_ms=30_000
    )
    partition = PythonTopicPartition("seen", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end_offset = consumer.end_offsets([partition])[partition]
    found = []
    while consumer.position(partition) < end_offset:
        for records in consumer.poll(timeout_ms=1_000).values():
            found += [record.value.decode() for record in records]
    consumer.close()
    assert found == expected


def test_aiokafka_reads_past_what_was_dropped(broker: Broker, expected: list[str]) -> None:
    async def read() -> list[str]:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
        await consumer.start()
        try:
            partition = AioTopicPartition("seen", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found: list[str] = []
            while len(found) < len(expected):
                record = await asyncio.wait_for(consumer.getone(), 30)
                found.append(record.value.decode())
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(read()) == expected


@pytest.mark.usefixtures("kafka_jars")
def test_java_client_reads_past_what_was_dropped(
    broker: Broker, tools: KafkaTools, expected: list[str]
) -> None:
    printed = tools.console_consumer(
        *("--topic", "seen", "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(len(expected)), "--timeout-ms", "60000"),
    )
    assert printed.split() == expected
    at_the_end = tools.get_offsets("--topic", "seen", "--time", "-1")
    assert int(at_the_end.strip().rpartition(":")[2]) > len(expected)


@pytest.mark.usefixtures("kafka_jars")
def test_dump_log_segments_reads_what_was_left(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "broker", {})
    expected = fill(broker.bootstrap, "seen")
    broker.stop()
    dump = dump_folder(broker.data_folder / "seen-0")
    assert len(dump.record_offsets) == len(expected)
    assert [batch.record_count for batch in dump.batches].count(0) >= 2
    assert all(
        batch.last_offset - batch.base_offset + 1 >= batch.record_count for batch in dump.batches
    )
    # A compacted log has gaps as well, and the tool says so.
    gaps = ("Non-consecutive offsets", "is followed by")
    assert [line for line in dump.complaints if not any(gap in line for gap in gaps)] == []
