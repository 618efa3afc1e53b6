"""Open one partition's folder: after a clean stop at once, after a crash by way of recovery."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk
from tidelog.records.batch import BatchHeader
from tidelog.records.producer import ProducerEntry
from tidelog.storage.file_cache import FileCache
from tidelog.storage.log import Log, LogConfig


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log ready for use, and what its files say about leader epochs.

    `scanned_bytes` and `cut_bytes` are 0 unless recovery had to run.
    """

    log: Log
    leader_epochs: tuple[tuple[LeaderEpoch, Offset], ...]
    scanned_bytes: int
    cut_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Who rebuilds the producer state (D2): first `restore` once, then `observe` in offset order."""

    restore: Callable[[Sequence[ProducerEntry]], None]
    observe: Callable[[BatchHeader], None]


def open_log(
    *,
    disk: Disk,
    files: FileCache,
    folder: Path,
    topic_partition: TopicPartition,
    topic_id: TopicId | None,
    config: LogConfig,
    clean: bool,
    recovery_point: Offset,
    log_start_offset: Offset,
    replay: Replay,
    warn: Callable[[str], None],
    now_ms: int,
) -> OpenedLog:
    """Open `folder`, or create it; afterwards every file in it can be vouched for.

    `topic_id` is written to `partition.metadata` where there is none; a different one there is a
    StorageError. `recovery_point` is ignored after a `clean` stop. `warn` gets a sentence about
    everything that had to be repaired.
    """
    raise NotImplementedError
