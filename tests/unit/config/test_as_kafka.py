"""G1: settings are those of Kafka 4.3, and every difference is one that the documents name."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.golden import kafka_settings
from tidelog.base.errors import ConfigError
from tidelog.config.accepted import REFUSED, warning_about
from tidelog.config.broker import BROKER_SETTINGS, OWN_PREFIX, BrokerConfig
from tidelog.config.group import GROUP_SETTINGS
from tidelog.config.kafka_only import KAFKA_ONLY
from tidelog.config.option import Setting
from tidelog.config.topic import INTERNAL_SEGMENT_BYTES, TOPIC_SETTINGS

KAFKA = kafka_settings()
OURS = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS, "group": GROUP_SETTINGS}
BOTH = [(kind, name) for kind, settings in OURS.items() for name in settings if name in KAFKA[kind]]
DIVERGENCES = Path(__file__).parents[3] / "docs" / "divergences.md"
PROBES = ("-3", "-2", "-1", "0", "1", "5")
"""What `record_settings.py` tried where Kafka states no bounds."""

# Everything below is in docs/divergences.md, by name.

OTHER_DEFAULTS = {
    "node.id",
    "controller.listener.names",
    "group.coordinator.rebalance.protocols",
    "log.dir",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
READ_ONLY_HERE = {"listeners", "listener.security.protocol.map"}
OTHER_BOUNDS = {
    "group.consumer.assignors",
    "max.connection.creation.rate",
    "replica.selector.class",
}
STRICTER = {
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "default.replication.factor",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second",
    "log.flush.scheduler.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "offset.metadata.max.bytes",
    "replica.fetch.min.bytes",
    "replica.fetch.wait.max.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.socket.receive.buffer.bytes",
    "request.timeout.ms",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
}
MORE_LENIENT = {"broker.id", "connections.max.idle.ms", "queued.max.request.bytes"}
OF_OLDER_KAFKAS = {
    "controlled.shutdown.max.retries",
    "leader.imbalance.per.broker.percentage",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
}
GROUP_SETTINGS_NOT_HERE = ("share.", "streams.")

DIFFERENCES = (
    OTHER_DEFAULTS | READ_ONLY_HERE | OTHER_BOUNDS | STRICTER | MORE_LENIENT | OF_OLDER_KAFKAS
)


@pytest.mark.parametrize(("kind", "name"), BOTH)
def test_a_setting_has_kafkas_type(kind: str, name: str) -> None:
    assert OURS[kind][name].type.name == KAFKA[kind][name]["type"]


def test_defaults_are_kafkas() -> None:
    unlike = {
        name
        for kind, name in BOTH
        if OURS[kind][name].render(OURS[kind][name].default)
        != KAFKA[kind][name].get("default", "there is none")
    }
    assert unlike == OTHER_DEFAULTS


def test_settings_change_while_brokers_run_as_kafkas_do() -> None:
    unlike = {
        name
        for kind, name in BOTH
        if kind == "broker"
        and OURS[kind][name].is_dynamic != (KAFKA[kind][name]["mode"] != "read-only")
    }
    assert unlike == READ_ONLY_HERE


def test_no_setting_is_for_single_brokers_alone_that_can_change_here() -> None:
    """Kafka refuses those for all brokers at once."""
    alone = {name for name, setting in KAFKA["broker"].items() if setting["mode"] == "per-broker"}
    assert not {name for name in alone & BROKER_SETTINGS.keys() if BROKER_SETTINGS[name].is_dynamic}


def test_bounds_that_kafka_states_are_ours() -> None:
    unlike = {
        name
        for kind, name in BOTH
        if KAFKA[kind][name]["valid"] and not _is_as_valid(OURS[kind][name], KAFKA[kind][name])
    }
    unstated = {
        name for kind, name in BOTH if not KAFKA[kind][name]["valid"] and OURS[kind][name].choices
    }
    assert unlike | unstated == OTHER_BOUNDS


def _is_as_valid(setting: Setting, kafka: dict[str, Any]) -> bool:
    text = kafka["valid"]
    bounds = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?", text)
    if bounds is not None:
        least, most, also = (None if each is None else int(each) for each in bounds.groups())
        stated = (least, most, () if also is None else (also,))
        return (setting.minimum, setting.maximum, setting.also) == stated
    choices = re.fullmatch(r"(\(case insensitive\) )?\[([\w, ]+)\]", text)
    if choices is not None:
        folded = (each.lower() if choices[1] else each for each in choices[2].split(", "))
        is_same = set(setting.choices) == set(folded)
        return is_same and setting.is_any_case == bool(choices[1])
    return text == "[partitionId]:[brokerId],[partitionId]:[brokerId],..." and bool(setting.pattern)


def test_numbers_without_stated_bounds_are_taken_as_kafka_takes_them() -> None:
    stricter, more_lenient = set(), set()
    for kind, name in BOTH:
        refuses = KAFKA[kind][name].get("refuses")
        if refuses is not None:
            ours = {probe for probe in PROBES if _is_refused(name, probe)}
            stricter |= {name} if ours - set(refuses) else set()
            more_lenient |= {name} if set(refuses) - ours else set()
    assert (stricter, more_lenient) == (STRICTER, MORE_LENIENT)


def _is_refused(name: str, value: str) -> bool:
    try:
        BrokerConfig.load({name: value})
    except ConfigError:
        return True
    return False


def test_a_setting_of_a_broker_is_kafkas_or_our_own() -> None:
    unlike = BROKER_SETTINGS.keys() - KAFKA["broker"].keys()
    assert {name for name in unlike if not name.startswith(OWN_PREFIX)} == OF_OLDER_KAFKAS


def test_every_setting_of_kafkas_brokers_is_known_by_name() -> None:
    assert KAFKA["broker"].keys() - BROKER_SETTINGS.keys() == KAFKA_ONLY | REFUSED.keys()


def test_every_setting_of_kafkas_topics_is_here() -> None:
    assert KAFKA["topic"].keys() - TOPIC_SETTINGS.keys() == {INTERNAL_SEGMENT_BYTES}
    own = TOPIC_SETTINGS.keys() - KAFKA["topic"].keys()
    assert all(name.startswith(OWN_PREFIX) for name in own)


def test_every_setting_of_kafkas_consumer_groups_is_here() -> None:
    absent = KAFKA["group"].keys() - GROUP_SETTINGS.keys()
    assert all(name.startswith(GROUP_SETTINGS_NOT_HERE) for name in absent)
    assert not GROUP_SETTINGS.keys() - KAFKA["group"].keys()


@pytest.mark.parametrize("name", sorted(DIFFERENCES))
def test_a_difference_is_in_the_list_of_differences(name: str) -> None:
    section = DIVERGENCES.read_text("utf-8").partition("\n## Settings")[2].partition("\n## ")[0]
    assert f"`{name}`" in section


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("group.coordinator.treads", "group.coordinator.threads"),
        ("group.consumer.asignors", "group.consumer.assignors"),
        ("ssl.keystore.locaton", "ssl.keystore.location"),
    ],
)
def test_a_misspelt_name_is_not_taken_for_kafkas(name: str, meant: str) -> None:
    assert warning_about(name, BROKER_SETTINGS) == (
        f"{name} is not a known setting and has no effect; did you mean {meant}?"
    )


@pytest.mark.parametrize(
    "name",
    ["group.coordinator.threads", "cordoned.log.dirs", "listener.name.internal.ssl.key.password"],
)
def test_a_setting_that_only_kafka_has_is_called_kafkas(name: str) -> None:
    assert "is a setting of Kafka's" in warning_about(name, BROKER_SETTINGS)
