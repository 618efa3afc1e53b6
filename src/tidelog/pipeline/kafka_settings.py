"""`kafka.*` options: what a job says to the client, in Kafka's words or in librdkafka's.

A job that moves here from Spark's own source has settings of the Java client. Most have the same
name in librdkafka; some have another one, some have no counterpart and do no harm, and a few hold
something that has to be taken apart (`sasl.jaas.config`). What neither of the two knows is refused
with the option's name, before anything is started.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer

from tidelog.base.errors import ConfigError
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.pipeline.errors import OptionError

PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
COMMITTED: Final = {"kafka.isolation.level": "read_committed"}
"""For jobs that hand on what they read: what was aborted would be written for good."""

# As Spark refuses them: the source and the sink decide these.
_NOT_FOR_READERS: Final = {
    "auto.offset.reset": "startingOffsets says where to begin",
    "enable.auto.commit": "offsets are kept in the checkpoint; commitGroup commits them to a group",
    "interceptor.classes": "records are handed to Spark as they are",
    "key.deserializer": "keys are bytes; cast them in Spark",
    "value.deserializer": "values are bytes; cast them in Spark",
}
_NOT_FOR_WRITERS: Final = {
    "key.serializer": "keys are bytes or text; cast them in Spark",
    "value.serializer": "values are bytes or text; cast them in Spark",
    "transactional.id": "the sink has one for each of its tasks; transactionalIdPrefix begins them",
}

# The Java client's name, and librdkafka's; None: it has nothing like it, and need not.
_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "buffer.memory": None,
    "max.block.ms": None,
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "socket.connection.setup.timeout.max.ms": None,
    "ssl.enabled.protocols": None,
    "ssl.protocol": None,
    "ssl.truststore.type": None,
    "ssl.keystore.type": None,
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "max.poll.records": None,
    "default.api.timeout.ms": None,
    "exclude.internal.topics": None,
    "metric.reporters": None,
    "metrics.num.samples": None,
    "metrics.recording.level": None,
    "metrics.sample.window.ms": None,
    "partition.assignment.strategy": None,
    "partitioner.class": None,
}

# Those that are read here too; librdkafka takes "16k" for 16.
_NUMBERS: Final = frozenset(
    {"fetch.max.bytes", "fetch.wait.max.ms", "max.partition.fetch.bytes", "socket.timeout.ms"}
)
_FETCH_MAX: Final = "fetch.max.bytes"
# librdkafka's default for `message.max.bytes`, and the least that it takes.
_MESSAGE_BYTES: Final = 1_000_000
_MESSAGE_BYTES_MIN: Final = 1_000
_HOST_CHECK: Final = "ssl.endpoint.identification.algorithm"

# Of stores that only Java reads.
_JAVA_STORES: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.password": "ssl.ca.location",
    "ssl.keystore.location": "ssl.keystore.location",
}

_JAAS_PAIR: Final = re.compile(r"""(\w+)\s*=\s*"((?:[^"\\]|\\.)*)\"""")
# For a consumer that nobody reads with, to hear what librdkafka makes of its settings.
_PROBE: Final = {"group.id": "tidelog", "log_level": 0}


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Settings as librdkafka takes them, each as text."""

    values: tuple[tuple[str, str], ...]

    @property
    def bootstrap(self) -> str:
        return self.get("bootstrap.servers", "")

    @property
    def is_plaintext(self) -> bool:
        """Whether brokers are spoken to without TLS and without authentication."""
        return self.get("security.protocol", "plaintext").lower() == "plaintext"

    @property
    def is_committed_only(self) -> bool:
        return self.get("isolation.level", "").lower() == "read_committed"

    def get(self, name: str, default: str) -> str:
        return dict(self.values).get(name, default)

    def number(self, name: str, default: int) -> int:
        """Of one of those that were checked to be numbers."""
        return int(self.get(name, str(default)))

    def for_client(self) -> dict[str, str]:
        """For a consumer or an admin client. log_level 0: what goes wrong is raised."""
        return {"log_level": "0", **dict(self.values)}


