"""Refuses to run a micro-batch again whose marks may be gone (X2).

Which tasks of a micro-batch were written is kept in groups (`task_producer`), and brokers forget
groups that nobody uses: `offsets.retention.minutes`, a week by default. A query that died within a
micro-batch and is started again after that would take all of its tasks for unwritten.

When a micro-batch was planned is in the query's checkpoint, where the driver looks before anything
is written. A checkpoint that is not given as an option of the query, or is kept where pyarrow
cannot read, is not looked at.
"""

import json
import re
import time
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

# confluent-kafka exports these without saying so.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)
from pyarrow import fs

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.kafka_settings import KafkaSettings

_RETENTION: Final = "offsets.retention.minutes"
_RETENTION_DEFAULT_MINUTES: Final = 10_080
_ASKED_WITHIN_S: Final = 30.0
_MINUTE_MS: Final = 60_000
# Nobody keeps groups for less, and a query that runs need not ask.
_YOUNG_MS: Final = 10 * _MINUTE_MS
_HADOOP_PATH: Final = re.compile(r"file:/(?!/)")


class Planned(NamedTuple):
    """A micro-batch that a checkpoint knows to be planned, and not to be done."""

    number: int
    at_ms: int


def require_marks_are_kept(checkpoint: str, kafka: KafkaSettings) -> None:
    """Raise PipelineError if the micro-batch that comes next was begun too long ago."""
    planned = planned_in(checkpoint)
    if planned is None:
        return
    age_ms = time.time_ns() // 1_000_000 - planned.at_ms
    if age_ms < _YOUNG_MS or age_ms < _retention_minutes(kafka) * _MINUTE_MS:
        return
    raise PipelineError(
        f"micro-batch {planned.number} of {checkpoint} was begun {age_ms // _MINUTE_MS:,} minutes "
        f"ago and not finished, and brokers forget after {_RETENTION} which of its rows were "
        "written: compare what it has with the topic; to have all of it written once more, set "
        "deliveryGuarantee to at-least-once for one start"
    )


def planned_in(checkpoint: str) -> Planned | None:
    """The last micro-batch of a query that may have been begun and is not done."""
    try:
        system, path = located(checkpoint)
        numbers = _numbers(system, f"{path}/offsets")
        if not numbers or max(numbers) in _numbers(system, f"{path}/commits"):
            return None
        number = max(numbers)
        with system.open_input_stream(f"{path}/offsets/{number}") as file:
            _version, metadata, *_offsets = file.read().decode().split("\n")
        return Planned(number, int(json.loads(metadata)["batchTimestampMs"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # Spark says what is wrong with its checkpoint better than we could.


def query_in(checkpoint: str) -> str | None:
    """The id of the query, if it has been started before."""
    try:
        system, path = located(checkpoint)
        with system.open_input_stream(f"{path}/metadata") as file:
            return str(json.loads(file.read())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_begun(checkpoint: str) -> bool:
    """Whether a micro-batch was planned. Raises OSError, ValueError."""
    system, path = located(checkpoint)
    return bool(_numbers(system, f"{path}/offsets"))


def located(checkpoint: str) -> tuple[fs.FileSystem, str]:
    """A folder as pyarrow takes it. Raises OSError, ValueError."""
    if "://" in checkpoint:
        system, path = fs.FileSystem.from_uri(checkpoint)
        return system, path.rstrip("/")
    return fs.LocalFileSystem(), _HADOOP_PATH.sub("/", checkpoint).rstrip("/")


def _numbers(system: fs.FileSystem, folder: str) -> set[int]:
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return {int(each.base_name) for each in files if each.base_name.isdecimal()}


def _retention_minutes(kafka: KafkaSettings) -> int:
    """What a broker says, if it may be asked."""
    try:
        with AdminClient({**kafka.for_client()}) as client:
            broker = client.list_topics(timeout=_ASKED_WITHIN_S).orig_broker_id
            wanted = ConfigResource(ResourceType.BROKER, str(broker))
            asked = client.describe_configs([wanted], request_timeout=_ASKED_WITHIN_S)
            return int(asked[wanted].result()[_RETENTION].value)
    except (KafkaException, KeyError, ValueError, TypeError):
        return _RETENTION_DEFAULT_MINUTES
