"""Settings change at run time by Kafka's rules, or are refused with Kafka's codes (P1)."""

from collections.abc import Sequence

import pytest

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.config.broker import BrokerConfig
from tidelog.config.dynamic import (
    Alteration,
    AlterOperation,
    alter_broker,
    alter_topic,
    replace_broker,
    replace_topic,
)

BROKER = BrokerConfig.load({"log.retention.ms": "1000"})
SET, DELETE, APPEND, SUBTRACT = AlterOperation


def topic_after(
    overrides: dict[str, str], *changes: tuple[str, AlterOperation, str | None]
) -> dict[str, str]:
    return alter_topic(overrides, _alterations(changes), BROKER)


def broker_after(
    *changes: tuple[str, AlterOperation, str | None], cluster_wide: bool = True
) -> dict[str, str]:
    return alter_broker(BROKER, _alterations(changes), cluster_wide=cluster_wide)


def _alterations(changes: Sequence[tuple[str, AlterOperation, str | None]]) -> list[Alteration]:
    return [Alteration(*change) for change in changes]


def test_set_and_delete_leave_other_overrides_alone() -> None:
    before = {"retention.ms": "1", "segment.ms": "2"}
    assert topic_after(before, ("retention.ms", SET, "3"), ("segment.ms", DELETE, None)) == {
        "retention.ms": "3"
    }
    assert before == {"retention.ms": "1", "segment.ms": "2"}


def test_deleting_what_is_not_set_changes_nothing() -> None:
    assert topic_after({}, ("foo", DELETE, None)) == {}


def test_append_starts_from_what_applies_now() -> None:
    assert topic_after({}, ("cleanup.policy", APPEND, "compact")) == {
        "cleanup.policy": "delete,compact"
    }


def test_append_does_not_repeat_an_item() -> None:
    assert topic_after({"cleanup.policy": "compact"}, ("cleanup.policy", APPEND, "compact")) == {
        "cleanup.policy": "compact"
    }


def test_subtract_takes_items_out() -> None:
    assert topic_after(
        {"cleanup.policy": "compact,delete"}, ("cleanup.policy", SUBTRACT, "delete")
    ) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (("foo", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (("foo", SUBTRACT, "5"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("cleanup.policy", APPEND, None), ErrorCode.INVALID_REQUEST),
        (("", SET, "1"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_wrong_topic_change_is_refused_with_kafkas_code(
    change: tuple[str, AlterOperation, str | None], code: ErrorCode
) -> None:
    with pytest.raises(RequestRefused) as refused:
        topic_after({}, change)
    assert refused.value.code is code
    assert change[0] in (refused.value.message or "")


def test_changes_are_judged_together() -> None:
    topic_after(
        {"max.compaction.lag.ms": "5"},
        ("min.compaction.lag.ms", SET, "6"),
        ("max.compaction.lag.ms", SET, "7"),
    )
    with pytest.raises(RequestRefused) as refused:
        topic_after({"max.compaction.lag.ms": "5"}, ("min.compaction.lag.ms", SET, "6"))
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_one_setting_altered_twice_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        topic_after({}, ("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_alter_configs_replaces_everything() -> None:
    assert replace_topic({}, {"segment.ms": "5"}, BROKER) == {"segment.ms": "5"}
    with pytest.raises(RequestRefused):
        replace_topic({}, {"segment.ms": None}, BROKER)


def test_a_dynamic_broker_setting_may_change() -> None:
    assert broker_after(("max.connections", SET, "5")) == {"max.connections": "5"}
    assert broker_after(("log.cleanup.policy", APPEND, "compact"), cluster_wide=False) == {
        "log.cleanup.policy": "delete,compact"
    }
    assert replace_broker(BROKER, {"log.roll.ms": "5"}, cluster_wide=True) == {"log.roll.ms": "5"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.retention.hours", "3"),
        ("socket.request.max.bytes", "3"),
        ("log.roll.ms", "0"),
        ("num.io.threads", "0"),
        ("log.segment.bytes", "5"),
        ("foo.baz", "3"),
        ("tidelog.nothing", "3"),
        ("cleanup.policy", "compact"),
    ],
)
def test_a_wrong_broker_change_is_an_invalid_request_that_names_the_setting(
    name: str, value: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        broker_after((name, SET, value))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert name in (refused.value.message or "")


def test_settings_of_one_broker_are_judged_over_those_of_all() -> None:
    config = BROKER.with_dynamic(
        cluster_wide={"log.cleaner.max.compaction.lag.ms": "5"}, this_broker={}
    )
    with pytest.raises(RequestRefused):
        alter_broker(
            config,
            [Alteration("log.cleaner.min.compaction.lag.ms", SET, "6")],
            cluster_wide=False,
        )
