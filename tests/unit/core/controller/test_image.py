"""An image is never changed, and shares with the next one what stays the same."""

from tests.unit.core.controller.clusters import broker, brokers, cluster, partition, topic, topic_id
from tidelog.base.ids import BrokerId, ControllerEpoch
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    BrokerRegistered,
    Change,
    ClientConfigChanged,
    ClusterNamed,
    ControllerChanged,
    GroupConfigChanged,
    PartitionChanged,
    TopicConfigChanged,
    TopicCreated,
)
from tidelog.core.controller.image import EMPTY_IMAGE, Endpoint


def test_topics_are_found_by_name_and_by_id() -> None:
    image = cluster(brokers(1), topic("a", 7))
    assert image.topics["a"] == topic("a", 7)
    assert image.topic_by_id(topic_id(7)) == topic("a", 7)
    assert image.topic_by_id(topic_id(8)) is None


def test_partitions_are_found_by_number() -> None:
    image = cluster(brokers(1, 2), topic("a", 7, partition(1, 2), partition(2, 1)))
    assert image.partition("a", 1) == partition(2, 1)
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert image.partition("b", 0) is None
    assert image.topics["a"].replication_factor == 2


def test_settings_that_nobody_made_are_empty() -> None:
    image = cluster(brokers(1), topic("a", 7), topic_configs={"a": {"retention.ms": "1"}})
    assert image.topic_config("a") == {"retention.ms": "1"}
    assert image.topic_config("b") == {}
    assert image.broker_config(None) == {}
    assert image.broker_config(BrokerId(1)) == {}


def test_an_address_is_found_by_its_listener() -> None:
    internal = Endpoint("INTERNAL", "PLAINTEXT", "inside", 9093)
    known = broker(1)
    both = type(known)(known.broker_id, 1, (*known.endpoints, internal), None, known.stop)
    assert both.endpoint("INTERNAL") == internal
    assert both.endpoint("PLAINTEXT") == known.endpoints[0]
    assert both.endpoint("OTHER") is None


def test_a_change_leaves_the_image_it_was_applied_to_as_it_was() -> None:
    before = cluster(brokers(1, 2), topic("a", 1, partition(1, 2)))
    copy = cluster(brokers(1, 2), topic("a", 1, partition(1, 2)))
    changes: list[Change] = [
        ClusterNamed("other"),
        ControllerChanged(BrokerId(2), ControllerEpoch(5)),
        BrokerRegistered(broker(3)),
        TopicCreated(topic("b", 2), {"retention.ms": "1"}),
        PartitionChanged("a", 0, partition(1, 2, leader=2, epoch=1)),
        TopicConfigChanged("a", {"retention.ms": "2"}),
        BrokerConfigChanged(None, {"log.retention.ms": "3"}),
        ClientConfigChanged("c", {"producer_byte_rate": "4"}),
        GroupConfigChanged("g", {"consumer.session.timeout.ms": "5"}),
    ]
    after = before.apply_all(changes)
    assert before == copy
    assert after != before
    assert after.cluster_id == "other"
    assert (after.controller_id, after.controller_epoch) == (2, 5)
    assert after.client_configs == {"c": {"producer_byte_rate": "4"}}
    assert after.group_config("g") == {"consumer.session.timeout.ms": "5"}


def test_what_does_not_change_is_shared() -> None:
    before = cluster(brokers(1, 2), topic("a", 1), topic("b", 2))
    after = before.apply(PartitionChanged("a", 0, partition(1, epoch=1)))
    assert after.brokers is before.brokers
    assert after.topic_names is before.topic_names
    assert after.topic_configs is before.topic_configs
    assert after.topics["b"] is before.topics["b"]


def test_no_changes_make_an_equal_image() -> None:
    before = cluster(brokers(1), topic("a", 1))
    assert before.apply_all([]) == before
    assert EMPTY_IMAGE.apply_all([]) == EMPTY_IMAGE
