"""Settings of groups that use the consumer protocol (KIP-848)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.config.option import INT_MAX, ConfigType, option

CLASSIC_PROTOCOL: Final = "classic"
CONSUMER_PROTOCOL: Final = "consumer"

# Kafka's own assignors may also be given by the names of their classes.
_ASSIGNOR_CLASSES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupsConfig:
    """What the coordinator tells its members, and how it assigns."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = option(
        "group.coordinator.rebalance.protocols",
        (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
        ConfigType.LIST,
        "Protocols of groups that are served. classic is always one of them; without consumer "
        "there are no groups of the consumer protocol. share and streams have no effect.",
        choices=(CONSUMER_PROTOCOL, CLASSIC_PROTOCOL, "share", "streams"),
    )
    group_consumer_session_timeout_ms: int = option(
        "group.consumer.session.timeout.ms",
        45_000,
        ConfigType.INT,
        "How long a member of a group of the consumer protocol may be silent.",
        minimum=1,
    )
    group_consumer_min_session_timeout_ms: int = option(
        "group.consumer.min.session.timeout.ms",
        45_000,
        ConfigType.INT,
        "Least value of `group.consumer.session.timeout.ms`.",
        minimum=1,
    )
    group_consumer_max_session_timeout_ms: int = option(
        "group.consumer.max.session.timeout.ms",
        60_000,
        ConfigType.INT,
        "Largest value of `group.consumer.session.timeout.ms`.",
        minimum=1,
    )
    group_consumer_heartbeat_interval_ms: int = option(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        ConfigType.INT,
        "How often members of the consumer protocol are told to send heartbeats.",
        minimum=1,
    )
    group_consumer_min_heartbeat_interval_ms: int = option(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        ConfigType.INT,
        "Least value of `group.consumer.heartbeat.interval.ms`.",
        minimum=1,
    )
    group_consumer_max_heartbeat_interval_ms: int = option(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        ConfigType.INT,
        "Largest value of `group.consumer.heartbeat.interval.ms`.",
        minimum=1,
    )
    group_consumer_max_size: int = option(
        "group.consumer.max.size",
        INT_MAX,
        ConfigType.INT,
        "Most members of one group of the consumer protocol.",
        minimum=1,
    )
    group_consumer_assignors: tuple[str, ...] = option(
        "group.consumer.assignors",
        ("uniform", "range"),
        ConfigType.LIST,
        "Assignors that members may choose from; the first is used if none does.",
        choices=("uniform", "range", *_ASSIGNOR_CLASSES),
    )
    group_consumer_assignment_interval_ms: int = option(
        "group.consumer.assignment.interval.ms",
        1_000,
        ConfigType.INT,
        "Least time between two assignments of one group.",
        minimum=0,
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = option(
        "group.consumer.min.assignment.interval.ms",
        0,
        ConfigType.INT,
        "Least value of `group.consumer.assignment.interval.ms`.",
        minimum=0,
    )
    group_consumer_max_assignment_interval_ms: int = option(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        ConfigType.INT,
        "Largest value of `group.consumer.assignment.interval.ms`.",
        minimum=0,
    )
    group_consumer_regex_refresh_interval_ms: int = option(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        ConfigType.INT,
        "How often regular expressions are compared with the topics that there are.",
        minimum=10_000,
    )
    group_consumer_migration_policy: str = option(
        "group.consumer.migration.policy",
        "bidirectional",
        ConfigType.STRING,
        "Whether a group may change between the classic and the consumer protocol while it has "
        "members.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
        any_case=True,
    )

    @property
    def is_served(self) -> bool:
        """Whether there are groups of the consumer protocol at all."""
        return CONSUMER_PROTOCOL in self.group_coordinator_rebalance_protocols

    @property
    def assignors(self) -> tuple[str, ...]:
        """What `group.consumer.assignors` stands for, by the names that members use."""
        given = self.group_consumer_assignors
        return tuple(dict.fromkeys(_ASSIGNOR_CLASSES.get(name, name) for name in given))

    @property
    def may_upgrade(self) -> bool:
        """A classic group becomes one of the consumer protocol with its members in it."""
        return self.group_consumer_migration_policy.lower() in {"upgrade", "bidirectional"}

    @property
    def may_downgrade(self) -> bool:
        return self.group_consumer_migration_policy.lower() in {"downgrade", "bidirectional"}

    def __post_init__(self) -> None:
        if CLASSIC_PROTOCOL not in self.group_coordinator_rebalance_protocols:
            given = ",".join(self.group_coordinator_rebalance_protocols)
            raise ConfigError(
                f"group.coordinator.rebalance.protocols is '{given}' but must have "
                f"{CLASSIC_PROTOCOL} among them"
            )
        if not self.group_consumer_assignors:
            raise ConfigError("group.consumer.assignors is empty but must name at least one")
        _require_between(
            "session.timeout.ms",
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        _require_between(
            "heartbeat.interval.ms",
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        _require_between(
            "assignment.interval.ms",
            self.group_consumer_min_assignment_interval_ms,
            self.group_consumer_assignment_interval_ms,
            self.group_consumer_max_assignment_interval_ms,
        )
        interval_ms, timeout_ms = (
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_session_timeout_ms,
        )
        if interval_ms >= timeout_ms:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms is {interval_ms} but must be less than "
                f"group.consumer.session.timeout.ms, which is {timeout_ms}"
            )


def _require_between(name: str, least: int, value: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(
            f"group.consumer.{name} is {value} but must be between group.consumer.min.{name} and "
            f"group.consumer.max.{name}, which are {least} and {most}"
        )
