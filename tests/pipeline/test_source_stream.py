"""`spark.readStream.format("tidelog")`: every record once, across triggers and restarts (X1)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.clients import NewRecord, delete_records
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.two_sources import OFFICIAL, TIDELOG, TwoSources, why_unavailable
from tidelog.client.admin import Admin
from tidelog.client.groups import Groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WITHIN_S = 60
AT_MS = 1_700_000_000_000
# Whoever has lost something asks for it again, but soon.
AT_ONCE = {"fetchOffset.retryIntervalMs": "10"}


class Seen:
    """What a stream has handed out: (topic, partition, offset), batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, int, int]]] = {}

    def take(self, frame: "DataFrame", number: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        self.batches[number] = [(row.topic, row.partition, row.offset) for row in rows]

    @property
    def all(self) -> list[tuple[str, int, int]]:
        return sorted(one for batch in self.batches.values() for one in batch)

    @property
    def sizes(self) -> list[int]:
        return [len(batch) for _, batch in sorted(self.batches.items()) if batch]


class Streams:
    """Streams of one cluster with one checkpoint, one after the other."""

    def __init__(self, sources: TwoSources, checkpoint: Path) -> None:
        self._sources = sources
        self._checkpoint = checkpoint

    def available(self, source: str = TIDELOG, **options: str) -> Seen:
        """What there is now."""
        seen = Seen()
        query = self._writer(source, seen, options).trigger(availableNow=True).start()
        query.awaitTermination(WITHIN_S)
        assert not query.isActive
        return seen

    @contextmanager
    def running(self, **options: str) -> Iterator[tuple[Seen, "StreamingQuery"]]:
        seen = Seen()
        writer = self._writer(TIDELOG, seen, options)
        query = writer.trigger(processingTime="100 milliseconds").start()
        try:
            yield seen, query
            failed = query.exception()
            assert failed is None, failed
        except TimeoutError as late:
            raise query.exception() or late from None
        finally:
            query.stop()

    def _writer(self, source: str, seen: Seen, options: dict[str, str]) -> "DataStreamWriter":
        writer = self._sources.stream(source, **options).writeStream.foreachBatch(seen.take)
        return writer.option("checkpointLocation", str(self._checkpoint))


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", topics: ReplicatedTopics) -> TwoSources:
    return TwoSources(spark, topics.bootstrap)


@pytest.fixture
def streams(sources: TwoSources, tmp_path: Path) -> Streams:
    return Streams(sources, tmp_path / "checkpoint")


def fill(topics: ReplicatedTopics, topic: str, count: int, *, partition: int = 0) -> None:
    sent = [NewRecord(None, b"%d" % number, AT_MS + number, ()) for number in range(count)]
    topics.send(topic, sent, partition=partition)


def offsets(topic: str, *counts: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, at) for partition, count in enumerate(counts) for at in range(count)]


def test_what_is_available_comes_in_portions_and_goes_on_after_a_restart(
    streams: Streams, topics: ReplicatedTopics
) -> None:
    topic = topics.create(partition_count=2)
    fill(topics, topic, 25)
    fill(topics, topic, 10, partition=1)
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "14",
        "commitGroup": topic,
    }
    first = streams.available(**options)
    assert first.all == offsets(topic, 25, 10)
    assert first.sizes == [14, 14, 7]
    assert committed(topics, topic) == {0: 25, 1: 10}
    assert streams.available(**options).all == []
    fill(topics, topic, 5, partition=1)
    assert streams.available(**options).all == [(topic, 1, at) for at in range(10, 15)]
    assert committed(topics, topic) == {0: 25, 1: 15}


def committed(topics: ReplicatedTopics, group: str) -> dict[int, int]:
    with Groups(topics.bootstrap) as groups:
        return {each.partition: at for each, at in groups.committed(group).items()}


def test_a_stream_begins_at_the_end_unless_it_is_told_otherwise(
    streams: Streams, topics: ReplicatedTopics
) -> None:
    topic = topics.create()
    fill(topics, topic, 5)
    with streams.running(subscribe=topic) as (seen, query):
        wait_until(lambda: query.lastProgress is not None, within_s=WITHIN_S, what="it has begun")
        fill(topics, topic, 3)
        wait_until(lambda: len(seen.all) == 3, within_s=WITHIN_S, what="three are read")
    assert seen.all == [(topic, 0, at) for at in (5, 6, 7)]


def test_new_topics_and_partitions_are_found_while_it_runs(
    streams: Streams, topics: ReplicatedTopics
) -> None:
    first = topics.create()
    fill(topics, first, 4)
    pattern = f"{first}(-.*)?"
    with streams.running(subscribePattern=pattern, startingOffsets="earliest") as (seen, _):
        wait_until(lambda: len(seen.all) == 4, within_s=WITHIN_S, what="the first is read")
        with Admin(topics.bootstrap) as admin:
            second = f"{first}-second"
            admin.create_topic(second, partitions=1, replication_factor=3, configs={})
            fill(topics, second, 3)
            admin.create_partitions(first, partitions=2)
            fill(topics, first, 2, partition=1)
        wait_until(lambda: len(seen.all) == 9, within_s=WITHIN_S, what="all are read")
    assert seen.all == sorted(offsets(first, 4, 2) + offsets(second, 3))


