"""What an application's producer is told, and what it refuses to be told (P2, D4)."""

import re

import pytest

from tidelog.base.errors import ConfigError
from tidelog.client.producer_settings import ProducerSettings


def test_the_defaults_are_those_of_the_original_producer() -> None:
    settings = ProducerSettings()
    assert settings.producer_type == "sync"
    assert settings.queue_buffering_max_ms == 5_000
    assert settings.queue_buffering_max_messages == 10_000
    assert settings.queue_enqueue_timeout_ms == -1
    assert settings.batch_num_messages == 200


def test_a_sync_producer_does_not_wait_for_a_second_record() -> None:
    assert ProducerSettings(producer_type="sync").for_librdkafka()["linger.ms"] == 0


def test_an_async_producer_waits_as_long_as_it_is_told() -> None:
    told = ProducerSettings(
        producer_type="async",
        queue_buffering_max_ms=1_234,
        queue_buffering_max_messages=50,
        batch_num_messages=7,
    ).for_librdkafka()
    assert told["linger.ms"] == 1_234
    assert told["queue.buffering.max.messages"] == 50
    assert told["batch.num.messages"] == 7


@pytest.mark.parametrize(
    ("acks", "asked_for", "is_idempotent"),
    [("all", None, True), ("-1", None, True), ("1", None, False), ("all", False, False)],
)
def test_acks_all_is_idempotent_unless_told_otherwise(
    acks: str, asked_for: bool | None, is_idempotent: bool
) -> None:
    settings = ProducerSettings(acks=acks, enable_idempotence=asked_for)
    assert settings.for_librdkafka()["enable.idempotence"] is is_idempotent


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"producer_type": "Async"}, "producer.type is 'Async' but must be one of sync, async"),
        ({"profile": "fast"}, "profile is 'fast' but must be one of none, reliable"),
        ({"acks": "2"}, "acks is '2' but must be one of"),
        ({"queue_enqueue_timeout_ms": -2}, "queue.enqueue.timeout.ms is '-2' but must be"),
        ({"queue_buffering_max_messages": 0}, "queue.buffering.max.messages is '0' but must be"),
        ({"batch_num_messages": True}, "batch.num.messages is 'True' but must be a number"),
        ({"queue_buffering_max_ms": 0.5}, "queue.buffering.max.ms is '0.5' but must be a number"),
        ({"acks": "1", "enable_idempotence": True}, "enable.idempotence needs acks=all"),
        (
            {"producer_type": "async", "delivery_timeout_ms": 5_000},
            "delivery.timeout.ms is 5000 but must be more than queue.buffering.max.ms (5000)",
        ),
        ({"others": {"batch.size": 3, "acks": 1}}, "acks is given by the argument acks"),
        ({"others": {"request.required.acks": 1}}, "by the argument acks, not in settings"),
        ({"others": {"linger.ms": 3}}, "by the argument queue_buffering_max_ms, not in"),
        ({"others": {"message.timeout.ms": 3}}, "by the argument delivery_timeout_ms, not in"),
        ({"others": {"bootstrap.servers": "x:1"}}, "by the argument bootstrap, not in settings"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(
    arguments: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        ProducerSettings(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"acks": "1"}, "needs acks=all, but acks is 1"),
        ({"enable_idempotence": False}, "enable.idempotence is false"),
        ({"queue_enqueue_timeout_ms": 0}, "drops nothing, but queue.enqueue.timeout.ms is 0"),
        ({"queue_enqueue_timeout_ms": 9}, "drops nothing, but queue.enqueue.timeout.ms is 9"),
    ],
)
def test_the_reliable_profile_is_not_weakened(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        ProducerSettings(profile="reliable", **arguments)  # type: ignore[arg-type]


def test_the_reliable_profile_is_acks_all_and_idempotent() -> None:
    told = ProducerSettings(profile="reliable", producer_type="async").for_librdkafka()
    assert told["acks"] == "all"
    assert told["enable.idempotence"] is True


def test_other_settings_reach_librdkafka_by_their_own_names() -> None:
    told = ProducerSettings(others={"client.id": "me", "partitioner": "random"}).for_librdkafka()
    assert told["client.id"] == "me"
    assert told["partitioner"] == "random"
