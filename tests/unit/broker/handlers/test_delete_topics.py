"""DeleteTopics: topics by name or by id, each with an answer of its own (P1)."""

from datetime import timedelta
from uuid import UUID

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32Timedelta

from tests.unit.broker.handlers.controlled import with_controller
from tests.unit.broker.handlers.samples import context
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.handlers.delete_topics import DeleteTopicsHandler
from tidelog.core.controller.requests import NewTopic

NEWEST = 6
STRANGER = UUID(int=7)

Reference = tuple[str | None, UUID | None]


async def delete(
    controller: ControllerRunner,
    *topics: Reference,
    timeout_s: float = 60,
    api_version: int = NEWEST,
) -> list[tuple[str | None, UUID | None, ErrorCode]]:
    handler = DeleteTopicsHandler(controller=AdminRequests(controller))
    request = DeleteTopicsRequest(
        topics=tuple(
            DeleteTopicState(name=None if name is None else TopicName(name), topic_id=topic_id)
            for name, topic_id in topics
        ),
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
    )
    response = await handler.handle(request, context(api_version=api_version))
    return [(result.name, result.topic_id, result.error_code) for result in response.responses]


async def make(controller: ControllerRunner, *names: str) -> list[UUID]:
    topics = [NewTopic(name=name) for name in names]
    outcomes = await AdminRequests(controller).create_topics(topics, validate_only=False)
    return [outcome.topic_id for outcome in outcomes if outcome.topic_id is not None]


def test_a_topic_is_deleted_by_name() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        topic_id, _other = await make(controller, "t", "u")
        assert await delete(controller, ("t", None)) == [("t", topic_id, ErrorCode.none)]
        assert set(controller.image.topics) == {"u"}

    with_controller(scenario)


def test_a_topic_is_deleted_by_id() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        (topic_id,) = await make(controller, "t")
        assert await delete(controller, (None, topic_id)) == [("t", topic_id, ErrorCode.none)]
        assert not controller.image.topics

    with_controller(scenario)


def test_a_refusal_stays_inside_its_topic() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        ids = await make(controller, "t", "u")
        answer = await delete(
            controller, ("gone", None), (None, STRANGER), (None, None), ("t", ids[0]), ("u", None)
        )
        assert answer == [
            ("gone", None, ErrorCode.unknown_topic_or_partition),
            (None, STRANGER, ErrorCode.unknown_topic_id),
            (None, None, ErrorCode.invalid_request),
            ("t", ids[0], ErrorCode.invalid_request),
            ("u", ids[1], ErrorCode.none),
        ]
        assert set(controller.image.topics) == {"t"}

    with_controller(scenario)


def test_a_topic_named_twice_is_answered_once() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await delete(controller, ("t", None), ("t", None))
        assert answer == [("t", None, ErrorCode.invalid_request)]
        assert "t" in controller.image.topics

    with_controller(scenario)


def test_without_time_nothing_is_deleted() -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await delete(controller, ("t", None), (None, STRANGER), timeout_s=0)
        assert answer == [
            ("t", None, ErrorCode.request_timed_out),
            (None, STRANGER, ErrorCode.request_timed_out),
        ]
        assert "t" in controller.image.topics

    with_controller(scenario)


@pytest.mark.parametrize(
    ("api_version", "code"),
    [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)],
)
def test_deletion_may_be_switched_off(api_version: int, code: ErrorCode) -> None:
    async def scenario(controller: ControllerRunner) -> None:
        await make(controller, "t")
        answer = await delete(controller, ("t", None), api_version=api_version)
        assert answer == [("t", None, code)]
        assert "t" in controller.image.topics

    with_controller(scenario, {"delete.topic.enable": "false"})
