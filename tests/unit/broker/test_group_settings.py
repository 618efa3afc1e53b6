"""Settings of groups: their own over the broker's, and both may change."""

from collections.abc import Sequence
from dataclasses import replace

from tidelog.broker.group_settings import GroupSettings
from tidelog.config.consumer_groups import ConsumerGroupsConfig
from tidelog.core.controller.changes import Change, GroupConfigChanged
from tidelog.core.controller.image import EMPTY_IMAGE

DEFAULT = ConsumerGroupsConfig()
QUICK = replace(DEFAULT, group_consumer_assignment_interval_ms=0)


def _with(changes: Sequence[Change]) -> GroupSettings:
    settings = GroupSettings(DEFAULT)
    settings.on_image(EMPTY_IMAGE.apply_all(changes), changes)
    return settings


def test_groups_without_settings_of_their_own_follow_the_broker() -> None:
    settings = _with([])
    settings.on_config(QUICK)
    assert settings.default == QUICK
    assert not settings.current


def test_a_group_follows_the_broker_where_it_says_nothing() -> None:
    settings = _with([GroupConfigChanged("g", {"consumer.heartbeat.interval.ms": "7000"})])
    settings.on_config(QUICK)
    own = settings.current["g"]
    assert own.group_consumer_heartbeat_interval_ms == 7_000
    assert own.group_consumer_assignment_interval_ms == 0


def test_a_group_keeps_what_it_has_whatever_the_broker_says() -> None:
    settings = _with([GroupConfigChanged("g", {"consumer.assignment.interval.ms": "9"})])
    settings.on_config(QUICK)
    assert settings.current["g"].group_consumer_assignment_interval_ms == 9


def test_a_group_that_says_nothing_any_more_follows_the_broker() -> None:
    said = GroupConfigChanged("g", {"consumer.assignment.interval.ms": "9"})
    settings = _with([said])
    taken_back = GroupConfigChanged("g", {})
    settings.on_image(EMPTY_IMAGE.apply_all([said, taken_back]), [taken_back])
    settings.on_config(QUICK)
    assert "g" not in settings.current
