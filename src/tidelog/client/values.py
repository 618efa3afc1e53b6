"""What a cluster says about itself, as plain values.

They carry what a person asks for, in Kafka's words; how it came over the wire is not in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# By DescribeConfigs' numbers: what gave a setting its value.
CONFIG_SOURCES: Final[Mapping[int, str]] = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "properties file",
    5: "default",
    6: "logger",
    8: "group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """A broker as clients are told about it."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers that are alive, and which of them is the controller, if any is."""

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerNode, ...]


class PartitionState(StrEnum):
    """What a partition is worth: all of its replicas, some of them, or nobody leads it."""

    IN_SYNC = "in sync"
    UNDER_REPLICATED = "under-replicated"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """Who holds a partition. No leader means that it is offline."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def state(self) -> PartitionState:
        if self.leader is None:
            return PartitionState.OFFLINE
        if len(self.isr) < len(self.replicas):
            return PartitionState.UNDER_REPLICATED
        return PartitionState.IN_SYNC


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic and its partitions, in order."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBounds:
    """Records of a partition have offsets in `[start_offset, end_offset)`."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class TopicResource:
    """Settings of one topic."""

    name: str


@dataclass(frozen=True, slots=True)
class BrokerResource:
    """Settings of one broker."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class ClusterDefaults:
    """Settings that hold for every broker that has none of its own."""


@dataclass(frozen=True, slots=True)
class GroupResource:
    """The settings of one consumer group, which need not exist."""

    group_id: str


@dataclass(frozen=True, slots=True)
class LoggerResource:
    """The levels of one broker's loggers, until it restarts."""

    broker_id: int


Resource = TopicResource | BrokerResource | ClusterDefaults | GroupResource | LoggerResource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """A setting in force and where it comes from. A sensitive one has no value to show.

    `not_in_force`: what is set at that source, where a broker goes on with another value.
    """

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    not_in_force: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source == "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOnDisk:
    """The folder of one partition in one log dir."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether it is being copied there from another log dir."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log dir of one broker. `error` names what took it offline.

    A broker that does not answer has one without a path.
    """

    broker_id: int
    path: str | None
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaOnDisk, ...]

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)
