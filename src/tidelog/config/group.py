"""Settings of single groups (KIP-848): what a group has in place of its brokers' settings.

Each stands for the broker setting of the same name with `group.` in front, which is what groups
have that say nothing. `group.consumer.min.*` and `max.*` bound what may be set. Bounds may change
when a broker restarts, and what was set stays: it then counts as the nearest that is allowed.

Kafka has more of them, for share groups and streams groups, which are not here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.option import ConfigType, Setting, option, settings_of

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Declares the settings; what counts for a group is a ConsumerGroupsConfig, by `resolve`."""

    consumer_session_timeout_ms: int = option(
        SESSION_TIMEOUT,
        45_000,
        ConfigType.INT,
        "How long a member of the group may be silent, if it uses the consumer protocol.",
        minimum=1,
    )
    consumer_heartbeat_interval_ms: int = option(
        HEARTBEAT_INTERVAL,
        5_000,
        ConfigType.INT,
        "How often members of the group are told to send heartbeats.",
        minimum=1,
    )
    consumer_assignment_interval_ms: int = option(
        "consumer.assignment.interval.ms",
        1_000,
        ConfigType.INT,
        "Least time between two assignments of the group.",
        minimum=0,
    )


GROUP_SETTINGS: Mapping[str, Setting] = settings_of(GroupConfig)


def broker_synonym(name: str) -> str:
    """The broker setting that stands in for one of GROUP_SETTINGS."""
    return f"group.{name}"


def require_valid(
    settings: Mapping[str, str], broker: ConsumerGroupsConfig, *, before: Mapping[str, str]
) -> None:
    """Raises ConfigError if a group that has `before` may not have these `settings` instead."""
    changed = {name: text for name, text in settings.items() if before.get(name) != text}
    for name in changed:
        if name not in GROUP_SETTINGS:
            raise ConfigError(f"{name} is not a setting of groups")
    for name, text in changed.items():
        value, (least, most) = GROUP_SETTINGS[name].parse(text), _bounds(name, broker)
        if not least <= value <= most:
            kind = name.removeprefix("consumer.")
            raise ConfigError(
                f"{name} is {value} but must be between group.consumer.min.{kind} and "
                f"group.consumer.max.{kind}, which are {least} and {most}"
            )
    chosen = _chosen(settings, broker)
    if _contradicts_itself(chosen) and not _contradicts_itself(_chosen(before, broker)):
        raise ConfigError(
            f"{HEARTBEAT_INTERVAL} is {chosen[HEARTBEAT_INTERVAL]} but must be less than "
            f"{SESSION_TIMEOUT}, which is {chosen[SESSION_TIMEOUT]}"
        )


def resolve(settings: Mapping[str, str], broker: ConsumerGroupsConfig) -> ConsumerGroupsConfig:
    """What counts for a group with these `settings`, which were valid when they were set."""
    chosen = _chosen(settings, broker)
    if _contradicts_itself(chosen):
        # By bounds that came later: the two were set for each other, so neither counts.
        kept = {SESSION_TIMEOUT, HEARTBEAT_INTERVAL}
        chosen = _chosen({name: settings[name] for name in settings.keys() - kept}, broker)
    return replace(
        broker,
        group_consumer_session_timeout_ms=chosen[SESSION_TIMEOUT],
        group_consumer_heartbeat_interval_ms=chosen[HEARTBEAT_INTERVAL],
        group_consumer_assignment_interval_ms=chosen["consumer.assignment.interval.ms"],
    )


def _contradicts_itself(chosen: Mapping[str, int]) -> bool:
    return chosen[HEARTBEAT_INTERVAL] >= chosen[SESSION_TIMEOUT]


def _chosen(settings: Mapping[str, str], broker: ConsumerGroupsConfig) -> dict[str, int]:
    """The value of every setting, within its bounds."""
    return {name: _choice(setting, settings, broker) for name, setting in GROUP_SETTINGS.items()}


def _choice(setting: Setting, settings: Mapping[str, str], broker: ConsumerGroupsConfig) -> int:
    name = setting.name
    if name in settings:
        try:
            return _within(_bounds(name, broker), setting.parse(settings[name]))
        except ConfigError:
            pass  # Of another version: as if nothing had been set.
    return _of_broker(broker_synonym(name), broker)


def _within(bounds: tuple[int, int], value: int) -> int:
    return min(max(value, bounds[0]), bounds[1])


def _bounds(name: str, broker: ConsumerGroupsConfig) -> tuple[int, int]:
    kind = name.removeprefix("consumer.")
    return (
        _of_broker(f"group.consumer.min.{kind}", broker),
        _of_broker(f"group.consumer.max.{kind}", broker),
    )


def _of_broker(name: str, broker: ConsumerGroupsConfig) -> int:
    value = getattr(broker, settings_of(ConsumerGroupsConfig)[name].field_name)
    assert isinstance(value, int)
    return value
