"""The cluster as an immutable value.

A `ClusterImage` is everything the controller has decided and everybody else must know: who is
alive, which topics exist, who leads what, which settings were changed at run time. It is replaced
as a whole, never changed in place, so that a request handler may keep one for as long as it likes
and a subscriber can compare the old with the new.

`image.apply(change)` and `image.apply_all(changes)` are the only ways from one image to the next;
the facts they take are in `changes.py`. Unchanged parts are shared between the two images, so a
change costs a copy of the dictionary it touches and not of the cluster.

Invariants:

    I1  `topics` and `topic_names` hold the same topics.
    I2  The partitions of a topic are numbered from 0 without a gap: the number is the position.
    I3  `replicas` is not empty and names no broker twice; `isr` is a subset of it.
    I4  A settings mapping that is present is not empty, so that equal clusters are equal images.
        So are the sets of `failed_replicas`, and those are of brokers that are alive.

Not here: where a fact is stored (`nodes.py`), and whether it may happen (`topics.py`,
`configs.py`, `placement.py`, `election.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tidelog.base.ids import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)

if TYPE_CHECKING:
    from tidelog.core.controller.changes import Change

Settings = Mapping[str, str]

NO_SETTINGS: Settings = {}
NO_CONTROLLER_EPOCH = ControllerEpoch(0)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens, as it is advertised to clients."""

    listener: str
    security_protocol: str
    host: str
    port: int


