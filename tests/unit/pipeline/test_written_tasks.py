"""Nothing is taken for unwritten because a broker did not say (X2)."""

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConsumerGroupListing,
    ListConsumerGroupsResult,
)

from tidelog.pipeline.task_producer import insist
from tidelog.pipeline.written_tasks import all_listed

GROUP = ConsumerGroupListing("query-0", is_simple_consumer_group=True)


def listed(*errors: int) -> ListConsumerGroupsResult:
    """What brokers answer, and those that do not."""
    # They are said to be exceptions, and are not.
    return ListConsumerGroupsResult(valid=[GROUP], errors=[KafkaError(each) for each in errors])  # type: ignore[misc]


def test_groups_of_a_broker_that_does_not_answer_are_not_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as it may have some, the others are asked again."""
    waited: list[float] = []
    monkeypatch.setattr("tidelog.pipeline.task_producer.time.sleep", waited.append)
    answers = [listed(KafkaError._TIMED_OUT), listed(KafkaError._TRANSPORT), listed()]
    assert insist(lambda: all_listed(answers.pop(0))) == ["query-0"]
    assert len(waited) == 2


def test_groups_that_may_not_be_listed_are_a_failure() -> None:
    answer = listed(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        insist(lambda: all_listed(answer))
