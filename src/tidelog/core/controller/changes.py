"""Durable facts about the cluster; `image.apply(change)` is the only way an image moves.

A change says what *is* now, never what somebody wants: by the time one exists it has been decided
(`topics.py`, `configs.py`, `election.py`) and, in the runner, written to the coordinator. Applying
one cannot fail but by a bug, which is why the conditions below are assertions. One kind is not
written: what brokers say of their disks (`ReplicasFailed`).

`changes_between` finds the facts that lead from one image to another. A broker that was away reads
the whole tree again, and its subscribers still hear of differences only.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import TypeVar

from tidelog.base.ids import BrokerId, ControllerEpoch, TopicId, TopicPartition
from tidelog.core.controller.image import (
    NO_SETTINGS,
    BrokerImage,
    ClusterImage,
    ImageDraft,
    PartitionImage,
    Settings,
    TopicImage,
)

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The cluster got its id, which it keeps for ever."""

    cluster_id: str

    def apply_to(self, draft: ImageDraft) -> None:
        draft.set_cluster(self.cluster_id)


@dataclass(frozen=True, slots=True)
class ControllerChanged:
    """Somebody won the election, or nobody holds the claim (`controller_id` is NO_BROKER)."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch

    def apply_to(self, draft: ImageDraft) -> None:
        draft.set_controller(self.controller_id, self.controller_epoch)


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker is alive; also if it was before and came back under a new broker epoch."""

    broker: BrokerImage

    def apply_to(self, draft: ImageDraft) -> None:
        draft.brokers()[self.broker.broker_id] = self.broker
        draft.failed_replicas().pop(self.broker.broker_id, None)  # It will say anew.


@dataclass(frozen=True, slots=True)
class BrokerGone:
    """A broker's session ended."""

    broker_id: BrokerId

    def apply_to(self, draft: ImageDraft) -> None:
        del draft.brokers()[self.broker_id]
        draft.failed_replicas().pop(self.broker_id, None)


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: TopicImage
    configs: Settings

    def apply_to(self, draft: ImageDraft) -> None:
        topic = self.topic
        assert topic.name not in draft.topics()
        assert topic.topic_id not in draft.topic_names()
        _assert_sound(topic.partitions)
        draft.topics()[topic.name] = topic
        draft.topic_names()[topic.topic_id] = topic.name
        _set_settings(draft.topic_configs(), topic.name, self.configs)


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic and all its records are gone. A topic of that name made later has another id."""

    name: str
    topic_id: TopicId

    def apply_to(self, draft: ImageDraft) -> None:
        assert draft.topics()[self.name].topic_id == self.topic_id
        draft.forget_partitions(self.name)
        del draft.topics()[self.name]
        del draft.topic_names()[self.topic_id]
        _set_settings(draft.topic_configs(), self.name, NO_SETTINGS)
        failed = draft.failed_replicas()
        for broker_id, replicas in list(failed.items()):
            _set_failed(failed, broker_id, {one for one in replicas if one.topic != self.name})


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic has more partitions; the first new one has the number `first_partition`."""

    topic: str
    first_partition: int
    partitions: tuple[PartitionImage, ...]

    def apply_to(self, draft: ImageDraft) -> None:
        known = draft.partitions(self.topic)
        assert len(known) == self.first_partition  # I2
        _assert_sound(self.partitions)
        known.extend(self.partitions)


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """Leader, isr or replicas of one partition are now `state`."""

    topic: str
    partition: int
    state: PartitionImage

    def apply_to(self, draft: ImageDraft) -> None:
        known = draft.partitions(self.topic)
        before = known[self.partition]
        assert self.state.leader_epoch >= before.leader_epoch
        assert self.state.partition_epoch > before.partition_epoch
        _assert_sound((self.state,))
        known[self.partition] = self.state


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """`configs` are all the settings of the topic now, not only those that differ."""

    topic: str
    configs: Settings

    def apply_to(self, draft: ImageDraft) -> None:
        assert self.topic in draft.topics()
        _set_settings(draft.topic_configs(), self.topic, self.configs)


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """All dynamic settings of one broker now, or of every broker if `broker_id` is None."""

    broker_id: BrokerId | None
    configs: Settings

    def apply_to(self, draft: ImageDraft) -> None:
        _set_settings(draft.broker_configs(), self.broker_id, self.configs)


@dataclass(frozen=True, slots=True)
class ClientConfigChanged:
    """All settings of one client entity now (its quotas)."""

    client: str
    configs: Settings

    def apply_to(self, draft: ImageDraft) -> None:
        _set_settings(draft.client_configs(), self.client, self.configs)


@dataclass(frozen=True, slots=True)
class GroupConfigChanged:
    """All settings of one group now."""

    group_id: str
    configs: Settings

    def apply_to(self, draft: ImageDraft) -> None:
        _set_settings(draft.group_configs(), self.group_id, self.configs)


