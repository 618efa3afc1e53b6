"""CreateTopics as a broker asks it of the controller, for topics that clients use first (P4).

Importing this module imports the message library, so it is imported when it is needed.
"""

from collections.abc import Sequence

from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32

from tidelog.base.errors import ErrorCode
from tidelog.core.controller.requests import NewTopic
from tidelog.wire import messages
from tidelog.wire.api import ApiKey, decode_response_header

VERSION = 7
_LENGTH_BYTES = 4


def creation_request(topics: Sequence[NewTopic]) -> bytes:
    """The request, without its length, for topics whose replicas are placed by the controller."""
    request = CreateTopicsRequest(
        topics=tuple(
            CreatableTopic(
                name=TopicName(topic.name),
                num_partitions=i32(topic.partition_count),
                replication_factor=i16(topic.replication_factor),
                assignments=(),
                configs=tuple(
                    CreatableTopicConfig(name=name, value=value) for name, value in topic.configs
                ),
            )
            for topic in topics
        ),
    )
    return messages.encode_request(request, VERSION, 0, "broker")[_LENGTH_BYTES:]


def creation_codes(answer: bytes) -> dict[str, ErrorCode]:
    """What became of each topic."""
    view = memoryview(answer)
    _, position = decode_response_header(view, ApiKey.CREATE_TOPICS, VERSION)
    response = messages.decode_response(ApiKey.CREATE_TOPICS, VERSION, view, position)
    assert isinstance(response, CreateTopicsResponse)
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}
