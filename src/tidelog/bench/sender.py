"""One producer whose senders each wait for their record before they send the next (`sync`).

Many threads of an application that share a producer, and each wait for the acknowledgement of what
they have sent, are to the cluster what this is: a window of unacknowledged records, in which every
acknowledgement makes room for one more. Nothing lingers; what is sent while a request is under way
becomes the next one.

    window of 3    [1 2 3]      2 is acknowledged      [1 3 4]

Records go to the partitions in turn, as those without a key did in the document's client, and say
which they are and when they were sent.
"""

import time
from array import array
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

NOT_ANSWERED: Final = -1
FAILED: Final = -2
_POLL_S: Final = 0.05
# Kafka's name of what librdkafka knows by its own.
_KAFKA_NAMES: Final = {"_TRANSPORT": "NETWORK_EXCEPTION", "_TIMED_OUT": "REQUEST_TIMED_OUT"}


def kafka_name(error: KafkaError) -> str:
    """The name that Kafka's own client would give."""
    name = error.name()
    return _KAFKA_NAMES.get(name, name)


class RecordWindow:
    """Sends, and remembers of every record when it was sent and what became of it."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        *,
        partition_count: int,
        value_bytes: int,
        in_flight_max: int,
    ) -> None:
        self.sent_ns: array[int] = array("q")
        """By number of the record; times are those of `time.monotonic_ns`."""
        self.done_ns: array[int] = array("q")
        """When it was acknowledged; 0 if it is not."""
        self.offsets: array[int] = array("q")
        """Where; or NOT_ANSWERED, or FAILED."""
        self.failures: Counter[str] = Counter()
        self.awaited: set[int] = set()
        """Partitions that have yet to take a record sent since `await_all_partitions`."""
        self._awaited_from = 0
        self._producer = producer
        self._topic = topic
        self._partition_count = partition_count
        self._value_bytes = value_bytes
        self._in_flight_max = in_flight_max
        self._in_flight = 0

    def run(self, is_over: Callable[[], bool]) -> None:
        """Send until it is over. What is under way then is left to `finish`."""
        while not is_over():
            while self._in_flight < self._in_flight_max:
                self._send()
            self._producer.poll(_POLL_S)

    def finish(self, within_s: float) -> None:
        """Wait for what is under way, for so long at most."""
        self._producer.flush(within_s)

    @property
    def has_answers(self) -> bool:
        return len(self.sent_ns) > self._in_flight

    def await_all_partitions(self) -> None:
        self._awaited_from = len(self.sent_ns)
        self.awaited = set(range(self._partition_count))

    def acknowledged_between(self, start_ns: int, end_ns: int) -> int:
        return sum(start_ns <= done < end_ns for done in self.done_ns)

    def _send(self) -> None:
        number = len(self.sent_ns)
        now_ns = time.monotonic_ns()
        self._producer.produce(
            self._topic,
            (b"%d %d " % (number, now_ns)).ljust(self._value_bytes, b"."),
            partition=number % self._partition_count,
            on_delivery=partial(self._on_delivery, number),
        )
        self._in_flight += 1
        self.sent_ns.append(now_ns)
        self.done_ns.append(0)
        self.offsets.append(NOT_ANSWERED)

    def _on_delivery(self, number: int, error: KafkaError | None, message: Message) -> None:
        self._in_flight -= 1
        if error is not None:
            self.failures[kafka_name(error)] += 1
            self.offsets[number] = FAILED
            return
        self.done_ns[number] = time.monotonic_ns()
        offset = message.offset()
        # With acks=0 nobody knows where it is.
        self.offsets[number] = 0 if offset is None or offset < 0 else offset
        if self.awaited and number >= self._awaited_from:
            self.awaited.discard(number % self._partition_count)
