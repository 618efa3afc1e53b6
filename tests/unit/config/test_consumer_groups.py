"""Settings of the consumer protocol: what Kafka takes for them is taken, and means the same."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.config.broker import BrokerConfig
from tidelog.config.consumer_groups import ConsumerGroupsConfig

PROTOCOLS = "group.coordinator.rebalance.protocols"
ASSIGNORS = "group.consumer.assignors"
POLICY = "group.consumer.migration.policy"
UNIFORM_CLASS = "org.apache.kafka.coordinator.group.assignor.UniformAssignor"
RANGE_CLASS = "org.apache.kafka.coordinator.group.assignor.RangeAssignor"


def _config(name: str, value: str) -> ConsumerGroupsConfig:
    return BrokerConfig.load({name: value}).consumer_groups


@pytest.mark.parametrize(
    ("value", "is_served"),
    [("classic", False), ("classic,streams,share", False), ("consumer, classic", True)],
)
def test_the_protocol_is_served_where_it_is_named(value: str, is_served: bool) -> None:
    assert _config(PROTOCOLS, value).is_served == is_served


def test_the_protocol_is_served_where_nothing_is_said() -> None:
    assert ConsumerGroupsConfig().is_served


@pytest.mark.parametrize("value", ["", "consumer", "classic,other", "Classic"])
def test_protocols_that_kafka_refuses_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=PROTOCOLS):
        _config(PROTOCOLS, value)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("range", ("range",)),
        (f"{RANGE_CLASS},{UNIFORM_CLASS}", ("range", "uniform")),
        (f"uniform,{UNIFORM_CLASS}", ("uniform",)),
    ],
)
def test_kafkas_assignors_are_known_by_their_classes(value: str, names: tuple[str, ...]) -> None:
    assert _config(ASSIGNORS, value).assignors == names


@pytest.mark.parametrize("value", ["", "Uniform", "org.example.Sticky"])
def test_an_assignor_that_is_not_here_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=ASSIGNORS):
        _config(ASSIGNORS, value)


@pytest.mark.parametrize("value", ["upgrade", "UPGRADE", "Upgrade"])
def test_the_case_of_a_migration_policy_does_not_matter(value: str) -> None:
    config = _config(POLICY, value)
    assert (config.may_upgrade, config.may_downgrade) == (True, False)


def test_a_migration_policy_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=POLICY):
        _config(POLICY, "sideways")
