"""How much of a log compaction could take up, and how urgent that is (S5).

    log start         first dirty offset          first uncleanable offset        log end
        ├──── clean ────────┼──────── cleanable ─────────────┼──── not yet ───────────┤
        compacted before         compacted next                  the active segment,
                                                                 what is not stable yet,
                                                                 what is too young

Both borders between are where segments begin, but for the first dirty offset: a compaction whose
map of keys was full stops in the middle of one.

    B1  Nothing at or above the last stable offset: it may be taken back, or be part of a
        transaction that is not decided.
    B2  Not the active segment.
    B3  No segment with a record younger than `min.compaction.lag.ms`, and none behind such a one.
    B4  No segment with an id that still counts, where duplicates are dropped (D5): it would be
        known to whoever has read it, and to nobody who reads the log again. Which those are says
        the log's own time, not ours, and only as much of the log as cannot be taken back.
"""

from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.storage.digests import first_needed
from tidelog.storage.log import Log
from tidelog.storage.readable_log import segment_number
from tidelog.storage.scan import header_at
from tidelog.storage.segment import Segment


class Cleanable(NamedTuple):
    """What compaction would find in a log. Offsets are those of the drawing above."""

    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """For how long a record should have been compacted already (`max.compaction.lag.ms`)."""

    @property
    def ratio(self) -> float:
        """Which share of what is, or could be, clean is dirty."""
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, *, min_cleanable_dirty_ratio: float) -> bool:
        """Whether compaction is worth its while, or has been promised by now."""
        if self.overdue_ms and self.cleanable_bytes:
            return True
        return self.ratio > min_cleanable_dirty_ratio


def measure(
    log: Log, *, cleaned_offset: Offset | None, last_stable_offset: Offset, now_ms: int
) -> Cleanable:
    """Look at a log that was compacted up to `cleaned_offset`; None if never. Blocks."""
    return log.with_indexes(
        lambda: _measure(log, cleaned_offset, last_stable_offset, now_ms), log.log_start_offset
    )


def _measure(
    log: Log, cleaned_offset: Offset | None, last_stable_offset: Offset, now_ms: int
) -> Cleanable:
    segments = log.segments
    first_dirty_offset = _first_dirty_offset(log, cleaned_offset)
    dirty = segments[segment_number(segments, max(first_dirty_offset, segments[0].base_offset)) :]
    end = min(last_stable_offset, segments[-1].base_offset)  # B1, B2
    too_young = _first_too_young(log, dirty[:-1], now_ms)
    if too_young is not None:
        end = min(end, too_young.base_offset)  # B3
    if log.config.ids_remembered_ms is not None:
        first_offset, _ = first_needed(
            log, remembered_ms=log.config.ids_remembered_ms, end_offset=last_stable_offset
        )
        end = min(end, first_offset)  # B4
    # Whole segments only.
    end = segments[segment_number(segments, max(end, segments[0].base_offset))].base_offset
    cleanable = [segment for segment in dirty[:-1] if segment.base_offset < end]
    return Cleanable(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=max(first_dirty_offset, end),
        clean_bytes=sum(
            segment.size_bytes for segment in segments if segment.base_offset < dirty[0].base_offset
        ),
        cleanable_bytes=sum(segment.size_bytes for segment in cleanable),
        overdue_ms=_overdue_ms(log, dirty[:-1], now_ms),
    )


def _first_dirty_offset(log: Log, cleaned_offset: Offset | None) -> Offset:
    """What is not known to be clean is dirty: a log that ends before was cut, or lost its end."""
    if cleaned_offset is None or not log.log_start_offset <= cleaned_offset <= log.log_end_offset:
        return log.log_start_offset
    return cleaned_offset


def _first_too_young(log: Log, dirty: tuple[Segment, ...], now_ms: int) -> Segment | None:
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms <= 0:
        return None
    for segment in dirty:
        newest_ms, _ = segment.max_timestamp(log.access)
        if newest_ms < 0:  # Records without a timestamp, as in retention.
            newest_ms = log.disk.modified_ms(segment.log_path)
        if newest_ms > now_ms - lag_ms:
            return segment
    return None


def _overdue_ms(log: Log, dirty: tuple[Segment, ...], now_ms: int) -> int:
    due_before_ms = now_ms - log.config.max_compaction_lag_ms
    if due_before_ms <= 0:
        return 0  # There is no such promise, usually.
    firsts = [_first_timestamp_ms(log, segment) for segment in dirty if segment.size_bytes]
    oldest_ms = min((first for first in firsts if first > 0), default=due_before_ms)
    return max(0, due_before_ms - oldest_ms)


def _first_timestamp_ms(log: Log, segment: Segment) -> int:
    return header_at(segment.open(log.access), 0).max_timestamp_ms
