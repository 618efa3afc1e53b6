"""DescribeConfigs: settings of topics and brokers, and where they come from (P1, G5)."""

import asyncio
from collections.abc import Mapping

from kio.schema.describe_configs.v4.request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from tests.unit.broker.handlers.samples import cluster, context, partition, topic
from tidelog.broker.handlers.describe_configs import DescribeConfigsHandler
from tidelog.broker.loggers import Loggers
from tidelog.config.broker import BrokerConfig
from tidelog.config.option import ConfigType

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPIC_CONFIG, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
TOPIC_SETTING_COUNT = 37

PARTITIONS = cluster(topic("t", partition(), configs={"retention.ms": "1000"}))
Resource = tuple[int, str] | tuple[int, str, tuple[str, ...]]


def describe(
    *resources: Resource,
    static: Mapping[str, str] | None = None,
    cluster_wide: Mapping[str, str] | None = None,
    this_broker: Mapping[str, str] | None = None,
    synonyms: bool = False,
    documentation: bool = False,
) -> tuple[DescribeConfigsResult, ...]:
    config = BrokerConfig.load({"node.id": "1", **(static or {})}).with_dynamic(
        cluster_wide=cluster_wide or {}, this_broker=this_broker or {}
    )
    handler = DescribeConfigsHandler(
        partitions=PARTITIONS, broker_config=lambda: config, loggers=Loggers(config.broker_id)
    )
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=i8(resource[0]),
                resource_name=resource[1],
                configuration_keys=resource[2] if len(resource) > 2 else None,
            )
            for resource in resources
        ),
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    return asyncio.run(handler.handle(request, context())).results


def only(result: DescribeConfigsResult) -> DescribeConfigsResourceResult:
    assert result.error_code is ErrorCode.none, result.error_message
    (config,) = result.configs
    return config


def test_a_topic_shows_all_its_settings() -> None:
    (result,) = describe((TOPIC, "t"))
    assert (result.error_code, result.error_message) == (ErrorCode.none, "")
    assert (result.resource_type, result.resource_name) == (TOPIC, "t")
    assert len(result.configs) == TOPIC_SETTING_COUNT


def test_a_resource_asked_for_twice_is_answered_once() -> None:
    results = describe((TOPIC, "t"), (TOPIC, "t"), (TOPIC, "t", ("flush.ms",)))
    assert [len(result.configs) for result in results] == [TOPIC_SETTING_COUNT, 1]


def test_an_empty_filter_is_no_filter() -> None:
    (result,) = describe((TOPIC, "t", ()))
    assert len(result.configs) == TOPIC_SETTING_COUNT


def test_a_filter_skips_names_that_do_not_exist() -> None:
    (result,) = describe((TOPIC, "t", ("flush.ms", "no.such.setting")))
    assert [config.name for config in result.configs] == ["flush.ms"]


def test_a_setting_of_the_topics_own_says_so() -> None:
    config = only(describe((TOPIC, "t", ("retention.ms",)))[0])
    assert (config.value, config.config_source) == ("1000", TOPIC_CONFIG)
    assert not config.read_only
    assert not config.is_sensitive
    assert int(config.config_type) == ConfigType.LONG


def test_synonyms_tell_all_places_that_set_a_value_in_order() -> None:
    (result,) = describe(
        (TOPIC, "t", ("segment.bytes",)),
        static={"log.segment.bytes": "2000000"},
        cluster_wide={"log.segment.bytes": "3000000"},
        synonyms=True,
    )
    config = only(result)
    assert (config.value, config.config_source) == ("3000000", DYNAMIC_DEFAULT)
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        ("log.segment.bytes", "3000000", DYNAMIC_DEFAULT),
        ("log.segment.bytes", "2000000", STATIC),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]


def test_synonyms_and_documentation_are_told_only_to_who_asks() -> None:
    plain = only(describe((TOPIC, "t", ("flush.messages",)))[0])
    assert (plain.synonyms, plain.documentation) == ((), None)
    full = only(describe((TOPIC, "t", ("flush.messages",)), synonyms=True, documentation=True)[0])
    assert [one.name for one in full.synonyms] == ["log.flush.interval.messages"]
    assert full.documentation