def test_little_is_left_until_there_is_more(streams: Streams, topics: ReplicatedTopics) -> None:
    """Who starts a job does not wait for what is there already, as with Spark's own source.

    Until when: `processes/test_stream_planning.py`.
    """
    topic = topics.create()
    fill(topics, topic, 4)
    options = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    with streams.running(**options) as (seen, _):
        wait_until(lambda: len(seen.all) == 4, within_s=WITHIN_S, what="the first are read")
        fill(topics, topic, 6)
        fill(topics, topic, 6)
        wait_until(lambda: len(seen.all) == 16, within_s=WITHIN_S, what="there is enough")
    assert seen.sizes == [4, 12]


def test_retention_that_overtakes_the_reader_is_reported(
    streams: Streams, topics: ReplicatedTopics
) -> None:
    topic = topics.create()
    fill(topics, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    streams.available(**options)
    fill(topics, topic, 20)
    delete_records(topics.bootstrap, topic, 0, 30)
    with pytest.raises(Exception, match="offset 20 is gone, the log begins at 30"):
        streams.available(**options)
    went_on = streams.available(**options, failOnDataLoss="false")
    assert went_on.all == [(topic, 0, at) for at in range(30, 40)]


def test_a_topic_that_was_made_anew_is_reported(streams: Streams, topics: ReplicatedTopics) -> None:
    """Also where what is available was found out before: its end is before where it was read to."""
    topic = topics.create()
    fill(topics, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest", **AT_ONCE}
    streams.available(**options)
    with Admin(topics.bootstrap) as admin:
        admin.delete_topic(topic)
        wait_until(lambda: not is_there(topics, topic), within_s=WITHIN_S, what="it is gone")
        admin.create_topic(topic, partitions=1, replication_factor=3, configs={})
    fill(topics, topic, 5)
    with pytest.raises(Exception, match=f"{topic}-0 ends at 5, before 20"):
        streams.available(**options)
    assert streams.available(**options, failOnDataLoss="false").all == []
    fill(topics, topic, 3)
    assert streams.available(**options).all == [(topic, 0, at) for at in (5, 6, 7)]


def test_a_topic_of_a_pattern_that_was_deleted_is_reported(
    streams: Streams, topics: ReplicatedTopics
) -> None:
    kept, deleted = topics.create(), topics.create()
    fill(topics, kept, 4)
    fill(topics, deleted, 4)
    pattern = f"{kept}|{deleted}"
    options = {"subscribePattern": pattern, "startingOffsets": "earliest", **AT_ONCE}
    assert len(streams.available(**options).all) == 8
    with Admin(topics.bootstrap) as admin:
        admin.delete_topic(deleted)
    wait_until(lambda: not is_there(topics, deleted), within_s=WITHIN_S, what="it is gone")
    fill(topics, kept, 2)
    with pytest.raises(Exception, match=f"{deleted}-0 does not exist any more"):
        streams.available(**options)
    went_on = streams.available(**options, failOnDataLoss="false")
    assert went_on.all == [(kept, 0, at) for at in (4, 5)]


def is_there(topics: ReplicatedTopics, topic: str) -> bool:
    return topic in topics.cluster.admin().list_topics(timeout=10).topics


def test_markers_and_aborted_records_are_gaps(streams: Streams, topics: ReplicatedTopics) -> None:
    """A stream that reads committed records gets to the end although nothing is there to see."""
    topic = topics.create()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"x", partition=0)
        producer.flush(30)
        end(30)
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "2",
        "kafka.isolation.level": "read_committed",
    }
    assert streams.available(**options).all == [(topic, 0, at) for at in (0, 1, 2)]


def test_a_lost_leader_is_found_again(streams: Streams, topics: ReplicatedTopics) -> None:
    topic = topics.create(partition_count=3)
    for partition in range(3):
        fill(topics, topic, 50, partition=partition)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
    with streams.running(**options) as (seen, _):
        wait_until(lambda: len(seen.batches) > 0, within_s=WITHIN_S, what="it reads")
        leader = topics.cluster.leader(topic)
        leader.kill()
        leader.start()
        wait_until(lambda: len(seen.all) >= 150, within_s=WITHIN_S, what="all are read")
    assert seen.all == offsets(topic, 50, 50, 50)
    topics.cluster.wait_whole(topic)


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
@pytest.mark.parametrize(("before", "after"), [(OFFICIAL, TIDELOG), (TIDELOG, OFFICIAL)])
def test_a_job_changes_its_source_and_goes_on_from_its_checkpoint(
    before: str, after: str, streams: Streams, topics: ReplicatedTopics
) -> None:
    topic = topics.create(partition_count=2)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    fill(topics, topic, 10)
    assert streams.available(before, **options).all == offsets(topic, 10)
    fill(topics, topic, 5, partition=1)
    assert streams.available(after, **options).all == [(topic, 1, at) for at in range(5)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"kafka.isolation.level": "none"},
            'kafka.isolation.level: Invalid value "none" for configuration property '
            '"isolation.level"',
        ),
        ({"endingOffsets": "latest"}, "endingOffsets cannot be set: a stream has no end"),
    ],
    ids=["of the client", "of a batch"],
)
def test_a_wrong_option_of_a_stream_is_named(
    options: dict[str, str], said: str, streams: Streams, topics: ReplicatedTopics
) -> None:
    """In a sentence, which is all that Spark shows of it beside its own words."""
    with pytest.raises(Exception, match="OptionError") as told:
        streams.available(subscribe=topics.create(), **options)
    shown = str(told.value)
    assert f"tidelog.pipeline.errors.OptionError: {said}\n" in shown
    assert "Traceback" not in shown
    assert ".py" not in shown
