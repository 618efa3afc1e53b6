"""Kafka's settings that load but do nothing here, so that Kafka's own properties files work.

Each gives a warning, because somebody may count on it. A name that Kafka does not know either is
probably misspelt, and the warning says which name it resembles. `REFUSED` are the few that must
not be overlooked: running without what they ask for would open the broker to everybody.
"""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

from tidelog.base.errors import ConfigError

FAMILIES: tuple[str, ...] = (
    "alter.log.dirs.replication.quota.",
    "controller.quorum.",
    "controller.quota.",
    "delegation.token.",
    "group.consumer.",
    "group.coordinator.",
    "group.share.",
    "group.streams.",
    "kafka.metrics.",
    "listener.name.",
    "metadata.",
    "metric.",
    "metrics.",
    "quota.",
    "remote.",
    "replication.quota.",
    "sasl.",
    "share.",
    "socket.connection.",
    "ssl.",
    "zookeeper.",
)

NAMES: frozenset[str] = frozenset(
    {
        "advertised.host.name",
        "advertised.port",
        "alter.config.policy.class.name",
        "broker.id.generation.enable",
        "client.quota.callback.class",
        "config.providers",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "controller.socket.timeout.ms",
        "cordoned.log.dirs",
        "create.topic.policy.class.name",
        "delete.records.purgatory.purge.interval.requests",
        "early.start.listeners",
        "fetch.purgatory.purge.interval.requests",
        "follower.fetch.last.tiered.offset.enable",
        "host.name",
        "initial.broker.registration.timeout.ms",
        "inter.broker.protocol.version",
        "log.dir.failure.timeout.ms",
        "log.message.format.version",
        "num.replica.alter.log.dirs.threads",
        "password.encoder.secret",
        "port",
        "principal.builder.class",
        "process.roles",
        "producer.purgatory.purge.interval.requests",
        "reserved.broker.max.id",
        "security.providers",
        "telemetry.max.bytes",
        "transaction.two.phase.commit.enable",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    }
)

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
