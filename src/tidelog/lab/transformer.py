"""The application of `tidelog lab exactly-once`: consume, transform, produce, in transactions.

    python -m tidelog.lab.transformer BOOTSTRAP GROUP INPUT OUTPUT NAME PROTOCOL

A batch of records becomes as many records of the same partition of OUTPUT, and that they were read
is part of the same transaction. NAME is its transactional id: whoever starts it again is its
successor, and what it had not committed is aborted.

What it does about an error is what librdkafka says of it: try again, abort and read again from what
was committed, or give up. It ends with GAVE_UP then, and whoever started it starts another one. It
also gives up when a call does not come back: librdkafka waits for ever for a group coordinator that
was left out of the list of brokers between two transactions, Kafka's and ours (docs/delivery.md).

It ends when its standard input does, so that it does not outlive whoever started it. A signal of
SIGNALS makes it kill itself when it next gets to that point, where a kill at random seldom hits.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tidelog.lab.points import SIGNALS, Point

GAVE_UP: Final = 3
PREFIX: Final = b"seen "
_BATCH_RECORDS: Final = 25
_BATCH_WAIT_S: Final = 0.2
_CALL_TIMEOUT_S: Final = 30.0
# Longer than a call may take and than anybody is paused for.
_HANGS_AFTER_S: Final = 45.0
_TRANSACTION_TIMEOUT_MS: Final = 10_000
# The shortest that brokers allow unless they are told otherwise.
_SESSION_TIMEOUT_MS: Final = 6_000
_HEARTBEAT_MS: Final = 1_000

_CLIENT: Final = {
    "socket.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 1_500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


class Transformer:
    """One consumer and one transactional producer."""

    def __init__(
        self, *, bootstrap: str, group: str, output: str, name: str, protocol: str
    ) -> None:
        self._output = output
        self._last_point: Point | None = None
        self.stepped_at = time.monotonic()
        session = {
            "session.timeout.ms": _SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
        }
        self.consumer = Consumer(
            {
                **_CLIENT,
                # With the newer protocol it is the broker that says how long a session is.
                **(session if protocol == "classic" else {}),
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer(
            {
                **_CLIENT,
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
            }
        )

    def start(self, topic: str) -> None:
        """Fence whoever had this name before, and join the group."""
        _insist(lambda: self._producer.init_transactions(_CALL_TIMEOUT_S))
        self.consumer.subscribe([topic])

    def step(self) -> None:
        """One transaction, or nothing if there is nothing to read."""
        self.stepped_at = time.monotonic()
        found = self.consumer.consume(_BATCH_RECORDS, _BATCH_WAIT_S)
        for message in found:
            if (error := message.error()) is not None:
                _say(f"consumer: {error}")
        batch = [message for message in found if message.error() is None]
        if not batch:
            return
        try:
            self._transact(batch)
        except KafkaException as exception:
            error = exception.args[0]
            if not error.txn_requires_abort():
                raise
            _say(f"abort: {error}")
            _insist(lambda: self._producer.abort_transaction(_CALL_TIMEOUT_S))
            self._rewind()

    def close(self) -> None:
        self.consumer.close()

    def doom(self, point: Point) -> None:
        """Get as far as that, and no farther."""
        self._last_point = point

    def _transact(self, batch: Sequence[Message]) -> None:
        self._producer.begin_transaction()
        for message in batch:
            partition = message.partition()
            assert partition is not None
            value = PREFIX + (message.value() or b"")
            self._producer.produce(self._output, value, partition=partition)
        read = _after(batch)
        metadata = self.consumer.consumer_group_metadata()
        _insist(lambda: self._producer.send_offsets_to_transaction(read, metadata, _CALL_TIMEOUT_S))
        self._reach(Point.BEFORE_COMMIT)
        _insist(lambda: self._producer.commit_transaction(_CALL_TIMEOUT_S))
        self._reach(Point.AFTER_COMMIT)

    def _reach(self, point: Point) -> None:
        if self._last_point is point:
            self._producer.flush(_CALL_TIMEOUT_S)  # So that there is something to be aborted.
            os.kill(os.getpid(), signal.SIGKILL)

    def _rewind(self) -> None:
        """Read again from what was committed, all that is ours to read."""
        assigned = self.consumer.assignment()
        if not assigned:
            return
        committed: list[TopicPartition] = []
        _insist(lambda: committed.extend(self.consumer.committed(assigned, _CALL_TIMEOUT_S)))
        for each in committed:
            if each.offset < 0:
                each.offset = OFFSET_BEGINNING
            try:
                self.consumer.seek(each)
            except KafkaException as exception:
                # Taken away from us meanwhile: whoever has it now begins where it should.
                _say(f"seek: {exception}")


def _after(batch: Sequence[Message]) -> list[TopicPartition]:
    """The offset behind the last record of each partition."""
    ends: dict[tuple[str, int], int] = {}
    for message in batch:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        ends[topic, partition] = offset + 1
    return [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]


def _insist(call: Callable[[], object]) -> None:
    """Until it works, or fails in a way that trying again does not mend."""
    while True:
        try:
            call()
            return
        except KafkaException as exception:
            error = exception.args[0]
            assert isinstance(error, KafkaError)
            if error.txn_requires_abort() or not error.retriable():
                raise
            _say(f"again: {error}")


def _doom(transformer: Transformer, point: Point, _number: int, _frame: object) -> None:
    transformer.doom(point)


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")
    sys.stderr.flush()


def _give_up_when_it_hangs(transformer: Transformer) -> None:
    while (left_s := transformer.stepped_at + _HANGS_AFTER_S - time.monotonic()) > 0:
        time.sleep(left_s)
    _say("gave up: a call did not come back")
    os._exit(GAVE_UP)


def _end_with_standard_input() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)


def main(arguments: Sequence[str]) -> int:
    """Transform until a signal says that it is enough."""
    bootstrap, group, topic, output, name, protocol = arguments
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: ending.set())
    transformer = Transformer(
        bootstrap=bootstrap, group=group, output=output, name=name, protocol=protocol
    )
    for point, number in SIGNALS.items():
        signal.signal(number, partial(_doom, transformer, point))
    threading.Thread(target=_give_up_when_it_hangs, args=(transformer,), daemon=True).start()
    try:
        transformer.start(topic)
        while not ending.is_set():
            transformer.step()
        transformer.close()
    except KafkaException as exception:
        _say(f"gave up: {exception}")
        os._exit(GAVE_UP)  # Without a farewell to brokers that may not answer.
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
