"""How fast replicas that lag may be filled: the settings of KIP-73, and what they hold back.

    leader.replication.throttled.replicas, .rate      what this broker sends as leader
    follower.replication.throttled.replicas, .rate    what it fetches as follower

The replicas are a setting of their topic, the rates are the broker's; `kafka-reassign-partitions
--throttle` sets both and takes them away again. Who is in sync is never held back: whoever asks
here looks at that first. The measuring is in `core/quota.py`.

Without these settings all that is ever looked at is `is_active`.
"""

from collections.abc import Sequence
from typing import Final

from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.base.ports import Clock
from tidelog.config.option import LONG_MAX
from tidelog.config.replication import ReplicationConfig
from tidelog.config.topic import TopicConfig, resolve_fitting
from tidelog.core.controller.changes import (
    Change,
    TopicConfigChanged,
    TopicCreated,
    TopicDeleted,
)
from tidelog.core.controller.image import NO_SETTINGS, ClusterImage, Settings
from tidelog.core.quota import SAMPLE_COUNT, SAMPLE_MS, RateMeter, ThrottledReplicas

LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


class ReplicationThrottle:
    """One direction: what is sent as leader, or what is fetched as follower."""

    __slots__ = ("_broker_id", "_clock", "_meter", "_topics", "is_active")

    def __init__(self, broker_id: BrokerId, clock: Clock) -> None:
        self._broker_id = broker_id
        self._clock = clock
        self._topics: dict[str, ThrottledReplicas] = {}
        self._meter = RateMeter(
            limit_bytes_per_s=LONG_MAX, sample_count=SAMPLE_COUNT, sample_ms=SAMPLE_MS
        )
        self.is_active = False
        """Whether anything may have to be held back."""

    def set_rate(self, bytes_per_s: int) -> None:
        self._meter.limit_bytes_per_s = bytes_per_s
        self._note_active()

    def set_replicas(self, topic: str, setting: tuple[str, ...]) -> None:
        if setting:
            self._topics[topic] = ThrottledReplicas.parse(setting)
        else:
            self._topics.pop(topic, None)
        self._note_active()

    def names(self, one: TopicPartition) -> bool:
        """Whether this broker's replica of that partition is throttled."""
        replicas = self._topics.get(one.topic)
        return replicas is not None and replicas.contains(one.partition, self._broker_id)

    def is_exceeded(self) -> bool:
        return self._meter.is_exceeded(self._clock.monotonic_ms())

    def record(self, size_bytes: int) -> None:
        """So much was sent to, or fetched for, throttled replicas that lag."""
        self._meter.record(size_bytes, self._clock.monotonic_ms())

    def _note_active(self) -> None:
        self.is_active = bool(self._topics) and self._meter.limit_bytes_per_s < LONG_MAX


class ReplicationThrottles:
    """Both directions, kept as the settings say."""

    def __init__(self, broker_id: BrokerId, clock: Clock, topic_defaults: TopicConfig) -> None:
        self.leader = ReplicationThrottle(broker_id, clock)
        self.follower = ReplicationThrottle(broker_id, clock)
        self._topic_defaults = topic_defaults

    def on_config(self, config: ReplicationConfig) -> None:
        """The broker's settings, dynamic ones included, are these now."""
        self.leader.set_rate(config.leader_replication_throttled_rate)
        self.follower.set_rate(config.follower_replication_throttled_rate)

    def on_image(self, _image: ClusterImage, changes: Sequence[Change]) -> None:
        for change in changes:
            match change:
                case TopicCreated(topic, configs):
                    self._set(topic.name, configs)
                case TopicConfigChanged(name, configs):
                    self._set(name, configs)
                case TopicDeleted(name, _):
                    self._set(name, NO_SETTINGS)
                case _:
                    pass

    def _set(self, topic: str, overrides: Settings) -> None:
        config = self._topic_defaults
        if LEADER_REPLICAS in overrides or FOLLOWER_REPLICAS in overrides:
            config, _misfits = resolve_fitting(overrides, self._topic_defaults)
        self.leader.set_replicas(topic, config.leader_replication_throttled_replicas)
        self.follower.set_replicas(topic, config.follower_replication_throttled_replicas)
