"""Changing settings of topics, brokers and groups while they run: which, and what follows.

What a setting may be is known to `config/dynamic.py`, what goes together to `fitting.py`. Here it
is decided whether the resource is there and may be named so, with Kafka's codes. A setting of one
broker lies over those of all brokers, which have the empty name. A group need not be there to have
settings.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import BrokerId
from tidelog.config.broker import BrokerConfig
from tidelog.config.dynamic import (
    Alteration,
    AlterOperation,
    alter_broker,
    alter_group,
    alter_topic,
    replace_broker,
    replace_group,
    replace_topic,
)
from tidelog.core.controller import names
from tidelog.core.controller.changes import (
    BrokerConfigChanged,
    Change,
    GroupConfigChanged,
    TopicConfigChanged,
)
from tidelog.core.controller.decision import Decision
from tidelog.core.controller.fitting import Fitting
from tidelog.core.controller.image import ClusterImage, Settings
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigOutcome,
    ConfigReplacement,
    ConfigResource,
    IncrementalChange,
    ResourceType,
)

CLUSTER_WIDE = ""
GROUP_ID_MAX_BYTES = 1_000
"""Of a group that has settings: they are stored under its name, which every broker is told."""

_BROKER_ID = re.compile(r"-?[0-9]{1,10}")

Asked = TypeVar("Asked")


def replace_configs(
    image: ClusterImage, config: BrokerConfig, replacements: Sequence[ConfigReplacement]
) -> Decision[ConfigOutcome]:
    """AlterConfigs: a resource has exactly the settings that are named, and no others."""

    fitting = Fitting(image, config)

    def change(resource: ConfigResource, settings: tuple[tuple[str, str | None], ...]) -> Change:
        given = dict(settings)
        if len(given) < len(settings):
            raise RequestRefused(ErrorCode.INVALID_REQUEST, "a setting is named twice")
        return _changed(
            resource,
            image,
            fitting,
            topic=lambda overrides: replace_topic(overrides, given, config),
            group=lambda overrides: replace_group(overrides, given, config),
            broker=lambda effective, wide: replace_broker(effective, given, cluster_wide=wide),
        )

    return _decide(replacements, change)


def alter_configs(
    image: ClusterImage, config: BrokerConfig, changes: Sequence[IncrementalChange]
) -> Decision[ConfigOutcome]:
    """IncrementalAlterConfigs: what is not named stays as it is."""

    fitting = Fitting(image, config)

    def change(resource: ConfigResource, steps: tuple[ConfigAlteration, ...]) -> Change:
        alterations = [_alteration(step) for step in steps]
        return _changed(
            resource,
            image,
            fitting,
            topic=lambda overrides: alter_topic(overrides, alterations, config),
            group=lambda overrides: alter_group(overrides, alterations, config),
            broker=lambda effective, wide: alter_broker(effective, alterations, cluster_wide=wide),
        )

    return _decide(changes, change)


def _decide(
    requests: Sequence[tuple[ConfigResource, Asked]],
    change: Callable[[ConfigResource, Asked], Change],
) -> Decision[ConfigOutcome]:
    times = Counter(resource for resource, _asked in requests)
    decision: Decision[ConfigOutcome] = Decision([], [])
    for resource, asked in dict(requests).items():
        try:
            if times[resource] > 1:
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST,
                    f"'{resource.name}' is in the request {times[resource]} times",
                )
            decision.changes.append(change(resource, asked))
            decision.outcomes.append(ConfigOutcome(resource=resource))
        except RequestRefused as refusal:
            decision.outcomes.append(
                ConfigOutcome(resource=resource, error=refusal.code, message=refusal.message)
            )
    return decision


def _changed(
    resource: ConfigResource,
    image: ClusterImage,
    fitting: Fitting,
    *,
    topic: Callable[[Settings], Settings],
    group: Callable[[Settings], Settings],
    broker: Callable[[BrokerConfig, bool], Settings],
) -> Change:
    """The change to `resource`, with its settings computed by the function for its kind."""
    if resource.resource_type == ResourceType.TOPIC:
        _require_topic(resource.name, image)
        settings = topic(image.topic_config(resource.name))
        fitting.set_topic(resource.name, settings)
        return TopicConfigChanged(resource.name, settings)
    if resource.resource_type == ResourceType.BROKER:
        broker_id = _require_broker(resource.name, image)
        settings = broker(fitting.broker(broker_id), broker_id is None)
        fitting.set_broker(broker_id, settings)
        return BrokerConfigChanged(broker_id, settings)
    if resource.resource_type == ResourceType.GROUP:
        _require_group(resource.name)
        return GroupConfigChanged(resource.name, group(image.group_config(resource.name)))
    raise RequestRefused(
        ErrorCode.INVALID_REQUEST,
        f"settings of resource type {resource.resource_type} cannot be altered",
    )


def _require_topic(name: str, image: ClusterImage) -> None:
    if not name:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "there are no settings of all topics")
    names.require_legal(name)
    if name not in image.topics:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")


def _require_group(group_id: str) -> None:
    if not group_id:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "there are no settings of all groups")
    if len(group_id.encode()) > GROUP_ID_MAX_BYTES:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST,
            f"the id of a group has {GROUP_ID_MAX_BYTES} bytes at most to have settings",
        )


def _require_broker(name: str, image: ClusterImage) -> BrokerId | None:
    """The broker that is meant, None for all of them."""
    if name == CLUSTER_WIDE:
        return None
    if _BROKER_ID.fullmatch(name) is None:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"'{name}' is no broker id")
    broker_id = BrokerId(int(name))
    # One that is away may have settings that stand in the way of others.
    if broker_id not in image.brokers and broker_id not in image.broker_configs:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"there is no live broker {broker_id}")
    return broker_id


def _alteration(step: ConfigAlteration) -> Alteration:
    try:
        operation = AlterOperation(step.operation)
    except ValueError:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, f"{step.name}: there is no operation {step.operation}"
        ) from None
    return Alteration(step.name, operation, step.value)
