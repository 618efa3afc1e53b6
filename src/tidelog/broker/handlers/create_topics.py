"""CreateTopics (19): new topics, with partitions and settings of the client's choice or our own.

One topic's refusal is that topic's answer; it never fails its neighbours. A name that appears
twice in one request is answered once, as a mistake.

The answer leaves when the partitions that fall to this broker are open, so that whoever creates a
topic can write to it next. If that takes longer than the request's time-out, the client is told
REQUEST_TIMED_OUT although the topics may be there, as Kafka's documentation has it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.create_topics.v7.response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8, i16, i32

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within
from tidelog.broker.large_requests import in_turns
from tidelog.config.broker import BrokerConfig
from tidelog.config.describe import DescribedConfig, describe_topic
from tidelog.core.controller.image import Settings
from tidelog.core.controller.requests import NewTopic, TopicOutcome

_UNKNOWN_COUNT = -1

Configs = tuple[CreatableTopicConfigs, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsHandler:
    """`partitions_open` returns once this broker serves all it has been given so far."""

    controller: AdminRequests
    broker_config: Callable[[], BrokerConfig]
    partitions_open: Callable[[], Awaitable[None]]

    async def handle(
        self, request: CreateTopicsRequest, context: RequestContext
    ) -> CreateTopicsResponse:
        outcomes = await within(
            request.timeout,
            lambda: self._create(request),
            otherwise=lambda: _timed_out(request),
        )
        inherited = _Inheritance(self.broker_config())
        return CreateTopicsResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple([_result(outcome, inherited) async for outcome in in_turns(outcomes)]),
        )

    async def _create(self, request: CreateTopicsRequest) -> list[TopicOutcome]:
        outcomes = await self.controller.create_topics(
            [_new_topic(topic) async for topic in in_turns(request.topics)],
            validate_only=request.validate_only,
        )
        if not request.validate_only:
            await self.partitions_open()
        return outcomes


def _timed_out(request: CreateTopicsRequest) -> list[TopicOutcome]:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return [TopicOutcome(name=name, error=ErrorCode.REQUEST_TIMED_OUT) for name in names]


class _Inheritance:
    """Settings of topics, their own and what they inherit; the same ones are described once."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._described: dict[frozenset[tuple[str, str]], Configs] = {}

    def describe(self, overrides: Settings) -> Configs:
        key = frozenset(overrides.items())
        described = self._described.get(key)
        if described is None:
            described = tuple(map(_config, describe_topic(overrides, self._config, None)))
            self._described[key] = described
        return described


def _result(outcome: TopicOutcome, inherited: _Inheritance) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=TopicName(outcome.name or ""),
        topic_id=outcome.topic_id,
        error_code=message_error(outcome.error),
        error_message=outcome.message,
        num_partitions=i32(_count(outcome.partition_count)),
        replication_factor=i16(_count(outcome.replication_factor)),
        configs=() if outcome.configs is None else inherited.describe(outcome.configs),
    )


def _config(config: DescribedConfig) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=config.name,
        value=config.value,
        read_only=config.is_read_only,
        config_source=i8(config.source),
        is_sensitive=config.is_sensitive,
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            (
                assignment.partition_index,
                tuple(BrokerId(broker_id) for broker_id in assignment.broker_ids),
            )
            for assignment in topic.assignments
        ),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


def _count(count: int | None) -> int:
    return _UNKNOWN_COUNT if count is None else count