@dataclass(frozen=True, slots=True)
class ReplicasFailed:
    """All replicas of one live broker that are on log directories which failed; none: all work."""

    broker_id: BrokerId
    replicas: frozenset[TopicPartition]

    def apply_to(self, draft: ImageDraft) -> None:
        assert self.broker_id in draft.brokers()
        _set_failed(draft.failed_replicas(), self.broker_id, self.replicas)


Change = (
    ClusterNamed
    | ControllerChanged
    | BrokerRegistered
    | BrokerGone
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | PartitionChanged
    | TopicConfigChanged
    | BrokerConfigChanged
    | ClientConfigChanged
    | GroupConfigChanged
    | ReplicasFailed
)


def changes_between(before: ClusterImage, after: ClusterImage) -> list[Change]:
    """Facts that lead from one image to the other: `before.apply_all(these) == after`.

    Topics are matched by id. One that was deleted and made again under its name is a
    TopicDeleted followed by a TopicCreated, because nothing of the old one may live on.
    """
    changes: list[Change] = [
        *_cluster_changes(before, after),
        *broker_changes(before.brokers, after.brokers),
        *_topic_changes(before, after),
        *(
            BrokerConfigChanged(broker_id, configs)
            for broker_id, configs in _settings_changes(before.broker_configs, after.broker_configs)
        ),
        *(
            ClientConfigChanged(client, configs)
            for client, configs in _settings_changes(before.client_configs, after.client_configs)
        ),
        *(
            GroupConfigChanged(group_id, configs)
            for group_id, configs in _settings_changes(before.group_configs, after.group_configs)
        ),
    ]
    if before.failed_replicas or after.failed_replicas:
        # Some of it has ended with the brokers and topics that went.
        changes += failed_replica_changes(before.apply_all(changes), after.failed_replicas)
    return changes


def failed_replica_changes(
    image: ClusterImage, failed: Mapping[BrokerId, frozenset[TopicPartition]]
) -> list[Change]:
    """What has to be said so that `failed`, of brokers in `image`, is what is known."""
    known = image.failed_replicas
    return [
        *(ReplicasFailed(broker_id, frozenset()) for broker_id in known if broker_id not in failed),
        *(
            ReplicasFailed(broker_id, replicas)
            for broker_id, replicas in failed.items()
            if known.get(broker_id) != replicas
        ),
    ]


def _cluster_changes(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    if before.cluster_id != after.cluster_id:
        yield ClusterNamed(after.cluster_id)
    controller = (after.controller_id, after.controller_epoch)
    if (before.controller_id, before.controller_epoch) != controller:
        yield ControllerChanged(*controller)


def broker_changes(
    before: Mapping[BrokerId, BrokerImage], after: Mapping[BrokerId, BrokerImage]
) -> Iterator[Change]:
    """Who came, went, or came back under a new broker epoch."""
    yield from (BrokerGone(broker_id) for broker_id in before if broker_id not in after)
    yield from (
        BrokerRegistered(broker)
        for broker_id, broker in after.items()
        if before.get(broker_id) != broker
    )


def _topic_changes(before: ClusterImage, after: ClusterImage) -> Iterator[Change]:
    for topic_id, name in before.topic_names.items():
        if topic_id not in after.topic_names:
            yield TopicDeleted(name, topic_id)
    for topic_id, name in after.topic_names.items():
        topic = after.topics[name]
        known = before.topic_by_id(topic_id)
        if known is None:
            yield TopicCreated(topic, after.topic_config(name))
            continue
        yield from _partition_changes(known, topic)
        if before.topic_config(name) != after.topic_config(name):
            yield TopicConfigChanged(name, after.topic_config(name))


def _partition_changes(before: TopicImage, after: TopicImage) -> Iterator[Change]:
    if before is after:
        return
    count = len(before.partitions)
    for partition, (old, new) in enumerate(
        zip(before.partitions, after.partitions[:count], strict=True)
    ):
        if old != new:
            yield PartitionChanged(before.name, partition, new)
    if len(after.partitions) > count:
        yield PartitionsAdded(before.name, count, after.partitions[count:])


def _settings_changes(
    before: Mapping[Key, Settings], after: Mapping[Key, Settings]
) -> Iterator[tuple[Key, Settings]]:
    yield from ((key, NO_SETTINGS) for key in before if key not in after)
    yield from ((key, configs) for key, configs in after.items() if before.get(key) != configs)


def _set_settings(known: dict[Key, Settings], key: Key, configs: Settings) -> None:
    if configs:
        known[key] = configs
    else:
        known.pop(key, None)  # I4


def _set_failed(
    known: dict[BrokerId, frozenset[TopicPartition]],
    broker_id: BrokerId,
    replicas: Set[TopicPartition],
) -> None:
    if replicas:
        known[broker_id] = frozenset(replicas)
    else:
        known.pop(broker_id, None)  # I4


def _assert_sound(partitions: tuple[PartitionImage, ...]) -> None:
    assert partitions
    for partition in partitions:
        assert partition.replicas  # I3
        assert len(set(partition.replicas)) == len(partition.replicas)  # I3
        assert set(partition.isr) <= set(partition.replicas)  # I3
