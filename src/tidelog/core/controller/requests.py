"""What an administrator asks of the controller, and what each part of it got for an answer.

Requests are taken as they arrive: duplicates, unknown names and nonsense included. Every part of a
request has an outcome of its own, in the order of the request, so that one wrong topic does not
spoil its neighbours.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId, TopicId
from tidelog.core.controller.image import Settings

USE_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. USE_DEFAULT stands for num.partitions and default.replication.factor.

    With `assignments`, pairs of partition and replicas, both numbers must be USE_DEFAULT.
    """

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """A topic to grow to `partition_count`; `assignments` are of the new partitions only."""

    topic: str
    partition_count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReference:
    """A topic by name or by id; naming it by both or by neither is refused."""

    name: str | None = None
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """The answer for one topic. What is not known is None, as it is after an error."""

    name: str | None
    topic_id: TopicId | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partition_count: int | None = None
    replication_factor: int | None = None
    configs: Settings | None = None

    def refused(self, code: ErrorCode, message: str) -> "TopicOutcome":
        """The same part of the request, refused after all."""
        if self.partition_count is None:
            return replace(self, error=code, message=message)
        # It was about to be created, and the id it would have had means nothing now.
        return TopicOutcome(name=self.name, error=code, message=message)


class ResourceType(IntEnum):
    """What settings belong to, with the numbers the protocol uses. Others are refused."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """`name` is a topic, a group, a broker id in digits, or empty for the defaults of all brokers.

    `resource_type` is any number a client may send.
    """

    resource_type: int
    name: str


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    """One step of an incremental change. `operation` is any number a client may send; those
    that mean something are in `config/dynamic.py`.
    """

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOutcome:
    resource: ConfigResource
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def refused(self, code: ErrorCode, message: str) -> "ConfigOutcome":
        """The same part of the request, refused after all."""
        return replace(self, error=code, message=message)


ConfigReplacement = tuple[ConfigResource, tuple[tuple[str, str | None], ...]]
IncrementalChange = tuple[ConfigResource, tuple[ConfigAlteration, ...]]
