"""Changes lead from any image to any later one; an impossible change is a bug."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.controller.clusters import (
    broker,
    brokers,
    cluster,
    ids,
    partition,
    topic,
    topic_id,
)
from tidelog.base.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerGone,
    BrokerRegistered,
    Change,
    PartitionChanged,
    PartitionsAdded,
    ReplicasFailed,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
    changes_between,
)
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    BrokerImage,
    ClusterImage,
    LastStop,
    PartitionImage,
    TopicImage,
)

settings = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from("12"), max_size=2)


def only_set(drawn: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {key: value for key, value in drawn.items() if value}


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    """Clusters of topics a, b and c, each under one of two ids, with growing epochs."""
    topics: dict[str, TopicImage] = {}
    for index, name in enumerate("abc"):
        if draw(st.booleans()):
            number = 10 * index + draw(st.integers(0, 1))
            epochs = draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
            partitions = [partition(1, 2, epoch=epoch) for epoch in epochs]
            topics[name] = topic(name, number, *partitions)
    alive = {
        BrokerId(number): broker(number, broker_epoch=draw(st.integers(1, 2)))
        for number in draw(st.sets(st.integers(1, 3)))
    }
    failed = {
        broker_id: frozenset(TopicPartition(name, 0) for name in topics if draw(st.booleans()))
        for broker_id in alive
    }
    return ClusterImage(
        cluster_id=draw(st.sampled_from(["c", "d"])),
        controller_id=BrokerId(draw(st.integers(-1, 2))),
        controller_epoch=ControllerEpoch(draw(st.integers(0, 2))),
        brokers=alive,
        topics=topics,
        topic_names={each.topic_id: name for name, each in topics.items()},
        topic_configs=only_set({name: draw(settings) for name in topics}),
        broker_configs={key: value for key in (None, BrokerId(1)) if (value := draw(settings))},
        client_configs=only_set({"client": draw(settings)}),
        failed_replicas={broker_id: replicas for broker_id, replicas in failed.items() if replicas},
    )


def is_later(before: ClusterImage, after: ClusterImage) -> bool:
    """Whether one can follow the other: topics never shrink, epochs never go back."""
    for topic_id_, name in before.topic_names.items():
        later = after.topic_by_id(topic_id_)
        if later is None:
            continue
        states = before.topics[name].partitions
        if len(later.partitions) < len(states):
            return False
        pairs = zip(states, later.partitions[: len(states)], strict=True)
        if any(new != old and new.partition_epoch <= old.partition_epoch for old, new in pairs):
            return False
    return True


@given(images(), images())
def test_the_changes_between_two_images_lead_from_one_to_the_other(
    before: ClusterImage, after: ClusterImage
) -> None:
    if is_later(before, after):
        assert before.apply_all(changes_between(before, after)) == after


@given(images())
def test_everything_can_be_told_to_somebody_who_knows_nothing(image: ClusterImage) -> None:
    assert EMPTY_IMAGE.apply_all(changes_between(EMPTY_IMAGE, image)) == image


@given(images())
def test_between_equal_images_there_is_no_change(image: ClusterImage) -> None:
    assert changes_between(image, image) == []


def test_a_topic_made_again_under_its_name_is_deleted_first() -> None:
    before = cluster(brokers(1), topic("a", 1), topic_configs={"a": {"retention.ms": "1"}})
    after = cluster(brokers(1), topic("a", 2))
    changes = changes_between(before, after)
    assert changes == [TopicDeleted("a", topic_id(1)), TopicCreated(topic("a", 2), {})]
    assert before.apply_all(changes).topic_config("a") == {}


def test_a_grown_topic_is_told_by_its_new_partitions() -> None:
    before = cluster(brokers(1), topic("a", 1, partition(1)))
    after = cluster(brokers(1), topic("a", 1, partition(1, epoch=1), partition(1), partition(1)))
    assert changes_between(before, after) == [
        PartitionChanged("a", 0, partition(1, epoch=1)),
        PartitionsAdded("a", 1, (partition(1), partition(1))),
    ]


def test_settings_that_are_taken_back_leave_no_trace() -> None:
    image = cluster(brokers(1), topic("a", 1)).apply_all(
        [TopicConfigChanged("a", {"x": "1"}), BrokerConfigChanged(None, {"y": "1"})]
    )
    after = image.apply_all([TopicConfigChanged("a", {}), BrokerConfigChanged(None, {})])
    assert after == cluster(brokers(1), topic("a", 1))


def test_a_topic_changed_and_deleted_in_one_batch_is_deleted() -> None:
    image = cluster(brokers(1), topic("a", 1))
    after = image.apply_all(
        [PartitionChanged("a", 0, partition(1, epoch=1)), TopicDeleted("a", topic_id(1))]
    )
    assert after == cluster(brokers(1))


def test_a_replica_on_a_disk_that_failed_is_offline_until_its_broker_or_topic_is_another() -> None:
    failed = ReplicasFailed(BrokerId(1), frozenset({TopicPartition("a", 1)}))
    known = cluster(brokers(1, 2), topic("a", 1, partition(1, 2), partition(1, 2, 3)))
    image = known.apply(failed)
    assert image.offline_replicas("a", 0) == ()
    assert image.offline_replicas("a", 1) == (1, 3)
    assert image.apply(BrokerGone(BrokerId(1))).offline_replicas("a", 0) == (1,)
    again = image.apply(BrokerRegistered(broker(1, broker_epoch=2)))
    assert again.offline_replicas("a", 1) == (3,)
    assert image.apply(TopicDeleted("a", topic_id(1))) == cluster(brokers(1, 2))
    assert image.apply(ReplicasFailed(BrokerId(1), frozenset())) == known


def with_isr(*isr: int) -> PartitionImage:
    return PartitionImage(BrokerId(1), LeaderEpoch(1), ids(1, 2), ids(*isr), (), (), 1)


IMPOSSIBLE: list[Change] = [
    TopicCreated(topic("a", 9), {}),
    TopicCreated(topic("b", 1), {}),
    TopicCreated(TopicImage("b", topic_id(9), ()), {}),
    TopicDeleted("a", topic_id(9)),
    PartitionsAdded("a", 2, (partition(1),)),
    PartitionChanged("a", 0, partition(1, 2, epoch=0)),
    PartitionChanged("a", 0, with_isr(1, 3)),
    PartitionChanged("a", 0, partition(1, 1, epoch=1)),
    TopicConfigChanged("b", {"x": "1"}),
]


@pytest.mark.parametrize("change", IMPOSSIBLE, ids=lambda change: type(change).__name__)
def test_an_impossible_change_is_a_bug(change: Change) -> None:
    image = cluster(brokers(1, 2), topic("a", 1, partition(1, 2)))
    with pytest.raises(AssertionError):
        image.apply(change)


def test_the_departure_of_a_stranger_is_a_bug() -> None:
    image = cluster({BrokerId(1): BrokerImage(BrokerId(1), 1, (), None, LastStop.CLEAN)})
    with pytest.raises(KeyError):
        image.apply(BrokerGone(BrokerId(2)))
