"""Altering settings of topics and brokers, with Kafka's error codes (P1, KIP-339).

The codes were compared with those of Apache Kafka 4.3.
"""

import pytest

from tests.unit.core.controller.clusters import brokers, cluster, topic
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.config.broker import BrokerConfig
from tidelog.config.dynamic import AlterOperation
from tidelog.core.controller.changes import BrokerConfigChanged, TopicConfigChanged
from tidelog.core.controller.configs import alter_configs, replace_configs
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigOutcome,
    ConfigResource,
    ResourceType,
)

CONFIG = BrokerConfig.load({})
IMAGE = cluster(
    brokers(1, 2),
    topic("a", 1),
    topic("b", 2),
    topic_configs={"a": {"retention.ms": "1", "segment.ms": "2"}},
).apply_all(
    [
        BrokerConfigChanged(None, {"message.max.bytes": "1000"}),
        BrokerConfigChanged(BrokerId(2), {"message.max.bytes": "2000"}),
    ]
)
TOPIC_A = ConfigResource(ResourceType.TOPIC, "a")


def alter(resource: ConfigResource, *steps: tuple[str, int, str | None]) -> Decision[ConfigOutcome]:
    alterations = tuple(ConfigAlteration(*step) for step in steps)
    return alter_configs(IMAGE, CONFIG, [(resource, alterations)])


def replace(resource: ConfigResource, *settings: tuple[str, str | None]) -> Decision[ConfigOutcome]:
    return replace_configs(IMAGE, CONFIG, [(resource, settings)])


def codes(decision: Decision[ConfigOutcome]) -> list[ErrorCode]:
    return [outcome.error for outcome in decision.outcomes]


def test_what_is_not_named_stays_in_an_incremental_change() -> None:
    decision = alter(
        TOPIC_A, ("retention.ms", AlterOperation.SET, "9"), ("flush.ms", AlterOperation.SET, "3")
    )
    assert codes(decision) == [ErrorCode.NONE]
    assert decision.changes == [
        TopicConfigChanged("a", {"retention.ms": "9", "segment.ms": "2", "flush.ms": "3"})
    ]


def test_what_is_not_named_goes_in_a_replacement() -> None:
    assert replace(TOPIC_A, ("flush.ms", "3")).changes == [
        TopicConfigChanged("a", {"flush.ms": "3"})
    ]
    assert replace(TOPIC_A).changes == [TopicConfigChanged("a", {})]


def test_settings_are_deleted() -> None:
    decision = alter(TOPIC_A, ("retention.ms", AlterOperation.DELETE, None))
    assert decision.changes == [TopicConfigChanged("a", {"segment.ms": "2"})]


def test_lists_grow_from_what_is_effective() -> None:
    decision = alter(TOPIC_A, ("cleanup.policy", AlterOperation.APPEND, "compact"))
    (change,) = decision.changes
    assert isinstance(change, TopicConfigChanged)
    assert change.configs["cleanup.policy"] == "delete,compact"


@pytest.mark.parametrize(
    ("name", "broker_id"), [("", None), ("1", BrokerId(1)), ("2", BrokerId(2)), ("02", BrokerId(2))]
)
def test_brokers_are_altered_one_by_one_or_all_at_once(
    name: str, broker_id: BrokerId | None
) -> None:
    resource = ConfigResource(ResourceType.BROKER, name)
    decision = alter(resource, ("log.retention.ms", AlterOperation.SET, "60000"))
    (change,) = decision.changes
    assert change == BrokerConfigChanged(
        broker_id, {**IMAGE.broker_config(broker_id), "log.retention.ms": "60000"}
    )


RESOURCES_REFUSED = [
    (ConfigResource(ResourceType.TOPIC, "absent"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (ConfigResource(ResourceType.TOPIC, ""), ErrorCode.INVALID_REQUEST),
    (ConfigResource(ResourceType.TOPIC, "a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (ConfigResource(ResourceType.BROKER, "x"), ErrorCode.INVALID_REQUEST),
    (ConfigResource(ResourceType.BROKER, "9"), ErrorCode.INVALID_REQUEST),
    (ConfigResource(ResourceType.BROKER, "-1"), ErrorCode.INVALID_REQUEST),
    (ConfigResource(ResourceType.BROKER, "9" * 5_000), ErrorCode.INVALID_REQUEST),
    (ConfigResource(ResourceType.BROKER, "٣"), ErrorCode.INVALID_REQUEST),
    (ConfigResource(0, "a"), ErrorCode.INVALID_REQUEST),
    (ConfigResource(8, "1"), ErrorCode.INVALID_REQUEST),
    (ConfigResource(99, "a"), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(
    ("resource", "code"), RESOURCES_REFUSED, ids=lambda value: f"{value!s:.60}"
)
def test_a_resource_that_is_not_there_is_refused(resource: ConfigResource, code: ErrorCode) -> None:
    for decision in (alter(resource), replace(resource)):
        assert codes(decision) == [code]
        assert decision.changes == []


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([("no.such", AlterOperation.SET, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", AlterOperation.SET, "x")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", AlterOperation.SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", AlterOperation.APPEND, "1")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", AlterOperation.SET, "1")] * 2, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_alteration_is_refused(
    steps: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    decision = alter(TOPIC_A, *steps)
    assert codes(decision) == [code]
    assert decision.changes == []


def test_a_setting_replaced_twice_is_refused() -> None:
    decision = replace(TOPIC_A, ("retention.ms", "1"), ("retention.ms", "2"))
    assert codes(decision) == [ErrorCode.INVALID_REQUEST]


def test_one_refused_resource_does_not_spoil_its_neighbours() -> None:
    decision = replace_configs(
        IMAGE,
        CONFIG,
        [
            (TOPIC_A, (("retention.ms", "x"),)),
            (ConfigResource(ResourceType.TOPIC, "b"), (("retention.ms", "5"),)),
        ],
    )
    assert codes(decision) == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    assert decision.changes == [TopicConfigChanged("b", {"retention.ms": "5"})]


def test_a_resource_named_twice_is_refused() -> None:
    decision = replace_configs(IMAGE, CONFIG, [(TOPIC_A, ()), (TOPIC_A, (("flush.ms", "1"),))])
    assert codes(decision) == [ErrorCode.INVALID_REQUEST]
    assert decision.changes == []
