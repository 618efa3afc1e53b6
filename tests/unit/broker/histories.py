"""Clusters to which anything happens that can: random histories, valid change by change."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.unit.core.controller.clusters import broker, ids, partition, topic
from tidelog.base.ids import NO_BROKER, BrokerId, LeaderEpoch
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    ClientConfigChanged,
    ClusterNamed,
    ControllerChanged,
    GroupConfigChanged,
    PartitionChanged,
    PartitionsAdded,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    changes_between,
)
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    NO_CONTROLLER_EPOCH,
    ClusterImage,
    PartitionImage,
)

BROKERS = (1, 2, 3)
NAMES = ("t", "u", "v")
SETTINGS: Sequence[dict[str, str]] = ({}, {"retention.ms": "5"}, {"flush.ms": "7", "a": "b"})


class History:
    """One cluster over time. `happen` returns the changes that have led to the newest image."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.image = EMPTY_IMAGE.apply(ClusterNamed("cluster"))
        self._last_id = 0
        self._epoch = 0
        self.happened([BrokerRegistered(broker(1))])

    def happened(self, changes: Sequence[Change]) -> Sequence[Change]:
        self.image = self.image.apply_all(changes)
        return changes

    def happen(self) -> Sequence[Change]:
        """One event, or what has come of several, as a controller finds it in the tree."""
        before = self.image
        count = self.chance.choice((1, 1, 1, 4))
        changes = [self._happen_once() for _ in range(count)]
        return changes[0] if count == 1 else changes_between(before, self.image)

    def _happen_once(self) -> Sequence[Change]:
        changes: Sequence[Change] = []
        while not changes:
            act = self.chance.choice(
                [
                    self._register,
                    self._gone,
                    self._create,
                    self._create,
                    self._delete,
                    self._grow,
                    self._change,
                    self._change,
                    self._configure,
                ]
            )
            changes = act()
        return self.happened(changes)

    def _register(self) -> Sequence[Change]:
        self._epoch += 1
        number = self.chance.choice(BROKERS)
        rack = self.chance.choice((None, "r"))
        return [BrokerRegistered(broker(number, rack=rack, broker_epoch=self._epoch))]

    def _gone(self) -> Sequence[Change]:
        others = [one for one in self.image.brokers if one != 1]
        return [BrokerGone(self.chance.choice(others))] if others else []

    def _create(self) -> Sequence[Change]:
        name = self.chance.choice(NAMES)
        if name in self.image.topics:
            return []
        self._last_id += 1
        partitions = [self._new_state() for _ in range(self.chance.randint(1, 3))]
        created = topic(name, self._last_id, *partitions)
        return [TopicCreated(created, self.chance.choice(SETTINGS))]

    def _new_state(self) -> PartitionImage:
        return partition(*self.chance.sample(BROKERS, self.chance.randint(1, 3)))

    def _delete(self) -> Sequence[Change]:
        if not self.image.topics:
            return []
        name = self.chance.choice(sorted(self.image.topics))
        return [TopicDeleted(name, self.image.topics[name].topic_id)]

    def _grow(self) -> Sequence[Change]:
        if not self.image.topics:
            return []
        name = self.chance.choice(sorted(self.image.topics))
        first = len(self.image.topics[name].partitions)
        count = self.chance.randint(1, 2)
        return [PartitionsAdded(name, first, tuple(self._new_state() for _ in range(count)))]

    def _change(self) -> Sequence[Change]:
        if not self.image.topics:
            return []
        name = self.chance.choice(sorted(self.image.topics))
        number = self.chance.randrange(len(self.image.topics[name].partitions))
        before = self.image.topics[name].partitions[number]
        replicas = self.chance.choice((before.replicas, ids(*self.chance.sample(BROKERS, 2))))
        isr = tuple(self.chance.sample(replicas, self.chance.randint(1, len(replicas))))
        state = replace(
            before,
            replicas=replicas,
            isr=isr,
            leader=self.chance.choice((*isr, NO_BROKER)),
            leader_epoch=LeaderEpoch(before.leader_epoch + 1),
            partition_epoch=before.partition_epoch + 1,
        )
        return [PartitionChanged(name, number, state)]

    def _configure(self) -> Sequence[Change]:
        configs = self.chance.choice(SETTINGS)
        kind = self.chance.randrange(4)
        if kind == 0 and self.image.topics:
            return [TopicConfigChanged(self.chance.choice(sorted(self.image.topics)), configs)]
        if kind == 1:
            return [BrokerConfigChanged(self.chance.choice((None, BrokerId(1))), configs)]
        if kind == 2:
            return [GroupConfigChanged("g", configs)]
        return [ClientConfigChanged("c", configs)]


def without_claims(image: ClusterImage) -> ClusterImage:
    """The cluster, whoever says so."""
    return image.apply(ControllerChanged(NO_BROKER, NO_CONTROLLER_EPOCH))
