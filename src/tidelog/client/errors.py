"""What a cluster's refusal looks like to a program that uses the client.

librdkafka's and the operating system's errors are translated where they enter (`translated`,
`unreachable`); nothing above `client/` has heard of them.

    ClientError
      ├── ClusterUnreachable    nobody answered; look at the address
      └── RequestFailed         somebody answered, and the answer was an error code
"""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

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
_NO_ANSWER = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})


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
        return self.code_name in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID"}


def failure(error: KafkaError, bootstrap: str) -> ClientError:
    """The `ClientError` that `error` stands for."""
    if error.name() in _NO_ANSWER:
        return ClusterUnreachable(f"no broker at {bootstrap} answered in time: {error.str()}")
    return RequestFailed(error.name(), error.str())


@contextmanager
def translated(bootstrap: str) -> Iterator[None]:
    """Let nothing but `ClientError` out of a block that calls librdkafka."""
    try:
        yield
    except KafkaException as exception:
        error = exception.args[0]
        assert isinstance(error, KafkaError)
        raise failure(error, bootstrap) from exception