def reader_settings(options: Mapping[str, str]) -> KafkaSettings:
    """Of a source. Raises OptionError."""
    settings = _settings(options, _NOT_FOR_READERS)
    # As the Java client and Spark's source do; librdkafka would leave out what was aborted.
    values = {"isolation.level": "read_uncommitted", **dict(settings.values)}
    if _FETCH_MAX in values:
        # librdkafka wants no fetch to be smaller than the largest message; whoever reads by it
        # is given a larger one all the same.
        size_bytes = max(_MESSAGE_BYTES_MIN, int(values[_FETCH_MAX]))
        values[_FETCH_MAX] = str(size_bytes)
        values.setdefault("message.max.bytes", str(min(_MESSAGE_BYTES, size_bytes)))
    _require_accepted(Consumer, {**_PROBE, **values})
    return KafkaSettings(tuple(sorted(values.items())))


def writer_settings(options: Mapping[str, str]) -> KafkaSettings:
    """Of a sink. Raises OptionError."""
    settings = _settings(options, _NOT_FOR_WRITERS)
    _require_accepted(Producer, {"log_level": 0, **dict(settings.values)})
    return settings


def _settings(options: Mapping[str, str], refused: Mapping[str, str]) -> KafkaSettings:
    given = {
        name.removeprefix(PREFIX): str(value)
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    for name, why in refused.items():
        if name in given:
            raise OptionError(f"kafka.{name} cannot be set: {why}")
    _require_bootstrap(given)
    found: dict[str, str] = {}
    for name, value in given.items():
        found.update(_translated(name, value, given))
    return KafkaSettings(tuple(sorted(found.items())))


def _require_bootstrap(given: Mapping[str, str]) -> None:
    bootstrap = given.get("bootstrap.servers")
    if not bootstrap:
        raise OptionError(f"{BOOTSTRAP} is missing: host:port of one or more brokers")
    try:
        parse_bootstrap(bootstrap)
    except ConfigError as error:
        raise OptionError(f"{BOOTSTRAP}: {error}") from None


def _translated(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    if name == "sasl.jaas.config":
        return _from_jaas(value)
    if name in _JAVA_STORES:
        return _from_store(name, value, given)
    if name == _HOST_CHECK and not value:
        return {name: "none"}
    renamed = _RENAMED.get(name, name)
    if renamed in _NUMBERS and not (value.strip().isascii() and value.strip().isdigit()):
        raise OptionError(f"kafka.{name} is {value!r} but must be a number")
    return {} if renamed is None else {renamed: value}


def _from_jaas(value: str) -> dict[str, str]:
    """User and password of PLAIN and SCRAM."""
    pairs = dict(_JAAS_PAIR.findall(value))
    if "username" not in pairs or "password" not in pairs:
        raise OptionError(
            "kafka.sasl.jaas.config has no username and password in quotes; "
            "kafka.sasl.username and kafka.sasl.password say the same"
        )
    return {
        f"sasl.{name}": re.sub(r"\\(.)", r"\1", pairs[name]) for name in ("username", "password")
    }


def _from_store(name: str, value: str, given: Mapping[str, str]) -> dict[str, str]:
    """A PEM file is read by both; a Java key store only by Java."""
    kind = name.split(".")[1]
    if given.get(f"ssl.{kind}.type", "").upper() == "PEM" and name == "ssl.truststore.location":
        return {"ssl.ca.location": value}
    if kind == "keystore" and given.get("ssl.keystore.type", "").upper() == "PKCS12":
        return {name: value}
    raise OptionError(
        f"kafka.{name} names a Java store, which only Java reads: give the certificates as PEM "
        f"files with kafka.ssl.ca.location, kafka.ssl.certificate.location and "
        "kafka.ssl.key.location"
    )


def _require_accepted(client: type[Consumer] | type[Producer], settings: dict[str, object]) -> None:
    """Raises OptionError with what librdkafka says about a setting."""
    try:
        probe = client(settings)
    except KafkaException as exception:
        raise OptionError(_in_words(exception.args[0].str())) from None
    except (TypeError, ValueError, AttributeError) as error:
        # Of what is no text, such as a function to call back.
        raise OptionError(f"the kafka.* options: {error}") from None
    if isinstance(probe, Consumer):
        probe.close()


def _in_words(refusal: str) -> str:
    unknown = re.match(r'No such configuration property: "(.+)"', refusal)
    if unknown:
        return f"kafka.{unknown[1]} is a setting that neither librdkafka nor tidelog knows"
    named = re.search(r'(?i)configuration property "([^"]+)"', refusal)
    return f"kafka.{named[1]}: {refusal}" if named else f"the kafka.* options: {refusal}"
