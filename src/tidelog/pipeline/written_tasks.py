"""What the driver asks of tasks that were written, before and after those of a micro-batch (X2).

Before: which tasks of it an earlier run of the query has written. If it is cut in another way now,
one of those has other rows and is refused; the others wait for that (`task_producer`).

After: a task knows whether it was written before. It does not know how many others there are, and
nobody asks in the name of a task that is not there: a query that is started again and cut into
fewer tasks than when it died would write the rows of the missing ones once more. So the driver,
which knows how many there were this time, looks for more.

It has to only once for each start of a query, when tasks find marks that are not of their own run.
By then those rows are in the topic twice. The query ends, and says so; it will each time that it is
started, until somebody has removed the group that is named.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

# confluent-kafka exports this without saying so.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ListConsumerGroupsResult,
)
from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.translation import translated
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.kafka_settings import KafkaSettings
from tidelog.pipeline.task_producer import (
    EarlierTasks,
    TaskIdentity,
    TaskResult,
    insist,
    last_mark,
)

# A broker that has just died is waited for as long, and then the others are asked again.
_LISTED_WITHIN_S: Final = 5.0
_EARLIER_WITHIN_S: Final = 60.0


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    identity: TaskIdentity
    row_count: int
    is_first_of_run: bool


def task_written(identity: TaskIdentity, result: TaskResult) -> TaskWritten:
    return TaskWritten(identity, result.written.row_count, result.is_first_of_run)


def written_earlier(kafka: KafkaSettings, write: str, number: int) -> EarlierTasks:
    """Those of micro-batch `number`. Raises ClientError, PipelineError."""
    with translated(kafka.bootstrap), AdminClient({**kafka.for_client()}) as client:
        found = set()
        for task, group in _tasks(kafka, write):
            mark = last_mark(client, group)
            if mark is not None and mark.number == number:
                found.add(task)
    return EarlierTasks(frozenset(found), time.time() + _EARLIER_WITHIN_S)


def require_no_others(kafka: KafkaSettings, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raise PipelineError if tasks of this micro-batch were written that it does not have now."""
    told = [each for each in messages if isinstance(each, TaskWritten)]
    if not any(each.is_first_of_run for each in told):
        return
    identity = told[0].identity
    with translated(kafka.bootstrap), AdminClient({**kafka.for_client()}) as client:
        for task, group in _tasks(kafka, identity.write):
            mark = last_mark(client, group) if task >= len(messages) else None
            if mark is not None and mark.number == identity.number:
                raise PipelineError(
                    f"{mark.written.row_count} rows of micro-batch {identity.number} are written "
                    f"twice: it has {len(messages)} tasks now, and task {task} was written before "
                    "by a run that had more. Start a query that has died with the code and the "
                    "options that it had (minPartitions, maxRecordsPerPartition, "
                    "spark.sql.shuffle.partitions). To go on all the same, delete the group "
                    f"{group}"
                )


def _tasks(kafka: KafkaSettings, write: str) -> list[tuple[int, str]]:
    """The tasks of `write` that have ever been written, and their groups."""
    prefix = f"{write}-"
    found = []
    for group in insist(partial(_groups, kafka)):
        task = group.removeprefix(prefix) if group.startswith(prefix) else ""
        if task.isdecimal():
            found.append((int(task), group))
    return sorted(found)


def _groups(kafka: KafkaSettings) -> list[str]:
    """Those of all brokers. Raises KafkaException.

    One that does not answer may have groups that nobody else tells of. A new client knows of it
    only until it is known to be dead.
    """
    with AdminClient({**kafka.for_client()}) as client:
        return all_listed(client.list_consumer_groups(request_timeout=_LISTED_WITHIN_S).result())


def all_listed(listed: ListConsumerGroupsResult) -> list[str]:
    """Raises KafkaException if there may be more."""
    for error in listed.errors or ():
        raise KafkaException(error)
    return [each.group_id for each in listed.valid or ()]
