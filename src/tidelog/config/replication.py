"""Settings of topics' replicas: how many, how they follow, who may lead."""

from dataclasses import dataclass

from tidelog.base.errors import ConfigError
from tidelog.config.option import LONG_MAX, ConfigType, option

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How new topics are laid out and how replicas keep up."""

    num_partitions: int = option(
        "num.partitions",
        1,
        ConfigType.INT,
        "Partitions of a topic created without saying how many.",
        minimum=1,
    )
    default_replication_factor: int = option(
        "default.replication.factor",
        1,
        ConfigType.INT,
        "Replicas of a topic created without saying how many.",
        minimum=1,
    )
    auto_create_topics_enable: bool = option(
        "auto.create.topics.enable",
        True,
        ConfigType.BOOLEAN,
        "Create a topic when a client that allows it first asks for its metadata.",
    )
    delete_topic_enable: bool = option(
        "delete.topic.enable",
        True,
        ConfigType.BOOLEAN,
        "Whether topics may be deleted at all.",
    )
    min_insync_replicas: int = option(
        "min.insync.replicas",
        1,
        ConfigType.INT,
        "With acks=all, a write is refused unless at least this many replicas are in sync.",
        minimum=1,
        dynamic=True,
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        False,
        ConfigType.BOOLEAN,
        "Let a replica that is not in sync lead when no other is left, losing what it lacks.",
        dynamic=True,
    )
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable",
        True,
        ConfigType.BOOLEAN,
        "Give leadership back to preferred replicas from time to time.",
    )
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds",
        300,
        ConfigType.LONG,
        "How often leadership is looked at for that.",
        minimum=1,
    )
    leader_imbalance_per_broker_percentage: int = option(
        "leader.imbalance.per.broker.percentage",
        10,
        ConfigType.INT,
        "A broker gets its leaderships back once more than this share of those it is preferred "
        "for is elsewhere.",
        minimum=0,
    )
    num_replica_fetchers: int = option(
        "num.replica.fetchers",
        1,
        ConfigType.INT,
        "Connections a follower uses to each leader.",
        minimum=1,
        dynamic=True,
    )
    leader_replication_throttled_rate: int = option(
        "leader.replication.throttled.rate",
        LONG_MAX,
        ConfigType.LONG,
        "Bytes per second sent to followers of partitions that the topic's "
        "leader.replication.throttled.replicas names.",
        minimum=0,
        dynamic=True,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = option(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        ConfigType.LONG,
        "Bytes per second that are copied of replicas on their way from one log directory to "
        "another, all together.",
        minimum=0,
        dynamic=True,
    )
    follower_replication_throttled_rate: int = option(
        "follower.replication.throttled.rate",
        LONG_MAX,
        ConfigType.LONG,
        "Bytes per second fetched as follower of partitions that the topic's "
        "follower.replication.throttled.replicas names.",
        minimum=0,
        dynamic=True,
    )
    replica_lag_time_max_ms: int = option(
        "replica.lag.time.max.ms",
        30_000,
        ConfigType.LONG,
        "A follower that has not caught up for this long leaves the in-sync set.",
        minimum=1,
    )
    replica_fetch_wait_max_ms: int = option(
        "replica.fetch.wait.max.ms",
        500,
        ConfigType.INT,
        "How long a follower's fetch waits at the leader for something to read.",
        minimum=0,
    )
    replica_fetch_min_bytes: int = option(
        "replica.fetch.min.bytes",
        1,
        ConfigType.INT,
        "Bytes that end such a wait.",
        minimum=0,
    )
    replica_fetch_max_bytes: int = option(
        "replica.fetch.max.bytes",
        1_048_576,
        ConfigType.INT,
        "Bytes a follower asks for per partition.",
        minimum=0,
    )
    replica_fetch_response_max_bytes: int = option(
        "replica.fetch.response.max.bytes",
        10_485_760,
        ConfigType.INT,
        "Bytes a follower asks for in all.",
        minimum=0,
    )
    replica_fetch_backoff_ms: int = option(
        "replica.fetch.backoff.ms",
        1000,
        ConfigType.INT,
        "How long a follower rests after a fetch that failed.",
        minimum=0,
    )
    replica_socket_timeout_ms: int = option(
        "replica.socket.timeout.ms",
        30_000,
        ConfigType.INT,
        "How long a follower waits for the answer to a fetch.",
        minimum=1,
    )
    replica_socket_receive_buffer_bytes: int = option(
        "replica.socket.receive.buffer.bytes",
        65_536,
        ConfigType.INT,
        "SO_RCVBUF of a follower's connection.",
        minimum=-1,
    )
    replica_high_watermark_checkpoint_interval_ms: int = option(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        ConfigType.LONG,
        "How often high watermarks are written down.",
        minimum=1,
    )
    replica_selector_class: str | None = option(
        "replica.selector.class",
        None,
        ConfigType.STRING,
        "Who a consumer is told to read from: the leader, if this is not given, or with the "
        "rack-aware one an in-sync replica whose broker.rack is the consumer's client.rack. That "
        "costs each commit another round trip of every follower.",
        choices=(LEADER_SELECTOR, RACK_AWARE_SELECTOR),
    )
    fetch_max_bytes: int = option(
        "fetch.max.bytes",
        57_671_680,
        ConfigType.INT,
        "Most bytes of records in the answer to one fetch, whatever the client asks for.",
        minimum=1024,
    )
    tidelog_fetch_answer_bytes: int = option(
        "tidelog.fetch.answer.bytes",
        2_097_152,
        ConfigType.INT,
        "An answer to a fetch that has this many bytes of records is sent, though fetch.max.bytes "
        "would allow more: a client works on one answer while the next one is on its way.",
        minimum=1024,
    )
    tidelog_replica_fetch_answer_bytes: int = option(
        "tidelog.replica.fetch.answer.bytes",
        1_048_576,
        ConfigType.INT,
        "A follower asks for this many bytes at a time, though replica.fetch.response.max.bytes "
        "would allow more: what others wait for has its turn sooner. More is faster between "
        "brokers that are far apart.",
        minimum=1,
    )
    tidelog_replica_bulk_bytes: int = option(
        "tidelog.replica.bulk.bytes",
        32_768,
        ConfigType.INT,
        "A partition of which a follower gets this many bytes in one answer is fetched over a "
        "connection of its own kind, so that others do not wait behind it.",
        minimum=1,
    )
    tidelog_log_dir_move_slice_bytes: int = option(
        "tidelog.log.dir.move.slice.bytes",
        1_048_576,
        ConfigType.INT,
        "A replica on its way to another log directory is copied in slices of this many bytes: "
        "other work on its disks waits for one of them.",
        minimum=1,
    )
    tidelog_log_dir_move_rest_bytes: int = option(
        "tidelog.log.dir.move.rest.bytes",
        4_194_304,
        ConfigType.INT,
        "When its copy in another log directory lacks no more than this, appends to a replica wait "
        "until the rest is copied too. A replica that is written faster than it is copied lags "
        "behind for ever if this is small.",
        minimum=0,
    )
    max_incremental_fetch_session_cache_slots: int = option(
        "max.incremental.fetch.session.cache.slots",
        1000,
        ConfigType.INT,
        "Incremental fetch sessions kept at a time.",
        minimum=0,
    )
    max_request_partition_size_limit: int = option(
        "max.request.partition.size.limit",
        2000,
        ConfigType.INT,
        "Most partitions in one answer to DescribeTopicPartitions.",
        minimum=1,
    )
    controlled_shutdown_max_retries: int = option(
        "controlled.shutdown.max.retries",
        3,
        ConfigType.INT,
        "How often a broker that stops asks for that before it stops all the same.",
        minimum=1,
    )
    controlled_shutdown_enable: bool = option(
        "controlled.shutdown.enable",
        True,
        ConfigType.BOOLEAN,
        "Move leaders away before stopping.",
    )

    @property
    def is_rack_aware(self) -> bool:
        """Whether consumers are told of replicas that are near them (KIP-392)."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    def __post_init__(self) -> None:
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            raise ConfigError(
                f"replica.fetch.wait.max.ms is {self.replica_fetch_wait_max_ms} but must not "
                f"exceed replica.lag.time.max.ms, which is {self.replica_lag_time_max_ms}"
            )
        if self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms:
            raise ConfigError(
                f"replica.fetch.wait.max.ms is {self.replica_fetch_wait_max_ms} but must not "
                f"exceed replica.socket.timeout.ms, which is {self.replica_socket_timeout_ms}"
            )
