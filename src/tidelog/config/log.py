"""Broker-level settings of the log: defaults for topics, upkeep, and where the files are.

Most of these have a topic-level form (`topic.BROKER_SYNONYMS`) and are only a default for it. A
setting that is None was not given and leaves the word to its coarser relative: `log.roll.ms` to
`log.roll.hours`, and so on.
"""

from dataclasses import dataclass

from tidelog.base.errors import ConfigError
from tidelog.config.option import DOUBLE_MAX, LONG_MAX, ConfigType, option
from tidelog.config.topic import DAY_MS, HOUR_MS, MINUTE_MS

DEFAULT_LOG_DIR = "/tmp/tidelog-logs"

# Coarser settings are kept in their own unit; a topic's are all in milliseconds.
UNIT_MS = {
    "log.retention.minutes": MINUTE_MS,
    "log.retention.hours": HOUR_MS,
    "log.roll.hours": HOUR_MS,
    "log.roll.jitter.hours": HOUR_MS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What applies to every log of the broker unless its topic says otherwise."""

    log_dir: tuple[str, ...] = option(
        "log.dir",
        (DEFAULT_LOG_DIR,),
        ConfigType.LIST,
        "Folder of the partitions, where log.dirs is not given.",
    )
    log_dirs: tuple[str, ...] | None = option(
        "log.dirs",
        None,
        ConfigType.LIST,
        "Folders of the partitions. A new partition goes to the one that holds the fewest.",
    )
    num_recovery_threads_per_data_dir: int = option(
        "num.recovery.threads.per.data.dir",
        2,
        ConfigType.INT,
        "Accepted for compatibility: each of log.dirs has two threads, at start as well.",
        minimum=1,
        dynamic=True,
    )
    compression_type: str = option(
        "compression.type",
        "producer",
        ConfigType.STRING,
        "Codec of stored batches for topics that do not choose one; producer keeps what the "
        "producer chose.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )
    compression_gzip_level: int = option(
        "compression.gzip.level",
        -1,
        ConfigType.INT,
        "Default level where the broker compresses with gzip; -1 is the codec's own.",
        minimum=1,
        maximum=9,
        also=(-1,),
        dynamic=True,
    )
    compression_lz4_level: int = option(
        "compression.lz4.level",
        9,
        ConfigType.INT,
        "Default level where the broker compresses with lz4.",
        minimum=1,
        maximum=17,
        dynamic=True,
    )
    compression_zstd_level: int = option(
        "compression.zstd.level",
        3,
        ConfigType.INT,
        "Default level where the broker compresses with zstd.",
        minimum=-131_072,
        maximum=22,
        dynamic=True,
    )
    message_max_bytes: int = option(
        "message.max.bytes",
        1_048_588,
        ConfigType.INT,
        "Largest record batch accepted, for topics without max.message.bytes.",
        minimum=0,
        dynamic=True,
    )
    log_segment_bytes: int = option(
        "log.segment.bytes",
        2**30,
        ConfigType.INT,
        "Largest size of a segment, for topics without segment.bytes.",
        minimum=2**20,
        dynamic=True,
    )
    log_roll_ms: int | None = option(
        "log.roll.ms",
        None,
        ConfigType.LONG,
        "Age at which a segment is closed; log.roll.hours if not given.",
        minimum=1,
        dynamic=True,
    )
    log_roll_hours: int = option(
        "log.roll.hours",
        168,
        ConfigType.INT,
        "Age in hours at which a segment is closed, where log.roll.ms is not given.",
        minimum=1,
    )
    log_roll_jitter_ms: int | None = option(
        "log.roll.jitter.ms",
        None,
        ConfigType.LONG,
        "Most that chance takes off a segment's age limit; log.roll.jitter.hours if not given.",
        minimum=0,
        dynamic=True,
    )
    log_roll_jitter_hours: int = option(
        "log.roll.jitter.hours",
        0,
        ConfigType.INT,
        "Most that chance takes off a segment's age limit, in hours, where log.roll.jitter.ms is "
        "not given.",
        minimum=0,
    )
    log_retention_ms: int | None = option(
        "log.retention.ms",
        None,
        ConfigType.LONG,
        "Age at which segments are removed, -1 for never; log.retention.minutes if not given.",
        minimum=1,
        also=(-1,),
        dynamic=True,
    )
    log_retention_minutes: int | None = option(
        "log.retention.minutes",
        None,
        ConfigType.INT,
        "Age in minutes at which segments are removed, -1 for never; log.retention.hours if not "
        "given.",
        minimum=1,
        also=(-1,),
    )
    log_retention_hours: int = option(
        "log.retention.hours",
        168,
        ConfigType.INT,
        "Age in hours at which segments are removed, -1 for never, where neither "
        "log.retention.ms nor log.retention.minutes is given.",
        minimum=1,
        also=(-1,),
    )
    log_retention_bytes: int = option(
        "log.retention.bytes",
        -1,
        ConfigType.LONG,
        "Size above which a partition loses its oldest segments; -1 is no limit.",
        dynamic=True,
    )
    log_retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        300_000,
        ConfigType.LONG,
        "How often logs are looked through for segments to remove.",
        minimum=1,
    )
    log_segment_delete_delay_ms: int = option(
        "log.segment.delete.delay.ms",
        MINUTE_MS,
        ConfigType.LONG,
        "How long the files of a removed segment stay before they are unlinked.",
        minimum=0,
        dynamic=True,
    )
    log_cleanup_policy: tuple[str, ...] = option(
        "log.cleanup.policy",
        ("delete",),
        ConfigType.LIST,
        "delete, compact or both, for topics without cleanup.policy.",
        choices=("compact", "delete"),
        dynamic=True,
    )
    log_cleaner_enable: bool = option(
        "log.cleaner.enable",
        True,
        ConfigType.BOOLEAN,
        "Run compaction for topics that ask for it.",
    )
    log_cleaner_threads: int = option(
        "log.cleaner.threads",
        1,
        ConfigType.INT,
        "Logs that are compacted at a time.",
        minimum=0,
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        15_000,
        ConfigType.LONG,
        "How long compaction rests when no log needs it.",
        minimum=0,
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = option(
        "log.cleaner.dedupe.buffer.size",
        128 * 2**20,
        ConfigType.LONG,
        "Memory for the keys of logs that are being compacted, all together; 24 bytes each. Keys "
        "that do not fit are taken up by the next compaction.",
        minimum=2**20,
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        ConfigType.DOUBLE,
        "Share of log.cleaner.dedupe.buffer.size that keys may fill. More keys fit with a higher "
        "one, and looking for one takes longer.",
        minimum=0.01,
        maximum=1,
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = option(
        "log.cleaner.io.buffer.size",
        512 * 1024,
        ConfigType.INT,
        "Memory for reading and writing while logs are compacted, all together; more only where a "
        "batch is larger.",
        minimum=0,
        dynamic=True,
    )
    log_cleaner_io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        ConfigType.DOUBLE,
        "Bytes that compaction may read and write in a second, on average.",
        minimum=1,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = option(
        "log.cleaner.delete.retention.ms",
        DAY_MS,
        ConfigType.LONG,
        "How long compaction keeps tombstones, for topics without delete.retention.ms.",
        minimum=0,
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = option(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        ConfigType.DOUBLE,
        "Uncompacted share of a log at which compaction starts.",
        minimum=0,
        maximum=1,
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = option(
        "log.cleaner.min.compaction.lag.ms",
        0,
        ConfigType.LONG,
        "Age below which records are not compacted.",
        minimum=0,
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = option(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        ConfigType.LONG,
        "Age at which a record is due for compaction at the latest.",
        minimum=1,
        dynamic=True,
    )
    log_index_interval_bytes: int = option(
        "log.index.interval.bytes",
        4096,
        ConfigType.INT,
        "Bytes of batches between two index entries.",
        minimum=0,
        dynamic=True,
    )
    log_index_size_max_bytes: int = option(
        "log.index.size.max.bytes",
        10 * 2**20,
        ConfigType.INT,
        "Largest size of an index file.",
        minimum=4,
        dynamic=True,
    )
    log_flush_interval_messages: int = option(
        "log.flush.interval.messages",
        LONG_MAX,
        ConfigType.LONG,
        "Records after which a log is forced to disk.",
        minimum=1,
        dynamic=True,
    )
    log_flush_interval_ms: int | None = option(
        "log.flush.interval.ms",
        None,
        ConfigType.LONG,
        "Age of the oldest unflushed record at which a log is forced to disk; "
        "log.flush.scheduler.interval.ms if not given.",
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = option(
        "log.flush.scheduler.interval.ms",
        LONG_MAX,
        ConfigType.LONG,
        "How often logs are looked through for some that are due to be flushed.",
        minimum=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = option(
        "log.flush.offset.checkpoint.interval.ms",
        MINUTE_MS,
        ConfigType.INT,
        "How often recovery points are written down.",
        minimum=0,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        MINUTE_MS,
        ConfigType.INT,
        "How often log start offsets are written down.",
        minimum=0,
    )
    log_preallocate: bool = option(
        "log.preallocate",
        False,
        ConfigType.BOOLEAN,
        "Reserve a new segment's full size at once. Accepted; tidelog always grows files.",
        dynamic=True,
    )
    log_message_timestamp_type: str = option(
        "log.message.timestamp.type",
        "CreateTime",
        ConfigType.STRING,
        "Whose clock stamps records, for topics without message.timestamp.type.",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = option(
        "log.message.timestamp.before.max.ms",
        LONG_MAX,
        ConfigType.LONG,
        "How far a record's timestamp may lie behind the broker's clock.",
        minimum=0,
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = option(
        "log.message.timestamp.after.max.ms",
        HOUR_MS,
        ConfigType.LONG,
        "How far a record's timestamp may lie ahead of the broker's clock.",
        minimum=0,
        dynamic=True,
    )
    log_local_retention_bytes: int = option(
        "log.local.retention.bytes",
        -2,
        ConfigType.LONG,
        "Size kept on local disk under tiered storage, which tidelog does not have.",
        minimum=-2,
        dynamic=True,
    )
    log_local_retention_ms: int = option(
        "log.local.retention.ms",
        -2,
        ConfigType.LONG,
        "Age kept on local disk under tiered storage, which tidelog does not have.",
        minimum=-2,
        dynamic=True,
    )
    tidelog_log_dir_retry_ms: int = option(
        "tidelog.log.dir.retry.ms",
        10_000,
        ConfigType.LONG,
        "How often a folder that went offline is tried again; 0 leaves it offline until the "
        "broker restarts. After a failed flush it is not tried again.",
        minimum=0,
    )
    tidelog_open_files_max: int = option(
        "tidelog.open.files.max",
        1024,
        ConfigType.INT,
        "Files of closed segments that are kept open for readers, over all folders.",
        minimum=1,
    )

    def __post_init__(self) -> None:
        if not self.folders or not all(self.folders):
            name = "log.dirs" if self.log_dirs else "log.dir"
            raise ConfigError(
                f"{name} is '{','.join(self.folders)}', which has an empty folder name"
            )

    @property
    def folders(self) -> tuple[str, ...]:
        """Where partitions live: `log.dirs`, or else `log.dir`. Never empty."""
        return self.log_dirs or self.log_dir
