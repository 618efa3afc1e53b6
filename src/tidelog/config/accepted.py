"""Kafka's settings that load but do nothing here, so that Kafka's own properties files work.

Each gives a warning, because somebody may count on it. A name that Kafka does not know either is
probably misspelt, and the warning says which name it resembles. `REFUSED` are the few that must
not be overlooked: running without what they ask for would open the broker to everybody.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

from tidelog.base.errors import ConfigError
from tidelog.config.kafka_only import KAFKA_ONLY

FAMILIES: tuple[str, ...] = (
    "config.providers.",
    "listener.name.",
    "password.encoder.",
    "rlmm.config.",
    "rsm.config.",
    "zookeeper.",
)
"""What these begin with is named by who writes the file, or by a Kafka that is no more."""

OLD_NAMES: frozenset[str] = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "group.coordinator.new.enable",
        "host.name",
        "inter.broker.protocol.version",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "password.encoder.secret",
        "port",
        "quota.consumer.default",
        "quota.producer.default",
        "reserved.broker.max.id",
    }
)
"""Of brokers before 4.0."""

NAMES: frozenset[str] = KAFKA_ONLY | OLD_NAMES

# The value that is harmless, because it is what happens anyway.
REFUSED: Mapping[str, str] = {
    "authorizer.class.name": "",
    "security.inter.broker.protocol": "PLAINTEXT",
}


def require_servable(properties: Mapping[str, str]) -> None:
    """Raise ConfigError for a setting that may not go without effect."""
    for name, harmless in REFUSED.items():
        value = properties.get(name, harmless).strip()
        if value != harmless:
            raise ConfigError(f"{name} is '{value}', which is not served here; remove the setting")


def warning_about(name: str, known: Collection[str]) -> str:
    """One sentence about a setting that is none of ours."""
    if _is_of_kafka(name):
        return f"{name} is a setting of Kafka's that has no effect here"
    return f"{name} is not a known setting and has no effect{_hint(name, known)}"


def require_known(names: Iterable[str], known: Collection[str]) -> None:
    """Raise ConfigError for what is neither ours nor Kafka's, where a person has typed it."""
    for name in names:
        if name not in known and not _is_of_kafka(name):
            raise ConfigError(f"{name} is not a known setting{_hint(name, known)}")


def _is_of_kafka(name: str) -> bool:
    return name in NAMES or name in REFUSED or name.startswith(FAMILIES)


def _hint(name: str, known: Collection[str]) -> str:
    similar = get_close_matches(name, [*known, *sorted(NAMES)], n=1, cutoff=0.8)
    return f"; did you mean {similar[0]}?" if similar else ""
