"""Settings of idempotent and transactional producers."""

from dataclasses import dataclass

from tidelog.config.option import ConfigType, option


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsConfig:
    """How long producers are remembered, and the layout of `__transaction_state`."""

    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms",
        86_400_000,
        ConfigType.INT,
        "A producer that has not written to a partition for this long is forgotten there.",
        minimum=1,
        dynamic=True,
    )
    transaction_max_timeout_ms: int = option(
        "transaction.max.timeout.ms",
        900_000,
        ConfigType.INT,
        "Longest time-out a transactional producer may ask for.",
        minimum=1,
    )
    transactional_id_expiration_ms: int = option(
        "transactional.id.expiration.ms",
        604_800_000,
        ConfigType.INT,
        "A transactional id not used for this long is forgotten.",
        minimum=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        ConfigType.INT,
        "How often transactions that ran out of time are looked for.",
        minimum=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        ConfigType.INT,
        "How often transactional ids that expired are looked for.",
        minimum=1,
    )
    transaction_partition_verification_enable: bool = option(
        "transaction.partition.verification.enable",
        True,
        ConfigType.BOOLEAN,
        "Check before a transactional write that its partition belongs to the transaction.",
        dynamic=True,
    )
    add_partitions_to_txn_retry_backoff_ms: int = option(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        ConfigType.INT,
        "How soon a coordinator that still ends the last transaction is asked again.",
        minimum=1,
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = option(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        ConfigType.INT,
        "For how long a producer waits for its last transaction before it is told to try again.",
        minimum=0,
    )
    transaction_state_log_load_buffer_size: int = option(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        ConfigType.INT,
        "Bytes read at a time while transactions are loaded, at most 1 MiB.",
        minimum=1,
    )
    transaction_state_log_min_isr: int = option(
        "transaction.state.log.min.isr",
        2,
        ConfigType.INT,
        "min.insync.replicas of the transaction topic.",
        minimum=1,
    )
    transaction_state_log_num_partitions: int = option(
        "transaction.state.log.num.partitions",
        50,
        ConfigType.INT,
        "Partitions of the transaction topic. Not to be changed once it exists.",
        minimum=1,
    )
    transaction_state_log_replication_factor: int = option(
        "transaction.state.log.replication.factor",
        3,
        ConfigType.SHORT,
        "Replicas of the transaction topic.",
        minimum=1,
    )
    transaction_state_log_segment_bytes: int = option(
        "transaction.state.log.segment.bytes",
        104_857_600,
        ConfigType.INT,
        "Segment size of the transaction topic.",
        minimum=1,
    )
