"""Options of a source that reads files: those of a batch from brokers, and some of its own (X6).

    option                             meaning
    path                               log dirs, or folders of partitions; several, patterns
    subscribe, subscribePattern,       which topics of what is there; all but internal ones by
      assign                             default
    starting*, ending*                 as with a broker
    minTimestamp, maxTimestamp         only records of that time, both ends included
    kafka.isolation.level              read_committed leaves out what was aborted
    ignoreTornTail                     read up to what a crash has left half written
    failOnDataLoss                     whether missing segments end the job, or are warned of
    beyondHighWatermark                also what was not committed when the broker last said so
    minPartitions                      at least so many tasks, if there is enough to read
    maxRecordsPerPartition             no task has more offsets than that
    includeHeaders                     as with a broker

What means something to a reader of brokers or to a stream alone is refused: it would have no
effect, and was meant to have one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.kafka_settings import PREFIX
from tidelog.pipeline.source_options import (
    GivenOptions,
    NoMatch,
    Place,
    Strategy,
    batch_places,
    require_places_of,
)

_ISOLATION_LEVEL: Final = "kafka.isolation.level"
_OF_BROKERS: Final = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """What a job asks for, checked as far as it can be without a look at the files."""

    paths: tuple[str, ...]
    strategy: Strategy | None
    start: Place
    end: Place
    no_match: NoMatch
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None
    fails_on_data_loss: bool
    has_headers: bool
    is_committed_only: bool
    is_torn_tail_ignored: bool
    is_beyond_high_watermark: bool
    min_partitions: int | None
    max_records_per_partition: int | None


def segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Raises OptionError."""
    given = GivenOptions(options)
    given.require_no_slips()
    _require_of_files(given)
    start, end = batch_places(given)
    found = SegmentOptions(
        paths=(given.text("path") or "",),
        strategy=given.strategy() if given.has_strategy() else None,
        start=start,
        end=end,
        no_match=given.no_match(),
        min_timestamp_ms=given.timestamp_ms("minTimestamp"),
        max_timestamp_ms=given.timestamp_ms("maxTimestamp"),
        fails_on_data_loss=given.flag("failOnDataLoss", default=True),
        has_headers=given.flag("includeHeaders", default=False),
        is_committed_only=_is_committed_only(given),
        is_torn_tail_ignored=given.flag("ignoreTornTail", default=False),
        is_beyond_high_watermark=given.flag("beyondHighWatermark", default=False),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
    )
    _require_consistent(found)
    return found


def _require_of_files(given: GivenOptions) -> None:
    for name in _OF_STREAMS:
        given.require_absent(name, "files, which path names, are read as a batch")
    of_client = sorted(name for name in given.lowered if name.startswith(PREFIX))
    for name in (*of_client, *_OF_BROKERS):
        if name != _ISOLATION_LEVEL:
            given.require_absent(name, "it is for brokers, and path names files")


def _require_consistent(options: SegmentOptions) -> None:
    first_ms, last_ms = options.min_timestamp_ms, options.max_timestamp_ms
    if first_ms is not None and last_ms is not None and first_ms > last_ms:
        raise OptionError(f"minTimestamp is {first_ms}, which is more than maxTimestamp, {last_ms}")
    require_places_of(options.strategy, options.start, options.end)


def _is_committed_only(given: GivenOptions) -> bool:
    level = given.text(_ISOLATION_LEVEL) or "read_uncommitted"
    if level.lower() not in {"read_committed", "read_uncommitted"}:
        raise OptionError(
            f"{_ISOLATION_LEVEL} is {level!r} but must be read_committed or read_uncommitted"
        )
    return level.lower() == "read_committed"
