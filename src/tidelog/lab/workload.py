"""Producers that remember what was acknowledged, and consumers that remember what they read.

What they remember is judged by `verdict.py` against what the log holds in the end. Producers also
keep a ledger each, in a file, for `tidelog pipeline verify` to judge by (X5).

Producers try again for as long as the workload lasts: whatever becomes of the brokers, a record
that is not acknowledged in the end is a failure. How careful they are is for whoever starts them to
say (`Care`): with acks=all and idempotence nothing may be lost or doubled, with less it may.

Each producer writes to one partition. When a leader changes, librdkafka may send a batch before the
one in front of it, is told OUT_OF_ORDER_SEQUENCE_NUMBER, and begins another producer epoch, in
which it sends everything again that is not acknowledged. In that partition nothing of it is there;
in others it may be, and no broker can know it for a repetition.
"""

import threading
import time
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tidelog.client.ledger import SUFFIX, LedgerEntry, LedgerWriter, record_checksum
from tidelog.client.record_fields import DEFAULT_ID_FIELD
from tidelog.lab.record_names import UNKNOWN_RECORD, identify_record, record_value
from tidelog.lab.verdict import NOT_ACKNOWLEDGED

# A producer sends a record, and rests for so long.
_REST_S: Final = 0.04
# Of each producer, while nobody leads.
_UNACKNOWLEDGED_MAX: Final = 1_000
_CONSUMED_AT_ONCE: Final = 500
_CONSUME_WAIT_S: Final = 0.1
# Shorter pauses between acknowledgements are nothing to speak of.
GAP_S: Final = 0.1

