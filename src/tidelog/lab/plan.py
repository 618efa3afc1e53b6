"""What a local cluster is to be: how many brokers, where, and with which settings.

    settings of `up`  <  profile  <  --set        a later one replaces an earlier one

`tidelog broker` has Kafka's defaults. A cluster that is started for people has as many replicas of
everything as its brokers allow, up to three: docs/decisions/0010-local-cluster.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.config.accepted import require_known
from tidelog.config.broker import BROKER_SETTINGS
from tidelog.lab.folder import ClusterFolder

FIRST_BROKER_ID: Final = 1
DEFAULT_BROKER_COUNT: Final = 3
METRICS_PORT: Final = "tidelog.metrics.port"
SQLITE: Final = "sqlite"
ZOOKEEPER: Final = "zookeeper"
_REPLICAS_WANTED: Final = 3
_TRANSACTION_REPLICAS_IN_SYNC_WANTED: Final = 2
# Who mistyped an address waits for this; ZooKeeper's servers take a second or two to start.
_ZOOKEEPER_CONNECTION_TIMEOUT: Final = {"zookeeper.connection.timeout.ms": "6000"}

_CHOOSE_IT_THERE: Final = "'tidelog broker' lets you choose it"
_BY_COORDINATION: Final = "--coordination chooses it"
# Settings that `up` gives to each broker, and what to do instead of giving them.
_GIVEN_TO_EACH: Final = {
    "node.id": _CHOOSE_IT_THERE,
    "broker.id": _CHOOSE_IT_THERE,
    "tidelog.coordination": _BY_COORDINATION,
    "zookeeper.connect": _BY_COORDINATION,
}
# Settings that no two brokers of a machine can have in common.
_OF_ONE_BROKER: Final = (
    "listeners",
    "advertised.listeners",
    "log.dir",
    "log.dirs",
)


class Profile(StrEnum):
    """Settings that go together, under one name."""

    RELIABLE = "reliable"


_PROFILES: Final[Mapping[Profile, Mapping[str, str]]] = {
    Profile.RELIABLE: {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
}
_BROKERS_NEEDED: Final = {Profile.RELIABLE: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What to start: brokers 1..N on `port`, `port` + 1, ...; port 0 is any that are free.

    `coordination` is `sqlite` or `zookeeper:HOST:PORT,.../CHROOT`; `settings` are of all brokers.
    Brokers behind proxies have `listening_ports` of their own, and tell others the proxies'.
    """

    broker_count: int
    host: str
    port: int
    coordination: str
    settings: Mapping[str, str]
    listening_ports: Mapping[int, int]
    advertised_ports: Mapping[int, int]

    @property
    def broker_ids(self) -> range:
        return range(FIRST_BROKER_ID, FIRST_BROKER_ID + self.broker_count)

    def properties_of(self, folder: ClusterFolder, broker_id: int, port: int) -> dict[str, str]:
        """The properties file of one broker."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_sqlite = self.coordination == SQLITE
        advertised = self.advertised_ports.get(broker_id)
        return {
            "listeners": f"PLAINTEXT://{host}:{port}",
            **({"advertised.listeners": f"PLAINTEXT://{host}:{advertised}"} if advertised else {}),
            "log.dirs": str(folder.log_dir(broker_id)),
            **({} if is_sqlite else _ZOOKEEPER_CONNECTION_TIMEOUT),
            **self.settings,
            **self._metrics_port_of(broker_id),
            "tidelog.coordination": f"{SQLITE}:{folder.coordination_file}"
            if is_sqlite
            else self.coordination,
            "node.id": str(broker_id),
        }

    def _metrics_port_of(self, broker_id: int) -> dict[str, str]:
        """As with `port`: the one that was asked for is the first broker's."""
        first = self.settings.get(METRICS_PORT, "")
        if not first.isdecimal() or int(first) == 0:
            return {}  # None, any that is free, or what the broker's config is to refuse.
        return {METRICS_PORT: str(int(first) + broker_id - FIRST_BROKER_ID)}


def chosen_settings(
    broker_count: int, profile: Profile | None, given: Mapping[str, str]
) -> dict[str, str]:
    """What all brokers are started with; ConfigError for what they could not be."""
    for name, instead in _GIVEN_TO_EACH.items():
        if name in given:
            raise ConfigError(f"{name} is given by 'up' itself; {instead}")
    if broker_count > 1:
        for name in _OF_ONE_BROKER:
            if name in given:
                raise ConfigError(
                    f"{name} cannot be the same for {broker_count} brokers; "
                    "leave it to 'up', or start one with --brokers 1"
                )
    # In a properties file it is a warning, which nobody would see who starts a cluster to use it.
    require_known(given, BROKER_SETTINGS)
    if profile is None:
        return {**_settings_for_people(broker_count), **given}
    if broker_count < _BROKERS_NEEDED[profile]:
        raise ConfigError(
            f"--brokers is {broker_count} but the profile {profile} needs "
            f"{_BROKERS_NEEDED[profile]} or more: every record is to be on three"
        )
    return {**_PROFILES[profile], **given}


def require_coordination(text: str) -> str:
    """`text` if it names a coordinator. Whether it names one well is for the broker's config."""
    kind, colon, place = text.partition(":")
    if text == SQLITE or (kind == ZOOKEEPER and colon and place):
        return text
    raise ConfigError(
        f"--coordination is '{text}' but must be sqlite or zookeeper:HOST:PORT,HOST:PORT/CHROOT"
    )


def _settings_for_people(broker_count: int) -> dict[str, str]:
    replicas = min(_REPLICAS_WANTED, broker_count)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(_TRANSACTION_REPLICAS_IN_SYNC_WANTED, replicas)),
    }
