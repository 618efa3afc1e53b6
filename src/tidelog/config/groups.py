"""Settings of consumer groups and of the topic that keeps their offsets."""

from dataclasses import dataclass

from tidelog.base.errors import ConfigError
from tidelog.config.option import INT_MAX, ConfigType, option


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """Bounds on members and their time-outs, and the layout of `__consumer_offsets`."""

    group_initial_rebalance_delay_ms: int = option(
        "group.initial.rebalance.delay.ms",
        3000,
        ConfigType.INT,
        "How long a new group waits for more members before its first assignment.",
        minimum=0,
    )
    group_min_session_timeout_ms: int = option(
        "group.min.session.timeout.ms",
        6000,
        ConfigType.INT,
        "Shortest session time-out a member may ask for.",
        minimum=0,
    )
    group_max_session_timeout_ms: int = option(
        "group.max.session.timeout.ms",
        1_800_000,
        ConfigType.INT,
        "Longest session time-out a member may ask for.",
        minimum=0,
    )
    group_max_size: int = option(
        "group.max.size",
        INT_MAX,
        ConfigType.INT,
        "Most members of one group.",
        minimum=1,
    )
    offset_metadata_max_bytes: int = option(
        "offset.metadata.max.bytes",
        4096,
        ConfigType.INT,
        "Longest note that a commit may carry.",
        minimum=0,
    )
    offsets_commit_timeout_ms: int = option(
        "offsets.commit.timeout.ms",
        5000,
        ConfigType.INT,
        "How long a commit waits until the replicas have it.",
        minimum=1,
    )
    offsets_load_buffer_size: int = option(
        "offsets.load.buffer.size",
        5_242_880,
        ConfigType.INT,
        "Bytes read at a time while offsets are loaded, at most 1 MiB.",
        minimum=1,
    )
    offsets_retention_check_interval_ms: int = option(
        "offsets.retention.check.interval.ms",
        600_000,
        ConfigType.LONG,
        "How often stale offsets are looked for.",
        minimum=1,
    )
    offsets_retention_minutes: int = option(
        "offsets.retention.minutes",
        10_080,
        ConfigType.INT,
        "Age at which the offsets of an empty group are forgotten.",
        minimum=1,
    )
    offsets_topic_compression_codec: int = option(
        "offsets.topic.compression.codec",
        0,
        ConfigType.INT,
        "Codec of the offsets topic, by its number.",
        minimum=0,
        maximum=4,
    )
    offsets_topic_num_partitions: int = option(
        "offsets.topic.num.partitions",
        50,
        ConfigType.INT,
        "Partitions of the offsets topic. Not to be changed once it exists.",
        minimum=1,
    )
    offsets_topic_replication_factor: int = option(
        "offsets.topic.replication.factor",
        3,
        ConfigType.SHORT,
        "Replicas of the offsets topic.",
        minimum=1,
    )
    offsets_topic_segment_bytes: int = option(
        "offsets.topic.segment.bytes",
        104_857_600,
        ConfigType.INT,
        "Segment size of the offsets topic.",
        minimum=1,
    )

    def __post_init__(self) -> None:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ConfigError(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms} but must not "
                f"exceed group.max.session.timeout.ms, which is {self.group_max_session_timeout_ms}"
            )
