"""The topic that a job writes to with the partition numbers that records had before."""

from collections.abc import Mapping
from typing import Final

from tidelog.client.errors import RequestFailed
from tidelog.client.topic_offsets import TopicOffsets
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.kafka_settings import writer_settings

_ASKED_WITHIN_S: Final = 30.0


def require_partitions(kafka: Mapping[str, str], topic: str, count: int, *, otherwise: str) -> None:
    """Raise PipelineError if `topic` has fewer, before a job starts that would need them.

    One that does not exist is created by brokers that do so, with as many as they like.
    `otherwise` is what else the person could do. Raises ClientError too.
    """
    found = partition_count(kafka, topic)
    if found >= count or count <= 1:
        return
    has = "does not exist" if found == 0 else f"has {found} partitions"
    raise PipelineError(
        f"the topic {topic} {has}, and records are of {count}: create it with --partitions "
        f"{count}, or {otherwise}"
    )


def partition_count(kafka: Mapping[str, str], topic: str) -> int:
    """0 if there is no such topic. Raises ClientError."""
    settings = writer_settings(kafka).for_client()
    with TopicOffsets(settings, is_committed_only=True, timeout_s=_ASKED_WITHIN_S) as cluster:
        try:
            return len(cluster.partitions_of([topic]))
        except RequestFailed as error:
            if not error.is_unknown_topic:
                raise
            return 0
