"""The writing half of `format("tidelog")`, as Spark sees it (X2).

Each task writes for itself (`task_producer`); when all are done there is nothing left for the
driver to commit. Spark tells tasks in its local properties which query and which micro-batch they
belong to; a batch gets a name of its own when it is planned.
"""

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tidelog.client.translation import translated
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.kafka_settings import KafkaSettings
from tidelog.pipeline.sink_options import Guarantee, SinkOptions
from tidelog.pipeline.task_producer import (
    TaskIdentity,
    Written,
    write_at_least_once,
    write_exactly_once,
)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_ASKED_WITHIN_S: Final = 30.0
_NO_TRANSACTIONS: Final = frozenset({"_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"})

logger = logging.getLogger(__name__)


@dataclass
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    name: str | None
    """Of its group, if it has one."""
    row_count: int
    size_bytes: int


class TopicWriter(DataSourceArrowWriter):
    """`df.write`: a task that Spark runs again leaves no duplicate; a second write is another."""

    def __init__(self, options: SinkOptions, guarantee: Guarantee) -> None:
        self._options = options
        self._guarantee = guarantee
        self._name = f"{options.transactional_id_prefix}-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        identity = TaskIdentity(self._name, _context().partitionId(), 0)
        return _write(self._options, self._guarantee, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nobody will run these tasks again: what they remember is of no use any more."""
        names = [each.name for each in messages if isinstance(each, TaskWritten) and each.name]
        if not names:
            return
        with AdminClient({**self._options.kafka.for_client()}) as client:
            for name, answer in client.delete_consumer_groups(
                names, request_timeout=_ASKED_WITHIN_S
            ).items():
                try:
                    answer.result()
                except KafkaException as exception:
                    # It expires by itself (offsets.retention.minutes).
                    logger.debug("group %s is left: %s", name, exception.args[0].str())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Tasks that were written stay; Spark tells that the job has failed."""


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, options: SinkOptions, guarantee: Guarantee) -> None:
        self._options = options
        self._guarantee = guarantee

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, number = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or number is None:
            raise PipelineError("Spark did not say which micro-batch this is")
        write = f"{self._options.transactional_id_prefix}-{query}"
        identity = TaskIdentity(write, context.partitionId(), int(number))
        return _write(self._options, self._guarantee, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All of it is visible already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Spark runs it again, and those tasks that were written are known by then."""


def offered_guarantee(options: SinkOptions) -> Guarantee:
    """What was asked for, or the best that there is. Asked before anything is written.

    Spark makes a writer for every micro-batch: the cluster is asked once for a process. Raises
    PipelineError, ClientError.
    """
    if options.guarantee is Guarantee.AT_LEAST_ONCE:
        return options.guarantee
    refusal = _refusal_of_transactions(options.kafka, options.transactional_id_prefix)
    if refusal is None:
        return Guarantee.EXACTLY_ONCE
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        raise PipelineError(
            f"deliveryGuarantee is exactly-once, but {options.kafka.bootstrap} has no "
            f"transactions: {refusal}"
        )
    logger.warning(
        "%s has no transactions (%s): rows are written at least once, and a task that is run "
        "again repeats some",
        options.kafka.bootstrap,
        refusal,
    )
    return Guarantee.AT_LEAST_ONCE


@cache
def _refusal_of_transactions(kafka: KafkaSettings, prefix: str) -> str | None:
    """What the cluster says if it has none. Raises ClientError, PipelineError."""
    with translated(kafka.bootstrap):
        probe = Producer({**kafka.for_client(), "transactional.id": f"{prefix}-probe"})
        try:
            probe.init_transactions(_ASKED_WITHIN_S)
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() in _NO_TRANSACTIONS:
                return str(error.str())
            if error.name() != "_TIMED_OUT":
                raise
            raise PipelineError(
                f"{kafka.bootstrap} did not begin a transaction within {_ASKED_WITHIN_S:g} s: are "
                "there as many brokers as transaction.state.log.replication.factor asks for? "
                "deliveryGuarantee=at-least-once does without transactions"
            ) from None
    return None


def _write(
    options: SinkOptions,
    guarantee: Guarantee,
    identity: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskWritten:
    if guarantee is Guarantee.AT_LEAST_ONCE:
        return _told(None, write_at_least_once(options, batches))
    return _told(identity.name, write_exactly_once(options, identity, batches))


def _told(name: str | None, written: Written) -> TaskWritten:
    return TaskWritten(name, written.row_count, written.size_bytes)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
