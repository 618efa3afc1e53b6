"""The writing half of `format("tidelog")`, as Spark sees it (X2).

Each task writes for itself (`task_producer`); when all are done there is nothing left for the
driver to commit, and something to look at (`written_tasks`). Spark tells tasks in its local
properties which query, which run of it and which micro-batch they belong to; a batch gets a name of
its own when it is planned.
"""

import logging
import uuid
from collections.abc import Iterator
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

from tidelog.client.topic_offsets import TopicOffsets
from tidelog.client.translation import translated
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.forgotten_marks import planned_in, query_in
from tidelog.pipeline.kafka_settings import KafkaSettings
from tidelog.pipeline.notices import warn_once
from tidelog.pipeline.sink_options import Guarantee, SinkOptions
from tidelog.pipeline.task_producer import (
    NONE_EARLIER,
    TRANSACTION_TIMEOUT_MS,
    EarlierTasks,
    TaskIdentity,
    write_at_least_once,
    write_exactly_once,
)
from tidelog.pipeline.written_tasks import (
    TaskWritten,
    require_no_others,
    task_written,
    written_earlier,
)

QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
"""Spark gives the jobs of a query the id of this start of it, so that they can be cancelled."""
_BATCH_ID: Final = "streaming.sql.batchId"
_ASKED_WITHIN_S: Final = 30.0
_TIMEOUT: Final = "transaction.timeout.ms"
_NO_TRANSACTIONS: Final = frozenset({"_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION"})

# librdkafka prints itself what is fatal to it, whichever level it is given; a logger takes that.
_UNHEARD: Final = logging.Logger("unheard", logging.CRITICAL + 1)

logger = logging.getLogger(__name__)


class TopicWriter(DataSourceArrowWriter):
    """`df.write`: a task that Spark runs again leaves no duplicate; a second write is another."""

    def __init__(self, options: SinkOptions, guarantee: Guarantee) -> None:
        self._options = options
        self._guarantee = guarantee
        self._name = f"{options.transactional_id_prefix}-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        identity = TaskIdentity(self._name, _context().partitionId(), 0, run=self._name)
        return written_task(self._options, self._guarantee, identity, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nobody will run these tasks again: what they remember is of no use any more."""
        names = [each.identity.name for each in messages if isinstance(each, TaskWritten)]
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

    def __init__(
        self, options: SinkOptions, guarantee: Guarantee, earlier: EarlierTasks = NONE_EARLIER
    ) -> None:
        self._options = options
        self._guarantee = guarantee
        self._earlier = earlier

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, run, number = map(context.getLocalProperty, (QUERY_ID, RUN_ID, _BATCH_ID))
        if query is None or run is None or number is None:
            raise PipelineError("Spark did not say which micro-batch this is")
        write = write_of(self._options, query)
        identity = TaskIdentity(write, context.partitionId(), int(number), run)
        return written_task(self._options, self._guarantee, identity, iterator, self._earlier)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All of it is visible already."""
        require_no_others(self._options.kafka, messages)

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
    warn_once(
        f"{options.kafka.bootstrap} has no transactions: rows are written at least once, and a "
        "task that is run again repeats some"
    )
    return Guarantee.AT_LEAST_ONCE


@cache
def _refusal_of_transactions(kafka: KafkaSettings, prefix: str) -> str | None:
    """What the cluster says if it has none. Raises ClientError, PipelineError."""
    _require_answer(kafka)
    timeout = kafka.get(_TIMEOUT, str(TRANSACTION_TIMEOUT_MS))
    settings = {
        **kafka.for_client(),
        _TIMEOUT: timeout,
        "transactional.id": f"{prefix}-probe",
        "logger": _UNHEARD,
    }
    with translated(kafka.bootstrap):
        probe = Producer(settings)
        try:
            probe.init_transactions(_ASKED_WITHIN_S)
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() in _NO_TRANSACTIONS:
                return str(error.str())
            if error.name() == "INVALID_TRANSACTION_TIMEOUT":
                raise PipelineError(
                    f"kafka.{_TIMEOUT} is {timeout}, and {kafka.bootstrap} allows less "
                    "(transaction.max.timeout.ms): set it"
                ) from None
            if error.name() != "_TIMED_OUT":
                raise
            raise PipelineError(
                f"{kafka.bootstrap} did not begin a transaction within {_ASKED_WITHIN_S:g} s: are "
                "there as many brokers as transaction.state.log.replication.factor asks for? "
                "deliveryGuarantee=at-least-once does without transactions"
            ) from None
    return None


def _require_answer(kafka: KafkaSettings) -> None:
    """Of who is not let in a transactional producer says only that its time was up."""
    with TopicOffsets(
        kafka.for_client(), is_committed_only=True, timeout_s=_ASKED_WITHIN_S
    ) as cluster:
        cluster.partitions_of(())


def earlier_tasks(
    options: SinkOptions, guarantee: Guarantee, checkpoint: str | None
) -> EarlierTasks:
    """Of the micro-batch that is to be written now. Raises PipelineError, ClientError.

    Spark makes a writer for every micro-batch, and each time it is asked. That this process planned
    the one before says nothing: Spark has several plan in turn, and keeps them from one start of a
    query to the next. Another one, or another driver, may have begun this one since.
    """
    if checkpoint is None or guarantee is not Guarantee.EXACTLY_ONCE:
        return NONE_EARLIER
    planned, query = planned_in(checkpoint), query_in(checkpoint)
    if planned is None or query is None:
        return NONE_EARLIER
    return written_earlier(options.kafka, write_of(options, query), planned.number)


def written_task(
    options: SinkOptions,
    guarantee: Guarantee,
    identity: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
    earlier: EarlierTasks = NONE_EARLIER,
) -> WriterCommitMessage:
    """Write the rows of a task, and say so to the driver."""
    if guarantee is Guarantee.AT_LEAST_ONCE:
        write_at_least_once(options, batches)
        return WriterCommitMessage()
    return task_written(identity, write_exactly_once(options, identity, batches, earlier))


def write_of(options: SinkOptions, query: str) -> str:
    """What the names of a query's tasks begin with."""
    return f"{options.transactional_id_prefix}-{query}"


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
