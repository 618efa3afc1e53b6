"""Which batches get an index entry, when a segment is written, recovered or indexed again.

The rule is Kafka's: once more than `index.interval.bytes` of batches have followed the last entry,
the next batch gets one. It depends on nothing but the batches, so that indexes made again from the
log are equal, byte for byte, to those that were lost.
"""

from pathlib import Path

from tidelog.base.ids import NO_TIMESTAMP
from tidelog.base.ports import Disk
from tidelog.storage.offset_index import OffsetIndex
from tidelog.storage.time_index import NO_ENTRY, TimeIndex


class Indexer:
    """Writes both indexes of one segment, batch by batch in the order of the log."""

    __slots__ = (
        "first_timestamp_ms",
        "max_timestamp",
        "offset_index",
        "time_index",
        "unindexed_bytes",
    )

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        """Goes on after the entries that the two have."""
        self.offset_index = offset_index
        self.time_index = time_index
        self.unindexed_bytes = 0
        self.first_timestamp_ms = NO_TIMESTAMP
        # The largest timestamp and the relative offset it belongs to. One value, because readers
        # on other threads must not see half of a change.
        self.max_timestamp = time_index.last_entry

    @classmethod
    def fresh(cls, disk: Disk, offset_path: Path, time_path: Path) -> "Indexer":
        """For two index files that are empty."""
        return cls(
            OffsetIndex(disk, offset_path, 0),
            TimeIndex(disk, time_path, 0, last=NO_ENTRY),
        )

    def add(
        self,
        relative_offset: int,
        position: int,
        size_bytes: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """The batch that ends with `relative_offset` is in the log at `position`."""
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > self.max_timestamp[0]:
            self.max_timestamp = max_timestamp_ms, relative_offset
        if self.unindexed_bytes > index_interval_bytes:
            self.offset_index.append(relative_offset, position)
            self.time_index.append_if_later(self.max_timestamp)
            self.unindexed_bytes = 0
        self.unindexed_bytes += size_bytes

    def make_room(self) -> None:
        """Write out what has gathered, so that `add` has nothing to do that could fail."""
        if self.offset_index.needs_spill:
            self.offset_index.spill()
        if self.time_index.needs_spill:
            self.time_index.spill()

    def is_full(self, size_bytes_max: int) -> bool:
        return self.offset_index.is_full(size_bytes_max) or self.time_index.is_full(size_bytes_max)

    def spill(self) -> None:
        """Bring the index files up to date with the log."""
        self.offset_index.spill()
        self.time_index.spill()

    def close(self) -> None:
        """The same, and the time index ends with the largest timestamp of the segment."""
        self.time_index.append_if_later(self.max_timestamp)
        self.spill()
