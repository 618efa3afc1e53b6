"""librdkafka's errors, translated where they enter; nothing above `client/` has heard of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tidelog.client.errors import ClientError, ClusterUnreachable, RequestFailed

_NO_ANSWER = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})


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
