"""One partition's log: a tuple of segments of which only the last is written.

Calls come from two places. *On the loop* are the cheap ones that must never meet each other:
`append`, `roll_needed`, `detach`, `advance_log_start`, `reconfigure`. *On a thread* run the ones
that wait for the disk: `read`, `roll`, `flush`, `expired_segments`, `remove_detached`,
`truncate_to`, the timestamp lookups, `close`. The owner keeps these apart:

    roll, truncate, close   alone: no append and no other of the three meanwhile
    flush                   one at a time; appends, reads and a roll may go on
    read, read_cached       any number, at any time

Invariants:

    I1  log_start_offset <= log_end_offset, recovery_point <= log_end_offset
    I2  `segments` is replaced whole and never mutated, so a reader may keep the tuple it saw
    I3  an append publishes `log_end_offset` before the segment's size; a reader takes the size
        first. So bytes a reader can see never belong to an offset it has not yet compared.
    I4  the log is written before its indexes: a missing entry costs a longer scan, one that
        points past the end would be a lie that survives a restart
    I5  everything below `recovery_point` is on stable storage
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import BytesLike
from tidelog.records.producer import ProducerEntry
from tidelog.storage.segment import Segment


class LogConfig(Protocol):
    """The settings of a topic that its files depend on; `config.topic.TopicConfig` has them all."""

    @property
    def segment_bytes(self) -> int: ...
    @property
    def segment_ms(self) -> int: ...
    @property
    def segment_jitter_ms(self) -> int: ...
    @property
    def segment_index_bytes(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def is_deleted(self) -> bool:
        """Whether age and size limits remove old segments."""
        ...


class LogRead(NamedTuple):
    """Whole batches as stored, and where the next read goes on.

    The first batch may begin before the offset asked for. `data` is empty when nothing may be
    read yet, or when the first batch exceeds `max_bytes` and was not asked for regardless.
    """

    data: BytesLike
    end_offset: Offset


class TimestampOffset(NamedTuple):
    """A record found by time."""

    timestamp_ms: int
    offset: Offset
    leader_epoch: LeaderEpoch


class Log:
    """See the module docstring for who may call what when."""

    folder: Path
    topic_partition: TopicPartition
    topic_id: TopicId | None
    config: LogConfig
    log_start_offset: Offset
    log_end_offset: Offset
    recovery_point: Offset
    segments: tuple[Segment, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes in all `.log` files. The first call after opening asks the disk for each."""
        raise NotImplementedError

    @property
    def active_base_offset(self) -> Offset:
        """Where the segment that is being written begins."""
        raise NotImplementedError

    def reconfigure(self, config: LogConfig) -> None:
        """Use `config` from the next append or roll on."""
        raise NotImplementedError

    def roll_needed(
        self, *, size_bytes: int, max_timestamp_ms: int, now_ms: int, last_offset: Offset
    ) -> bool:
        """Whether `roll` must come before a batch like this may be appended. Constant time."""
        raise NotImplementedError

    def append(
        self, batch: BytesLike, *, base_offset: Offset, last_offset: Offset, max_timestamp_ms: int
    ) -> None:
        """Write one stamped batch at the end: one write, nothing durable until `flush`.

        All or nothing: after DiskFull the log is as it was and may be appended to again. Any
        other StorageError means the log dir has to go offline.
        """
        raise NotImplementedError

    def roll(self, *, producers: Sequence[ProducerEntry], now_ms: int) -> None:
        """Close the active segment and start one at `log_end_offset`.

        `producers` is the state at `log_end_offset` and goes to the snapshot of that offset.
        Nothing is made durable: call `flush` afterwards, without holding up appends. After
        DiskFull nothing has changed and the roll may be tried again.
        """
        raise NotImplementedError

    def read_cached(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int, at_least_one: bool
    ) -> LogRead | None:
        """Like `read`, but None rather than wait for the disk: then `read` on a thread."""
        raise NotImplementedError

    def read(
        self, offset: Offset, *, end_offset: Offset, max_bytes: int, at_least_one: bool
    ) -> LogRead:
        """Whole batches from the one that holds `offset`, all below `end_offset`.

        Up to `max_bytes` and from one segment only; with `at_least_one` the first batch is
        returned even if it is larger. `end_offset` must not exceed `log_end_offset`. Raises
        RequestRefused(OFFSET_OUT_OF_RANGE) unless log start <= offset <= log end.
        """
        raise NotImplementedError

    def flush(self, *, up_to: Offset) -> Offset:
        """Make everything below `up_to` durable, oldest first; return the new recovery point.

        A failed flush is never tried again: the kernel may have dropped the pages it could not
        write. The log dir goes offline and recovery decides what is left.
        """
        raise NotImplementedError

    def offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record from log start on with a timestamp of at least `timestamp_ms`."""
        raise NotImplementedError

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that carries the largest timestamp of the log; None if it is empty."""
        raise NotImplementedError

    def truncate_to(self, offset: Offset) -> None:
        """Drop every batch that holds `offset` or more. Below log start: start afresh at `offset`.

        Before it, the owner writes a recovery point of at most `offset` to the dir's checkpoint;
        otherwise what is appended afterwards would pass for flushed after a crash.
        """
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything; the log is empty and begins and ends at `offset`."""
        raise NotImplementedError

    def advance_log_start(self, offset: Offset) -> None:
        """Hide everything below `offset` (DeleteRecords, retention). Never moves back."""
        raise NotImplementedError

    def expired_segments(self, *, high_watermark: Offset, now_ms: int) -> tuple[Segment, ...]:
        """The oldest segments that retention no longer wants; see `retention.py`.

        If the last of them is the active segment, `roll` first and then `detach` them.
        """
        raise NotImplementedError

    def detach(self, segments: tuple[Segment, ...]) -> None:
        """Take the oldest `segments` out of the log and advance log start past them. No I/O."""
        raise NotImplementedError

    def remove_detached(self, segments: tuple[Segment, ...]) -> tuple[Path, ...]:
        """Rename files of detached segments to `.deleted` and return the new names.

        The owner removes them `file.delete.delay.ms` later with `Disk.remove`; opening the log
        removes what a crash left.
        """
        raise NotImplementedError

    def write_leader_epochs(self, epochs: Sequence[tuple[LeaderEpoch, Offset]]) -> None:
        """Replace `leader-epoch-checkpoint` durably."""
        raise NotImplementedError

    def close(self, *, clean: bool, producers: Sequence[ProducerEntry]) -> None:
        """Release files. `clean`: also flush everything and snapshot `producers`, so that the
        next opening needs no scan."""
        raise NotImplementedError
