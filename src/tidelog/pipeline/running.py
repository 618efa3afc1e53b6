"""Runs a streaming query to its end, or until somebody asks it to stop.

Spark's `stop` breaks off the micro-batch that is running. That loses nothing, since it is run again
from the checkpoint, but its work is for nothing; so who is asked to stop waits for the end of the
running micro-batch first.

How far a query is, it is asked again and again. The last progress is one call to Spark; those that
are retained, of which there are a hundred, are a call each, so they are looked at only when more
than one micro-batch has ended since the last look.

What Spark says of a failure is pages of Java; `failure_of` finds the sentence in it.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tidelog.pipeline.errors import OptionError, PipelineError
from tidelog.pipeline.kafka_settings import COMMITTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

INTERVAL_S: Final = 1.0
"""Between the beginnings of two micro-batches, at least, of a stream that goes on."""
STOP_WAIT_MAX_S: Final = 60.0
_POLL_S: Final = 0.1
_OURS: Final = re.compile(r"(?:^|: )tidelog\.([\w.]+): (.*)$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_SPARK: Final = re.compile(r"^\s*\[[A-Z_.]+\] (.*?)(?: SQLSTATE: \w+.*)?$", re.MULTILINE)
_JAVA: Final = re.compile(
    r"^(?:: |Caused by: )(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.+)$", re.MULTILINE
)
_INNER: Final = re.compile(r"(?:[\w$]+\.)+[\w$]*(?:Exception|Error): ")
_NOISE: Final = re.compile(r"^Query \[id = [^\]]*\] terminated with exception: (?:\[[A-Z_.]+\] )?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One micro-batch, and how far all of it is."""

    batch: int
    row_count: int
    total_row_count: int
    rows_per_s: float
    lag: int | None
    """Offsets that are there and were not read yet, if the source says."""
    batch_s: float
    counts: Mapping[str, int] = field(default_factory=dict)
    """What this micro-batch counted beside rows, such as duplicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run has done."""

    batch_count: int
    row_count: int
    took_s: float
    lag: int | None
    counts: Mapping[str, int]
    was_stopped: bool
    """Somebody asked for its end, and it had not ended by itself by then."""


Watch = Callable[[Progress], None]
Question = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """How a pipeline runs, whichever it is."""

    checkpoint: str
    is_once: bool = False
    """Take what is there now, and end."""
    on_progress: Watch = lambda _progress: None
    is_stopped: Question = lambda: False
    """Asked again and again; once it says yes, the running micro-batch is the last."""


Counts = Callable[[Mapping[str, Any]], Mapping[str, int]]
"""What a progress of Spark's, as JSON, says beside rows."""