def test_a_topic_that_does_not_exist_fails_alone() -> None:
    missing, illegal, empty, there = describe(
        (TOPIC, "gone"), (TOPIC, "not a name"), (TOPIC, ""), (TOPIC, "t", ("flush.ms",))
    )
    assert missing.error_code is ErrorCode.unknown_topic_or_partition
    assert illegal.error_code is ErrorCode.invalid_topic_exception
    assert empty.error_code is ErrorCode.invalid_topic_exception
    assert there.error_code is ErrorCode.none


def test_a_broker_shows_its_own_settings() -> None:
    (result,) = describe(
        (BROKER, "1", ("broker.rack",)), static={"broker.rack": "r1"}, synonyms=True
    )
    config = only(result)
    assert (config.value, config.config_source, config.read_only) == ("r1", STATIC, True)
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        ("broker.rack", "r1", STATIC)
    ]


def test_dynamic_settings_of_a_broker_come_before_those_of_all() -> None:
    (result,) = describe(
        (BROKER, "1", ("num.io.threads",)),
        cluster_wide={"num.io.threads": "9"},
        this_broker={"num.io.threads": "10"},
        synonyms=True,
    )
    config = only(result)
    assert (config.value, config.config_source, config.read_only) == ("10", DYNAMIC_BROKER, False)
    assert [(one.value, one.source) for one in config.synonyms] == [
        ("10", DYNAMIC_BROKER),
        ("9", DYNAMIC_DEFAULT),
        ("8", DEFAULT),
    ]


def test_the_value_of_a_setting_nobody_knows_stays_hidden() -> None:
    config = only(describe((BROKER, "1", ("my.secret",)), static={"my.secret": "hunter2"})[0])
    assert (config.value, config.is_sensitive, config.read_only) == (None, True, True)
    assert config.config_source == STATIC


def test_the_empty_broker_name_shows_what_was_set_for_all_brokers() -> None:
    (result,) = describe(
        (BROKER, ""), cluster_wide={"num.io.threads": "9"}, this_broker={"log.retention.ms": "5"}
    )
    config = only(result)
    assert (config.name, config.value, config.config_source) == (
        "num.io.threads",
        "9",
        DYNAMIC_DEFAULT,
    )


def test_another_broker_answers_for_itself() -> None:
    (result,) = describe((BROKER, "2"))
    assert result.error_code is ErrorCode.invalid_request
    assert result.error_message == (
        "Unexpected broker id, expected 1 or empty string, but received 2"
    )
    assert result.configs == ()


def test_a_broker_is_named_by_its_number() -> None:
    (result,) = describe((BROKER, "abc"))
    assert result.error_code is ErrorCode.invalid_request
    assert result.error_message == "Broker id must be an integer, but it is: abc"


def test_the_number_of_a_broker_may_have_a_sign_as_in_java() -> None:
    assert {result.error_code for result in describe((BROKER, "+1"), (BROKER, "01"))} == {
        ErrorCode.none
    }


def test_resources_that_are_not_served_are_refused_by_name() -> None:
    results = describe((CLIENT_METRICS, "m"), (99, "x"))
    assert {result.error_code for result in results} == {ErrorCode.invalid_request}
    assert [result.error_message for result in results] == [
        "Unsupported resource type: CLIENT_METRICS",
        "Unsupported resource type: 99",
    ]


def test_a_group_that_nobody_knows_has_the_brokers_settings() -> None:
    (result,) = describe((GROUP, "g"))
    assert result.error_code is ErrorCode.none
    assert {config.name: (config.value, config.config_source) for config in result.configs} == {
        "consumer.session.timeout.ms": ("45000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.assignment.interval.ms": ("1000", 5),
    }


def test_there_are_no_settings_of_all_groups() -> None:
    (result,) = describe((GROUP, ""))
    assert result.error_code is ErrorCode.invalid_request


def test_levels_of_loggers_are_settings_of_the_broker_they_are_on() -> None:
    ours, theirs = describe((BROKER_LOGGER, "1"), (BROKER_LOGGER, "2"))
    assert ours.error_code is ErrorCode.none
    assert {config.config_source for config in ours.configs} == {6}
    assert "root" in {config.name for config in ours.configs}
    assert theirs.error_code is ErrorCode.invalid_request
