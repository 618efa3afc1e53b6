"""`spark.read.format("tidelog")`: what Spark's own source gives, this one gives (X1).

Every read is of three brokers with three replicas, and goes through both.
"""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.clients import NewRecord, delete_records, read_partition
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.two_sources import (
    OFFICIAL,
    TIDELOG,
    TwoSources,
    in_order,
    why_unavailable,
)
from tidelog.client.admin import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_MS = 1_700_000_000_000
PARTITION_COUNT = 3
COUNT = 40
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def records(count: int, name: str) -> list[NewRecord]:
    """Some without a key, some without a value, some without headers; a millisecond apart."""
    return [
        NewRecord(
            key=None if number % 5 == 1 else b"%s-%d" % (name.encode(), number),
            value=None if number % 7 == 3 else b"value %d" % number * (number % 4),
            timestamp_ms=AT_MS + number,
            headers=() if number % 3 else (("guid", b"%d" % number), ("höhe", b"")),
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", topics: ReplicatedTopics) -> TwoSources:
    return TwoSources(spark, topics.bootstrap)


@pytest.fixture(scope="module")
def topic(topics: ReplicatedTopics) -> str:
    """COUNT records in each of three partitions."""
    name = topics.create(partition_count=PARTITION_COUNT)
    for partition in range(PARTITION_COUNT):
        topics.send(name, records(COUNT, f"p{partition}"), partition=partition)
    return name


@pytest.fixture(scope="module")
def transactions(topics: ReplicatedTopics) -> str:
    """Committed and aborted ones in turn, and one that is open."""
    name = topics.create()
    settings = {"bootstrap.servers": topics.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for each in range(5):
            producer.produce(name, b"%d %d" % (number, each), partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    other = Producer({**settings, "transactional.id": f"{name}-open"})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(name, b"open", partition=0)
    other.flush(30)
    return name


def each_offset(offsets: list[int], topic: str) -> str:
    pairs = ", ".join(f'"{number}": {offset}' for number, offset in enumerate(offsets))
    return f'{{"{topic}": {{{pairs}}}}}'


def options_of(topic: str) -> Iterator[dict[str, str]]:
    """As people write them."""
    yield {"subscribe": topic, "includeHeaders": "true"}
    yield {"subscribePattern": f"{topic[:-1]}[{topic[-1]}]"}
    yield {"assign": f'{{"{topic}": [0, 2]}}'}
    yield {"subscribe": topic, "minPartitions": "8"}
    yield {"subscribe": topic, "maxRecordsPerPartition": "7"}
    yield {
        "subscribe": topic,
        "startingOffsets": each_offset([10, -2, 30], topic),
        "endingOffsets": each_offset([11, 15, -1], topic),
    }
    yield {
        "subscribe": topic,
        "startingTimestamp": str(AT_MS + 7),
        "endingTimestamp": str(AT_MS + 20),
    }
    yield {
        "subscribe": topic,
        "startingOffsetsByTimestamp": each_offset([AT_MS, AT_MS + 5, AT_MS + 39], topic),
        "endingOffsetsByTimestamp": each_offset([AT_MS + 3, AT_MS + 50, AT_MS + 39], topic),
    }
    yield {
        "subscribe": topic,
        "startingTimestamp": str(AT_MS + 1_000),
        "startingOffsetsByTimestampStrategy": "latest",
    }


@pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))
def test_rows_are_those_of_sparks_own_source(sources: TwoSources, topic: str) -> None:
    for options in options_of(topic):
        ours, theirs = (sources.frame(source, **options) for source in (TIDELOG, OFFICIAL))
        assert ours.schema == theirs.schema
        assert in_order(ours) == in_order(theirs), options


def test_times_have_a_zone_whatever_a_session_takes_the_word_for(
    sources: TwoSources, topic: str
) -> None:
    """As in Spark's own source, so that a job that is moved here has the columns that it had."""
    settings = sources.frame(TIDELOG, subscribe=topic).sparkSession.conf
    settings.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        found = sources.frame(TIDELOG, subscribe=topic).limit(1)
        assert found.schema["timestamp"].dataType.simpleString() == "timestamp"
        assert found.count() == 1
    finally:
        settings.unset("spark.sql.timestampType")


def test_a_whole_topic_is_what_was_sent(sources: TwoSources, topic: str) -> None:
    """Also where Spark's own source is not at hand."""
    found = sources.rows(TIDELOG, subscribe=topic, includeHeaders="true")
    assert [row[:2] + row[3:5] for row in found] == [
        (record.key, record.value, partition, offset)
        for partition in range(PARTITION_COUNT)
        for offset, record in enumerate(records(COUNT, f"p{partition}"))
    ]
    assert [row[7] for row in found[:4]] == [
        [("guid", b"0"), ("höhe", b"")],
        None,
        None,
        [("guid", b"3"), ("höhe", b"")],
    ]
    assert {row[2] for row in found} == {topic}
    assert [round(row[5].timestamp() * 1000) - AT_MS for row in found[:COUNT]] == [*range(COUNT)]


def test_every_codec_is_read(sources: TwoSources, topics: ReplicatedTopics) -> None:
    name = topics.create()
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 20}
        )
        for number in range(200):
            producer.produce(name, b"%s %d " % (codec.encode(), number) * 20, partition=0)
        assert producer.flush(30) == 0
    found = sources.rows(TIDELOG, subscribe=name)
    assert [row[4] for row in found] == [*range(1_000)]
    assert [row[1] for row in found] == [
        b"%s %d " % (codec.encode(), number) * 20 for codec in CODECS for number in range(200)
    ]


