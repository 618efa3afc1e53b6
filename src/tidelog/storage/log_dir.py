"""One of `log.dirs`: its lock, its identity, its partition folders and its checkpoints (S1, S7)."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tidelog.base.ids import BrokerId, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk
from tidelog.storage.log import Log, LogConfig
from tidelog.storage.opening import OpenedLog, Replay


class LogDir:
    """A log dir this process holds the lock of. Every call may block."""

    path: Path
    directory_id: str
    was_clean: bool

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition folder there is, sorted."""
        raise NotImplementedError

    def high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """As last checkpointed; 0 if never."""
        raise NotImplementedError

    def topic_id(self, topic_partition: TopicPartition) -> TopicId | None:
        """What `partition.metadata` says."""
        raise NotImplementedError

    def open_partition(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: TopicId | None,
        config: LogConfig,
        replay: Replay,
        now_ms: int,
    ) -> OpenedLog:
        """Open or create the partition's folder; see `opening.open_log`."""
        raise NotImplementedError

    def write_recovery_points(self, points: Mapping[TopicPartition, Offset]) -> None:
        """Replace `recovery-point-offset-checkpoint`: all partitions of this dir, at once."""
        raise NotImplementedError

    def write_log_start_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace `log-start-offset-checkpoint`."""
        raise NotImplementedError

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace `replication-offset-checkpoint`."""
        raise NotImplementedError

    def start_delete(self, log: Log) -> Path:
        """Close `log` and rename its folder to `<topic>-<n>.<uuid>-delete`, durably."""
        raise NotImplementedError

    def finish_delete(self, folder: Path) -> None:
        """Remove what `start_delete` renamed."""
        raise NotImplementedError

    def close(self, *, clean: bool) -> None:
        """Release the lock. `clean`: leave the mark that saves the next start its recovery.

        Only after every log was closed clean and the checkpoints were written.
        """
        raise NotImplementedError


def open_log_dir(
    disk: Disk,
    path: Path,
    *,
    broker_id: BrokerId,
    cluster_id: str,
    open_files_max: int,
    warn: Callable[[str], None],
) -> LogDir:
    """Take the lock, check `meta.properties` (written if absent), sweep leftovers, read checkpoints.

    Raises StorageError if another process has the dir, ConfigError if it belongs to another
    broker or cluster.
    """
    raise NotImplementedError
