"""The loop of `tidelog produce`: take what is at hand, wait if a rate was asked for, send, count.

Records come in groups of those that are at hand together, and are sent as such, because a ledger is
written for each group (L1). None waits for others: a group that a rate holds back is sent in parts.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.cli.progress import Progress
from tidelog.client.errors import ClientError
from tidelog.client.outgoing_record import OutgoingRecord
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

    def count_due(self, now_s: float, count_max: int) -> int:
        """How many of the next records may go now, at least one; they are counted."""
        early = self.seconds_ahead(now_s) - _PACE_SLACK_S
        due = max(1, min(count_max, int(-early / self._interval_s) + 1))
        self._count += due
        return due


def send_all(
    producer: RecordProducer,
    groups: Iterable[Sequence[OutgoingRecord]],
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
        for group in groups:
            for part in [group] if pacer is None else _paced(producer, pacer, group):
                producer.send(part, partition=partition)
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


def _paced(
    producer: RecordProducer, pacer: Pacer, group: Sequence[OutgoingRecord]
) -> Iterator[Sequence[OutgoingRecord]]:
    start = 0
    while start < len(group):
        while (ahead_s := pacer.seconds_ahead(time.monotonic())) > _PACE_SLACK_S:
            producer.poll()
            time.sleep(min(ahead_s, _LONGEST_SLEEP_S))
        end = start + pacer.count_due(time.monotonic(), len(group) - start)
        yield group[start:end]
        start = end


def _wait_for_acknowledgements(producer: RecordProducer, progress: Progress) -> int:
    """How many records are neither acknowledged nor failed when time is up."""
    give_up_at = time.monotonic() + _FLUSH_WITHIN_S
    while producer.flush(timeout_s=_FLUSH_STEP_S) > 0 and time.monotonic() < give_up_at:
        progress.update(producer)
    progress.finish(producer)
    return producer.in_flight
