"""What a cluster's refusal looks like to a program that uses the client.

ClientError
  ├── ClusterUnreachable    nobody answered; look at the address
  └── RequestFailed         somebody answered, and the answer was an error code
"""

from tidelog.base.errors import TidelogError

# The request itself is wrong: sending it again, or to another broker, changes nothing.
_INVALID_REQUESTS = frozenset(
    {
        "INVALID_CONFIG",
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_REPLICA_ASSIGNMENT",
        "INVALID_REQUEST",
        "TOPIC_EXCEPTION",
        "_INVALID_ARG",
    }
)

# In librdkafka's words, and in Kafka's.
_UNKNOWN_TOPIC = frozenset(
    {
        "UNKNOWN_TOPIC_ID",
        "UNKNOWN_TOPIC_OR_PART",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)


class ClientError(TidelogError):
    """The cluster did not do what it was asked."""


class ClusterUnreachable(ClientError):
    """No broker of the cluster answered in time."""


class RequestFailed(ClientError):
    """A broker, or librdkafka on its behalf, answered with an error code."""

    def __init__(self, code_name: str, message: str) -> None:
        super().__init__(message)
        self.code_name = code_name

    @property
    def is_invalid_request(self) -> bool:
        """Whether the caller has to ask for something else."""
        return self.code_name in _INVALID_REQUESTS

    @property
    def is_unknown_topic(self) -> bool:
        return self.code_name in _UNKNOWN_TOPIC
