"""Nothing above the client hears of librdkafka's errors."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidelog.client.errors import ClusterUnreachable, RequestFailed
from tidelog.client.translation import failure, translated


@pytest.mark.parametrize(
    ("code", "is_invalid"),
    [
        (KafkaError.INVALID_CONFIG, True),
        (KafkaError.INVALID_PARTITIONS, True),
        (KafkaError.INVALID_REPLICATION_FACTOR, True),
        (KafkaError.TOPIC_EXCEPTION, True),
        (KafkaError.TOPIC_ALREADY_EXISTS, False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
    ],
)
def test_wrong_request_is_told_from_a_refusal(code: int, is_invalid: bool) -> None:
    failed = failure(KafkaError(code, "reason"), "host:1")
    assert isinstance(failed, RequestFailed)
    assert failed.is_invalid_request is is_invalid
    assert str(failed) == "reason"


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT])
def test_silence_names_the_address(code: int) -> None:
    failed = failure(KafkaError(code), "host:1")
    assert isinstance(failed, ClusterUnreachable)
    assert "host:1" in str(failed)


def test_exception_is_translated_where_it_enters() -> None:
    with pytest.raises(RequestFailed) as raised, translated("host:1"):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert raised.value.is_unknown_topic
