"""`option("path", ...)`: files give what their broker gives, without it (X6)."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.clients import NewRecord
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.server_process import wait_until
from tests.support.two_sources import TIDELOG, TwoSources, in_order
from tidelog.base.errors import TidelogError
from tidelog.pipeline.segment_source import SegmentReader, segment_options
from tidelog.pipeline.segments import find_partitions
from tidelog.pipeline.source import TopicReader
from tidelog.pipeline.source_options import batch_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_MS = 1_700_000_000_000
COUNT = 3_000


@pytest.fixture(scope="module")
def sources(spark: "SparkSession", topics: ReplicatedTopics) -> TwoSources:
    return TwoSources(spark, topics.bootstrap)


@pytest.fixture(scope="module")
def topic(topics: ReplicatedTopics) -> str:
    """Several segments in one of its partitions, transactions in the other."""
    name = topics.create(partition_count=2, config={"segment.bytes": "1048576"})
    sent = [
        NewRecord(b"%d" % n, bytes(1_000), AT_MS + n, (("guid", b"%d" % n),)) for n in range(COUNT)
    ]
    topics.send(name, sent)
    settings = {"bootstrap.servers": topics.bootstrap, "transactional.id": name, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(100):
            producer.produce(name, b"%d" % number, partition=1, timestamp=AT_MS + number)
        producer.flush(30)
        end(30)
    return name


@pytest.fixture(scope="module")
def data(topics: ReplicatedTopics, topic: str) -> str:
    """The log dirs of all three brokers, once each has written down what is committed."""
    paths = [str(each.data_folder) for each in topics.cluster.brokers.values()]

    def is_written_down() -> bool:
        found = [each.high_watermark for each in find_partitions(paths, topics=[topic])]
        # Two markers of transactions among them.
        return sorted(each or 0 for each in found) == [202] * 3 + [COUNT] * 3

    wait_until(is_written_down, within_s=60, what="high watermarks are in files")
    return ",".join(paths)


def from_files(sources: TwoSources, **options: str) -> "DataFrame":
    reader = sources.spark.read.format(TIDELOG)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


COMMITTED = {"kafka.isolation.level": "read_committed"}


def test_files_give_what_brokers_give(sources: TwoSources, topic: str, data: str) -> None:
    """From the replicas of all three, each record once."""
    for options in (
        {"includeHeaders": "true"},
        {**COMMITTED},
        {**COMMITTED, "minPartitions": "6"},
        {
            "startingOffsets": f'{{"{topic}": {{"0": 1000, "1": -2}}}}',
            "endingOffsets": f'{{"{topic}": {{"0": 2001, "1": 5}}}}',
        },
        {"startingTimestamp": str(AT_MS + 50), "endingTimestamp": str(AT_MS + 90)},
    ):
        ours = in_order(from_files(sources, path=data, subscribe=topic, **options))
        assert ours == sources.rows(TIDELOG, subscribe=topic, **options), options


def each_offset(topic: str, first: int, second: int) -> str:
    return json.dumps({topic: {"0": first, "1": second}})


def options_to_compare(topic: str) -> Iterator[dict[str, str]]:
    """Some that give rows and some that are refused."""
    yield {"maxRecordsPerPartition": "700"}
    yield {**COMMITTED, "maxRecordsPerPartition": "30", "minPartitions": "130"}
    yield {"startingOffsets": "latest"}
    yield {"startingOffsets": each_offset(topic, COUNT + 1, 0)}
    yield {"startingOffsets": each_offset(topic, COUNT, 202)}
    yield {"startingOffsets": each_offset(topic, 9, 9), "endingOffsets": each_offset(topic, 9, 8)}
    yield {"startingTimestamp": str(AT_MS + 80), "endingTimestamp": str(AT_MS + 20)}
    late = {"startingTimestamp": str(AT_MS + COUNT)}
    yield late
    yield {**late, "startingOffsetsByTimestampStrategy": "latest"}
    yield {**COMMITTED, "startingOffsetsByTimestamp": each_offset(topic, AT_MS, AT_MS + 99)}
    yield {"startingOffsetsByTimestamp": each_offset(topic, AT_MS, 2**50)}
    yield {"startingOffsets": json.dumps({topic: {"0": 1}})}
    yield {"endingOffsetsByTimestamp": each_offset(topic, AT_MS + 7, AT_MS + COUNT)}
    yield {"subscribe": f"{topic},{topic}", "endingOffsets": "earliest"}
    yield {"commitGroup": "g"}


def outcome(new_reader: Callable[[], SegmentReader | TopicReader]) -> list[tuple[int, int]] | str:
    """Partitions and offsets that are read, or what is said."""
    try:
        reader = new_reader()
        rows = [
            row
            for task in reader.partitions()
            for batch in reader.read(task)
            for row in batch.select(["partition", "offset"]).to_pylist()
        ]
    except TidelogError as refusal:
        return str(refusal)
    return sorted((row["partition"], row["offset"]) for row in rows)


def test_options_mean_the_same_to_files_and_to_brokers(
    topics: ReplicatedTopics, topic: str, data: str
) -> None:
    """Rows or sentences; without Spark, which does the same with both."""
    ours, theirs = {"path": data}, {"kafka.bootstrap.servers": topics.bootstrap}
    refused = 0
    for options in options_to_compare(topic):
        given = {"subscribe": topic, **options}
        found = outcome(partial(_files, {**ours, **given}))
        assert found == outcome(partial(_brokers, {**theirs, **given})), options
        refused += isinstance(found, str)
    assert refused == 9


def _files(options: dict[str, str]) -> SegmentReader:
    return SegmentReader(segment_options(options))


def _brokers(options: dict[str, str]) -> TopicReader:
    return TopicReader(batch_options(options))


def test_times_are_exact(sources: TwoSources, topic: str, data: str) -> None:
    found = from_files(
        sources,
        path=data,
        subscribe=topic,
        minTimestamp=str(AT_MS + 2_500),
        maxTimestamp=str(AT_MS + 2_509),
    )
    assert sorted(row.offset for row in found.collect()) == [*range(2_500, 2_510)]


def test_a_large_partition_is_several_tasks(sources: TwoSources, topic: str, data: str) -> None:
    folder = str(Path(data.split(",", maxsplit=1)[0]) / f"{topic}-0")
    found = from_files(sources, path=folder, minPartitions="4")
    assert found.rdd.getNumPartitions() >= 4
    assert sorted(row.offset for row in found.collect()) == [*range(COUNT)]


def test_a_torn_tail_is_refused_politely(
    sources: TwoSources, topic: str, data: str, tmp_path: Path
) -> None:
    """In a copy without its checkpoints, of which nobody knows how far it is committed."""
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(Path(data.split(",", maxsplit=1)[0]) / f"{topic}-0", copy)
    last = max(copy.glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 7)
    with pytest.raises(Exception, match="that are no whole batch") as refused:
        from_files(sources, path=str(copy)).count()
    assert "ignoreTornTail" in str(refused.value)
    assert 0 < from_files(sources, path=str(copy), ignoreTornTail="true").count() < COUNT


def test_a_missing_segment_ends_the_job_unless_told_otherwise(
    sources: TwoSources, topic: str, data: str, tmp_path: Path
) -> None:
    """Of what is left, everything is read."""
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(Path(data.split(",", maxsplit=1)[0]) / f"{topic}-0", copy)
    _, second, third, *_ = sorted(copy.glob("*.log"))
    for path in copy.glob(f"{second.stem}.*"):
        path.unlink()
    start, end = int(second.stem), int(third.stem)
    with pytest.raises(Exception, match=f"{copy} lacks offsets {start} to {end - 1}: ") as refused:
        from_files(sources, path=str(copy)).count()
    assert "set failOnDataLoss to false" in str(refused.value)
    left = from_files(sources, path=str(copy), failOnDataLoss="false").collect()
    assert sorted(row.offset for row in left) == [*range(start), *range(end, COUNT)]


def test_offsets_that_files_do_not_have_are_named(
    sources: TwoSources, topic: str, data: str, tmp_path: Path
) -> None:
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(Path(data.split(",", maxsplit=1)[0]) / f"{topic}-0", copy)
    for path in copy.glob(f"{0:020d}.*"):
        path.unlink()
    begins = int(min(copy.glob("*.log")).stem)
    first, behind = (json.dumps({topic: {"0": offset}}) for offset in (0, COUNT + 1))
    with pytest.raises(Exception, match=f"begins at offset {begins}, and 0 was asked for"):
        from_files(sources, path=str(copy), startingOffsets=first).count()
    with pytest.raises(Exception, match=f"has {COUNT + 1} for {topic}-0, which ends at {COUNT} "):
        from_files(sources, path=str(copy), endingOffsets=behind).count()
    assert from_files(sources, path=str(copy)).count() == COUNT - begins


def test_what_is_not_there_is_named(sources: TwoSources, data: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has no partitions in it"):
        from_files(sources, path=str(tmp_path)).count()
    with pytest.raises(Exception, match="subscribe has nowhere, which path does not"):
        from_files(sources, path=data, subscribe="nowhere").count()
    with pytest.raises(Exception, match="minTimestamp cannot be set: it is for files"):
        sources.rows(TIDELOG, subscribe="x", minTimestamp="3")
