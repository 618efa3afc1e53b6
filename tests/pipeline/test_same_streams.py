"""A stream through Spark's own source and through ours: the same micro-batches, row by row (X1)."""

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.support.clients import NewRecord, delete_records, read_partition
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.two_sources import OFFICIAL, TIDELOG, TwoSources, in_order, why_unavailable
from tidelog.client.admin import Admin
from tidelog.client.values import TopicResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHIN_S = 60
AT_MS = 1_700_000_000_000
HEADERS = ((), (("guid", b"1"), ("höhe", b"")))
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "100",
}

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", topics: ReplicatedTopics) -> TwoSources:
    return TwoSources(spark, topics.bootstrap)


def available(
    sources: TwoSources, source: str, checkpoint: Path, **options: str
) -> list[list[tuple[Any, ...]]]:
    """The rows of each micro-batch that has any, of what there is now."""
    batches: list[list[tuple[Any, ...]]] = []

    def take(frame: "DataFrame", _number: int) -> None:
        batches.append(in_order(frame))

    writer = sources.stream(source, **options).writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(checkpoint / source))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(WITHIN_S)
    assert not query.isActive
    return [batch for batch in batches if batch]


def fill(topics: ReplicatedTopics, topic: str, number: int, *, partition: int = 0) -> None:
    sent = [
        NewRecord(
            b"%d" % n if n % 3 else None, b"%d" % n if n % 4 else None, AT_MS + n, HEADERS[n % 2]
        )
        for n in range(number)
    ]
    topics.send(topic, sent, partition=partition)


def compacted(topics: ReplicatedTopics) -> str:
    """A topic that has gaps, and gets no more of them."""
    topic = topics.create(config=COMPACTED)
    topics.alter_brokers({"log.cleaner.backoff.ms": "100"})
    rounds = count()

    def has_gaps() -> bool:
        # Segments end by the time that records have.
        at_ms = AT_MS + next(rounds) * 1_000
        sent = [NewRecord(b"key %d" % (n % 3), b"%d" % n, at_ms, ()) for n in range(10)]
        topics.send(topic, sent)
        bounds = admin.offset_bounds(topic, [0])[0]
        return len(read_partition(topics.bootstrap, topic, 0)) < bounds.end_offset

    with Admin(topics.bootstrap) as admin:
        wait_until(has_gaps, within_s=60, what="compaction took some away")
        kept = {"cleanup.policy": "delete"}
        admin.alter_configs(TopicResource(topic), set_values=kept, deleted=[])
    return topic


def with_transactions(topics: ReplicatedTopics) -> str:
    """Committed and aborted in turn."""
    topic = topics.create()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for end in (producer.abort_transaction, producer.commit_transaction) * 2:
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"%d" % number, partition=0, timestamp=AT_MS)
        producer.flush(30)
        end(30)
    return topic


def test_a_stream_is_cut_into_the_same_micro_batches(
    sources: TwoSources, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """Of several topics: plain, with the time of appending, compacted, with transactions."""
    plain = topics.create(partition_count=2)
    fill(topics, plain, 40)
    fill(topics, plain, 7, partition=1)
    appended = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    fill(topics, appended, 20)
    everything = [plain, appended, compacted(topics), with_transactions(topics)]
    options = {
        "subscribe": ",".join(everything),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "30",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
    }
    ours, theirs = (
        available(sources, source, tmp_path, **options) for source in (TIDELOG, OFFICIAL)
    )
    assert ours == theirs
    assert len(ours) > 3
    found = [row for batch in ours for row in batch]
    assert {row[2] for row in found} == set(everything)
    assert {row[6] for row in found if row[2] == appended} == {1}
    assert sum(1 for row in found if row[2] == everything[3]) == 10


def test_a_stream_goes_on_behind_what_is_lost_and_finds_what_is_new(
    sources: TwoSources, topics: ReplicatedTopics, tmp_path: Path
) -> None:
    """Started again from its checkpoint, told not to fail."""
    first = topics.create(partition_count=2)
    second = f"{first}-second"
    fill(topics, first, 10)
    fill(topics, first, 10, partition=1)
    delete_records(topics.bootstrap, first, 1, 4)
    options = {
        "subscribePattern": f"{first}(-.*)?",
        "startingOffsets": f'{{"{first}": {{"0": 3, "1": 2}}}}',
        "maxOffsetsPerTrigger": "8",
        "failOnDataLoss": "false",
    }
    begun = [available(sources, source, tmp_path, **options) for source in (TIDELOG, OFFICIAL)]
    fill(topics, first, 10)
    delete_records(topics.bootstrap, first, 0, 14)
    with Admin(topics.bootstrap) as admin:
        admin.create_topic(second, partitions=1, replication_factor=3, configs={})
    fill(topics, second, 5)
    went_on = [available(sources, source, tmp_path, **options) for source in (TIDELOG, OFFICIAL)]
    assert begun[0] == begun[1]
    assert went_on[0] == went_on[1]
    read = {(row[2], row[3], row[4]) for batch in begun[0] + went_on[0] for row in batch}
    assert read == {
        *((first, 0, at) for at in (*range(3, 10), *range(14, 20))),
        *((first, 1, at) for at in range(4, 10)),
        *((second, 0, at) for at in range(5)),
    }
