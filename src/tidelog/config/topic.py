"""Topic-level settings: Kafka's names, bounds and 4.x defaults (S5, G5).

A `TopicConfig` is what applies to one topic in the end: the topic's own overrides over the
broker's `log.*` settings over Kafka's defaults. Storage and handlers receive it, or values out of
it, and never look further. A change of configuration is a new `TopicConfig`.

`BROKER_SYNONYMS` says which broker settings stand in for a topic setting that is not overridden.
The first that is set wins: `log.retention.ms` before `log.retention.minutes` before
`log.retention.hours`, as in Kafka.

`internal.segment.bytes` is Kafka's own back door for segments below the 1 MiB that `segment.bytes`
demands. It is accepted for a topic and shown only where it is set.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.base.errors import ConfigError
from tidelog.config.fitting import Given, Misfit, Scope, fit, given_in, those_of
from tidelog.config.option import (
    LONG_MAX,
    ConfigType,
    Setting,
    build,
    option,
    override,
    settings_of,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
DEDUP_BY_KEY = "key"
DEDUP_GRACE_MAX_MS = HOUR_MS

_THROTTLED_REPLICAS = r"\*|([0-9]+:[0-9]+(\s*,\s*[0-9]+:[0-9]+)*)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What applies to one topic, overrides and defaults resolved."""

    cleanup_policy: tuple[str, ...] = option(
        "cleanup.policy",
        ("delete",),
        ConfigType.LIST,
        "What happens to old segments: delete removes them by age and size, compact keeps the "
        "newest record of every key, both does both. Empty keeps everything.",
        choices=("compact", "delete"),
    )
    compression_gzip_level: int = option(
        "compression.gzip.level",
        -1,
        ConfigType.INT,
        "Level used when the broker compresses with gzip; -1 is the codec's own default.",
        minimum=1,
        maximum=9,
        also=(-1,),
    )
    compression_lz4_level: int = option(
        "compression.lz4.level",
        9,
        ConfigType.INT,
        "Level used when the broker compresses with lz4.",
        minimum=1,
        maximum=17,
    )
    compression_type: str = option(
        "compression.type",
        "producer",
        ConfigType.STRING,
        "Codec of stored batches. producer keeps the codec that the producer chose; any other "
        "value makes the broker compress again where the two differ.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    )
    compression_zstd_level: int = option(
        "compression.zstd.level",
        3,
        ConfigType.INT,
        "Level used when the broker compresses with zstd.",
        minimum=-131_072,
        maximum=22,
    )
    delete_retention_ms: int = option(
        "delete.retention.ms",
        DAY_MS,
        ConfigType.LONG,
        "How long compaction keeps a tombstone, so that a reader that starts from the beginning "
        "still learns of the deletion.",
        minimum=0,
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms",
        MINUTE_MS,
        ConfigType.LONG,
        "How long the files of a removed segment stay, renamed, before they are unlinked.",
        minimum=0,
    )
    flush_messages: int = option(
        "flush.messages",
        LONG_MAX,
        ConfigType.LONG,
        "Force the log to disk after this many records. Left alone, the operating system decides "
        "and replication protects what is in memory.",
        minimum=1,
    )
    flush_ms: int = option(
        "flush.ms",
        LONG_MAX,
        ConfigType.LONG,
        "Force the log to disk when its oldest unflushed record is this old.",
        minimum=0,
    )
    follower_replication_throttled_replicas: tuple[str, ...] = option(
        "follower.replication.throttled.replicas",
        (),
        ConfigType.LIST,
        "Followers whose replication is throttled: partition:broker pairs, or * for all.",
        pattern=_THROTTLED_REPLICAS,
    )
    index_interval_bytes: int = option(
        "index.interval.bytes",
        4096,
        ConfigType.INT,
        "A new index entry is made once this many bytes of batches have followed the last one.",
        minimum=0,
    )
    leader_replication_throttled_replicas: tuple[str, ...] = option(
        "leader.replication.throttled.replicas",
        (),
        ConfigType.LIST,
        "Leaders whose replication is throttled: partition:broker pairs, or * for all.",
        pattern=_THROTTLED_REPLICAS,
    )
    local_retention_bytes: int = option(
        "local.retention.bytes",
        -2,
        ConfigType.LONG,
        "Size kept on local disk under tiered storage, which tidelog does not have; -2 is "
        "retention.bytes.",
        minimum=-2,
    )
    local_retention_ms: int = option(
        "local.retention.ms",
        -2,
        ConfigType.LONG,
        "Age kept on local disk under tiered storage, which tidelog does not have; -2 is "
        "retention.ms.",
        minimum=-2,
    )
    max_compaction_lag_ms: int = option(
        "max.compaction.lag.ms",
        LONG_MAX,
        ConfigType.LONG,
        "A record becomes due for compaction at this age at the latest.",
        minimum=1,
    )
    max_message_bytes: int = option(
        "max.message.bytes",
        1_048_588,
        ConfigType.INT,
        "Largest record batch accepted, counted as it is stored, compressed or not.",
        minimum=0,
    )
    message_timestamp_after_max_ms: int = option(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        ConfigType.LONG,
        "How far a record's timestamp may lie ahead of the broker's clock. Not looked at under "
        "LogAppendTime.",
        minimum=0,
    )
    message_timestamp_before_max_ms: int = option(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        ConfigType.LONG,
        "How far a record's timestamp may lie behind the broker's clock. Not looked at under "
        "LogAppendTime.",
        minimum=0,
    )
    message_timestamp_type: str = option(
        "message.timestamp.type",
        "CreateTime",
        ConfigType.STRING,
        "Whose clock stamps records: CreateTime the producer's, LogAppendTime the broker's.",
        choices=("CreateTime", "LogAppendTime"),
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio",
        0.5,
        ConfigType.DOUBLE,
        "Compaction starts once this share of the log has not been compacted yet.",
        minimum=0,
        maximum=1,
    )
    min_compaction_lag_ms: int = option(
        "min.compaction.lag.ms",
        0,
        ConfigType.LONG,
        "A record younger than this is not compacted.",
        minimum=0,
    )
    min_insync_replicas: int = option(
        "min.insync.replicas",
        1,
        ConfigType.INT,
        "With acks=all, a write is refused unless at least this many replicas are in sync.",
        minimum=1,
    )
    preallocate: bool = option(
        "preallocate",
        False,
        ConfigType.BOOLEAN,
        "Reserve a new segment's full size on disk at once. Accepted; tidelog always grows files.",
    )
    remote_log_copy_disable: bool = option(
        "remote.log.copy.disable",
        False,
        ConfigType.BOOLEAN,
        "Stop copying to tiered storage, which tidelog does not have.",
    )
    remote_log_delete_on_disable: bool = option(
        "remote.log.delete.on.disable",
        False,
        ConfigType.BOOLEAN,
        "Delete what tiered storage holds when it is switched off; tidelog does not have it.",
    )
    remote_storage_enable: bool = option(
        "remote.storage.enable",
        False,
        ConfigType.BOOLEAN,
        "Keep old segments in tiered storage. tidelog does not have it and refuses true.",
    )
    retention_bytes: int = option(
        "retention.bytes",
        -1,
        ConfigType.LONG,
        "A partition larger than this loses its oldest segments; -1 is no limit.",
    )
    retention_ms: int = option(
        "retention.ms",
        7 * DAY_MS,
        ConfigType.LONG,
        "A segment whose newest record is older than this is removed; -1 is no limit.",
        minimum=-1,
    )
    segment_bytes: int = option(
        "segment.bytes",
        2**30,
        ConfigType.INT,
        "A segment is closed and a new one begun before it would grow past this size.",
        minimum=2**20,
    )
    segment_index_bytes: int = option(
        "segment.index.bytes",
        10 * 2**20,
        ConfigType.INT,
        "Largest size of an index file; a full index also closes its segment.",
        minimum=4,
    )
    segment_jitter_ms: int = option(
        "segment.jitter.ms",
        0,
        ConfigType.LONG,
        "Up to this much is taken off segment.ms, by chance, so that segments of many partitions "
        "do not all close at once.",
        minimum=0,
    )
    segment_ms: int = option(
        "segment.ms",
        7 * DAY_MS,
        ConfigType.LONG,
        "A segment is closed once its first record is this old, even if it is not full.",
        minimum=1,
    )
    tidelog_dedup: str | None = option(
        "tidelog.dedup",
        None,
        ConfigType.STRING,
        "key drops records whose key was seen within tidelog.dedup.window.ms; the same as "
        "tidelog.dedup.header=key.",
        choices=("key",),
    )
    tidelog_dedup_header: str | None = option(
        "tidelog.dedup.header",
        None,
        ConfigType.STRING,
        "Drop records whose id was seen within tidelog.dedup.window.ms, and answer with the "
        "offset of the first copy. The id is the value of the header of this name, or the "
        "record's key if this is key. A record without an id is never dropped.",
    )
    tidelog_dedup_ids_max: int = option(
        "tidelog.dedup.ids.max",
        1_000_000,
        ConfigType.INT,
        "How many ids a partition remembers, at 44 to 56 bytes of memory each; beyond it the "
        "oldest are forgotten, whatever the window says.",
        minimum=1,
    )
    tidelog_dedup_window_ms: int = option(
        "tidelog.dedup.window.ms",
        10 * MINUTE_MS,
        ConfigType.LONG,
        "How long after its first copy a record is a duplicate, by the timestamps of the log.",
        minimum=1,
        maximum=365 * DAY_MS,
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        False,
        ConfigType.BOOLEAN,
        "Let a replica that is not in sync become leader when no other is left, losing what it "
        "does not have.",
    )

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms is {self.min_compaction_lag_ms} but must not exceed "
                f"max.compaction.lag.ms, which is {self.max_compaction_lag_ms}"
            )
        if self.tidelog_dedup is not None and self.tidelog_dedup_header not in {None, DEDUP_BY_KEY}:
            raise ConfigError(
                f"tidelog.dedup is '{self.tidelog_dedup}' and tidelog.dedup.header is "
                f"'{self.tidelog_dedup_header}', but a record has one id: set one of them"
            )

    @property
    def is_deduplicated(self) -> bool:
        """Whether records that were sent before are dropped (D5)."""
        return self.tidelog_dedup is not None or self.tidelog_dedup_header is not None

    @property
    def ids_remembered_ms(self) -> int | None:
        """For how long ids count, by the log's own time; None if nothing is looked for by id.

        A duplicate is looked for in the log, so what still counts has to stay there."""
        return remembered_ms(self.tidelog_dedup_window_ms) if self.is_deduplicated else None

    @property
    def dedup_header(self) -> str | None:
        """The header that holds a record's id; None: the id is the key."""
        if self.tidelog_dedup is not None or self.tidelog_dedup_header == DEDUP_BY_KEY:
            return None
        return self.tidelog_dedup_header

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Age at which the active segment is closed. It cannot be compacted before that."""
        if self.is_compacted:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms

    @property
    def is_deleted(self) -> bool:
        """Whether age and size limits remove old segments."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], defaults: "TopicConfig") -> "TopicConfig":
        """A topic's own `overrides` over what the broker's settings say.

        Raises ConfigError for an unknown name, a wrong value, or values that contradict each
        other; handlers answer INVALID_CONFIG with its message.
        """
        for name in overrides:
            if name not in TOPIC_SETTINGS and name != INTERNAL_SEGMENT_BYTES:
                raise ConfigError(f"{name} is not a topic setting")
        resolved = override(defaults, overrides)
        if resolved.remote_storage_enable:
            raise ConfigError("remote.storage.enable is 'true' but there is no tiered storage here")
        if INTERNAL_SEGMENT_BYTES in overrides:
            size_bytes = INTERNAL_SEGMENT_BYTES_SETTING.parse(overrides[INTERNAL_SEGMENT_BYTES])
            return replace(resolved, segment_bytes=size_bytes)
        return resolved


