"""DeleteTopics (20): topics by name or by id, gone with all their records.

One topic's refusal is that topic's answer; it never fails its neighbours. A topic that appears
twice in one request is answered once, as a mistake. Files are removed later, in the background.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicId
from tidelog.broker.controller_runner import ControllerRunner
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, is_out_of_time, message_error
from tidelog.core.controller.requests import TopicOutcome, TopicReference

_FIRST_THAT_KNOWS_DELETION_DISABLED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsHandler:
    """`delete_topic_enable` is the setting of that name, which never changes."""

    controller: ControllerRunner
    delete_topic_enable: bool

    async def handle(
        self, request: DeleteTopicsRequest, context: RequestContext
    ) -> DeleteTopicsResponse:
        topics = [
            TopicReference(
                name=topic.name,
                topic_id=None if topic.topic_id is None else TopicId(topic.topic_id),
            )
            for topic in request.topics
        ]
        if not self.delete_topic_enable:
            return _response(_refused(topics, _disabled(context.api_version)))
        if is_out_of_time(request.timeout):
            return _response(_refused(topics, ErrorCode.REQUEST_TIMED_OUT))
        return _response(await self.controller.delete_topics(topics))


def _disabled(api_version: int) -> ErrorCode:
    if api_version < _FIRST_THAT_KNOWS_DELETION_DISABLED:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.TOPIC_DELETION_DISABLED


def _refused(topics: Sequence[TopicReference], code: ErrorCode) -> list[TopicOutcome]:
    return [TopicOutcome(name=topic.name, topic_id=topic.topic_id, error=code) for topic in topics]


def _response(outcomes: Iterable[TopicOutcome]) -> DeleteTopicsResponse:
    one_per_topic = {(outcome.name, outcome.topic_id): outcome for outcome in outcomes}
    return DeleteTopicsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            DeletableTopicResult(
                name=None if outcome.name is None else TopicName(outcome.name),
                topic_id=outcome.topic_id,
                error_code=message_error(outcome.error),
                error_message=outcome.message,
            )
            for outcome in one_per_topic.values()
        ),
    )
