"""The loop of `tidelog produce`: take a record, wait if a rate was asked for, send, count."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.cli.progress import Progress
from tidelog.cli.record_json import OutgoingRecord
from tidelog.client.errors import ClientError
from tidelog.client.producer import DELIVERY_TIMEOUT_MS, RecordProducer

# Every record has been acknowledged or given up by then.
_FLUSH_WITHIN_S: Final = DELIVERY_TIMEOUT_MS / 1000 + 5
_FLUSH_STEP_S: Final = 0.1
# Ahead of the wanted rate by less than this is not worth a sleep.
_PACE_SLACK_S: Final = 0.001
_LONGEST_SLEEP_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the records. `input_error` is a line that could not be read as one."""

    acknowledged: int
    acknowledged_bytes: int
    failed: int
    first_error: ClientError | None
    seconds: float
    was_interrupted: bool
    input_error: ConfigError | None


class Pacer:
    """Keeps a loop from going faster than `records_per_s`, on average since its first record."""

    def __init__(self, records_per_s: float) -> None:
        self._interval_s = 1 / records_per_s
        self._started: float | None = None
        self._count = 0

    def seconds_ahead(self, now_s: float) -> float:
        """How long the next record has to wait; 0 or less means not at all."""
        if self._started is None:
            self._started = now_s
        return self._started + self._count * self._interval_s - now_s

    def count_one(self) -> None:
        self._count += 1


def send_all(
    producer: RecordProducer,
    records: Iterable[OutgoingRecord],
    *,
    partition: int,
    pacer: Pacer | None,
    progress: Progress,
) -> Outcome:
    """Send every record and wait for its acknowledgement.

    Ctrl-C, and input that is no record, end the reading but not the waiting.
    """
    started = time.monotonic()
    was_interrupted = False
    input_error: ConfigError | None = None
    try:
        for record in records:
            if pacer is not None:
                _keep_pace(producer, pacer)
            producer.send(
                key=record.key,
                value=record.value,
                headers=record.headers,
                partition=partition,
                timestamp_ms=record.timestamp_ms or 0,
            )
            progress.update(producer)
    except KeyboardInterrupt:
        was_interrupted = True
    except ConfigError as error:
        input_error = error
    unknown = _wait_for_acknowledgements(producer, progress)
    seconds = max(time.monotonic() - started, 0.001)
    failed = producer.failed + unknown
    acknowledged = producer.sent - failed
    return Outcome(
        acknowledged=acknowledged,
        acknowledged_bytes=producer.sent_bytes * acknowledged // max(producer.sent, 1),
        failed=failed,
        first_error=producer.first_error,
        seconds=seconds,
        was_interrupted=was_interrupted,
        input_error=input_error,
    )


def _keep_pace(producer: RecordProducer, pacer: Pacer) -> None:
    while (ahead_s := pacer.seconds_ahead(time.monotonic())) > _PACE_SLACK_S:
        producer.poll()
        time.sleep(min(ahead_s, _LONGEST_SLEEP_S))
    pacer.count_one()


def _wait_for_acknowledgements(producer: RecordProducer, progress: Progress) -> int:
    """How many records are neither acknowledged nor failed when time is up."""
    give_up_at = time.monotonic() + _FLUSH_WITHIN_S
    while producer.flush(timeout_s=_FLUSH_STEP_S) > 0 and time.monotonic() < give_up_at:
        progress.update(producer)
    progress.finish(producer)
    return producer.in_flight
