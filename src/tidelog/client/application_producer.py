"""A producer for applications: sync or async, as the original producer was (P2).

    sync     send() returns `Stored` when the record is stored, and raises ClientError if it is not
    async    send() returns `Queued`, or `Dropped` if the queue is full and it may not wait

Every record that was handed over is accounted for:

    I1  queued == acknowledged + failed + in_flight, and what was dropped was never queued.
    I2  Nothing fails in silence: a failed record is raised by send (sync), told to `on_delivery`,
        or, where there is nobody to tell, raised by the next `flush` or `close` (async).

    I3  Nobody waits for what cannot come: not for room that a record is too large for, nor in a
        process that was forked off and has none of librdkafka's threads.

`on_delivery` is called by the thread that is in send, poll, flush or close, and by no other; never
by librdkafka itself, whose queue has room only when its own call is over, so it may call send. What
it raises comes out of that call: out of send before its record is taken over, out of flush and
close when all others have been told.
librdkafka sends on threads of its own, so a record does not wait for any of these calls.

Not here: transactions and consumers. They are confluent-kafka's, unchanged; see docs/delivery.md.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from tidelog.base.errors import ConfigError
from tidelog.client.bootstrap import DEFAULT_BOOTSTRAP, require_reachable
from tidelog.client.errors import ClientError, RequestFailed
from tidelog.client.producer_settings import (
    DROP_AT_ONCE,
    WAIT_FOR_EVER,
    ProducerSettings,
    Value,
)
from tidelog.client.translation import failure, translated

CONNECT_TIMEOUT_S: Final = 10.0
ANY_PARTITION: Final = -1
# The longest time without a look at the clock while the queue is full or a record is awaited.
_POLL_MAX_S: Final = 0.05
# Reports that pile up take the place of records in the queue.
_SENDS_BETWEEN_POLLS: Final = 100
_TIMED_OUT: Final = "_MSG_TIMED_OUT"
_QUEUE_FULL: Final = "_QUEUE_FULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a record is. With acks=0 nobody says, and the offset is None."""

    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class Queued:
    """The record waits to be sent; `on_delivery` will say what became of it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The queue was full for queue.enqueue.timeout.ms; the record is gone, and counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A record that was queued and will not be stored, as far as anybody knows."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    error: ClientError


OnDelivery = Callable[[Stored | Failed], None]
Headers = Sequence[tuple[str, bytes | None]]


class DeliveryFailed(ClientError):
    """Records that were queued were not stored, and no `on_delivery` was there to hear of it."""

    def __init__(self, count: int, first: ClientError | None) -> None:
        super().__init__(f"{count} records were not stored; the first because {first}")
        self.count = count
        self.first = first


class Producer:
    """Sends records to any topic. Use it as a context manager, or call `close`."""

    def __init__(
        self,
        bootstrap: str = DEFAULT_BOOTSTRAP,
        *,
        producer_type: str = "sync",
        profile: str | None = None,
        acks: str | int = "all",
        enable_idempotence: bool | None = None,
        compression_type: str = "none",
        delivery_timeout_ms: int = 120_000,
        queue_buffering_max_ms: int = 5_000,
        queue_buffering_max_messages: int = 10_000,
        queue_enqueue_timeout_ms: int = WAIT_FOR_EVER,
        batch_num_messages: int = 200,
        on_delivery: OnDelivery | None = None,
        settings: Mapping[str, Value] | None = None,
    ) -> None:
        """Raises ConfigError for settings that make no sense, ClusterUnreachable if nobody listens.

        `settings` are any others of librdkafka's, say `security.protocol`, by their own names.
        """
        self.settings = ProducerSettings(
            bootstrap=bootstrap,
            producer_type=producer_type,
            profile=profile,
            acks=str(acks),
            enable_idempotence=enable_idempotence,
            compression_type=compression_type,
            delivery_timeout_ms=delivery_timeout_ms,
            queue_buffering_max_ms=queue_buffering_max_ms,
            queue_buffering_max_messages=queue_buffering_max_messages,
            queue_enqueue_timeout_ms=queue_enqueue_timeout_ms,
            batch_num_messages=batch_num_messages,
            others=settings,
        )
        self._on_delivery = on_delivery
        self._counts = threading.Lock()
        # In sync mode: one record at a time, whichever thread it comes from. `on_delivery` is
        # called by the one whose turn it is, and may send another.
        self._one_at_a_time = threading.RLock()
        self._process_id = os.getpid()
        # What `on_delivery` has yet to be told, and which threads are telling it.
        self._reports: deque[Stored | Failed] = deque()
        self._telling: set[int] = set()
        self._queued = 0
        self._failed = 0
        self._dropped = 0
        self._untold = 0
        self._first_untold: ClientError | None = None
        self._is_closed = False
        self._producer = self._connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        assert error is not None
        try:
            self.close()
        except Exception as trouble:  # noqa: BLE001 - the caller has to hear of the block's error
            error.add_note(f"The producer was closed, and then: {trouble}")

    @property
    def queued(self) -> int:
        """Records taken over so far; in sync mode, those that were sent."""
        return self._queued

    @property
    def acknowledged(self) -> int:
        return self._queued - self._failed - self.in_flight

    @property
    def failed(self) -> int:
        return self._failed

    @property
    def dropped(self) -> int:
        """Records that found the queue full and were not taken over."""
        return self._dropped

    @property
    def in_flight(self) -> int:
        """Records taken over of which nothing has been heard."""
        return len(self._producer)

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = ANY_PARTITION,
        timestamp_ms: int = 0,
    ) -> Stored | Queued | Dropped:
        """Send one record as `producer_type` says. No timestamp (0) means now.

        In sync mode raises ClientError if the record is not stored within delivery.timeout.ms.
        """
        if self._is_closed:
            raise ClientError("the producer is closed")
        self._require_own_process()
        record = _Record(topic, value, key, headers, partition, timestamp_ms)
        if self.settings.is_sync:
            with self._one_at_a_time:
                return self._send_and_wait(record)
        return self._enqueue(record)

    def poll(self) -> None:
        """Hear of deliveries now rather than in the next `send`."""
        self._require_own_process()
        self._poll(0)

    def flush(self, *, timeout_s: float | None = None) -> int:
        """Send what is queued at once and wait; how many are still in flight.

        None waits until every record is stored or failed. Raises DeliveryFailed for I2.
        """
        self._require_own_process()
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        raised: Exception | None = None
        while True:  # Ends: librdkafka reports within delivery.timeout.ms.
            left_s = _POLL_MAX_S if give_up_at is None else give_up_at - time.monotonic()
            with translated(self.settings.bootstrap):
                left = self._producer.flush(max(min(left_s, _POLL_MAX_S), 0))
            while self._reports and not self._is_telling:
                try:
                    self._tell()
                except Exception as error:  # noqa: BLE001 - the others are told first
                    raised = raised or error
            if not left or left_s <= 0:
                break
        if raised is not None:
            raise raised
        with self._counts:
            count, first = self._untold, self._first_untold
            self._untold, self._first_untold = 0, None
        if count:
            raise DeliveryFailed(count, first)
        return left

    def close(self) -> None:
        """`flush`, and take no more records. Again, it waits for what it was kept from waiting for.

        In a process that was forked off it is over at once: the records are those of the other.
        """
        self._is_closed = True
        if os.getpid() == self._process_id:
            self.flush()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process_id:
            raise ClientError(
                f"the producer is that of process {self._process_id}, from which this one was "
                "forked: make another one here"
            )  # I3

    def _connected(self) -> KafkaProducer:
        require_reachable(self.settings.bootstrap, timeout_s=CONNECT_TIMEOUT_S)
        told = self.settings.for_librdkafka()
        # Without somebody to tell, a call per acknowledged record would cost more than sending it.
        told["delivery.report.only.error"] = not self.settings.is_sync and not self._on_delivery
        try:
            return KafkaProducer(told)
        except KafkaException as exception:
            error = exception.args[0]
            assert isinstance(error, KafkaError)
            raise ConfigError(error.str()) from exception

    def _send_and_wait(self, record: "_Record") -> Stored:
        outcomes: list[Stored | Failed] = []
        while not self._try_enqueue(record, outcomes.append):
            self._poll(_POLL_MAX_S)  # One whose sender was interrupted is still there.
        while not outcomes:  # Ends: librdkafka reports within delivery.timeout.ms.
            self._poll(_POLL_MAX_S)
        outcome = outcomes[0]
        if self._on_delivery is not None:
            self._on_delivery(outcome)
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome

    def _enqueue(self, record: "_Record") -> Queued | Dropped:
        if self._queued % _SENDS_BETWEEN_POLLS == 0:
            self.poll()
        if self._try_enqueue(record, self._told) or self._enqueue_in_time(record):
            return Queued()
        with self._counts:
            self._dropped += 1
        return Dropped()

    def _enqueue_in_time(self, record: "_Record") -> bool:
        """The queue is full: wait for a place as long as queue.enqueue.timeout.ms allows."""
        timeout_ms = self.settings.queue_enqueue_timeout_ms
        give_up_at = time.monotonic() + timeout_ms / 1_000
        while True:
            left_s = give_up_at - time.monotonic()
            if timeout_ms == WAIT_FOR_EVER:
                self._poll(_POLL_MAX_S)
            else:
                self._poll(max(min(left_s, _POLL_MAX_S), 0))
            if self._try_enqueue(record, self._told):
                return True
            if timeout_ms == DROP_AT_ONCE or (timeout_ms > 0 and left_s <= 0):
                return False

    def _try_enqueue(self, record: "_Record", tell: OnDelivery) -> bool:
        def report(error: KafkaError | None, message: Message) -> None:
            tell(self._outcome(error, message))

        try:
            self._producer.produce(
                record.topic,
                value=record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers) or None,
                timestamp=record.timestamp_ms,
                on_delivery=report,
            )
        except BufferError:
            self._require_room_for(record)
            return False
        except KafkaException as exception:
            raise failure(exception.args[0], self.settings.bootstrap) from exception
        with self._counts:
            self._queued += 1
        return True

    def _require_room_for(self, record: "_Record") -> None:
        """Raises RequestFailed if no wait would make room. I3"""
        kbytes = (self.settings.others or {}).get("queue.buffering.max.kbytes")
        if kbytes is not None and len(record.value or b"") > int(kbytes) * 1024:
            raise RequestFailed(
                _QUEUE_FULL, "the record is larger than the queue (queue.buffering.max.kbytes)"
            )

    def _told(self, outcome: Stored | Failed) -> None:
        if self._on_delivery is not None:
            self._reports.append(outcome)
        elif isinstance(outcome, Failed):
            with self._counts:
                self._untold += 1
                self._first_untold = self._first_untold or outcome.error

    def _poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)
        if self._reports and not self._is_telling:
            self._tell()

    @property
    def _is_telling(self) -> bool:
        """Whether it is `on_delivery` that calls us: it is told the next one when it returns."""
        return threading.get_ident() in self._telling

    def _tell(self) -> None:
        assert self._on_delivery is not None
        thread = threading.get_ident()
        self._telling.add(thread)
        try:
            while self._reports:
                try:
                    outcome = self._reports.popleft()
                except IndexError:
                    return  # Another thread tells it.
                self._on_delivery(outcome)
        finally:
            self._telling.discard(thread)

    def _outcome(self, error: KafkaError | None, message: Message) -> Stored | Failed:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        if error is None:
            assert partition is not None
            stored_at = offset if offset is not None and offset >= 0 else None
            return Stored(topic=topic, partition=partition, offset=stored_at)
        with self._counts:
            self._failed += 1
        return Failed(
            topic=topic,
            partition=None if partition == ANY_PARTITION else partition,
            key=_as_bytes(message.key()),
            value=_as_bytes(message.value()),
            error=self._failure(error),
        )

    def _failure(self, error: KafkaError) -> ClientError:
        if error.name() != _TIMED_OUT:
            return failure(error, self.settings.bootstrap)
        return RequestFailed(
            _TIMED_OUT,
            f"it was not stored within delivery.timeout.ms ({self.settings.delivery_timeout_ms}): "
            "no leader answered, or its in-sync replicas were too few",
        )


@dataclass(frozen=True, slots=True)
class _Record:
    topic: str
    value: bytes | None
    key: bytes | None
    headers: Headers
    partition: int
    timestamp_ms: int


def _as_bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