def test_who_reads_committed_sees_nothing_aborted_or_open(
    sources: TwoSources, transactions: str
) -> None:
    committed = {"subscribe": transactions, "kafka.isolation.level": "read_committed"}
    found = sources.rows(TIDELOG, **committed)
    assert [row[1] for row in found] == [
        b"%d %d" % (number, each) for number in (0, 2, 4) for each in range(5)
    ]
    assert len(sources.rows(TIDELOG, subscribe=transactions)) == 31
    if why_unavailable() is None:
        assert found == sources.rows(OFFICIAL, **committed)


def test_each_piece_of_a_range_knows_what_was_aborted_before_it(
    sources: TwoSources, transactions: str
) -> None:
    """A task may begin in the middle of a transaction."""
    found = sources.rows(
        TIDELOG,
        subscribe=transactions,
        minPartitions="12",
        **{"kafka.isolation.level": "read_committed"},
    )
    assert [row[1] for row in found] == [
        b"%d %d" % (number, each) for number in (0, 2, 4) for each in range(5)
    ]


def test_offsets_that_compaction_took_away_are_no_loss(
    sources: TwoSources, topics: ReplicatedTopics
) -> None:
    name = topics.create(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        }
    )
    topics.alter_brokers({"log.cleaner.backoff.ms": "100"})
    rounds = count()

    def has_gaps() -> bool:
        # Segments end by the time that records have.
        at_ms = AT_MS + next(rounds) * 1_000
        sent = [NewRecord(b"key %d" % (n % 3), b"%d" % n, at_ms, ()) for n in range(30)]
        topics.send(name, sent)
        bounds = admin.offset_bounds(name, [0])[0]
        consumed = read_partition(topics.bootstrap, name, 0)
        return len(consumed) < bounds.end_offset - bounds.start_offset

    with Admin(topics.bootstrap) as admin:
        wait_until(has_gaps, within_s=60, what="compaction took some away")
        end = admin.offset_bounds(name, [0])[0].end_offset
    found = sources.rows(TIDELOG, subscribe=name, endingOffsets=each_offset([end], name))
    offsets = [row[4] for row in found]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < end
    last = {row[0]: row[1] for row in found}
    assert last == {b"key 0": b"27", b"key 1": b"28", b"key 2": b"29"}


def test_records_that_are_gone_end_the_job_or_are_left_out(
    sources: TwoSources, topics: ReplicatedTopics
) -> None:
    name = topics.create()
    topics.send(name, records(COUNT, "x"))
    delete_records(topics.bootstrap, name, 0, 25)
    wanted = {"subscribe": name, "startingOffsets": each_offset([5], name)}
    with pytest.raises(Exception, match="offset 5 is gone, the log begins at 25") as failed:
        sources.rows(TIDELOG, **wanted)
    assert "failOnDataLoss" in str(failed.value)
    found = sources.rows(TIDELOG, failOnDataLoss="false", **wanted)
    assert [row[4] for row in found] == [*range(25, COUNT)]


def test_a_topic_that_is_not_there_is_named_and_not_created(
    sources: TwoSources, topics: ReplicatedTopics
) -> None:
    with pytest.raises(Exception, match="there is no topic nowhere"):
        sources.rows(TIDELOG, subscribe="nowhere")
    assert "nowhere" not in topics.cluster.admin().list_topics(timeout=10).topics


def test_wrong_options_are_named_before_anything_is_read(sources: TwoSources, topic: str) -> None:
    with pytest.raises(
        Exception, match="startingofsets is no option; startingOffsets is one"
    ) as told:
        sources.rows(TIDELOG, subscribe=topic, startingOfsets="earliest")
    assert "Traceback" not in str(told.value)
    with pytest.raises(Exception, match=f"startingOffsets says nothing of {topic}-2"):
        sources.rows(TIDELOG, subscribe=topic, startingOffsets=each_offset([0, 0], topic))


def test_a_batch_that_would_end_before_it_begins_is_refused(
    sources: TwoSources, topics: ReplicatedTopics
) -> None:
    """As by Spark's own source: no rows would look like a topic without any."""
    name = topics.create()
    topics.send(name, records(5, "x"))
    behind = {"startingOffsets": each_offset([9], name)}
    with pytest.raises(Exception, match=f"startingOffsets begins {name}-0 at 9, behind .* 5"):
        sources.rows(TIDELOG, subscribe=name, **behind)
    turned = {"startingTimestamp": str(AT_MS + 3), "endingTimestamp": str(AT_MS + 1)}
    with pytest.raises(Exception, match=r"startingTimestamp begins .* endingTimestamp ends it, 1"):
        sources.rows(TIDELOG, subscribe=name, **turned)


def test_an_end_that_is_not_there_yet_is_named_before_anything_is_read(
    sources: TwoSources, topics: ReplicatedTopics
) -> None:
    name = topics.create()
    topics.send(name, records(5, "x"))
    wanted = {
        "subscribe": name,
        "endingOffsets": each_offset([9], name),
        "fetchOffset.retryIntervalMs": "10",
    }
    with pytest.raises(Exception, match=f"endingOffsets has 9 for {name}-0, which ends at 5"):
        sources.rows(TIDELOG, **wanted)
    assert len(sources.rows(TIDELOG, failOnDataLoss="false", **wanted)) == 5
