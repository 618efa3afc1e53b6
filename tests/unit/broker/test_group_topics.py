"""Topics as groups see them: new when something about them is."""

from dataclasses import replace
from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, TopicId
from tidelog.broker.group_topics import GroupTopics
from tidelog.core.controller.changes import (
    Change,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.image import EMPTY_IMAGE, ClusterImage, PartitionImage, TopicImage
from tidelog.core.groups.topics import TopicFacts

_PARTITION = PartitionImage(
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(0),
    replicas=(BrokerId(1),),
    isr=(BrokerId(1),),
    adding_replicas=(),
    removing_replicas=(),
    partition_epoch=0,
)


_NEXT_EPOCH = replace(_PARTITION, leader_epoch=LeaderEpoch(1), partition_epoch=1)


def _topic(name: str, number: int) -> TopicImage:
    return TopicImage(name, TopicId(UUID(int=number)), (_PARTITION,))


class _Followed:
    """An image that changes, and what groups see of it."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self.topics = GroupTopics()

    def apply(self, *changes: Change) -> None:
        self.image = self.image.apply_all(changes)
        self.topics.on_image(self.image, changes)


def test_topics_come_grow_and_go() -> None:
    followed = _Followed()
    followed.apply(TopicCreated(_topic("a", 1), {}), TopicCreated(_topic("b", 2), {}))
    first = followed.topics.current
    assert first.by_name == {
        "a": TopicFacts(TopicId(UUID(int=1)), 1),
        "b": TopicFacts(TopicId(UUID(int=2)), 1),
    }
    followed.apply(PartitionsAdded("a", 1, (_PARTITION,)))
    grown = followed.topics.current
    assert grown.by_name["a"].partition_count == 2
    assert grown.version == first.version, "expressions match what they did"
    followed.apply(TopicDeleted("b", TopicId(UUID(int=2))))
    assert followed.topics.current.by_name.keys() == {"a"}
    assert followed.topics.current.version != grown.version
    assert followed.topics.current.names == {TopicId(UUID(int=1)): "a"}


def test_a_topic_that_is_created_again_is_another() -> None:
    followed = _Followed()
    followed.apply(TopicCreated(_topic("a", 1), {}))
    followed.apply(TopicDeleted("a", TopicId(UUID(int=1))), TopicCreated(_topic("a", 2), {}))
    assert followed.topics.current.by_name["a"].topic_id == TopicId(UUID(int=2))


def test_who_leads_is_nothing_to_groups() -> None:
    followed = _Followed()
    followed.apply(TopicCreated(_topic("a", 1), {}))
    before = followed.topics.current
    followed.apply(PartitionChanged("a", 0, _NEXT_EPOCH))
    assert followed.topics.current is before


def test_brokers_that_know_the_same_topics_agree_on_the_version() -> None:
    """A coordinator compares it with what the one before wrote, whatever either has seen since."""
    one, other = _Followed(), _Followed()
    one.apply(TopicCreated(_topic("a", 1), {}))
    one.apply(TopicCreated(_topic("b", 2), {}))
    other.apply(TopicCreated(_topic("b", 2), {}), TopicCreated(_topic("a", 1), {}))
    assert other.topics.current.version == one.topics.current.version
    one.apply(TopicCreated(_topic("c", 3), {}), TopicDeleted("b", TopicId(UUID(int=2))))
    other.apply(TopicDeleted("b", TopicId(UUID(int=2))))
    assert other.topics.current.version != one.topics.current.version
