"""Settings of single groups: what may be set, and what counts (P1, P3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.config.group import require_valid, resolve

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
BROKER = ConsumerGroupsConfig(group_consumer_min_session_timeout_ms=6_000)


def test_a_group_without_settings_has_the_brokers() -> None:
    require_valid({}, BROKER, before={})
    assert resolve({}, BROKER) == BROKER


def test_a_setting_of_a_group_counts_for_it() -> None:
    settings = {SESSION: "50000", HEARTBEAT: "6000", ASSIGNMENT: "0"}
    require_valid(settings, BROKER, before={})
    config = resolve(settings, BROKER)
    assert config.group_consumer_session_timeout_ms == 50_000
    assert config.group_consumer_heartbeat_interval_ms == 6_000
    assert config.group_consumer_assignment_interval_ms == 0
    assert config.group_consumer_max_size == BROKER.group_consumer_max_size


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({SESSION: "5999"}, "group.consumer.min.session.timeout.ms"),
        ({SESSION: "60001"}, "group.consumer.max.session.timeout.ms"),
        ({HEARTBEAT: "4999"}, "group.consumer.min.heartbeat.interval.ms"),
        ({ASSIGNMENT: "15001"}, "group.consumer.max.assignment.interval.ms"),
        ({SESSION: "8000", HEARTBEAT: "8000"}, SESSION),
        ({SESSION: "soon"}, SESSION),
        ({"share.session.timeout.ms": "45000"}, "share.session.timeout.ms"),
    ],
)
def test_what_a_group_may_not_have_is_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named.replace(".", r"\.")):
        require_valid(settings, BROKER, before={})


@given(
    session_ms=st.integers(1, 100_000),
    heartbeat_ms=st.integers(1, 100_000),
    assignment_ms=st.integers(0, 100_000),
)
def test_what_was_set_before_the_bounds_changed_counts_as_far_as_it_may(
    session_ms: int, heartbeat_ms: int, assignment_ms: int
) -> None:
    """ConsumerGroupsConfig refuses what is out of bounds, so making one is the test."""
    settings = {
        SESSION: str(session_ms),
        HEARTBEAT: str(heartbeat_ms),
        ASSIGNMENT: str(assignment_ms),
    }
    config = resolve(settings, BROKER)
    try:
        require_valid(settings, BROKER, before={})
    except ConfigError:
        return
    assert config.group_consumer_session_timeout_ms == session_ms
    assert config.group_consumer_heartbeat_interval_ms == heartbeat_ms


def test_a_setting_of_another_version_counts_as_none() -> None:
    config = resolve({SESSION: "soon", "of.a.later.version": "1", ASSIGNMENT: "2000"}, BROKER)
    assert config == resolve({ASSIGNMENT: "2000"}, BROKER)