def run_stream(writer: "DataStreamWriter", terms: RunTerms, counts: Counts) -> Outcome:
    """Start it and see it to its end. Raises PipelineError with the reason of a failure."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs the extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    if terms.is_once:
        triggered = writer.trigger(availableNow=True)
    else:
        triggered = writer.trigger(processingTime=f"{int(INTERVAL_S * 1000)} milliseconds")
    try:
        query = triggered.option("checkpointLocation", terms.checkpoint).start()
        return QueryRun(query, counts, terms.on_progress).run(terms.is_stopped)
    except (PySparkException, Py4JError) as error:
        raise failure_of(str(error)) from error


class QueryRun:
    """A query that was started, until its end."""

    def __init__(self, query: "StreamingQuery", counts: Counts, on_progress: Watch) -> None:
        self._query = query
        self._counts_of = counts
        self._on_progress = on_progress
        self._began_s = time.monotonic()
        self._last_noted: tuple[int, str] | None = None
        self._last_batch: int | None = None
        self._batch_count = 0
        self._row_count = 0
        self._lag: int | None = None
        self._counts: dict[str, int] = {}

    def run(self, is_stopped: Question) -> Outcome:
        """Raises what Spark says of a failure."""
        was_stopped = False
        try:
            while self._query.isActive and not was_stopped:
                time.sleep(_POLL_S)
                self._look()
                was_stopped = is_stopped()
            if was_stopped:
                self._wait_for_batch()
                # It may have been the last one, or have failed.
                was_stopped = self._query.isActive
        finally:
            self._query.stop()
        if not was_stopped:
            self._query.awaitTermination()
        self._look()
        return Outcome(
            batch_count=self._batch_count,
            row_count=self._row_count,
            took_s=time.monotonic() - self._began_s,
            lag=self._lag,
            counts=dict(self._counts),
            was_stopped=was_stopped,
        )

    def _wait_for_batch(self) -> None:
        last_noted = self._last_noted
        give_up_s = time.monotonic() + STOP_WAIT_MAX_S
        while self._query.isActive and time.monotonic() < give_up_s:
            if self._last_noted != last_noted or not self._query.status["isTriggerActive"]:
                return
            time.sleep(_POLL_S)
            self._look()

    def _look(self) -> None:
        for each in self._news():
            self._last_noted = _moment(each)
            self._note(json.loads(each.json))

    def _news(self) -> "Sequence[StreamingQueryProgress]":
        """What was not noted yet, in order."""
        last = self._query.lastProgress
        if last is None or _moment(last) == self._last_noted:
            return []
        if self._last_noted is not None and last.batchId <= self._last_noted[0] + 1:
            return [last]
        recent = self._query.recentProgress
        moments = [_moment(each) for each in recent]
        known = moments.index(self._last_noted) + 1 if self._last_noted in moments else 0
        return recent[known:]

    def _note(self, found: Mapping[str, Any]) -> None:
        counts = dict(self._counts_of(found))
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        self._lag = lag_of(found)
        row_count = found["numInputRows"]
        self._row_count += row_count
        if not row_count and not any(counts.values()):
            return
        # One that was found to have nothing to do is told of again, when it has.
        self._batch_count += found["batchId"] != self._last_batch
        self._last_batch = found["batchId"]
        batch_s = found["durationMs"].get("triggerExecution", 0) / 1000
        self._on_progress(
            Progress(
                batch=found["batchId"],
                row_count=row_count,
                total_row_count=self._row_count,
                rows_per_s=row_count / batch_s if batch_s else 0.0,
                lag=self._lag,
                batch_s=batch_s,
                counts=counts,
            )
        )


def _moment(progress: "StreamingQueryProgress") -> tuple[int, str]:
    return progress.batchId, progress.timestamp


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Offsets between what was read and what is there; None if the source does not say."""
    total = 0
    for source in progress["sources"]:
        done, there = source.get("endOffset"), source.get("latestOffset")
        if not isinstance(done, dict) or not isinstance(there, dict):
            return None
        for topic, partitions in there.items():
            for partition, offset in partitions.items():
                total += max(0, offset - done.get(topic, {}).get(partition, 0))
    return total


def state_count(progress: Mapping[str, Any], name: str) -> int:
    """A number of all stateful operators together, of their own ones or of Spark's."""
    return sum(
        int(operator.get(name, operator["customMetrics"].get(name, 0)))
        for operator in progress["stateOperators"]
    )


def observed_count(progress: Mapping[str, Any], observation: str, name: str) -> int:
    """A number that the query observes itself; Spark leaves it out where nothing was read."""
    observed = progress.get("observedMetrics", {}).get(observation) or {}
    return int(observed.get(name) or 0)


def topic_stream(
    spark: "SparkSession",
    topic: str,
    kafka: Mapping[str, str],
    *,
    batch_records: int,
    group: str | None,
    allows_loss: bool,
) -> "DataFrame":
    """All of a topic with its headers, from the beginning, in micro-batches of that many.

    Only what was committed, unless `kafka` says otherwise. A `group` is told how far it is. Records
    that are gone before they were read end it, unless it `allows_loss`.
    """
    options = {
        **({} if group is None else {"commitGroup": group}),
        **({"failOnDataLoss": "false"} if allows_loss else {}),
        **COMMITTED,
        **kafka,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(batch_records),
    }
    return spark.readStream.format("tidelog").options(**options).load()


def failure_of(message: str) -> PipelineError:
    """The sentence that matters in what Spark says of a failure."""
    ours = _OURS.findall(message)
    if ours:
        name, sentence = ours[-1]
        kind = OptionError if name.endswith("OptionError") else PipelineError
        return kind(sentence.strip())
    python = _PYTHON.findall(message)
    if python:
        name, sentence = python[-1]
        return PipelineError(f"{name}: {_NOISE.sub('', sentence.strip())}")
    spark = _SPARK.findall(message)
    if spark:
        return PipelineError(_NOISE.sub("", spark[-1].strip()))
    java = _JAVA.findall(message)
    if java:
        return PipelineError(_INNER.split(java[-1])[-1].strip())
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return PipelineError(lines[0] if lines else "Spark did not say why")
