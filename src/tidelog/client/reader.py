"""Read given offset ranges of a topic, without a consumer group.

Partitions are assigned by hand with absolute offsets, nothing is committed and no position is
stored, so no group coordinator is needed. librdkafka insists on a `group.id` and looks for a
coordinator where the broker has such an API, but reads without waiting for one, and the name is
never registered anywhere.

    start_offset                          end_offset
        ├──────── records handed out ─────────┤      a range, read once: the partition is done
        ├──────── records handed out ────────────▶   no end: goes on until the caller stops

A range is done when an offset at or past its last one was seen, or when the partition has nothing
more. The second matters: the last offsets of a log may belong to control records, which are
never handed out. A reader that follows waits for an end that has not been written yet.

Retention may remove records before they are read. The reader goes on with what is left, and
tells `on_skipped` what it could not hand out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message, TopicPartition

from tidelog.client.message_source import UNREACHABLE_AFTER_S, MessageSource, Settings
from tidelog.client.translation import failure, translated

# Without a larger queue librdkafka throttles itself at the speed of one core.
_QUEUED_RECORDS_MIN: Final = 500_000
# A second by default, in which a fast reader has long emptied the queue.
_FULL_QUEUE_WAIT_MS: Final = 10
_SHORT_READ_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Offsets `[start_offset, end_offset)`; without an end, everything from the start on."""

    start_offset: int
    end_offset: int | None

    @property
    def is_empty(self) -> bool:
        return self.end_offset is not None and self.start_offset >= self.end_offset


class FetchedRecord(NamedTuple):
    """A record as it came out of the log. Without a timestamp it was written without one.

    `headers` is None if one of them has a name that is not UTF-8: librdkafka's wrapper hands out
    none of them then.
    """

    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


class RangeReader:
    """Hands out the records of `ranges`, in order within each partition."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        ranges: Mapping[int, OffsetRange],
        *,
        is_following: bool,
        expected_records: int | None,
        on_skipped: Callable[[int, OffsetRange], None],
    ) -> None:
        """`expected_records` keeps a short read from fetching far more than it hands out.

        `on_skipped` gets partition and offsets of what was removed before it could be read.
        """
        self._bootstrap = bootstrap
        self._topic = topic
        self._ranges = {p: wanted for p, wanted in ranges.items() if not wanted.is_empty}
        self._next_offsets = {p: wanted.start_offset for p, wanted in self._ranges.items()}
        self._is_following = is_following
        self._on_skipped = on_skipped
        is_short = expected_records is not None and expected_records <= _SHORT_READ_RECORDS
        settings: Settings = {
            "group.id": "tidelog-reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "queued.min.messages": 1 if is_short else _QUEUED_RECORDS_MIN,
            "fetch.queue.backoff.ms": _FULL_QUEUE_WAIT_MS,
        }
        self._source = MessageSource(bootstrap, settings, is_following=is_following)
        self._consumer = self._source.consumer
        with translated(bootstrap):
            self._consumer.assign(
                [
                    TopicPartition(topic, partition, wanted.start_offset)
                    for partition, wanted in self._ranges.items()
                ]
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    @property
    def is_done(self) -> bool:
        """Whether every range was read to its end."""
        return not self._ranges

    def read(self, *, timeout_s: float) -> list[FetchedRecord]:
        """The next records, or none if none came within `timeout_s`.

        Raises ClusterUnreachable when there is no progress because no broker has been reachable
        for UNREACHABLE_AFTER_S. For who follows, waiting is the job.
        """
        messages = self._source.next_messages(timeout_s)
        records = [record for message in messages if (record := self._accept(message)) is not None]
        self._source.judge_progress(has_records=bool(records))
        return records

    def _accept(self, message: Message) -> FetchedRecord | None:
        error = message.error()
        partition = message.partition()
        if error is not None:
            self._on_message_error(error, partition, message.offset())
            return None
        offset = message.offset()
        assert partition is not None
        assert offset is not None
        wanted = self._ranges.get(partition)
        if wanted is None:
            return None  # Fetched ahead of what was asked for.
        self._next_offsets[partition] = offset + 1
        if wanted.end_offset is not None and offset >= wanted.end_offset - 1:
            self._finish(partition)
            if offset >= wanted.end_offset:
                return None
        return fetched_record(message, partition, offset)

    def _on_message_error(
        self, error: KafkaError, partition: int | None, offset: int | None
    ) -> None:
        if partition is None or partition < 0:
            # About the group, whose coordinator librdkafka looks for although nothing needs it.
            return
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._skip_removed(error, partition)
            return
        if error.code() != KafkaError._PARTITION_EOF:
            raise failure(error, self._bootstrap)
        wanted = self._ranges.get(partition)
        if wanted is None or wanted.end_offset is None:
            return
        if not self._is_following or (offset is not None and offset >= wanted.end_offset):
            self._finish(partition)

    def _skip_removed(self, error: KafkaError, partition: int) -> None:
        """Go on where the log now starts; it is another error if that is not behind us."""
        if partition not in self._ranges:
            return
        place = TopicPartition(self._topic, partition)
        with translated(self._bootstrap):
            log_start, _end = self._consumer.get_watermark_offsets(place, UNREACHABLE_AFTER_S)
            next_offset = self._next_offsets[partition]
            if log_start <= next_offset:
                raise failure(error, self._bootstrap)
            # Nothing is read of it any more, so there is nothing to seek in.
            self._consumer.incremental_unassign([place])
            self._consumer.incremental_assign([TopicPartition(self._topic, partition, log_start)])
        self._on_skipped(partition, OffsetRange(start_offset=next_offset, end_offset=log_start))
        self._next_offsets[partition] = log_start

    def _finish(self, partition: int) -> None:
        del self._ranges[partition]
        self._consumer.pause([TopicPartition(self._topic, partition)])


def fetched_record(message: Message, partition: int, offset: int) -> FetchedRecord:
    """What librdkafka handed out, as a value."""
    timestamp_type, timestamp_ms = message.timestamp()
    return FetchedRecord(
        partition,
        offset,
        None if timestamp_type == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: Message) -> tuple[tuple[str, bytes | None], ...] | None:
    try:
        found = message.headers()
    except (SystemError, UnicodeDecodeError):
        return None
    # Typed for sending, where a dict and text are fine too; a fetched record has only this.
    return tuple(cast("list[tuple[str, bytes | None]]", found or []))
