"""How far a stream is, committed to a consumer group, so that its lag shows in any tool (X2).

The checkpoint decides where a stream goes on, not the group: that is for people who look. So a
commit that fails is no reason to end the job; it is logged, and the next one says more.
"""

import logging

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from tidelog.pipeline.kafka_settings import KafkaSettings
from tidelog.pipeline.offsets import Offsets

logger = logging.getLogger(__name__)


class GroupProgress:
    """Commits offsets to a group without being a member of it."""

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        self._group = group
        self._committed: Offsets = {}
        self._consumer = Consumer(
            {**kafka.for_client(), "group.id": group, "enable.auto.commit": False}
        )

    def commit(self, done: Offsets) -> None:
        """All before these offsets is done. What was committed before is not committed again."""
        news = {each: at for each, at in done.items() if self._committed.get(each) != at}
        if not news:
            return
        try:
            self._consumer.commit(
                offsets=[
                    KafkaPartition(each.topic, each.partition, at) for each, at in news.items()
                ],
                asynchronous=False,
            )
        except KafkaException as exception:
            logger.warning("group %s was not told: %s", self._group, exception.args[0].str())
            return
        self._committed = {**self._committed, **news}

    def close(self) -> None:
        self._consumer.close()
