"""CreatePartitions: more partitions for topics that exist (P1)."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i32Timedelta

from tests.unit.broker.handlers.controlled import at_once, never, with_controller
from tests.unit.broker.handlers.samples import context
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.handlers.create_partitions import CreatePartitionsHandler
from tidelog.core.controller.requests import NewTopic

Growth = tuple[str, int] | tuple[str, int, Sequence[Sequence[int]]]


async def grow(
    controller: ControllerRunner,
    *topics: Growth,
    timeout_s: float = 60,
    validate_only: bool = False,
    partitions_open: Callable[[], Awaitable[None]] = at_once,
) -> list[tuple[str, ErrorCode]]:
    handler = CreatePartitionsHandler(
        controller=AdminRequests(controller), partitions_open=partitions_open
    )
    request = CreatePartitionsRequest(
        topics=tuple(
            CreatePartitionsTopic(
                name=TopicName(topic[0]),
                count=i32(topic[1]),
                assignments=None
                if len(topic) == 2
                else tuple(
                    CreatePartitionsAssignment(broker_ids=tuple(BrokerId(one) for one in brokers))
                    for brokers in topic[2]
                ),
            )
            for topic in topics
        ),
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
        validate_only=validate_only,
    )
    response = await handler.handle(request, context())
    return [(result.name, result.error_code) for result in response.results]


async def make(controller: ControllerRunner, *names: str) -> None:
    topics = [NewTopic(name=name, partition_count=2) for name in names]
    await AdminRequests(controller).create_topics(topics, validate_only=False)


def partition_count(controller: ControllerRunner, name: str) -> int:
    return len(controller.image.topics[name].partitions)


def test_a_topic_grows_to_the_count_asked_for() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t", "u")
        answer = await grow(controller, ("t", 5), ("u", 3, [[1]]))
        assert answer == [("t", ErrorCode.none), ("u", ErrorCode.none)]
        assert [partition_count(controller, name) for name in ("t", "u")] == [5, 3]

    with_controller(scenario)


def test_a_refusal_stays_inside_its_topic() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t", "u", "v")
        assert await grow(controller, ("t", 2), ("u", 3, [[7]]), ("gone", 3), ("v", 3)) == [
            ("t", ErrorCode.invalid_partitions),
            ("u", ErrorCode.invalid_replica_assignment),
            ("gone", ErrorCode.unknown_topic_or_partition),
            ("v", ErrorCode.none),
        ]

    with_controller(scenario)


def test_assignments_are_for_the_new_partitions_only() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await grow(controller, ("t", 3, [[1], [1], [1]]))
        assert answer == [("t", ErrorCode.invalid_replica_assignment)]

    with_controller(scenario)


def test_a_topic_named_twice_is_answered_once() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        assert await grow(controller, ("t", 3), ("t", 4)) == [("t", ErrorCode.invalid_request)]
        assert partition_count(controller, "t") == 2

    with_controller(scenario)


def test_validating_creates_nothing() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await grow(controller, ("t", 3), validate_only=True, partitions_open=never)
        assert answer == [("t", ErrorCode.none)]
        assert partition_count(controller, "t") == 2

    with_controller(scenario)


def test_without_time_nothing_is_created() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await grow(controller, ("t", 3), timeout_s=-1)
        assert answer == [("t", ErrorCode.request_timed_out)]
        assert partition_count(controller, "t") == 2

    with_controller(scenario)


def test_the_answer_does_not_wait_longer_than_the_client() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await grow(controller, ("t", 3), timeout_s=0.001, partitions_open=never)
        assert answer == [("t", ErrorCode.request_timed_out)]

    with_controller(scenario)
