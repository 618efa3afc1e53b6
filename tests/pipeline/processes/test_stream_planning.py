"""How far a stream goes next, as the driver plans it: without Spark, on real brokers (X1)."""

import time
from typing import Any

from tests.support.clients import NewRecord
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tidelog.pipeline.source import TopicStreamReader

WITHIN_S = 60
DELAY_S = 2.0


class Planned:
    """A stream that waits for a hundred records, or for some time."""

    def __init__(self, topics: ReplicatedTopics, max_trigger_delay: str) -> None:
        self._topics = topics
        self._topic = topics.create()
        self._reader = TopicStreamReader(
            {
                "kafka.bootstrap.servers": topics.bootstrap,
                "subscribe": self._topic,
                "startingoffsets": "earliest",
                "minoffsetspertrigger": "100",
                "maxtriggerdelay": max_trigger_delay,
            },
            has_own_columns=True,
        )
        self._limit = self._reader.getDefaultReadLimit()
        self.at: dict[str, Any] = self._reader.initialOffset()

    def send(self, count: int) -> None:
        self._topics.send(self._topic, [NewRecord(None, b"x", 1, ())] * count)

    def goes_on(self) -> bool:
        """Ask it once, as Spark does again and again."""
        before, self.at = self.at, self._reader.latestOffset(self.at, self._limit)
        return self.at != before

    def stop(self) -> None:
        self._reader.stop()


def test_little_is_left_for_the_longest_delay_and_no_longer(topics: ReplicatedTopics) -> None:
    planned = Planned(topics, f"{DELAY_S:g}s")
    planned.send(1)
    began_s = time.monotonic()
    assert planned.goes_on()  # What is there when it starts is not waited for.
    planned.send(1)
    wait_until(planned.goes_on, within_s=WITHIN_S, what="time has passed")
    assert time.monotonic() - began_s >= DELAY_S
    planned.stop()


def test_little_is_left_until_there_is_enough(topics: ReplicatedTopics) -> None:
    planned = Planned(topics, "1h")
    planned.send(1)
    assert planned.goes_on()
    planned.send(99)
    assert not planned.goes_on()
    planned.send(1)
    assert planned.goes_on()
    planned.stop()
