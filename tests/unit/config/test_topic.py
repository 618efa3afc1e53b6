"""Topic settings: Kafka's defaults, Kafka's bounds, overrides first."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.config.option import LONG_MAX
from tidelog.config.topic import BROKER_SYNONYMS, TOPIC_SETTINGS, TopicConfig

# As `LogConfig` of Apache Kafka 4.3.0 lists them.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": str(LONG_MAX),
    "flush.ms": str(LONG_MAX),
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": str(LONG_MAX),
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": str(LONG_MAX),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_names_and_defaults_are_kafkas() -> None:
    ours = {
        name: each.render(each.default)
        for name, each in TOPIC_SETTINGS.items()
        if not name.startswith("tidelog.")
    }
    assert ours == KAFKA_DEFAULTS


@pytest.mark.parametrize(
    ("overrides", "is_deduplicated", "header"),
    [
        ({}, False, None),
        ({"tidelog.dedup.header": "guid"}, True, "guid"),
        ({"tidelog.dedup.header": "key"}, True, None),
        ({"tidelog.dedup": "key"}, True, None),
        ({"tidelog.dedup": "key", "tidelog.dedup.header": "key"}, True, None),
        ({"tidelog.dedup.header": ""}, False, None),
        ({"tidelog.dedup.window.ms": "5"}, False, None),
    ],
)
def test_id_of_a_record_is_in_a_header_or_its_key(
    overrides: dict[str, str], is_deduplicated: bool, header: str | None
) -> None:
    """D5"""
    resolved = TopicConfig.resolve(overrides, TopicConfig())
    assert (resolved.is_deduplicated, resolved.dedup_header) == (is_deduplicated, header)


@pytest.mark.parametrize(
    ("overrides", "remembered_ms"),
    [
        ({}, None),
        ({"tidelog.dedup.window.ms": "100"}, None),
        ({"tidelog.dedup": "key", "tidelog.dedup.window.ms": "100"}, 200),
    ],
)
def test_ids_are_remembered_for_their_window_and_a_grace(
    overrides: dict[str, str], remembered_ms: int | None
) -> None:
    """D5"""
    assert TopicConfig.resolve(overrides, TopicConfig()).ids_remembered_ms == remembered_ms


def test_record_has_one_id() -> None:
    overrides = {"tidelog.dedup": "key", "tidelog.dedup.header": "guid"}
    with pytest.raises(ConfigError, match="set one of them"):
        TopicConfig.resolve(overrides, TopicConfig())


def test_every_setting_is_documented() -> None:
    assert all(setting.documentation for setting in TOPIC_SETTINGS.values())


def test_settings_without_broker_form_are_the_ones_kafka_has_none_for() -> None:
    kafkas = {name for name in TOPIC_SETTINGS if not name.startswith("tidelog.")}
    assert kafkas - set(BROKER_SYNONYMS) == {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }


def test_an_override_wins_over_the_brokers_default() -> None:
    defaults = TopicConfig(retention_ms=5, segment_bytes=2**21)
    resolved = TopicConfig.resolve({"retention.ms": "7"}, defaults)
    assert resolved == TopicConfig(retention_ms=7, segment_bytes=2**21)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", "1048575"),
        ("segment.index.bytes", "3"),
        ("segment.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.bytes", "many"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", "-1"),
        ("index.interval.bytes", "2147483648"),
        ("message.timestamp.type", "createtime"),
        ("compression.type", "none"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("cleanup.policy", "archive"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("leader.replication.throttled.replicas", "none"),
        ("preallocate", "1"),
    ],
)
def test_a_value_that_kafka_refuses_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TopicConfig.resolve({name: value}, TopicConfig())
    assert name in str(refused.value)
    assert f"'{value}'" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", ""),
        ("cleanup.policy", "compact, delete"),
        ("compression.gzip.level", "-1"),
        ("compression.zstd.level", "-131072"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", "0:1, 1:2"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
    ],
)
def test_a_value_that_kafka_accepts_is_accepted(name: str, value: str) -> None:
    TopicConfig.resolve({name: value}, TopicConfig())


def test_an_unknown_topic_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"retention\.hours is not a topic setting"):
        TopicConfig.resolve({"retention.hours": "1"}, TopicConfig())


def test_compaction_lags_that_contradict_each_other_are_refused_by_both_names() -> None:
    with pytest.raises(ConfigError) as refused:
        TopicConfig.resolve(
            {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, TopicConfig()
        )
    assert "min.compaction.lag.ms is 6" in str(refused.value)
    assert "max.compaction.lag.ms, which is 5" in str(refused.value)


def test_tiered_storage_is_refused_rather_than_ignored() -> None:
    with pytest.raises(ConfigError, match=r"remote\.storage\.enable"):
        TopicConfig.resolve({"remote.storage.enable": "true"}, TopicConfig())


def test_internal_segment_bytes_goes_below_the_public_bound() -> None:
    assert TopicConfig.resolve({"internal.segment.bytes": "9"}, TopicConfig()).segment_bytes == 9


def test_cleanup_policy_is_asked_by_its_two_parts() -> None:
    both = TopicConfig(cleanup_policy=("compact", "delete"))
    neither = TopicConfig(cleanup_policy=())
    assert both.is_compacted
    assert both.is_deleted
    assert not neither.is_compacted
    assert not neither.is_deleted
    assert TopicConfig(message_timestamp_type="LogAppendTime").is_log_append_time
