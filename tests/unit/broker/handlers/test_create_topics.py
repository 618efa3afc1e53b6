"""CreateTopics: new topics, each with an answer of its own (P1, P4)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreatableTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from tests.unit.broker.handlers.controlled import at_once, never, with_controller
from tests.unit.broker.handlers.samples import context
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.handlers.create_topics import CreateTopicsHandler
from tidelog.config.broker import BrokerConfig

TOPIC_CONFIG, STATIC, DEFAULT = 1, 4, 5
A_MINUTE = timedelta(minutes=1)


def topic(
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Sequence[Sequence[int]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replicas),
        assignments=tuple(
            CreatableReplicaAssignment(
                partition_index=i32(index), broker_ids=tuple(BrokerId(one) for one in brokers)
            )
            for index, brokers in enumerate(assignments)
        ),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
        ),
    )


async def create(
    controller: ControllerRunner,
    *topics: CreatableTopic,
    timeout_s: float = 60,
    validate_only: bool = False,
    settings: Mapping[str, str] | None = None,
    partitions_open: Callable[[], Awaitable[None]] = at_once,
) -> tuple[CreatableTopicResult, ...]:
    config = BrokerConfig.load(settings or {})
    handler = CreateTopicsHandler(
        controller=AdminRequests(controller),
        broker_config=lambda: config,
        partitions_open=partitions_open,
    )
    request = CreateTopicsRequest(
        topics=topics,
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
        validate_only=validate_only,
    )
    return (await handler.handle(request, context())).topics


def codes(results: Sequence[CreatableTopicResult]) -> dict[str, ErrorCode]:
    return {result.name: result.error_code for result in results}


def test_a_topic_is_created_as_asked_for() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (result,) = await create(controller, topic("t", partitions=3))
        assert result.error_code is ErrorCode.none
        assert result.error_message is None
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        created = controller.image.topics["t"]
        assert (created.topic_id, len(created.partitions)) == (result.topic_id, 3)

    with_controller(scenario)


def test_counts_that_are_left_out_are_the_brokers() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (result,) = await create(controller, topic("t", partitions=-1, replicas=-1))
        assert (result.num_partitions, result.replication_factor) == (4, 1)

    with_controller(scenario, {"num.partitions": "4"})


def test_replicas_are_where_the_client_wants_them() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (result,) = await create(
            controller, topic("t", partitions=-1, replicas=-1, assignments=[[1], [1]])
        )
        assert (result.num_partitions, result.replication_factor) == (2, 1)

    with_controller(scenario)


def test_an_assignment_to_a_stranger_is_refused() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (result,) = await create(
            controller, topic("t", partitions=-1, replicas=-1, assignments=[[7]])
        )
        assert result.error_code is ErrorCode.invalid_replica_assignment
        assert result.error_message
        assert "t" not in controller.image.topics

    with_controller(scenario)


def test_a_refusal_stays_inside_its_topic() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await create(controller, topic("old"))
        results = await create(
            controller, topic("old"), topic("not a name"), topic("r", replicas=2), topic("new")
        )
        assert codes(results) == {
            "old": ErrorCode.topic_already_exists,
            "not a name": ErrorCode.invalid_topic_exception,
            "r": ErrorCode.invalid_replication_factor,
            "new": ErrorCode.none,
        }
        refused = results[0]
        assert refused.error_message == "Topic 'old' already exists."
        assert refused.topic_id is None
        assert (refused.num_partitions, refused.replication_factor) == (-1, -1)
        assert refused.configs == ()

    with_controller(scenario)


def test_a_topic_named_twice_is_answered_once() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        results = await create(controller, topic("t"), topic("t"), topic("u"))
        assert len(results) == 2
        assert codes(results) == {"t": ErrorCode.invalid_request, "u": ErrorCode.none}

    with_controller(scenario)


def test_the_answer_lists_all_settings_and_where_they_come_from() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (result,) = await create(
            controller,
            topic("t", configs={"retention.ms": "1000"}),
            settings={"log.segment.bytes": "2000000"},
        )
        assert result.configs is not None
        listed = {one.name: (one.value, one.config_source) for one in result.configs}
        assert listed["retention.ms"] == ("1000", TOPIC_CONFIG)
        assert listed["segment.bytes"] == ("2000000", STATIC)
        assert listed["flush.messages"] == ("9223372036854775807", DEFAULT)
        assert not any(one.read_only or one.is_sensitive for one in result.configs)

    with_controller(scenario)


def test_a_wrong_setting_is_refused_with_its_name() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        results = await create(
            controller,
            topic("t", configs={"retention.ms": "soon"}),
            topic("u", configs={"retention.ms": None}),
        )
        assert set(codes(results).values()) == {ErrorCode.invalid_config}
        assert all("retention.ms" in (result.error_message or "") for result in results)

    with_controller(scenario)


def test_validating_creates_nothing() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (result,) = await create(
            controller, topic("t", partitions=3), validate_only=True, partitions_open=never
        )
        assert (result.error_code, result.num_partitions) == (ErrorCode.none, 3)
        assert result.configs
        assert "t" not in controller.image.topics

    with_controller(scenario)


def test_without_time_nothing_is_created() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        results = await create(controller, topic("t"), topic("t"), timeout_s=0)
        assert codes(results) == {"t": ErrorCode.request_timed_out}
        assert len(results) == 1
        assert "t" not in controller.image.topics

    with_controller(scenario)


def test_the_answer_does_not_wait_longer_than_the_client() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        results = await create(controller, topic("t"), timeout_s=0.001, partitions_open=never)
        assert codes(results) == {"t": ErrorCode.request_timed_out}

    with_controller(scenario)


def test_the_answer_waits_until_the_partitions_are_open() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        seen = []

        async def partitions_open() -> None:
            seen.append("t" in controller.image.topics)

        await create(controller, topic("t"), partitions_open=partitions_open)
        assert seen == [True]

    with_controller(scenario)
