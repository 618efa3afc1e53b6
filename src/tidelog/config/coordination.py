"""Who this broker is and where the cluster's memory is kept."""

import re
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.errors import ConfigError
from tidelog.config.option import INT_MAX, ConfigType, option

_SQLITE = "sqlite"
_ZOOKEEPER = "zookeeper"
# host, host:port or [address]:port, separated by commas; then, if given, /folder/within.
_SERVER = r"(\[[0-9A-Fa-f:.]+\]|[^\s,:/\[\]]+)(:[0-9]{1,5})?"
_ZOOKEEPER_HOSTS = re.compile(rf"{_SERVER}(,{_SERVER})*(/[^/\s]+)*/?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationConfig:
    """The broker's identity and its coordinator (C1)."""

    node_id: int = option(
        "node.id",
        1,
        ConfigType.INT,
        "Number of this broker, unlike any other's; broker.id is its older name.",
        minimum=0,
    )
    broker_id: int = option(
        "broker.id",
        -1,
        ConfigType.INT,
        "Older name of node.id. Both may be given if they agree; -1 counts as not given.",
        minimum=-1,
    )
    broker_rack: str | None = option(
        "broker.rack",
        None,
        ConfigType.STRING,
        "Where this broker stands. Replicas are spread over racks.",
    )
    broker_session_timeout_ms: int = option(
        "broker.session.timeout.ms",
        9000,
        ConfigType.INT,
        "A broker that the embedded coordinator has not heard of for this long counts as dead.",
        minimum=1,
    )
    broker_heartbeat_interval_ms: int = option(
        "broker.heartbeat.interval.ms",
        2000,
        ConfigType.INT,
        "How often a broker renews its session with the embedded coordinator.",
        minimum=1,
    )
    zookeeper_connect: str | None = option(
        "zookeeper.connect",
        None,
        ConfigType.STRING,
        "A ZooKeeper ensemble, host:port,host:port/chroot, that keeps the cluster's memory unless "
        "tidelog.coordination says otherwise.",
    )
    zookeeper_connection_timeout_ms: int | None = option(
        "zookeeper.connection.timeout.ms",
        None,
        ConfigType.INT,
        "How long to wait for ZooKeeper; zookeeper.session.timeout.ms if not given.",
        minimum=1,
    )
    zookeeper_session_timeout_ms: int = option(
        "zookeeper.session.timeout.ms",
        18_000,
        ConfigType.INT,
        "A broker that ZooKeeper has not heard of for this long counts as dead.",
        minimum=1,
        maximum=INT_MAX,
    )
    tidelog_coordination: str | None = option(
        "tidelog.coordination",
        None,
        ConfigType.STRING,
        "Where the cluster's memory is kept: sqlite, below .tidelog in the first of log.dirs; "
        "sqlite:PATH; zookeeper, at zookeeper.connect; or zookeeper:HOST:PORT,HOST:PORT/CHROOT. "
        "If not given, zookeeper where zookeeper.connect is given and else sqlite.",
        pattern=r"(sqlite|zookeeper)(:.+)?",
    )
    tidelog_cluster_id: str | None = option(
        "tidelog.cluster.id",
        None,
        ConfigType.STRING,
        "Id of a cluster that is about to be created; a random one if not given.",
        pattern=r"[A-Za-z0-9_-]{1,249}",
    )

    def __post_init__(self) -> None:
        if self.broker_id not in {-1, self.node_id}:
            raise ConfigError(
                f"broker.id is {self.broker_id} but must equal node.id, which is {self.node_id}"
            )
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            raise ConfigError(
                f"broker.heartbeat.interval.ms is {self.broker_heartbeat_interval_ms} but must be "
                f"less than broker.session.timeout.ms, which is {self.broker_session_timeout_ms}"
            )

        hosts = self.zookeeper_hosts
        if hosts is not None and not _ZOOKEEPER_HOSTS.fullmatch(hosts):
            raise ConfigError(
                f"the ZooKeeper ensemble is '{hosts}' but must be HOST:PORT,HOST:PORT/CHROOT, "
                "in zookeeper.connect or tidelog.coordination"
            )

    @property
    def zookeeper_hosts(self) -> str | None:
        """The ensemble that keeps the cluster's memory, and the chroot; None if SQLite does."""
        if self.tidelog_coordination is None:
            return self.zookeeper_connect
        kind, _, place = self.tidelog_coordination.partition(":")
        if kind != _ZOOKEEPER:
            return None
        if not place and self.zookeeper_connect is None:
            raise ConfigError("tidelog.coordination is zookeeper but zookeeper.connect is missing")
        return place or self.zookeeper_connect

    @property
    def zookeeper_connect_is_ignored(self) -> bool:
        return self.zookeeper_connect not in {None, self.zookeeper_hosts}

    @property
    def registration_timeout_ms(self) -> int:
        """How long a former life of this broker may go on holding its registration."""
        if self.zookeeper_hosts is None:
            return self.broker_session_timeout_ms
        # Servers look at their sessions now and then, and may have granted a longer time-out.
        return 2 * self.zookeeper_session_timeout_ms

    def sqlite_path(self, first_log_dir: Path) -> Path:
        """The file of the embedded coordinator."""
        _, _, path = (self.tidelog_coordination or _SQLITE).partition(":")
        return Path(path) if path else first_log_dir / ".tidelog" / "coordination.sqlite"
