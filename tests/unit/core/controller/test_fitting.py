"""A change is refused that some broker could not have in force beside what is set elsewhere.

The property at the end is what this is for: whatever was accepted, brokers whose files differ from
the controller's go on with a config that is valid.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.controller.clusters import brokers, cluster, topic
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.config.broker import BrokerConfig
from tidelog.config.describe import (
    ConfigSource,
    describe_broker,
    describe_cluster_wide,
    describe_topic,
)
from tidelog.config.dynamic import AlterOperation
from tidelog.config.topic import resolve_fitting
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    Change,
    GroupConfigChanged,
    TopicConfigChanged,
)
from tidelog.core.controller.configs import alter_configs, replace_configs
from tidelog.core.controller.fitting import Fitting
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigOutcome,
    ConfigResource,
    ResourceType,
)

MIN, MAX = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
ASSIGNMENT = "group.consumer.assignment.interval.ms"
ALL = ConfigResource(ResourceType.BROKER, "")
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
GROUP = ConfigResource(ResourceType.GROUP, "g")
FILE = BrokerConfig.load({})
OTHER_FILES = [
    BrokerConfig.load({MIN: "60"}),
    BrokerConfig.load({MAX: "70", "group.consumer.max.assignment.interval.ms": "1000"}),
    BrokerConfig.load({"group.consumer.min.assignment.interval.ms": "1000"}),
]


def image(*changes: Change) -> ClusterImage:
    return cluster(brokers(1, 2), topic("t", 1), topic("u", 2)).apply_all(changes)


def one(number: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(number))


def outcome(
    before: ClusterImage, resource: ConfigResource, *settings: tuple[str, str | None]
) -> ConfigOutcome:
    (answer,) = alter_configs(before, FILE, [(resource, steps(*settings))]).outcomes
    return answer


def steps(*settings: tuple[str, str | None]) -> tuple[ConfigAlteration, ...]:
    return tuple(
        ConfigAlteration(
            name, AlterOperation.DELETE if value is None else AlterOperation.SET, value
        )
        for name, value in settings
    )


def test_a_cluster_wide_change_names_the_broker_that_stands_in_the_way() -> None:
    answer = outcome(image(BrokerConfigChanged(BrokerId(2), {MIN: "100"})), ALL, (MAX, "50"))
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.message == (
        "min.compaction.lag.ms is 100 but must not exceed max.compaction.lag.ms, which is 50 "
        "on broker 2, which has settings of its own"
    )


def test_a_broker_that_is_away_stands_in_the_way_until_its_setting_is_deleted() -> None:
    before = image(BrokerConfigChanged(BrokerId(7), {MIN: "100"}))
    assert outcome(before, ALL, (MAX, "50")).error is ErrorCode.INVALID_REQUEST
    assert outcome(before, one(7), (MIN, None)).error is ErrorCode.NONE


def test_a_broker_without_settings_that_is_away_has_none_to_alter() -> None:
    assert outcome(image(), one(7), (MIN, "1")).error is ErrorCode.INVALID_REQUEST


def test_a_change_of_one_broker_names_the_setting_of_all_that_stands_in_the_way() -> None:
    answer = outcome(image(BrokerConfigChanged(None, {MAX: "50"})), one(1), (MIN, "100"))
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.message is not None
    assert answer.message.endswith(f"; {MAX}=50 is set for all brokers")


@pytest.mark.parametrize("resource", [ALL, one(1)])
def test_a_change_of_brokers_names_the_topic_that_stands_in_the_way(
    resource: ConfigResource,
) -> None:
    before = image(TopicConfigChanged("u", {"min.compaction.lag.ms": "100"}))
    answer = outcome(before, resource, (MAX, "50"))
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.message is not None
    assert answer.message.startswith("topic 'u' has settings of its own that stand in the way: ")


def test_a_topic_may_not_contradict_what_it_inherits_on_any_broker() -> None:
    before = image(BrokerConfigChanged(BrokerId(2), {MAX: "50"}))
    answer = outcome(before, TOPIC, ("min.compaction.lag.ms", "100"))
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert answer.message is not None
    assert answer.message.endswith(" on broker 2, which has settings of its own")
    assert outcome(before, TOPIC, ("min.compaction.lag.ms", "40")).error is ErrorCode.NONE


def test_changes_of_one_request_have_to_go_together() -> None:
    answers = alter_configs(
        image(), FILE, [(one(1), steps((MIN, "100"))), (ALL, steps((MAX, "50")))]
    ).outcomes
    assert [answer.error for answer in answers] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


def test_what_does_not_fit_already_hinders_no_other_change() -> None:
    before = image(
        BrokerConfigChanged(None, {MAX: "50", ASSIGNMENT: "99999999"}),
        BrokerConfigChanged(BrokerId(1), {MIN: "100"}),
    )
    assert outcome(before, ALL, ("message.max.bytes", "5000")).error is ErrorCode.NONE
    assert outcome(before, ALL, (ASSIGNMENT, None)).error is ErrorCode.NONE
    assert outcome(before, one(1), (MIN, None)).error is ErrorCode.NONE
    assert outcome(before, one(1), ("max.connections", "5")).error is ErrorCode.NONE


def test_a_topic_that_does_not_fit_already_hinders_no_other_change() -> None:
    before = image(
        BrokerConfigChanged(None, {MAX: "50"}),
        TopicConfigChanged("t", {"min.compaction.lag.ms": "100"}),
    )
    assert outcome(before, ALL, ("message.max.bytes", "5000")).error is ErrorCode.NONE
    assert outcome(before, TOPIC, ("min.compaction.lag.ms", None)).error is ErrorCode.NONE


LATER = {"of.a.later.version": "1", "tidelog.of.a.later.version": "1"}


@pytest.mark.parametrize(
    ("file", "change", "resource", "name"),
    [
        (
            {MAX: "50"},
            TopicConfigChanged("t", {"min.compaction.lag.ms": "100"}),
            TOPIC,
            "retention.ms",
        ),
        ({}, TopicConfigChanged("t", {**LATER, "retention.ms": "soon"}), TOPIC, "segment.ms"),
        ({}, BrokerConfigChanged(None, LATER), ALL, "max.connections"),
        ({}, BrokerConfigChanged(BrokerId(1), LATER), one(1), "max.connections"),
        (
            {"group.consumer.max.session.timeout.ms": "50000"},
            GroupConfigChanged("g", {**LATER, "consumer.session.timeout.ms": "60000"}),
            GROUP,
            "consumer.assignment.interval.ms",
        ),
    ],
)
def test_a_mistake_that_is_there_hinders_no_other_change_of_the_same_resource(
    file: dict[str, str],
    change: BrokerConfigChanged | GroupConfigChanged | TopicConfigChanged,
    resource: ConfigResource,
    name: str,
) -> None:
    """By a file that was changed, or by another version: mistakes are mended one by one."""
    before = image(change)
    config = BrokerConfig.load(file).with_fitting(
        cluster_wide=before.broker_config(None), this_broker=before.broker_config(BrokerId(1))
    )
    for step in [(name, "1000"), *((mistake, None) for mistake in change.configs)]:
        (altered,) = alter_configs(before, config, [(resource, steps(step))]).outcomes
        assert altered.error is ErrorCode.NONE, altered.message
    settings = (*change.configs.items(), (name, "1000"))
    (replaced,) = replace_configs(before, config, [(resource, settings)]).outcomes
    assert replaced.error is ErrorCode.NONE, replaced.message


@pytest.mark.parametrize(
    ("change", "resource", "name"),
    [
        (TopicConfigChanged("t", {"cleanup.policy": "of-later"}), TOPIC, "cleanup.policy"),
        (BrokerConfigChanged(None, {"log.cleanup.policy": "of-later"}), ALL, "log.cleanup.policy"),
    ],
)
@pytest.mark.parametrize("operation", [AlterOperation.APPEND, AlterOperation.SUBTRACT])
def test_nothing_is_appended_to_a_list_that_cannot_be_read(
    change: Change, resource: ConfigResource, name: str, operation: AlterOperation
) -> None:
    step = ConfigAlteration(name, operation, "compact")
    (answer,) = alter_configs(image(change), FILE, [(resource, (step,))]).outcomes
    assert answer.error is ErrorCode.INVALID_CONFIG
    assert outcome(image(change), resource, (name, "compact")).error is ErrorCode.NONE


def test_a_new_topic_may_not_contradict_what_it_inherits() -> None:
    fitting = Fitting(image(BrokerConfigChanged(BrokerId(2), {MAX: "50"})), FILE)
    fitting.require_topic({"min.compaction.lag.ms": "50"})
    with pytest.raises(RequestRefused, match="broker 2"):
        fitting.require_topic({"min.compaction.lag.ms": "51"})


TOPIC_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
LAGS = st.sampled_from(["10", "50", "60", "70", "100"])
BROKER_STEP = st.one_of(
    st.tuples(st.sampled_from([MIN, MAX]), st.none() | LAGS),
    st.tuples(st.just(ASSIGNMENT), st.none() | st.sampled_from(["0", "1000", "12000", "20000"])),
)
TOPIC_STEP = st.tuples(st.sampled_from(TOPIC_LAGS), st.none() | LAGS)
ALTERATION = st.one_of(
    st.tuples(st.sampled_from([ALL, one(1), one(2)]), BROKER_STEP),
    st.tuples(st.just(TOPIC), TOPIC_STEP),
)


@given(st.lists(ALTERATION, max_size=12))
def test_whatever_was_accepted_every_broker_goes_on(
    alterations: list[tuple[ConfigResource, tuple[str, str | None]]],
) -> None:
    now = image()
    for resource, step in alterations:
        now = now.apply_all(alter_configs(now, FILE, [(resource, steps(step))]).changes)
        for broker_id in (BrokerId(1), BrokerId(2)):
            assert_valid(now, FILE, broker_id, is_all_in_force=True)
            for file in OTHER_FILES:
                assert_valid(now, file, broker_id, is_all_in_force=False)


def assert_valid(
    now: ClusterImage, file: BrokerConfig, broker_id: BrokerId, *, is_all_in_force: bool
) -> None:
    config = file.with_fitting(
        cluster_wide=now.broker_config(None), this_broker=now.broker_config(broker_id)
    )
    again = file.with_dynamic(
        cluster_wide=config.default_in_force, this_broker=config.broker_in_force
    )
    assert again.topic_defaults == config.topic_defaults
    assert again.consumer_groups == config.consumer_groups
    overrides = now.topic_config("t")
    resolved, misfits = resolve_fitting(overrides, config.topic_defaults)
    assert resolved.min_compaction_lag_ms <= resolved.max_compaction_lag_ms
    if is_all_in_force:
        assert not config.misfits
        assert not misfits
    shown = {each.name: each.value for each in describe_topic(overrides, config, TOPIC_LAGS)}
    assert shown["min.compaction.lag.ms"] == str(resolved.min_compaction_lag_ms)
    assert shown["max.compaction.lag.ms"] == str(resolved.max_compaction_lag_ms)
    in_force = {
        ConfigSource.DYNAMIC_BROKER_CONFIG: config.broker_in_force,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: config.default_in_force,
    }
    for each in describe_broker(config, {MIN, MAX, ASSIGNMENT}):
        # What is set and left out is listed too.
        counted = [
            one for one in each.synonyms if one.name in in_force.get(one.source, (one.name,))
        ]
        assert each.value == counted[0].value
    assert len(describe_cluster_wide(config, None)) == len(now.broker_config(None))
