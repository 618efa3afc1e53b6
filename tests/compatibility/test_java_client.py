"""The Java client, by the programs with which Kafka's own system tests drive it (G1, P3, D3).

VerifiableProducer and VerifiableConsumer say in JSON what they were told. A copier consumes,
transforms nothing, and produces in transactions with the offsets of its group.
"""

import json
import re
from collections import Counter
from typing import Any

import pytest

from tests.compatibility.kafka_peer import Broker
from tests.support.clients import read_committed
from tests.support.kafka_tools import KafkaTools, run_tool
from tests.support.subject import SUBJECT
from tests.support.topics import new_topic, unused_name
from tidelog.wire.api import SUPPORTED, ApiKey

RECORD_COUNT = 400
PARTITION_COUNT = 3
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


def is_served(api_key: ApiKey) -> bool:
    return SUBJECT == "kafka" or api_key in SUPPORTED


needs_groups = pytest.mark.skipif(
    not is_served(ApiKey.JOIN_GROUP), reason="groups are not served yet"
)
needs_transactions = pytest.mark.skipif(
    not is_served(ApiKey.TXN_OFFSET_COMMIT), reason="transactions are not served yet"
)


def said(main_class: str, *arguments: str) -> list[dict[str, Any]]:
    """The objects that a program printed, after it has ended well."""
    result = run_tool(main_class, *arguments)
    assert result.exit_code == 0, result
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def produce(broker: Broker, topic: str) -> set[str]:
    """What was acknowledged."""
    told = said(
        PRODUCER,
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--max-messages",
        str(RECORD_COUNT),
        "--acks",
        "-1",
        "--value-prefix",
        "7",
    )
    stored = {one["value"] for one in told if one["name"] == "producer_send_success"}
    assert len(stored) == RECORD_COUNT
    return stored


def test_what_the_verifiable_producer_was_told_is_there(kafka_jars: None, broker: Broker) -> None:
    topic = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    acknowledged = produce(broker, topic)
    assert sorted(values(broker, topic, PARTITION_COUNT)) == sorted(acknowledged)


@needs_groups
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_consumer_reads_and_commits_all(
    kafka_jars: None, broker: Broker, tools: KafkaTools, protocol: str
) -> None:
    if protocol == "consumer" and not is_served(ApiKey.CONSUMER_GROUP_HEARTBEAT):
        pytest.skip("the consumer protocol is not served yet")
    topic = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    produce(broker, topic)
    group = unused_name()
    told = said(
        CONSUMER,
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--group-id",
        group,
        "--group-protocol",
        protocol,
        "--max-messages",
        str(RECORD_COUNT),
        "--reset-policy",
        "earliest",
    )
    by_name = Counter(one["name"] for one in told)
    assert by_name["partitions_assigned"] >= 1
    consumed = sum(one["count"] for one in told if one["name"] == "records_consumed")
    assert consumed == RECORD_COUNT
    committed = [one for one in told if one["name"] == "offsets_committed"]
    assert committed
    assert all(one["success"] for one in committed)
    described = tools.consumer_groups("--describe", "--group", group, "--offsets")
    lags = re.findall(rf"^{group}\s+{topic}\s+\d+\s+\d+\s+\d+\s+(\d+)", described, re.MULTILINE)
    assert set(lags) == {"0"}, described


@needs_transactions
def test_the_transactional_copier_copies_each_record_once(kafka_jars: None, broker: Broker) -> None:
    """Every other transaction is aborted, at random, and its records are copied again."""
    source = new_topic(broker.bootstrap, partition_count=1)
    target = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    produce(broker, source)
    told = said(
        COPIER,
        "--broker-list",
        broker.bootstrap,
        "--input-topic",
        source,
        "--input-partition",
        "0",
        "--output-topic",
        target,
        "--max-messages",
        str(RECORD_COUNT),
        "--consumer-group",
        unused_name(),
        "--transactional-id",
        unused_name(),
        "--transaction-size",
        "50",
        "--enable-random-aborts",
        "--group-mode",
        "--use-group-metadata",
    )
    assert told[-1]["consumed"] >= RECORD_COUNT
    copied = values(broker, target, PARTITION_COUNT)
    assert sorted(copied) == sorted(values(broker, source, 1))


def values(broker: Broker, topic: str, partition_count: int) -> list[str]:
    """What is committed."""
    return [
        (record.value or b"").decode()
        for partition in range(partition_count)
        for record in read_committed(broker.bootstrap, topic, partition)
    ]
