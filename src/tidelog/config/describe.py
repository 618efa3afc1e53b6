"""What DescribeConfigs says about a topic, a group or a broker.

Values, where they come from, and what else could have set them.

A value's *synonyms* are all the places that set it, the one that counts first. For a topic:

    the topic's own override
    then of each broker setting that stands in for it (topic.BROKER_SYNONYMS):
        dynamic settings of the broker, dynamic settings of all brokers, the properties file,
        the default

For a group likewise, with the one broker setting that stands in for each (`group.broker_synonym`).

A broker also lists what is set and not in force there (config/fitting.py), as Kafka does: its value
is then another one than that of its first synonym. Whoever is to mend it has to see it.

Not here: who may ask, and the shape of the message on the wire.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile

from tidelog.base.errors import ConfigError
from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig
from tidelog.config.fitting import Scope, those_of
from tidelog.config.group import GROUP_SETTINGS, broker_synonym
from tidelog.config.option import ConfigType, Setting
from tidelog.config.topic import (
    BROKER_SYNONYMS,
    INTERNAL_SEGMENT_BYTES,
    INTERNAL_SEGMENT_BYTES_SETTING,
    TOPIC_SETTINGS,
    resolve_fitting,
)


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers DescribeConfigs uses."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One place that sets a value. None is a value that is not shown."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One setting as DescribeConfigs presents it."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        """As version 0 of the API asks."""
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None
) -> list[DescribedConfig]:
    """The settings of a topic with these `overrides`; those of `names` that exist, or all."""
    settings = dict(TOPIC_SETTINGS)
    if INTERNAL_SEGMENT_BYTES in overrides:
        settings[INTERNAL_SEGMENT_BYTES] = INTERNAL_SEGMENT_BYTES_SETTING
    _config, misfits = resolve_fitting(overrides, broker.topic_defaults)
    left_out = [misfit.given for misfit in misfits]
    own = those_of(Scope.TOPIC, left_out)
    in_force = {name: overrides[name] for name in overrides if name not in own}
    inherited = those_of(Scope.OTHER_TOPICS, left_out)
    return [
        _describe_topic_setting(setting, in_force, broker, is_inherited=name not in inherited)
        for name, setting in settings.items()
        if names is None or name in names
    ]


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None
) -> list[DescribedConfig]:
    """The settings of a group with these `overrides`; those of `names` that exist, or all."""
    return [
        _describe_group_setting(setting, overrides, broker)
        for name, setting in GROUP_SETTINGS.items()
        if names is None or name in names
    ]


def describe_broker(broker: BrokerConfig, names: Collection[str] | None) -> list[DescribedConfig]:
    """The settings of a broker; those of `names` that exist, or all."""
    known = [
        _describe_broker_setting(setting, broker)
        for name, setting in BROKER_SETTINGS.items()
        if names is None or name in names
    ]
    unknown = [
        _describe_unknown(name)
        for name in broker.static
        if name not in BROKER_SETTINGS and (names is None or name in names)
    ]
    return known + unknown


def describe_cluster_wide(
    broker: BrokerConfig, names: Collection[str] | None
) -> list[DescribedConfig]:
    """What an operator set for all brokers at once, as asked for with an empty broker name.

    Also what is not in force here: it may be elsewhere.
    """
    return [
        DescribedConfig(
            name=name,
            value=_shown(BROKER_SETTINGS[name], value),
            source=ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
            is_read_only=False,
            is_sensitive=BROKER_SETTINGS[name].is_sensitive,
            type=BROKER_SETTINGS[name].type,
            documentation=BROKER_SETTINGS[name].documentation,
            synonyms=(
                ConfigSynonym(
                    name,
                    _shown(BROKER_SETTINGS[name], value),
                    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                ),
            ),
        )
        for name, value in sorted(broker.dynamic_default.items())
        if name in BROKER_SETTINGS and (names is None or name in names)
    ]


def _describe_topic_setting(
    setting: Setting, overrides: Mapping[str, str], broker: BrokerConfig, *, is_inherited: bool
) -> DescribedConfig:
    synonyms = _synonyms(BROKER_SYNONYMS.get(setting.name, ()), broker)
    value = setting.render(getattr(broker.topic_defaults, setting.field_name))
    if not is_inherited:
        # It contradicts what was set for the topic: what counts for it is Kafka's default.
        synonyms = tuple(one for one in synonyms if one.source is ConfigSource.DEFAULT_CONFIG)
        value = setting.render(setting.default)
    if setting.name in overrides:
        value = _shown(setting, overrides[setting.name])
        own = ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)
        synonyms = (own, *synonyms)
    return DescribedConfig(
        name=setting.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=False,
        is_sensitive=False,
        type=setting.type,
        documentation=setting.documentation,
        synonyms=synonyms,
    )


def _describe_group_setting(
    setting: Setting, overrides: Mapping[str, str], broker: BrokerConfig
) -> DescribedConfig:
    inherited = broker_synonym(setting.name)
    synonyms = _synonyms((inherited,), broker)
    value = setting.render(broker.value_of(BROKER_SETTINGS[inherited]))
    if setting.name in overrides:
        value = _shown(setting, overrides[setting.name])
        own = ConfigSynonym(setting.name, value, ConfigSource.DYNAMIC_GROUP_CONFIG)
        synonyms = (own, *synonyms)
    return DescribedConfig(
        name=setting.name,
        value=value,
        source=synonyms[0].source,
        is_read_only=False,
        is_sensitive=False,
        type=setting.type,
        documentation=setting.documentation,
        synonyms=synonyms,
    )


def _describe_broker_setting(setting: Setting, broker: BrokerConfig) -> DescribedConfig:
    family = tuple(
        _each_synonym(
            _family_from(setting.name), broker, broker.dynamic_broker, broker.dynamic_default
        )
    )
    # A setting that is silent has no value, and nobody set it: its coarser relative speaks.
    synonyms = tuple(dropwhile(lambda synonym: synonym.name != setting.name, family))
    value = setting.render(broker.value_of(setting))
    return DescribedConfig(
        name=setting.name,
        value=None if setting.is_sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=not setting.is_dynamic,
        is_sensitive=setting.is_sensitive,
        type=setting.type,
        documentation=setting.documentation,
        synonyms=synonyms,
    )


def _describe_unknown(name: str) -> DescribedConfig:
    """A name that came in the properties file: nobody knows whether its value is a secret."""
    return DescribedConfig(
        name=name,
        value=None,
        source=ConfigSource.STATIC_BROKER_CONFIG,
        is_read_only=True,
        is_sensitive=True,
        type=ConfigType.UNKNOWN,
        documentation="",
        synonyms=(ConfigSynonym(name, None, ConfigSource.STATIC_BROKER_CONFIG),),
    )


def _family_from(name: str) -> tuple[str, ...]:
    """`name` and the coarser settings that speak when it is silent."""
    for family in BROKER_SYNONYMS.values():
        if name in family:
            return family[family.index(name) :]
    return (name,)


def _synonyms(names: tuple[str, ...], broker: BrokerConfig) -> tuple[ConfigSynonym, ...]:
    return tuple(_each_synonym(names, broker, broker.broker_in_force, broker.default_in_force))


def _each_synonym(
    names: tuple[str, ...],
    broker: BrokerConfig,
    of_this_broker: Mapping[str, str],
    of_all_brokers: Mapping[str, str],
) -> Iterator[ConfigSynonym]:
    layers = (
        (of_this_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (of_all_brokers, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    )
    for texts, source in layers:
        for name in names:
            if name in texts:
                yield ConfigSynonym(name, _shown(BROKER_SETTINGS[name], texts[name]), source)
    for name in names:
        setting = BROKER_SETTINGS[name]
        if setting.default is not None:
            default = _shown(setting, setting.render(setting.default))
            yield ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG)


def _shown(setting: Setting, value: str | None) -> str | None:
    """`value` as `parse` understands it, blanks and case made uniform; never a secret."""
    if setting.is_sensitive or value is None:
        return None
    try:
        return setting.render(setting.parse(value))
    except ConfigError:
        return value  # Of another version: whoever is to mend it has to see what is set.