class LastStop(Enum):
    """How a broker ended before it registered.

    CLEAN: everything it had was flushed. KILLED: its process died, but the machine ran on, and so
    did what the system had taken from it. LOST: the machine may have stopped too, and what was
    not flushed may be gone; or the folder of a replica that counts as in sync is not there.
    """

    CLEAN = "clean"
    KILLED = "killed"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A broker that is alive. `broker_epoch` is larger each time the same broker registers.

    `stop` says how it ended before, and so what its disks can have lost (R13).
    """

    broker_id: BrokerId
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    stop: LastStop

    def endpoint(self, listener: str) -> Endpoint | None:
        """The address under `listener`, which is what a client of that listener must be told."""
        return next((known for known in self.endpoints if known.listener == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who leads a partition and who has all of it.

    `leader` is NO_BROKER while nobody may lead. `partition_epoch` is the version of the state
    node: every change of leader or isr raises it, and a change proposed against an older one
    is refused.
    """

    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic; the number of a partition is its position in `partitions`."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionImage, ...]

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition, without those of a moving one that will go."""
        first = self.partitions[0]
        return len(first.replicas) - len(first.removing_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """All that is known of the cluster at one moment.

    `broker_configs` has the cluster-wide defaults under None. The settings are what was set at
    run time, not what is effective: the properties file and the defaults are not in the image.
    `failed_replicas` is the only part that is stored nowhere: what brokers say of log directories
    that failed. The next controller hears it from them.
    """

    cluster_id: str
    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: Mapping[BrokerId, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[TopicId, str] = field(default_factory=dict)
    topic_configs: Mapping[str, Settings] = field(default_factory=dict)
    broker_configs: Mapping[BrokerId | None, Settings] = field(default_factory=dict)
    client_configs: Mapping[str, Settings] = field(default_factory=dict)
    group_configs: Mapping[str, Settings] = field(default_factory=dict)
    failed_replicas: Mapping[BrokerId, frozenset[TopicPartition]] = field(default_factory=dict)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        if image is None or not 0 <= partition < len(image.partitions):
            return None
        return image.partitions[partition]

    def offline_replicas(self, topic: str, partition: int) -> tuple[BrokerId, ...]:
        """Those of a partition that exists which are on no live broker, or on a failed disk."""
        failed = self.failed_replicas
        return tuple(
            replica
            for replica in self.topics[topic].partitions[partition].replicas
            if replica not in self.brokers
            or (replica in failed and (topic, partition) in failed[replica])
        )

    def topic_config(self, topic: str) -> Settings:
        """What was set for `topic`; empty if nothing was or there is no such topic."""
        return self.topic_configs.get(topic, NO_SETTINGS)

    def broker_config(self, broker_id: BrokerId | None) -> Settings:
        """What was set for one broker, or for all of them under None."""
        return self.broker_configs.get(broker_id, NO_SETTINGS)

    def group_config(self, group_id: str) -> Settings:
        """What was set for one group, whether there is such a group or not."""
        return self.group_configs.get(group_id, NO_SETTINGS)

    def apply(self, change: "Change") -> "ClusterImage":
        """The cluster after `change`, which must be possible in this one."""
        return self.apply_all((change,))

    def apply_all(self, changes: Iterable["Change"]) -> "ClusterImage":
        """The cluster after all of `changes`, in order; each part is copied once at most."""
        draft = ImageDraft(self)
        for change in changes:
            change.apply_to(draft)
        return draft.finish()


EMPTY_IMAGE = ClusterImage(
    cluster_id="", controller_id=NO_BROKER, controller_epoch=NO_CONTROLLER_EPOCH
)


class ImageDraft:
    """An image while changes are applied to it; only `changes.py` writes to one.

    Every part is copied when it is first written to. The partitions of a topic become a list
    for the time, because an event that moves a thousand leaders of one topic would otherwise
    copy a tuple of a thousand a thousand times.
    """

    __slots__ = (
        "_broker_configs",
        "_brokers",
        "_client_configs",
        "_failed_replicas",
        "_group_configs",
        "_image",
        "_open_partitions",
        "_topic_configs",
        "_topic_names",
        "_topics",
    )

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._brokers: dict[BrokerId, BrokerImage] | None = None
        self._topics: dict[str, TopicImage] | None = None
        self._topic_names: dict[TopicId, str] | None = None
        self._topic_configs: dict[str, Settings] | None = None
        self._broker_configs: dict[BrokerId | None, Settings] | None = None
        self._client_configs: dict[str, Settings] | None = None
        self._group_configs: dict[str, Settings] | None = None
        self._failed_replicas: dict[BrokerId, frozenset[TopicPartition]] | None = None
        self._open_partitions: dict[str, list[PartitionImage]] = {}

    def set_cluster(self, cluster_id: str) -> None:
        self._image = replace(self._image, cluster_id=cluster_id)

    def set_controller(self, controller_id: BrokerId, controller_epoch: ControllerEpoch) -> None:
        self._image = replace(
            self._image, controller_id=controller_id, controller_epoch=controller_epoch
        )

    def brokers(self) -> dict[BrokerId, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers

    def topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
        return self._topics

    def topic_names(self) -> dict[TopicId, str]:
        if self._topic_names is None:
            self._topic_names = dict(self._image.topic_names)
        return self._topic_names

    def partitions(self, topic: str) -> list[PartitionImage]:
        """The partitions of a topic that exists, to be changed in place."""
        partitions = self._open_partitions.get(topic)
        if partitions is None:
            partitions = list(self.topics()[topic].partitions)
            self._open_partitions[topic] = partitions
        return partitions

    def forget_partitions(self, topic: str) -> None:
        self._open_partitions.pop(topic, None)

    def topic_configs(self) -> dict[str, Settings]:
        if self._topic_configs is None:
            self._topic_configs = dict(self._image.topic_configs)
        return self._topic_configs

    def broker_configs(self) -> dict[BrokerId | None, Settings]:
        if self._broker_configs is None:
            self._broker_configs = dict(self._image.broker_configs)
        return self._broker_configs

    def client_configs(self) -> dict[str, Settings]:
        if self._client_configs is None:
            self._client_configs = dict(self._image.client_configs)
        return self._client_configs

    def group_configs(self) -> dict[str, Settings]:
        if self._group_configs is None:
            self._group_configs = dict(self._image.group_configs)
        return self._group_configs

    def failed_replicas(self) -> dict[BrokerId, frozenset[TopicPartition]]:
        if self._failed_replicas is None:
            self._failed_replicas = dict(self._image.failed_replicas)
        return self._failed_replicas

    def finish(self) -> ClusterImage:
        for topic, partitions in self._open_partitions.items():
            self.topics()[topic] = replace(self.topics()[topic], partitions=tuple(partitions))
        image = self._image
        finished = ClusterImage(
            cluster_id=image.cluster_id,
            controller_id=image.controller_id,
            controller_epoch=image.controller_epoch,
            brokers=image.brokers if self._brokers is None else self._brokers,
            topics=image.topics if self._topics is None else self._topics,
            topic_names=image.topic_names if self._topic_names is None else self._topic_names,
            topic_configs=(
                image.topic_configs if self._topic_configs is None else self._topic_configs
            ),
            broker_configs=(
                image.broker_configs if self._broker_configs is None else self._broker_configs
            ),
            client_configs=(
                image.client_configs if self._client_configs is None else self._client_configs
            ),
            group_configs=(
                image.group_configs if self._group_configs is None else self._group_configs
            ),
            failed_replicas=(
                image.failed_replicas if self._failed_replicas is None else self._failed_replicas
            ),
        )
        assert len(finished.topics) == len(finished.topic_names)  # I1
        return finished
