"""Where a batch of files begins and ends: what `source_cluster` asks brokers, asked of files.

    options ──▶ AskedRange of each partition ──▶ plan_partition ──▶ require_sensible

Whether there is anything at the places that the options name is known from the plan. So a torn tail
is told of first: what is looked for may be in it.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from tidelog.base.ids import TopicPartition
from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.offsets import EARLIEST, LATEST, text_of
from tidelog.pipeline.segment_options import SegmentOptions
from tidelog.pipeline.segments import (
    MissingOffsets,
    PartitionFolder,
    PartitionPlan,
    first_offset_from,
)
from tidelog.pipeline.source_options import (
    AtOffset,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    NoMatch,
    Place,
    option_of,
    require_equal_partitions,
)

_OFFSET_END: Final = 2**63 - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AskedRange:
    """What the options say of one partition: offsets, EARLIEST or LATEST.

    LATEST is also where no record is as young as a timestamp.
    """

    start: int
    end: int

    @property
    def wanted(self) -> tuple[int, int]:
        """`[start, end)`, whatever there is."""
        start = {EARLIEST: 0, LATEST: _OFFSET_END}.get(self.start, self.start)
        return start, _OFFSET_END if self.end == LATEST else self.end


def asked_ranges(
    options: SegmentOptions, folders: Sequence[PartitionFolder]
) -> dict[TopicPartition, AskedRange]:
    """Raises OptionError unless the options have a place for each partition, or for none."""
    partitions = frozenset(each.partition for each in folders)
    for which, place in (("starting", options.start), ("ending", options.end)):
        if isinstance(place, AtOffsets):
            require_equal_partitions(option_of(which, place), partitions, dict(place.offsets))
        if isinstance(place, AtTimestamps):
            require_equal_partitions(option_of(which, place), partitions, dict(place.timestamps_ms))
    return {
        each.partition: AskedRange(
            _at(options, options.start, each), _at(options, options.end, each)
        )
        for each in folders
    }


def _at(options: SegmentOptions, place: Place, folder: PartitionFolder) -> int:
    match place:
        case AtOffset(offset):
            return offset
        case AtOffsets(offsets):
            return dict(offsets)[folder.partition]
        case AtTimestamp(timestamp_ms):
            return _at_time(options, folder, timestamp_ms)
        case AtTimestamps(timestamps_ms):
            return _at_time(options, folder, dict(timestamps_ms)[folder.partition])
        case _:
            assert_never(place)


def _at_time(options: SegmentOptions, folder: PartitionFolder, timestamp_ms: int) -> int:
    found = first_offset_from(
        folder, timestamp_ms, is_beyond_high_watermark=options.is_beyond_high_watermark
    )
    return LATEST if found is None else found


def require_sensible(
    options: SegmentOptions, asked: dict[TopicPartition, AskedRange], plans: list[PartitionPlan]
) -> None:
    """What was asked for is there, or may be missing; in the words that are said of brokers."""
    ordered = sorted(plans, key=lambda plan: plan.folder.partition)
    _require_match(options, asked, ordered)
    require_there(options, _beyond(options, asked, ordered))
    for plan in ordered:
        _require_order(options, asked[plan.folder.partition], plan)
    require_there(options, _missing(options, asked, ordered))


def _require_match(
    options: SegmentOptions,
    asked: dict[TopicPartition, AskedRange],
    plans: Iterable[PartitionPlan],
) -> None:
    """As a broker answers: what cannot be read, because it is not decided, matches nothing."""
    if options.no_match is NoMatch.BEGIN_AT_END or not _is_by_time(options.start):
        return
    if unmatched := [
        plan.folder.partition
        for plan in plans
        if asked[plan.folder.partition].wanted[0] >= plan.readable.end_offset
    ]:
        raise PipelineError(
            f"{text_of(unmatched)} has no record as young as the timestamp to begin at; "
            "startingOffsetsByTimestampStrategy=latest begins at the end there"
        )


def _require_order(options: SegmentOptions, asked: AskedRange, plan: PartitionPlan) -> None:
    start, end = asked.start, min(asked.wanted[1], plan.readable.end_offset)
    if start == EARLIEST:
        start = plan.readable.start_offset
    elif _is_by_time(options.start):
        start = min(asked.wanted[0], plan.readable.end_offset)
    if start > end:
        raise OptionError(
            f"{option_of('starting', options.start)} begins {plan.folder.partition} at {start}, "
            f"behind where {option_of('ending', options.end)} ends it, {end}"
        )


def _beyond(
    options: SegmentOptions,
    asked: dict[TopicPartition, AskedRange],
    plans: Iterable[PartitionPlan],
) -> Iterator[str]:
    if not isinstance(options.end, AtOffsets):
        return
    for plan in plans:
        end = asked[plan.folder.partition].end
        if end > plan.readable.end_offset:
            yield (
                f"endingOffsets has {end} for {plan.folder.partition}, which ends at "
                f"{plan.readable.end_offset} in {plan.folder.path}"
            )


def _missing(
    options: SegmentOptions,
    asked: dict[TopicPartition, AskedRange],
    plans: Iterable[PartitionPlan],
) -> Iterator[str]:
    """Offsets before those that are there, and amid them."""
    for plan in plans:
        start, begins = asked[plan.folder.partition].start, plan.readable.start_offset
        if isinstance(options.start, AtOffsets) and EARLIEST < start < begins:
            yield f"{plan.folder.path} begins at offset {begins}, and {start} was asked for"
        yield from map(str, plan.missing)


def require_there(options: SegmentOptions, problems: Iterable[str]) -> None:
    """Raises MissingOffsets if there is a problem, unless the options let it be."""
    for problem in problems:
        if options.fails_on_data_loss:
            raise MissingOffsets(problem)
        logger.warning("records were missed: %s", problem)


def _is_by_time(place: Place) -> bool:
    return isinstance(place, AtTimestamp | AtTimestamps)
