"""Topics of a cluster under test, made, deleted and measured over confluent-kafka."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tidelog.base.ids import TopicPartition
from tidelog.client.admin import BROKER_DEFAULT, Admin
from tidelog.client.topic_offsets import TopicOffsets
from tidelog.client.translation import translated

_WITHIN_S: Final = 30.0


def unused_name() -> str:
    """A name that no other topic has, of any test, in any process."""
    return f"topic-{uuid.uuid4().hex[:12]}"


def create(
    bootstrap: str,
    topic: str,
    *,
    partition_count: int,
    replica_count: int | None,
    placement: Sequence[Sequence[int]] | None,
    config: Mapping[str, object],
) -> None:
    """Return when the controller has made it; brokers may not know of it yet."""
    written = {name: str(value) for name, value in config.items()}
    if placement is None:
        wanted = BROKER_DEFAULT if replica_count is None else replica_count
        new = NewTopic(topic, partition_count, wanted, config=written)
    else:
        brokers = [list(replicas) for replicas in placement]
        new = NewTopic(topic, len(brokers), replica_assignment=brokers, config=written)
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    answers = client.create_topics([new], request_timeout=_WITHIN_S)
    with translated(bootstrap):
        answers[topic].result(_WITHIN_S)


def delete(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap, timeout_s=_WITHIN_S) as admin:
        admin.delete_topic(topic)


def end_offsets(bootstrap: str, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Asked of the leaders of now."""
    settings = {"bootstrap.servers": bootstrap, "log_level": "0"}
    asked = [TopicPartition(topic, number) for number in partitions]
    with TopicOffsets(settings, is_committed_only=False, timeout_s=_WITHIN_S) as offsets:
        ends = offsets.ends(asked)
    return {each.partition: ends[each] for each in asked}
