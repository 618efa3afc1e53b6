"""All settings of one broker, read once and frozen.

    static properties  <  dynamic, for all brokers  <  dynamic, for this broker

`load` reads the first, `with_dynamic` and `with_fitting` lay the other two over it and give a new
config; all validate everything again, so no sequence of changes leads to a config that `load` would
refuse. Parts of the broker receive the part of the config that concerns them.

`static`, `dynamic_default` and `dynamic_broker` keep the text as it was given, for DescribeConfigs;
`misfits` says which of the dynamic ones are not in force.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from pathlib import Path

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId
from tidelog.config.accepted import require_servable, warning_about
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.coordination import CoordinationConfig
from tidelog.config.fitting import Given, Misfit, Scope, fit, given_in, those_of
from tidelog.config.groups import GroupsConfig
from tidelog.config.log import UNIT_MS, LogConfig
from tidelog.config.network import NetworkConfig
from tidelog.config.option import Setting, build, load, settings_of
from tidelog.config.replication import ReplicationConfig
from tidelog.config.topic import BROKER_SYNONYMS, TOPIC_SETTINGS, TopicConfig
from tidelog.config.transactions import TransactionsConfig

OWN_PREFIX = "tidelog."


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The broker's settings by concern, and what topics inherit from them."""

    coordination: CoordinationConfig
    network: NetworkConfig
    log: LogConfig
    replication: ReplicationConfig
    groups: GroupsConfig
    consumer_groups: ConsumerGroupsConfig
    transactions: TransactionsConfig
    topic_defaults: TopicConfig
    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    misfits: tuple[Misfit, ...] = ()

    @classmethod
    def load(cls, properties: Mapping[str, str]) -> "BrokerConfig":
        """The config that `properties` ask for, or ConfigError naming the first wrong setting."""
        return _build(properties, {}, {})

    def with_dynamic(
        self, *, cluster_wide: Mapping[str, str], this_broker: Mapping[str, str]
    ) -> "BrokerConfig":
        """This config under those dynamic settings, in place of the ones it had before.

        Raises ConfigError if they do not go together with each other and the static ones.
        """
        return _build(self.static, cluster_wide, this_broker)

    def with_fitting(
        self, *, cluster_wide: Mapping[str, str], this_broker: Mapping[str, str]
    ) -> "BrokerConfig":
        """The same without those that do not go together (config/fitting.py): it never raises."""

        def attempt(kept: Sequence[Given]) -> BrokerConfig:
            return self.with_dynamic(
                cluster_wide=those_of(Scope.ALL_BROKERS, kept),
                this_broker=those_of(Scope.THIS_BROKER, kept),
            )

        given = [
            *given_in(Scope.THIS_BROKER, this_broker),
            *given_in(Scope.ALL_BROKERS, cluster_wide),
        ]
        config, misfits = fit(given, attempt)
        return replace(
            config,
            dynamic_default=dict(cluster_wide),
            dynamic_broker=dict(this_broker),
            misfits=misfits,
        )

    @property
    def default_in_force(self) -> Mapping[str, str]:
        """What of `dynamic_default` is in force here."""
        return self._without_misfits(self.dynamic_default, Scope.ALL_BROKERS)

    @property
    def broker_in_force(self) -> Mapping[str, str]:
        """What of `dynamic_broker` is in force."""
        return self._without_misfits(self.dynamic_broker, Scope.THIS_BROKER)

    def _without_misfits(self, settings: Mapping[str, str], scope: Scope) -> Mapping[str, str]:
        left_out = {one.given.name for one in self.misfits if one.given.scope is scope}
        return {name: settings[name] for name in settings if name not in left_out}

    @property
    def broker_id(self) -> BrokerId:
        return BrokerId(self.coordination.node_id)

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        return tuple(Path(folder) for folder in self.log.folders)

    @property
    def coordination_path(self) -> Path:
        """The file of the embedded coordinator."""
        return self.coordination.sqlite_path(self.log_dirs[0])

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for every given setting that has no effect."""
        return tuple(_warnings(self))

    def value_of(self, setting: Setting) -> object:
        """What the broker setting is now."""
        for part_name, part_class in _PARTS.items():
            if setting.name in settings_of(part_class):
                value: object = getattr(getattr(self, part_name), setting.field_name)
                return value
        raise AssertionError(f"{setting.name} belongs to no part")


_PARTS: Mapping[str, type] = {
    "coordination": CoordinationConfig,
    "network": NetworkConfig,
    "log": LogConfig,
    "replication": ReplicationConfig,
    "groups": GroupsConfig,
    "consumer_groups": ConsumerGroupsConfig,
    "transactions": TransactionsConfig,
}

BROKER_SETTINGS: Mapping[str, Setting] = dict(
    chain.from_iterable(settings_of(part_class).items() for part_class in _PARTS.values())
)


def _build(
    static: Mapping[str, str],
    dynamic_default: Mapping[str, str],
    dynamic_broker: Mapping[str, str],
) -> BrokerConfig:
    effective = {**static, **dynamic_default, **dynamic_broker}
    _fill_in_broker_id(effective)
    _require_own_known(effective)
    require_servable(effective)
    log = load(LogConfig, effective)
    replication = load(ReplicationConfig, effective)
    return BrokerConfig(
        coordination=load(CoordinationConfig, effective),
        network=load(NetworkConfig, effective),
        log=log,
        replication=replication,
        groups=load(GroupsConfig, effective),
        consumer_groups=load(ConsumerGroupsConfig, effective),
        transactions=load(TransactionsConfig, effective),
        topic_defaults=_topic_defaults(log, replication),
        static=dict(static),
        dynamic_default=dict(dynamic_default),
        dynamic_broker=dict(dynamic_broker),
    )


def _fill_in_broker_id(properties: dict[str, str]) -> None:
    """node.id and broker.id are one setting with two names; either may be given."""
    given = {properties[name] for name in ("node.id", "broker.id") if name in properties} - {"-1"}
    if len(given) == 1:
        properties["node.id"] = properties["broker.id"] = given.pop()


def _topic_defaults(log: LogConfig, replication: ReplicationConfig) -> TopicConfig:
    values = {
        TOPIC_SETTINGS[topic_name].field_name: _first_given(synonyms, log, replication)
        for topic_name, synonyms in BROKER_SYNONYMS.items()
    }
    return build(TopicConfig, values)


def _first_given(
    synonyms: tuple[str, ...], log: LogConfig, replication: ReplicationConfig
) -> object:
    for name in synonyms:
        part = log if name in settings_of(LogConfig) else replication
        value = getattr(part, BROKER_SETTINGS[name].field_name)
        if value is not None:
            return _in_milliseconds(name, value) if name in UNIT_MS else value
    raise AssertionError(f"{synonyms[-1]} has no default")


def _in_milliseconds(name: str, value: int) -> int:
    return value * UNIT_MS[name] if value > 0 else value  # -1 is no limit in every unit


def _require_own_known(names: Iterable[str]) -> None:
    own = [name for name in BROKER_SETTINGS if name.startswith(OWN_PREFIX)]
    for name in names:
        if name.startswith(OWN_PREFIX) and name not in BROKER_SETTINGS:
            similar = get_close_matches(name, own, n=1, cutoff=0.8)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise ConfigError(f"{name} is not a setting{hint}")


def _warnings(config: BrokerConfig) -> Iterable[str]:
    for name in config.static:
        if name not in BROKER_SETTINGS:
            yield warning_about(name, BROKER_SETTINGS)
    if config.coordination.zookeeper_connect_is_ignored:
        chosen = config.coordination.tidelog_coordination
        yield f"zookeeper.connect has no effect here: tidelog.coordination is {chosen}"
    for name in config.network.controller_listener_names:
        yield f"the listener {name} of controller.listener.names is not opened"
