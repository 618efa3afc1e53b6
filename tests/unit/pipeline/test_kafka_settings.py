"""`kafka.*` options in the words of the Java client and of librdkafka (X1)."""

import pytest

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.kafka_settings import KafkaSettings, reader_settings, writer_settings

BASE = {"kafka.bootstrap.servers": "a:1,b:2"}
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="ada" password="a \\"b\\" c=d";'
)


def read(**options: str) -> KafkaSettings:
    return reader_settings({**BASE, **options})


def test_other_options_are_not_the_clients() -> None:
    assert read(subscribe="orders").values == (
        ("bootstrap.servers", "a:1,b:2"),
        ("isolation.level", "read_uncommitted"),
    )


def test_names_of_the_java_client_are_translated() -> None:
    found = read(
        **{
            "kafka.fetch.max.wait.ms": "5",
            "kafka.request.timeout.ms": "7000",
            "kafka.max.poll.records": "10",
            "kafka.max.partition.fetch.bytes": "12345",
        }
    )
    assert found.number("fetch.wait.max.ms", 0) == 5
    assert found.number("socket.timeout.ms", 0) == 7000
    assert found.number("max.partition.fetch.bytes", 0) == 12345
    assert found.get("max.poll.records", "not there") == "not there"


@pytest.mark.parametrize(
    ("given", "taken"), [("1", 1_000), ("50000", 50_000), ("90000000", 90_000_000)]
)
def test_fetches_may_be_of_any_size(given: str, taken: int) -> None:
    """As with the Java client. librdkafka alone refuses those below a megabyte."""
    assert read(**{"kafka.fetch.max.bytes": given}).number("fetch.max.bytes", 0) == taken


def test_who_reads_committed_says_so() -> None:
    assert not read().is_committed_only
    assert read(**{"kafka.isolation.level": "read_committed"}).is_committed_only


def test_letters_of_an_isolation_level_may_be_capital() -> None:
    """librdkafka takes it, so that it may not mean that aborted records are shown."""
    assert read(**{"kafka.isolation.level": "READ_COMMITTED"}).is_committed_only


def test_user_and_password_are_taken_from_jaas() -> None:
    found = read(
        **{
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": JAAS,
        }
    )
    assert (found.get("sasl.username", ""), found.get("sasl.password", "")) == (
        "ada",
        'a "b" c=d',
    )
    assert not found.is_plaintext


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.sasl.jaas.config": "Krb5LoginModule required;"}, "kafka.sasl.jaas.config has no"),
        ({"kafka.ssl.truststore.location": "a.jks"}, "kafka.ssl.truststore.location names a Java"),
        ({"kafka.ssl.keystore.location": "a.jks"}, "kafka.ssl.keystore.location names a Java"),
        ({"kafka.socket.timeout.ms": "x"}, "kafka.socket.timeout.ms"),
        # librdkafka leaves out what follows the digits, and reads hexadecimal ones.
        ({"kafka.fetch.max.bytes": "1048576k"}, "kafka.fetch.max.bytes is '1048576k'"),
        ({"kafka.request.timeout.ms": "0x1000"}, "kafka.request.timeout.ms is '0x1000'"),
        # What Python sets: confluent-kafka says so in other exceptions than its own.
        ({"kafka.error_cb": "x"}, "expected error_cb property as a callable"),
        ({"kafka.throttle_cb": "x"}, "expected throttle_cb property as a callable"),
        ({"kafka.default.topic.config": "x"}, "the kafka.* options"),
    ],
)
def test_what_librdkafka_cannot_have_is_said_in_words(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read(**options)


def test_certificates_of_a_pem_store_are_taken() -> None:
    # librdkafka reads it at once, so it is only translated here.
    with pytest.raises(OptionError, match=r"ssl\.ca\.location"):
        read(
            **{
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": "/nowhere.pem",
            }
        )


def test_certificates_may_be_written_into_the_options() -> None:
    found = read(
        **{
            "kafka.ssl.truststore.certificates": "ca",
            "kafka.ssl.keystore.certificate.chain": "chain",
            "kafka.ssl.keystore.key": "key",
        }
    )
    assert found.get("ssl.ca.pem", "") == "ca"
    assert found.get("ssl.certificate.pem", "") == "chain"
    assert found.get("ssl.key.pem", "") == "key"


def test_names_of_hosts_are_not_checked_if_the_algorithm_is_empty() -> None:
    """So the Java client has it; librdkafka has a word for that."""
    name = "ssl.endpoint.identification.algorithm"
    assert read(**{f"kafka.{name}": ""}).get(name, "") == "none"


def test_a_sink_has_its_own_transactional_ids() -> None:
    with pytest.raises(OptionError, match="transactionalIdPrefix"):
        writer_settings({**BASE, "kafka.transactional.id": "mine"})
    assert writer_settings({**BASE, "kafka.linger.ms": "5"}).number("linger.ms", 0) == 5
