"""Of settings that do not go together, as many are in force as do (F1 to F4)."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.config.broker import BrokerConfig
from tidelog.config.fitting import Given, Scope
from tidelog.config.topic import TopicConfig, resolve_fitting

MIN, MAX = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
ASSIGNMENT = "group.consumer.assignment.interval.ms"


def fitted(
    static: dict[str, str] | None = None,
    *,
    cluster_wide: dict[str, str] | None = None,
    this_broker: dict[str, str] | None = None,
) -> BrokerConfig:
    return BrokerConfig.load(static or {}).with_fitting(
        cluster_wide=cluster_wide or {}, this_broker=this_broker or {}
    )


def left_out(config: BrokerConfig) -> list[Given]:
    return [misfit.given for misfit in config.misfits]


def test_settings_that_go_together_are_all_in_force() -> None:
    layers = {"cluster_wide": {MAX: "50"}, "this_broker": {MIN: "10"}}
    assert fitted(**layers) == BrokerConfig.load({}).with_dynamic(**layers)


def test_the_setting_of_one_broker_counts_before_that_of_all() -> None:
    config = fitted(cluster_wide={MAX: "50", "message.max.bytes": "7"}, this_broker={MIN: "100"})
    assert left_out(config) == [Given(Scope.ALL_BROKERS, MAX, "50")]
    assert config.misfits[0].reason == (
        "min.compaction.lag.ms is 100 but must not exceed max.compaction.lag.ms, which is 50"
    )
    assert config.topic_defaults.min_compaction_lag_ms == 100
    assert config.topic_defaults.max_message_bytes == 7


def test_a_dynamic_setting_gives_way_to_the_properties_file() -> None:
    config = fitted(
        {"group.consumer.max.assignment.interval.ms": "10000"}, cluster_wide={ASSIGNMENT: "12000"}
    )
    assert left_out(config) == [Given(Scope.ALL_BROKERS, ASSIGNMENT, "12000")]
    assert config.consumer_groups.group_consumer_assignment_interval_ms == 1_000


def test_a_setting_that_fits_only_after_another_is_in_force() -> None:
    config = fitted(
        {MIN: "100", MAX: "200"},
        cluster_wide={MAX: "50", MIN: "10", "max.connections": "no number"},
    )
    assert [one.name for one in left_out(config)] == ["max.connections"]
    assert (
        config.log.log_cleaner_min_compaction_lag_ms,
        config.log.log_cleaner_max_compaction_lag_ms,
    ) == (10, 50)


def test_what_is_left_out_is_still_known_to_be_set() -> None:
    config = fitted(cluster_wide={MAX: "50"}, this_broker={MIN: "100", "max.connections": "x"})
    assert (config.dynamic_default, config.default_in_force) == ({MAX: "50"}, {})
    assert config.dynamic_broker == {MIN: "100", "max.connections": "x"}
    assert config.broker_in_force == {MIN: "100"}


def test_what_is_left_out_is_in_force_once_it_fits() -> None:
    config = fitted(cluster_wide={MAX: "50"}, this_broker={MIN: "100"})
    mended = config.with_fitting(cluster_wide={MAX: "50"}, this_broker={})
    assert (mended.misfits, mended.default_in_force) == ((), {MAX: "50"})


def test_a_topic_without_contradictions_has_everything_in_force() -> None:
    defaults = TopicConfig(retention_ms=5)
    config, misfits = resolve_fitting({"segment.ms": "7"}, defaults)
    assert (config, misfits) == (TopicConfig(retention_ms=5, segment_ms=7), ())


def test_the_setting_of_a_topic_counts_before_what_it_would_inherit() -> None:
    defaults = TopicConfig(max_compaction_lag_ms=50, retention_ms=5)
    config, misfits = resolve_fitting({"min.compaction.lag.ms": "100"}, defaults)
    assert config == TopicConfig(min_compaction_lag_ms=100, retention_ms=5)
    assert [one.given for one in misfits] == [
        Given(Scope.OTHER_TOPICS, "max.compaction.lag.ms", "50")
    ]


def test_a_topic_setting_that_nobody_knows_is_left_out() -> None:
    config, misfits = resolve_fitting({"of.a.later.version": "1", "segment.ms": "7"}, TopicConfig())
    assert config == TopicConfig(segment_ms=7)
    assert [one.reason for one in misfits] == ["of.a.later.version is not a topic setting"]


def test_a_strict_change_still_raises() -> None:
    with pytest.raises(ConfigError, match="must not exceed"):
        BrokerConfig.load({}).with_dynamic(cluster_wide={MAX: "50"}, this_broker={MIN: "100"})
