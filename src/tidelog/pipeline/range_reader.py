"""A range of a partition as rows, read by the task that needs them.

    leader ──▶ batches as bytes ──▶ those to be seen ──▶ columns ──▶ Arrow, some megabytes each

Gaps are nothing special: offsets of markers, of aborted transactions, and of what compaction took
away do not exist for a reader. What was there when the range was planned and is not any more is
another matter (`DataLoss`). That a log begins behind an offset is believed at once. That it ends
before one, a broker says as well that was cut off and does not know that others lead and have gone
on, so whoever leads is asked again for some time.

Brokers that want TLS or a password are read by librdkafka (`librdkafka_range.py`).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidelog.base.errors import CorruptBatch
from tidelog.client.bootstrap import Address, parse_bootstrap
from tidelog.client.leaders import AskedLeaders
from tidelog.client.range_fetcher import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchLimits,
    OffsetGone,
    RangeFetcher,
    TopicGone,
)
from tidelog.client.topic_offsets import TopicOffsets
from tidelog.pipeline.errors import DataLoss, PipelineError
from tidelog.pipeline.kafka_settings import KafkaSettings
from tidelog.pipeline.librdkafka_range import read_range
from tidelog.pipeline.notices import warn
from tidelog.pipeline.ranges import OffsetRange
from tidelog.pipeline.rows import record_batch
from tidelog.pipeline.visible_batches import VisibleBatches
from tidelog.records.columns import new_column_builder

ROW_BATCH_BYTES: Final = 4 * 1024 * 1024
ROW_BATCH_ROWS: Final = 64 * 1024
_FETCH_BYTES: Final = 8 * 1024 * 1024
_FETCH_WAIT_MS: Final = 500
_REQUEST_TIMEOUT_MS: Final = 30_000
_DOUBT_S: Final = 10.0
_DOUBT_INTERVAL_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """What a task has to know beside its range."""

    kafka: KafkaSettings
    has_headers: bool
    fails_on_data_loss: bool
    read_timeout_ms: int

    @property
    def request_timeout_s(self) -> float:
        return self.kafka.number("socket.timeout.ms", _REQUEST_TIMEOUT_MS) / 1000


class RangeReader:
    """Reads one range, once."""

    def __init__(self, settings: ReadSettings, wanted: OffsetRange, leader: Address | None) -> None:
        self._settings = settings
        self._wanted = wanted
        hints = {} if leader is None else {wanted.partition: leader}
        self._leaders = AskedLeaders(
            parse_bootstrap(settings.kafka.bootstrap), hints, timeout_s=settings.request_timeout_s
        )

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises DataLoss, PipelineError, ClientError."""
        start: int | None = self._wanted.start_offset
        doubt = _Doubt()
        while start is not None:
            try:
                yield from self._rows_from(start)
            except OffsetGone as gone:
                start = self._behind(gone.offset, doubt)
            except TopicGone:
                self._report(DataLoss(f"{self._wanted}: its topic does not exist any more"))
                return
            else:
                return

    def _rows_from(self, start: int) -> Iterator[pa.RecordBatch]:
        if self._settings.kafka.is_plaintext:
            return self._fetched_from(start)
        return read_range(
            self._settings.kafka,
            OffsetRange(self._wanted.partition, start, self._wanted.end_offset),
            has_headers=self._settings.has_headers,
            timeout_s=self._settings.read_timeout_ms / 1000,
        )

    def _fetched_from(self, start: int) -> Iterator[pa.RecordBatch]:
        topic, partition = self._wanted.partition
        end = self._wanted.end_offset
        is_committed_only = self._settings.kafka.is_committed_only
        visible = VisibleBatches(is_committed_only=is_committed_only)
        builder = new_column_builder(has_headers=self._settings.has_headers)
        fetcher = RangeFetcher(
            self._leaders,
            topic,
            partition,
            start_offset=start,
            end_offset=end,
            isolation_level=READ_COMMITTED if is_committed_only else READ_UNCOMMITTED,
            limits=self._limits(),
            client_id=self._settings.kafka.get("client.id", "tidelog-pipeline"),
            rack=self._settings.kafka.get("client.rack", ""),
        )
        try:
            for fetched in fetcher:
                for header, payload in visible.of(fetched.records, fetched.aborted):
                    builder.add(header, payload, start_offset=start, end_offset=end)
                    if builder.size_bytes >= ROW_BATCH_BYTES or builder.row_count >= ROW_BATCH_ROWS:
                        yield record_batch(builder.take(), topic=topic, partition=partition)
        except CorruptBatch as error:
            raise PipelineError(f"{self._wanted.partition}: {error}") from error
        except (OffsetGone, TopicGone):
            if builder.row_count:
                yield record_batch(builder.take(), topic=topic, partition=partition)
            raise
        if builder.row_count:
            yield record_batch(builder.take(), topic=topic, partition=partition)

    def _limits(self) -> FetchLimits:
        kafka = self._settings.kafka
        partition_max_bytes = kafka.number("max.partition.fetch.bytes", _FETCH_BYTES)
        return FetchLimits(
            max_bytes=max(kafka.number("fetch.max.bytes", _FETCH_BYTES), partition_max_bytes),
            partition_max_bytes=partition_max_bytes,
            max_wait_ms=kafka.number("fetch.wait.max.ms", _FETCH_WAIT_MS),
            request_timeout_s=self._settings.request_timeout_s,
            retry_timeout_s=self._settings.read_timeout_ms / 1000,
        )

    def _behind(self, offset: int, doubt: "_Doubt") -> int | None:
        """Where to go on when `offset` is not there, None if there is nothing left of the range."""
        with TopicOffsets(
            self._settings.kafka.for_client(),
            is_committed_only=False,
            timeout_s=self._settings.request_timeout_s,
        ) as offsets:
            begins = offsets.starts([self._wanted.partition])[self._wanted.partition]
        if offset >= begins and doubt.is_left_about(offset):
            time.sleep(_DOUBT_INTERVAL_S)
            return offset
        self._report(DataLoss(f"{self._wanted}: {_what_is_missing(offset, begins)}"))
        return begins if offset < begins < self._wanted.end_offset else None

    def _report(self, loss: DataLoss) -> None:
        if self._settings.fails_on_data_loss:
            raise loss
        warn(f"records were missed: {loss.what}")


class _Doubt:
    """Whether it may still turn out that a log has an offset which somebody said it has not."""

    def __init__(self) -> None:
        self._offset: int | None = None
        self._since_s = 0.0

    def is_left_about(self, offset: int) -> bool:
        now_s = time.monotonic()
        if offset != self._offset:
            self._offset, self._since_s = offset, now_s
        return now_s - self._since_s < _DOUBT_S


def _what_is_missing(offset: int, begins: int) -> str:
    if offset < begins:
        return f"offset {offset} is gone, the log begins at {begins}"
    return f"the log ends before offset {offset}"
