"""Send records and know what became of each, over confluent-kafka's Producer.

A record is either acknowledged or counted as failed; `sent == acknowledged + failed` once `flush`
has returned with nothing in flight. Memory is bounded: `send` waits while QUEUE_KBYTES_MAX of
records are unacknowledged.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelog.client.bootstrap import require_reachable
from tidelog.client.errors import ClientError, RequestFailed
from tidelog.client.ledger import LedgerEntry
from tidelog.client.noted_records import NotedRecords
from tidelog.client.outgoing_record import Headers, OutgoingRecord
from tidelog.client.translation import failure, translated

QUEUE_KBYTES_MAX: Final = 64 * 1024
QUEUE_RECORDS_MAX: Final = 500_000
# How long a record may try to be delivered before it counts as failed.
DELIVERY_TIMEOUT_MS: Final = 30_000
CONNECT_TIMEOUT_S: Final = 10.0
ANY_PARTITION: Final = -1
# Noted in one write, and handed over then.
NOTED_TOGETHER_MAX: Final = 500
# Above any broker's message.max.bytes, so that it is the broker that refuses.
_RECORD_BYTES_MAX: Final = 100_000_000
_QUEUE_FULL_WAIT_S: Final = 0.05
_TOPIC_POLL_INTERVAL_S: Final = 0.02
_ILLEGAL_NAME: Final = "TOPIC_EXCEPTION"
_NOT_YET: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE", "_UNKNOWN_TOPIC"})

OnDelivery = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings a sender chooses, under librdkafka's and Kafka's names."""

    acks: str = "all"
    compression_type: str = "none"
    linger_ms: int = 5


class RecordProducer:
    """Sends to one topic. With acks=all it is idempotent: a retry leaves no second copy (D2)."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        config: ProducerConfig,
        noted: NotedRecords | None = None,
    ) -> None:
        """Raises ClusterUnreachable at once if nobody listens at `bootstrap`.

        `noted` keeps a ledger of what becomes of each record.
        """
        require_reachable(bootstrap, timeout_s=CONNECT_TIMEOUT_S)
        self._bootstrap = bootstrap
        self._topic = topic
        self._noted = noted
        self._first_error: KafkaError | None = None
        self.sent = 0
        self.sent_bytes = 0
        self.failed = 0
        with translated(bootstrap):
            self._producer = Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "acks": config.acks,
                    "compression.type": config.compression_type,
                    "linger.ms": config.linger_ms,
                    "enable.idempotence": config.acks in {"all", "-1"},
                    # Keys land where the Java client would put them.
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                    "message.max.bytes": _RECORD_BYTES_MAX,
                    "queue.buffering.max.kbytes": QUEUE_KBYTES_MAX,
                    "queue.buffering.max.messages": QUEUE_RECORDS_MAX,
                    # A call per acknowledged record would cost more than sending it.
                    "delivery.report.only.error": noted is None,
                    "on_delivery": self._on_delivery,
                    "log_level": 0,
                }
            )

    @property
    def in_flight(self) -> int:
        """Records sent and neither acknowledged nor failed, as far as has been heard."""
        return len(self._producer)

    @property
    def acknowledged(self) -> int:
        return self.sent - self.failed - self.in_flight

    @property
    def first_error(self) -> ClientError | None:
        """Why the first of the failed records failed."""
        if self._first_error is None:
            return None
        return failure(self._first_error, self._bootstrap)

    def partition_count(self, *, timeout_s: float) -> int:
        """How many partitions the topic has; 0 if there is no such topic.

        Asking creates it where `auto.create.topics.enable` says so, which is why a topic that
        is not there is asked for again until `timeout_s` is over.
        """
        give_up_at = time.monotonic() + timeout_s
        while True:
            with translated(self._bootstrap):
                topic = self._producer.list_topics(self._topic, timeout=timeout_s)
            found = topic.topics[self._topic]
            if found.error is None:
                return len(found.partitions)
            if found.error.name() == _ILLEGAL_NAME:
                raise RequestFailed(_ILLEGAL_NAME, f"'{self._topic}' is no name for a topic")
            if found.error.name() not in _NOT_YET:
                raise failure(found.error, self._bootstrap)
            if time.monotonic() >= give_up_at:
                return 0
            time.sleep(_TOPIC_POLL_INTERVAL_S)

    def send(self, records: Sequence[OutgoingRecord], *, partition: int = ANY_PARTITION) -> None:
        """Hand over records that are at hand together; waits while the queue is full.

        With a ledger, ConfigError for a record without an id; those before it are sent.
        """
        if self._noted is None:
            for record in records:
                self._send(record, record.headers, partition, None)
        else:
            self._send_noted(self._noted, records, partition)
        self.poll()

    def poll(self) -> None:
        """Hear of what became of records."""
        self._producer.poll(0)

    def flush(self, *, timeout_s: float) -> int:
        """Wait until everything is acknowledged or failed; how many are still in flight."""
        with translated(self._bootstrap):
            in_flight = self._producer.flush(timeout_s)
        if self._noted is not None:
            self._noted.flush()
        return in_flight

    def _send_noted(
        self, noted: NotedRecords, records: Sequence[OutgoingRecord], partition: int
    ) -> None:
        start = 0
        while start < len(records):
            together = records[start : start + NOTED_TOGETHER_MAX]
            # All of them are in the file before the first is handed over.
            entries = noted.note(together)
            for record, (headers, entry) in zip(together, entries, strict=False):
                on_delivery = partial(self._on_noted_delivery, noted, entry)
                self._send(record, headers, partition, on_delivery)
            start += len(entries)
            self.poll()

    def _send(
        self,
        record: OutgoingRecord,
        headers: Headers,
        partition: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        while not self._try_send(record, headers, partition, on_delivery):
            self._producer.poll(_QUEUE_FULL_WAIT_S)
        self.sent += 1
        self.sent_bytes += len(record.key or b"") + len(record.value or b"")

    def _try_send(
        self,
        record: OutgoingRecord,
        headers: Headers,
        partition: int,
        on_delivery: OnDelivery | None,
    ) -> bool:
        try:
            self._producer.produce(
                self._topic,
                value=record.value,
                key=record.key,
                partition=partition,
                headers=list(headers) or None,
                # None, and 0, mean now.
                timestamp=record.timestamp_ms or 0,
                on_delivery=on_delivery,
            )
        except BufferError:
            return False
        except KafkaException as exception:
            raise failure(exception.args[0], self._bootstrap) from exception
        return True

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            return
        self.failed += 1
        if self._first_error is None:
            self._first_error = error

    def _on_noted_delivery(
        self, noted: NotedRecords, entry: LedgerEntry, error: KafkaError | None, message: Message
    ) -> None:
        if error is not None:
            self._on_delivery(error, message)
            noted.failed(entry, error.name())
            return
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None:
            noted.acknowledged(entry, partition=partition, offset=offset)