# A client that finds its broker dead should find the next one soon; a paused one says nothing, and
# is given up after the time-out.
_CLIENT: Final[Mapping[str, str | int | bool]] = {
    "socket.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 1_500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
# A record has all of the time that faults may take.
_DELIVERY_TIMEOUT_MS: Final = 600_000
# What a consumer is told when a record that it has read, or stood before, is gone.
_TAKEN_BACK: Final = frozenset({"_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE"})


class Care(NamedTuple):
    """What producers ask of brokers for each record."""

    acks: str
    is_idempotent: bool


CAREFUL: Final = Care("all", is_idempotent=True)


class Gap(NamedTuple):
    """Nothing was acknowledged in one partition for a while; times of `time.monotonic`."""

    partition: int
    began_at: float
    ended_at: float

    @property
    def length_s(self) -> float:
        return self.ended_at - self.began_at


class Acknowledgements:
    """How many there were, and for how long there were none."""

    def __init__(self, partition_count: int) -> None:
        self.count = 0
        self.gaps: list[Gap] = []
        self._last_at = [time.monotonic()] * partition_count
        self._lock = threading.Lock()

    def add(self, partition: int) -> None:
        """Called on the threads of all producers."""
        now = time.monotonic()
        with self._lock:
            before, self._last_at[partition] = self._last_at[partition], now
            self.count += 1
            if now - before >= GAP_S:
                self.gaps.append(Gap(partition, before, now))


class LedgerProducer:
    """Sends records to one partition until it is stopped."""

    def __init__(
        self,
        number: int,
        bootstrap: str,
        topic: str,
        partition: int,
        acknowledgements: Acknowledgements,
        ledger: LedgerWriter,
        care: Care,
    ) -> None:
        self.number = number
        self.partition = partition
        self.failures: Counter[str] = Counter()
        self.broken: str | None = None
        """Why its client could not go on, if it could not."""
        self.offsets: array[int] = array("q")
        """By number: the offset that was acknowledged, or NOT_ACKNOWLEDGED."""
        self._topic = topic
        self._acknowledgements = acknowledgements
        self._ledger = ledger
        self._producer = Producer(
            {
                **_CLIENT,
                "bootstrap.servers": bootstrap,
                "acks": care.acks,
                "enable.idempotence": care.is_idempotent,
                "linger.ms": 5,
                "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "queue.buffering.max.messages": _UNACKNOWLEDGED_MAX,
            }
        )

    def run(self, stopping: threading.Event) -> None:
        try:
            while not stopping.is_set():
                self._send()
                self._producer.poll(0)
                stopping.wait(_REST_S)
        except KafkaException as error:
            self._give_up(error)

    def flush(self, within_s: float) -> int:
        """How many records are not acknowledged when all are, or when time is up."""
        try:
            self._producer.flush(within_s)
        except KafkaException as error:
            self._give_up(error)
        except SystemError:
            # What confluent-kafka 2.16 raises now and then in place of the above.
            self.broken = "it did not say why"
        self._ledger.flush()
        return len(self._producer)

    def _give_up(self, error: KafkaException) -> None:
        """A client that cannot go on, such as one whose records are gone, says so at each call."""
        reason: KafkaError = error.args[0]
        self.broken = f"{reason.name()}, {reason.str()}"

    def _send(self) -> None:
        number = len(self.offsets)
        value = record_value(self.number, self.partition, number)
        record_id = b"%d-%d" % (self.number, number)
        headers: list[tuple[str, bytes | None]] = [(DEFAULT_ID_FIELD.name, record_id)]
        checksum = record_checksum(key=None, value=value, headers=headers)
        entry = self._ledger.sent(self._topic, record_id, checksum)
        try:
            self._producer.produce(
                self._topic,
                value,
                partition=self.partition,
                headers=[*headers],
                on_delivery=partial(self._on_delivery, number, entry),
            )
        except BufferError:
            return  # It is this one's turn again after the rest.
        self.offsets.append(NOT_ACKNOWLEDGED)

    def _on_delivery(
        self, number: int, entry: LedgerEntry, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self.failures[error.name()] += 1
            self._ledger.failed(entry, error.name())
            return
        offset = message.offset()
        assert offset is not None
        self._ledger.acknowledged(entry, partition=self.partition, offset=offset)
        self.offsets[number] = offset
        self._acknowledgements.add(self.partition)


class WatchfulConsumer:
    """Reads all partitions from their start, and remembers every record in its place."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int) -> None:
        self.records: list[array[int]] = [array("q") for _ in range(partition_count)]
        """By partition and offset: the record that was read there."""
        self.anomalies: list[str] = []
        self._consumer = Consumer(
            {
                **_CLIENT,
                "bootstrap.servers": bootstrap,
                "group.id": "faults",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 200,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partition_count)])

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            for message in self._consumer.consume(_CONSUMED_AT_ONCE, _CONSUME_WAIT_S):
                self._on_message(message)
        self._consumer.close()

    def has_reached(self, end_offsets: Sequence[int]) -> bool:
        positions = map(len, self.records)
        return all(at >= end for at, end in zip(positions, end_offsets, strict=True))

    def _on_message(self, message: Message) -> None:
        error = message.error()
        partition = message.partition()
        if error is not None:
            if error.name() in _TAKEN_BACK:
                self.anomalies.append(f"partition {partition}: {error.name()} {error.str()}")
            return
        offset = message.offset()
        assert partition is not None
        assert offset is not None
        records = self.records[partition]
        if offset != len(records):
            self.anomalies.append(
                f"partition {partition}: offset {offset} was read where {len(records)} was next"
            )
        if offset >= len(records):
            records.extend([UNKNOWN_RECORD] * (offset - len(records)))
            records.append(identify_record(message.value(), partition))


class Workload:
    """Producers and consumers of one topic, each on a thread of its own."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partition_count: int,
        producers_per_partition: int,
        consumers: int,
        ledger_folder: Path,
        care: Care,
    ) -> None:
        """`ledger_folder` gets a file of each producer; it may be there already."""
        ledger_folder.mkdir(exist_ok=True)
        self.acknowledgements = Acknowledgements(partition_count)
        self.producers = [
            LedgerProducer(
                number,
                bootstrap,
                topic,
                number % partition_count,
                self.acknowledgements,
                LedgerWriter(ledger_folder / f"{number}{SUFFIX}", producer=str(number)),
                care,
            )
            for number in range(producers_per_partition * partition_count)
        ]
        self.consumers = [
            WatchfulConsumer(bootstrap, topic, partition_count) for _ in range(consumers)
        ]
        self._producing_ends = threading.Event()
        self._consuming_ends = threading.Event()
        # Daemons: a client that hangs must not keep the process from ending.
        self._producing = [
            threading.Thread(target=each.run, args=(self._producing_ends,), daemon=True)
            for each in self.producers
        ]
        self._consuming = [
            threading.Thread(target=each.run, args=(self._consuming_ends,), daemon=True)
            for each in self.consumers
        ]

    def start(self) -> None:
        for thread in (*self._producing, *self._consuming):
            thread.start()

    def stop_producing(self, *, within_s: float) -> int:
        """Send no more; how many records are not acknowledged within that time."""
        self._producing_ends.set()
        for thread in self._producing:
            thread.join()
        give_up_at = time.monotonic() + within_s
        return sum(
            producer.flush(max(give_up_at - time.monotonic(), 0)) for producer in self.producers
        )

    def stop_consuming(self) -> None:
        self._consuming_ends.set()
        for thread in self._consuming:
            thread.join()

    def acknowledged_offsets(self, partition: int) -> dict[int, Sequence[int]]:
        """By producer: the offsets of its records there, in the order in which it sent them."""
        return {
            producer.number: producer.offsets
            for producer in self.producers
            if producer.partition == partition
        }

    @property
    def sent_count(self) -> int:
        return sum(len(producer.offsets) for producer in self.producers)

    @property
    def failures(self) -> Counter[str]:
        """Records that a producer has given up, by why."""
        return sum((producer.failures for producer in self.producers), Counter())