def resolve_fitting(
    overrides: Mapping[str, str], defaults: TopicConfig
) -> tuple[TopicConfig, tuple[Misfit, ...]]:
    """A topic's own `overrides` over `defaults`, without what does not fit (config/fitting.py).

    A default that contradicts what was set for the topic gives way to Kafka's own, for it.
    """
    try:
        return TopicConfig.resolve(overrides, defaults), ()
    except ConfigError:
        pass
    values = {
        name: getattr(defaults, setting.field_name)
        for name, setting in TOPIC_SETTINGS.items()
        if getattr(defaults, setting.field_name) != setting.default
    }

    def attempt(kept: Sequence[Given]) -> TopicConfig:
        inherited = {
            TOPIC_SETTINGS[name].field_name: values[name]
            for name in those_of(Scope.OTHER_TOPICS, kept)
        }
        return TopicConfig.resolve(those_of(Scope.TOPIC, kept), build(TopicConfig, inherited))

    shown = {name: TOPIC_SETTINGS[name].render(value) or "" for name, value in values.items()}
    given = [*given_in(Scope.TOPIC, overrides), *given_in(Scope.OTHER_TOPICS, shown)]
    return fit(given, attempt)


def remembered_ms(window_ms: int) -> int:
    """How long an id may matter, by the log's time: its window, and a grace for wrong clocks."""
    return window_ms + min(window_ms, DEDUP_GRACE_MAX_MS)


TOPIC_SETTINGS: Mapping[str, Setting] = settings_of(TopicConfig)

# In the order in which they are asked. A topic setting that is absent has no broker-level form.
BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}

INTERNAL_SEGMENT_BYTES_SETTING = replace(
    TOPIC_SETTINGS["segment.bytes"], name=INTERNAL_SEGMENT_BYTES, minimum=1
)


def new_misfits(
    overrides: Mapping[str, str],
    defaults: TopicConfig,
    new_overrides: Mapping[str, str],
    new_defaults: TopicConfig,
) -> Iterator[Misfit]:
    """What a topic would have to leave out that it does not leave out before.

    What did not fit already stands in nobody's way: each mistake can be mended by itself.
    """
    _config, misfits = resolve_fitting(new_overrides, new_defaults)
    if misfits:
        _config, before = resolve_fitting(overrides, defaults)
        yield from (misfit for misfit in misfits if misfit not in before)
