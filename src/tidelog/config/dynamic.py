"""Changing settings while the broker runs: what AlterConfigs and IncrementalAlterConfigs may do.

Pure functions from what is set now and what a client asks for to what will be set then. Whoever
calls them stores the result and delivers the new frozen config; nothing here does.

A refusal carries the code that Kafka answers: for a topic or a group INVALID_CONFIG, for a broker
INVALID_REQUEST, but for all INVALID_CONFIG where a list is needed and INVALID_REQUEST if the
request itself makes no sense.

What is set already is not judged again: a mistake that is there, by another version or by bounds
that have changed since (`fitting.py`), hinders no other change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tidelog.base.errors import ConfigError, ErrorCode, RequestRefused
from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig
from tidelog.config.fitting import Misfit, Scope
from tidelog.config.group import GROUP_SETTINGS, require_valid
from tidelog.config.option import ConfigType, Setting
from tidelog.config.topic import TOPIC_SETTINGS, TopicConfig, new_misfits


class AlterOperation(IntEnum):
    """What to do with one setting, with IncrementalAlterConfigs' numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change a client asks for. Only DELETE goes without a value."""

    name: str
    operation: AlterOperation
    value: str | None


def alter_topic(
    overrides: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfig
) -> dict[str, str]:
    """A topic's overrides after `alterations`, all of which are valid together."""
    altered = _altered(overrides, alterations, TOPIC_SETTINGS, broker.topic_defaults)
    return _valid_topic(altered, overrides, broker)


def replace_topic(
    overrides: Mapping[str, str], settings: Mapping[str, str | None], broker: BrokerConfig
) -> dict[str, str]:
    """A topic's overrides after AlterConfigs, which forgets everything that it does not name."""
    return _valid_topic(_without_nulls(settings), overrides, broker)


def alter_group(
    overrides: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfig
) -> dict[str, str]:
    """What is set for a group after `alterations`, all of which are valid together."""
    altered = _altered(overrides, alterations, GROUP_SETTINGS, broker)
    return _valid_group(altered, overrides, broker)


def replace_group(
    overrides: Mapping[str, str], settings: Mapping[str, str | None], broker: BrokerConfig
) -> dict[str, str]:
    """What is set for a group after AlterConfigs, which forgets what it does not name."""
    return _valid_group(_without_nulls(settings), overrides, broker)


def alter_broker(
    config: BrokerConfig, alterations: Sequence[Alteration], *, cluster_wide: bool
) -> dict[str, str]:
    """The dynamic settings of this broker, or of all brokers, after `alterations`."""
    current = config.dynamic_default if cluster_wide else config.dynamic_broker
    altered = _altered(current, alterations, BROKER_SETTINGS, config)
    return _valid_broker(altered, config, cluster_wide=cluster_wide)


def replace_broker(
    config: BrokerConfig, settings: Mapping[str, str | None], *, cluster_wide: bool
) -> dict[str, str]:
    """The dynamic settings after AlterConfigs, which forgets everything that it does not name."""
    return _valid_broker(_without_nulls(settings), config, cluster_wide=cluster_wide)


def _altered(
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    settings: Mapping[str, Setting],
    effective: TopicConfig | BrokerConfig,
) -> dict[str, str]:
    _require_each_once(alterations)
    altered = dict(current)
    for alteration in alterations:
        name = alteration.name
        if alteration.operation is AlterOperation.DELETE:
            altered.pop(name, None)
            continue
        value = _given(name, alteration.value)
        if alteration.operation is AlterOperation.SET:
            altered[name] = value
            continue
        setting = settings.get(name)
        if setting is None or setting.type is not ConfigType.LIST:
            raise RequestRefused(
                ErrorCode.INVALID_CONFIG,
                f"{name} is not a list: nothing can be appended or subtracted",
            )
        before = _value(effective, setting) if name not in altered else _parsed(setting, altered)
        altered[name] = ",".join(_list_after(alteration.operation, before or (), value))
    return altered


def _parsed(setting: Setting, given: Mapping[str, str]) -> tuple[str, ...] | None:
    try:
        value = setting.parse(given[setting.name])
    except ConfigError as error:  # Of another version: it can be set and deleted.
        raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
    assert value is None or isinstance(value, tuple)
    return value


def _list_after(operation: AlterOperation, before: tuple[str, ...], value: str) -> tuple[str, ...]:
    items = [item.strip() for item in value.split(",") if item.strip()]
    if operation is AlterOperation.APPEND:
        return tuple(dict.fromkeys([*before, *items]))
    return tuple(item for item in before if item not in items)


def _value(effective: TopicConfig | BrokerConfig, setting: Setting) -> tuple[str, ...] | None:
    if isinstance(effective, BrokerConfig):
        value = effective.value_of(setting)
    else:
        value = getattr(effective, setting.field_name)
    assert value is None or isinstance(value, tuple)
    return value


def _valid_topic(
    overrides: dict[str, str], before: Mapping[str, str], broker: BrokerConfig
) -> dict[str, str]:
    defaults = broker.topic_defaults
    for misfit in new_misfits(before, defaults, overrides, defaults):
        raise RequestRefused(ErrorCode.INVALID_CONFIG, misfit.reason)
    return overrides


def _valid_group(
    overrides: dict[str, str], before: Mapping[str, str], broker: BrokerConfig
) -> dict[str, str]:
    try:
        require_valid(overrides, broker.consumer_groups, before=before)
    except ConfigError as error:
        raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from error
    return overrides


def _valid_broker(
    dynamic: dict[str, str], config: BrokerConfig, *, cluster_wide: bool
) -> dict[str, str]:
    before = config.dynamic_default if cluster_wide else config.dynamic_broker
    for name, value in dynamic.items():
        if before.get(name) != value:
            _require_dynamic(name)
    altered = config.with_fitting(
        cluster_wide=dynamic if cluster_wide else config.dynamic_default,
        this_broker=config.dynamic_broker if cluster_wide else dynamic,
    )
    for misfit in altered.misfits:
        # What did not fit before stands in nobody's way: each mistake can be mended by itself.
        if misfit not in config.misfits:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, _refusal(misfit, cluster_wide))
    return dynamic


def _refusal(misfit: Misfit, cluster_wide: bool) -> str:
    given = misfit.given
    if given.scope is Scope.ALL_BROKERS and not cluster_wide:
        return f"{misfit.reason}; {given.name}={given.value} is set for all brokers"
    return misfit.reason


def _require_dynamic(name: str) -> None:
    setting = BROKER_SETTINGS.get(name)
    if setting is None:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{name} is not a broker setting")
    if not setting.is_dynamic:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"{name} cannot change while the broker runs; "
            "set it in the properties file and restart",
        )


def _require_each_once(alterations: Sequence[Alteration]) -> None:
    seen = set()
    for alteration in alterations:
        if alteration.name in seen:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{alteration.name} is altered twice")
        seen.add(alteration.name)


def _without_nulls(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {name: _given(name, value) for name, value in settings.items()}


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{name} is null but must have a value")
    return value
