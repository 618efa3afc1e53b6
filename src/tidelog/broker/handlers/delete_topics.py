"""DeleteTopics (20): topics by name or by id, gone with all their records.

One topic's refusal is that topic's answer; it never fails its neighbours. A topic that appears
twice in one request is answered once, as a mistake. Files are removed later, in the background.
"""

from dataclasses import dataclass

from kio.schema.delete_topics.v6.request import DeleteTopicsRequest
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.types import TopicName

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicId
from tidelog.broker.admin_requests import AdminRequests
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.handlers.answering import NO_THROTTLE, message_error, within
from tidelog.broker.large_requests import in_turns
from tidelog.core.controller.requests import TopicOutcome, TopicReference

_FIRST_THAT_KNOWS_DELETION_DISABLED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsHandler:
    """Asks the controller, which knows whether topics may be deleted at all."""

    controller: AdminRequests

    async def handle(
        self, request: DeleteTopicsRequest, context: RequestContext
    ) -> DeleteTopicsResponse:
        topics = [
            TopicReference(
                name=topic.name,
                topic_id=None if topic.topic_id is None else TopicId(topic.topic_id),
            )
            async for topic in in_turns(request.topics)
        ]
        outcomes = await within(
            request.timeout,
            lambda: self.controller.delete_topics(topics),
            otherwise=lambda: [_timed_out(topic) for topic in dict.fromkeys(topics)],
        )
        return DeleteTopicsResponse(
            throttle_time=NO_THROTTLE,
            responses=tuple(
                [_result(outcome, context.api_version) async for outcome in in_turns(outcomes)]
            ),
        )


def _timed_out(topic: TopicReference) -> TopicOutcome:
    return TopicOutcome(name=topic.name, topic_id=topic.topic_id, error=ErrorCode.REQUEST_TIMED_OUT)


def _result(outcome: TopicOutcome, api_version: int) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=None if outcome.name is None else TopicName(outcome.name),
        topic_id=outcome.topic_id,
        error_code=message_error(_known_code(outcome.error, api_version)),
        error_message=outcome.message,
    )


def _known_code(code: ErrorCode, api_version: int) -> ErrorCode:
    is_too_new = (
        code is ErrorCode.TOPIC_DELETION_DISABLED
        and api_version < _FIRST_THAT_KNOWS_DELETION_DISABLED
    )
    return ErrorCode.INVALID_REQUEST if is_too_new else code
