"""DescribeConfigs tells values and where they come from, as Kafka 4.3 does for the same input."""

from tidelog.config.broker import BROKER_SETTINGS, BrokerConfig
from tidelog.config.describe import (
    ConfigSource,
    DescribedConfig,
    describe_broker,
    describe_cluster_wide,
    describe_topic,
)
from tidelog.config.option import ConfigType
from tidelog.config.topic import TOPIC_SETTINGS

CONFIG = BrokerConfig.load(
    {
        "node.id": "1",
        "log.dirs": "/tmp/d",
        "log.retention.minutes": "100",
        "log.roll.hours": "5",
        "foo.bar": "baz",
    }
).with_dynamic(
    cluster_wide={"log.retention.ms": "500000"},
    this_broker={"log.retention.ms": "600000", "num.io.threads": "7"},
)


def topic(overrides: dict[str, str], name: str) -> DescribedConfig:
    [described] = describe_topic(overrides, CONFIG, [name])
    return described


def broker(name: str) -> DescribedConfig:
    [described] = describe_broker(CONFIG, [name])
    return described


def synonyms(described: DescribedConfig) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, int(each.source)) for each in described.synonyms]


def test_a_topic_shows_every_layer_that_sets_a_value() -> None:
    described = topic({"retention.ms": " 7"}, "retention.ms")
    assert described.value == "7"
    assert described.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert synonyms(described) == [
        ("retention.ms", "7", 1),
        ("log.retention.ms", "600000", 2),
        ("log.retention.ms", "500000", 3),
        ("log.retention.minutes", "100", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_topic_without_override_shows_the_brokers_value_and_source() -> None:
    described = topic({}, "retention.ms")
    assert (described.value, described.source) == ("600000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert not described.is_default


def test_a_coarser_static_setting_is_the_source_of_a_topics_value() -> None:
    described = topic({}, "segment.ms")
    assert (described.value, described.source) == ("18000000", ConfigSource.STATIC_BROKER_CONFIG)
    assert synonyms(described) == [("log.roll.hours", "5", 4), ("log.roll.hours", "168", 5)]


def test_a_setting_without_broker_form_is_a_default_without_synonyms() -> None:
    described = topic({}, "remote.storage.enable")
    assert described.is_default
    assert described.synonyms == ()


def test_a_list_is_shown_without_blanks() -> None:
    described = topic(
        {"leader.replication.throttled.replicas": "0:1, 1:2"},
        "leader.replication.throttled.replicas",
    )
    assert described.value == "0:1,1:2"
    assert described.type is ConfigType.LIST


def test_all_topic_settings_are_listed_in_full() -> None:
    described = describe_topic({}, CONFIG, None)
    assert [each.name for each in described] == list(TOPIC_SETTINGS)
    assert all(each.documentation for each in described)
    assert not any(each.is_read_only or each.is_sensitive for each in described)


def test_the_internal_segment_size_is_shown_only_where_it_is_set() -> None:
    described = {
        each.name: each.value
        for each in describe_topic({"internal.segment.bytes": "5"}, CONFIG, None)
    }
    assert described["internal.segment.bytes"] == "5"
    assert described["segment.bytes"] == "1073741824"


def test_names_that_do_not_exist_are_left_out() -> None:
    assert describe_topic({}, CONFIG, ["zzz"]) == []
    assert describe_broker(CONFIG, ["cleanup.policy"]) == []


def test_a_broker_setting_shows_its_layers() -> None:
    assert synonyms(broker("num.io.threads")) == [
        ("num.io.threads", "7", 2),
        ("num.io.threads", "8", 5),
    ]
    assert synonyms(broker("log.retention.minutes")) == [
        ("log.retention.minutes", "100", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_broker_setting_that_is_silent_was_set_by_nobody() -> None:
    silent = BrokerConfig.load({"log.retention.hours": "5"})
    [described] = describe_broker(silent, ["log.retention.ms"])
    assert described.value is None
    assert described.source is ConfigSource.DEFAULT_CONFIG
    assert synonyms(described) == []


def test_only_settings_that_can_change_are_not_read_only() -> None:
    assert not broker("log.retention.ms").is_read_only
    assert broker("log.retention.minutes").is_read_only
    assert broker("node.id").is_read_only


def test_a_setting_without_value_is_a_default() -> None:
    described = broker("broker.rack")
    assert (described.value, described.source) == (None, ConfigSource.DEFAULT_CONFIG)


def test_a_broker_shows_its_id_under_both_names() -> None:
    assert broker("node.id").value == "1"
    assert broker("broker.id").value == "1"


def test_an_unknown_static_setting_is_listed_but_its_value_kept_secret() -> None:
    described = broker("foo.bar")
    assert described.value is None
    assert described.is_sensitive
    assert described.type is ConfigType.UNKNOWN
    assert synonyms(described) == [("foo.bar", None, 4)]


def test_all_broker_settings_are_listed() -> None:
    names = [each.name for each in describe_broker(CONFIG, None)]
    assert names == [*BROKER_SETTINGS, "foo.bar"]


def test_cluster_wide_settings_are_only_what_was_set_for_all() -> None:
    [described] = describe_cluster_wide(CONFIG, None)
    assert described.name == "log.retention.ms"
    assert synonyms(described) == [("log.retention.ms", "500000", 3)]
    assert describe_cluster_wide(CONFIG, ["num.io.threads"]) == []


LAGS = {"log.cleaner.max.compaction.lag.ms": "50", "max.connections": "of a later version"}
CONTRADICTED = BrokerConfig.load({}).with_fitting(
    cluster_wide=LAGS, this_broker={"log.cleaner.min.compaction.lag.ms": "100"}
)


def test_a_broker_shows_what_is_in_force_beside_what_is_set() -> None:
    name = "log.cleaner.max.compaction.lag.ms"
    [described] = describe_broker(CONTRADICTED, [name])
    assert described.value == str(2**63 - 1)
    assert described.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert synonyms(described) == [(name, "50", 3), (name, str(2**63 - 1), 5)]


def test_what_is_left_out_of_a_brokers_own_settings_is_listed_as_its_own() -> None:
    name = "group.consumer.assignment.interval.ms"
    config = BrokerConfig.load({"group.consumer.max.assignment.interval.ms": "10000"}).with_fitting(
        cluster_wide={}, this_broker={name: "12000"}
    )
    [described] = describe_broker(config, [name])
    assert (described.value, described.source) == ("1000", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert synonyms(described) == [(name, "12000", 2), (name, "1000", 5)]


def test_a_topic_does_not_inherit_what_is_left_out() -> None:
    [described] = describe_topic({}, CONTRADICTED, ["max.compaction.lag.ms"])
    assert (described.value, described.source) == (str(2**63 - 1), ConfigSource.DEFAULT_CONFIG)
    assert len(described.synonyms) == 1


def test_what_is_set_for_all_brokers_is_shown_although_it_is_left_out_here() -> None:
    shown = {one.name: one.value for one in describe_cluster_wide(CONTRADICTED, None)}
    assert shown == LAGS


def test_a_topic_shows_the_default_in_place_of_what_contradicts_it() -> None:
    broker_config = BrokerConfig.load({"log.cleaner.max.compaction.lag.ms": "50"})
    overrides = {"min.compaction.lag.ms": "100"}
    least, most = describe_topic(
        overrides, broker_config, ["min.compaction.lag.ms", "max.compaction.lag.ms"]
    )[::-1]
    assert (least.value, least.source) == ("100", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (most.value, most.source) == (str(2**63 - 1), ConfigSource.DEFAULT_CONFIG)
