"""Source and sink against Apache Kafka itself, also where it wants a password (X1, X2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.clients import create_topic
from tests.support.kafka_process import KafkaProcess
from tests.support.ports import free_port
from tests.support.topics import unused_name
from tests.support.two_sources import TIDELOG, TwoSources
from tidelog.lab.peers import why_kafka_is_unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN_S = 60
AT_MS = 1_700_000_000_000
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
COMMITTED = {"kafka.isolation.level": "read_committed"}

pytestmark = pytest.mark.skipif(
    why_kafka_is_unavailable() is not None, reason=str(why_kafka_is_unavailable())
)


class KafkaWithPasswords(KafkaProcess):
    """One more listener, at which clients say who they are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.secured_port = free_port()
        self._settings |= {
            "listeners": f"{self._settings['listeners']},SASL://127.0.0.1:{self.secured_port}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": (
                f'{MODULE} required username="ada" password="lovelace" user_ada="lovelace";'
            ),
        }

    @property
    def secured(self) -> dict[str, str]:
        """As a job for Spark's own source says it."""
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.secured_port}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{MODULE} required username="ada" password="lovelace";',
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaWithPasswords]:
    with KafkaWithPasswords(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", kafka: KafkaWithPasswords) -> TwoSources:
    return TwoSources(spark, kafka.bootstrap)


@pytest.fixture(scope="module")
def topic(kafka: KafkaWithPasswords) -> str:
    """Records, then a transaction that was committed and one that was aborted."""
    name = unused_name()
    create_topic(kafka.bootstrap, name, partition_count=2, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20})
    for number in range(300):
        producer.produce(
            name,
            None if number % 3 == 0 else b"%d" % number,
            b"key %d" % number,
            partition=number % 2,
            timestamp=AT_MS + number,
            headers=[("guid", b"%d" % number), ("none", None)] if number % 2 else None,
        )
    assert producer.flush(30) == 0
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(name, b"in a transaction", partition=0, timestamp=AT_MS)
        producer.flush(30)
        end(30)
    return name


def test_kafka_is_read_like_tidelog(sources: TwoSources, topic: str) -> None:
    assert len(sources.rows(TIDELOG, subscribe=topic)) == 320
    assert len(sources.rows(TIDELOG, subscribe=topic, **COMMITTED)) == 310


@pytest.mark.parametrize(
    "options",
    [{"includeHeaders": "true"}, COMMITTED, {**COMMITTED, "minPartitions": "7"}],
    ids=["all", "committed", "in pieces"],
)
def test_brokers_that_want_a_password_give_the_same_rows(
    options: dict[str, str], sources: TwoSources, topic: str, kafka: KafkaWithPasswords
) -> None:
    """librdkafka fetches there; every row is the one that is fetched by hand."""
    by_hand = sources.rows(TIDELOG, subscribe=topic, **options)
    assert sources.rows(TIDELOG, subscribe=topic, **{**options, **kafka.secured}) == by_hand


def test_a_wrong_password_ends_the_job(
    sources: TwoSources, topic: str, kafka: KafkaWithPasswords
) -> None:
    wrong = {
        **kafka.secured,
        "kafka.sasl.jaas.config": f'{MODULE} required username="ada" password="byron";',
        "fetchOffset.numRetries": "0",
    }
    with pytest.raises(Exception, match=r"ClusterUnreachable|RequestFailed"):
        sources.rows(TIDELOG, subscribe=topic, **wrong)


def test_what_is_run_again_is_not_written_again_to_kafka(
    sources: TwoSources, topic: str, kafka: KafkaWithPasswords, tmp_path: Path
) -> None:
    output = unused_name()
    create_topic(kafka.bootstrap, output, partition_count=2, config={})
    checkpoint = tmp_path / "checkpoint"

    def copy() -> int:
        query = (
            sources.stream(TIDELOG, subscribe=topic, startingOffsets="earliest", **COMMITTED)
            .select("key", "value")
            .writeStream.format(TIDELOG)
            .option("kafka.bootstrap.servers", kafka.bootstrap)
            .option("topic", output)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(WITHIN_S)
        return len(sources.rows(TIDELOG, subscribe=output, **COMMITTED))

    assert copy() == 310
    for file in (checkpoint / "commits").iterdir():
        file.unlink()
    assert copy() == 310
