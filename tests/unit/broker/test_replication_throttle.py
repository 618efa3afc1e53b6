"""When replicas are held back, and that nothing is looked at when they are not (KIP-73)."""

from uuid import uuid4

from tests.unit.broker.world import ManualClock
from tidelog.base.ids import BrokerId, TopicId, TopicPartition
from tidelog.broker.replication_throttle import ReplicationThrottle, ReplicationThrottles
from tidelog.config.broker import BrokerConfig
from tidelog.core.controller.changes import TopicConfigChanged, TopicCreated, TopicDeleted
from tidelog.core.controller.image import EMPTY_IMAGE, TopicImage

ME = BrokerId(1)
TOPIC_ID = TopicId(uuid4())
TOPIC = TopicImage("t", TOPIC_ID, ())
DEFAULTS = BrokerConfig.load({"node.id": "1"})


def throttles() -> ReplicationThrottles:
    return ReplicationThrottles(ME, ManualClock(), DEFAULTS.topic_defaults)


def test_neither_a_rate_nor_replicas_alone_throttle() -> None:
    throttle = ReplicationThrottle(ME, ManualClock())
    assert not throttle.is_active
    throttle.set_rate(10)
    assert not throttle.is_active
    throttle.set_replicas("t", ("0:1",))
    assert throttle.is_active
    throttle.set_rate(2**63 - 1)
    assert not throttle.is_active


def test_only_replicas_of_this_broker_that_are_named_are_throttled() -> None:
    throttle = ReplicationThrottle(ME, ManualClock())
    throttle.set_replicas("t", ("0:1", "1:2"))
    throttle.set_replicas("all", ("*",))
    assert throttle.names(TopicPartition("t", 0))
    assert not throttle.names(TopicPartition("t", 1))
    assert not throttle.names(TopicPartition("other", 0))
    assert throttle.names(TopicPartition("all", 7))


def test_the_rate_is_exceeded_until_enough_time_has_passed() -> None:
    clock = ManualClock()
    throttle = ReplicationThrottle(ME, clock)
    throttle.set_rate(100)
    throttle.record(300)
    assert throttle.is_exceeded()
    clock.advance(3_000)
    assert not throttle.is_exceeded()


def test_settings_of_topics_come_and_go() -> None:
    both = throttles()
    both.on_config(
        BrokerConfig.load({"node.id": "1", "leader.replication.throttled.rate": "5"}).replication
    )
    settings = {"leader.replication.throttled.replicas": "0:1"}
    both.on_image(EMPTY_IMAGE, [TopicCreated(TOPIC, settings)])
    assert both.leader.is_active
    assert not both.follower.is_active
    both.on_image(EMPTY_IMAGE, [TopicConfigChanged("t", {})])
    assert not both.leader.is_active
    both.on_image(EMPTY_IMAGE, [TopicConfigChanged("t", settings)])
    both.on_image(EMPTY_IMAGE, [TopicDeleted("t", TOPIC_ID)])
    assert not both.leader.is_active


def test_a_topic_that_contradicts_what_it_inherits_is_throttled() -> None:
    defaults = BrokerConfig.load({"log.cleaner.max.compaction.lag.ms": "50"}).topic_defaults
    both = ReplicationThrottles(ME, ManualClock(), defaults)
    settings = {"leader.replication.throttled.replicas": "0:1", "min.compaction.lag.ms": "100"}
    both.on_image(EMPTY_IMAGE, [TopicCreated(TOPIC, settings)])
    assert both.leader.names(TopicPartition("t", 0))
