"""Source and sink against Apache Kafka itself, also where it wants a password or TLS (X1, X2)."""

import subprocess
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
STORE_PASSWORD = "lovelace"
COMMITTED = {"kafka.isolation.level": "read_committed"}

pytestmark = pytest.mark.skipif(
    why_kafka_is_unavailable() is not None, reason=str(why_kafka_is_unavailable())
)


class SecuredKafka(KafkaProcess):
    """Two more listeners: at one clients say who they are, the other one speaks TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.secured_port, self.tls_port = free_port(), free_port()
        self.certificate = folder / "certificate.pem"
        self._key_store = folder / "keys.p12"
        self._settings |= {
            "listeners": (
                f"{self._settings['listeners']},SASL://127.0.0.1:{self.secured_port},"
                f"TLS://127.0.0.1:{self.tls_port}"
            ),
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.tls.ssl.keystore.location": str(self._key_store),
            "listener.name.tls.ssl.keystore.type": "PKCS12",
            "listener.name.tls.ssl.keystore.password": STORE_PASSWORD,
            "listener.name.tls.ssl.key.password": STORE_PASSWORD,
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": (
                f'{MODULE} required username="ada" password="lovelace" user_ada="lovelace";'
            ),
        }

    def format(self) -> None:
        super().format()
        if not self._key_store.exists():
            names = ("-dname", "CN=kafka", "-ext", "san=ip:127.0.0.1")
            self._keytool("-genkeypair", "-keyalg", "EC", "-validity", "2", *names)
            self._keytool("-exportcert", "-rfc", "-file", str(self.certificate))

    def _keytool(self, *arguments: str) -> None:
        """Java's, and where it is."""
        store = ("-keystore", str(self._key_store), "-storepass", STORE_PASSWORD)
        command = ["keytool", *arguments, "-alias", "kafka", "-storetype", "PKCS12", *store]
        subprocess.run(command, check=True, capture_output=True)

    @property
    def encrypted(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.tls_port}",
            "kafka.security.protocol": "SSL",
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
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with SecuredKafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", kafka: SecuredKafka) -> TwoSources:
    return TwoSources(spark, kafka.bootstrap)


@pytest.fixture(scope="module")
def topic(kafka: SecuredKafka) -> str:
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
    options: dict[str, str], sources: TwoSources, topic: str, kafka: SecuredKafka
) -> None:
    """librdkafka fetches there; every row is the one that is fetched by hand."""
    by_hand = sources.rows(TIDELOG, subscribe=topic, **options)
    assert sources.rows(TIDELOG, subscribe=topic, **{**options, **kafka.secured}) == by_hand


def test_a_wrong_password_ends_the_job(
    spark: "SparkSession", sources: TwoSources, topic: str, kafka: SecuredKafka
) -> None:
    """Of who reads and of who writes."""
    wrong = {
        **kafka.secured,
        "kafka.sasl.jaas.config": f'{MODULE} required username="ada" password="byron";',
    }
    with pytest.raises(Exception, match=r"RequestFailed: .*Invalid username or password"):
        sources.rows(TIDELOG, subscribe=topic, **wrong)
    writer = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format(TIDELOG)
    with pytest.raises(Exception, match=r"RequestFailed: .*Invalid username or password"):
        writer.mode("append").options(**wrong, topic=topic).save()


def test_certificates_are_given_as_files_or_as_text(
    sources: TwoSources, topic: str, kafka: SecuredKafka
) -> None:
    """In the words of librdkafka, and in those of the Java client."""
    by_hand = sources.rows(TIDELOG, subscribe=topic, **COMMITTED)
    as_file = {"kafka.ssl.ca.location": str(kafka.certificate)}
    as_store = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificate),
    }
    as_text = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": kafka.certificate.read_text("utf-8"),
    }
    for given in (as_file, as_store, as_text):
        options = {**COMMITTED, **kafka.encrypted, **given}
        assert sources.rows(TIDELOG, subscribe=topic, **options) == by_hand


def test_a_certificate_that_nobody_trusts_ends_the_job(
    sources: TwoSources, topic: str, kafka: SecuredKafka
) -> None:
    with pytest.raises(Exception, match=r"RequestFailed: .*certificate verify failed") as told:
        sources.rows(TIDELOG, subscribe=topic, **kafka.encrypted)
    assert "Traceback" not in str(told.value)


def test_rows_are_written_over_tls(
    spark: "SparkSession", sources: TwoSources, kafka: SecuredKafka
) -> None:
    """Exactly once there too."""
    output = unused_name()
    create_topic(kafka.bootstrap, output, partition_count=2, config={})
    writer = spark.range(100).selectExpr("CAST(id AS STRING) AS value").write.format(TIDELOG)
    trusted = {"kafka.ssl.ca.location": str(kafka.certificate)}
    writer.mode("append").options(**kafka.encrypted, **trusted, topic=output).save()
    written = sources.rows(TIDELOG, subscribe=output, **COMMITTED)
    assert sorted(int(row[1]) for row in written) == [*range(100)]


def test_what_is_run_again_is_not_written_again_to_kafka(
    sources: TwoSources, topic: str, kafka: SecuredKafka, tmp_path: Path
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
