"""What is read from a broker's files is what the broker served, Kafka's as well as ours (X6).

The folders are copied while the broker runs, which is also what `kill -9` leaves, and after it has
stopped.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.compatibility.kafka_peer import ONE_REPLICA
from tests.support.broker_process import BrokerProcess
from tests.support.clients import (
    FIRST_TIMESTAMP_MS,
    StoredRecord,
    create_topic,
    delete_records,
    numbered_records,
    read_committed,
    read_partition,
    send,
)
from tests.support.kafka_process import KafkaProcess
from tidelog.base.ids import TopicPartition
from tidelog.pipeline.segments import Wanted, find_partitions, plan_partition, read_slice

pytestmark = pytest.mark.one_broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = (*CODECS, "segments", "cut")
TOPIC_CONFIG = {"segment.bytes": "1048576", "retention.ms": "-1"}
CUT_OFFSET = 1_500
TRANSACTION_COUNT, TRANSACTION_RECORDS = 9, 400
CLIENT_TIMEOUT_S = 60

Served = Mapping[str, list[StoredRecord]]


@dataclass(frozen=True, slots=True)
class Folder:
    """A copy of a broker's folder, and what the broker served before."""

    path: Path
    served: Served
    committed: list[StoredRecord]


@pytest.fixture(scope="module", params=["broker", "kafka"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Folder]]:
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "kafka":
        request.getfixturevalue("kafka_jars")
        process: KafkaProcess | BrokerProcess = KafkaProcess(root / "process")
    else:
        process = BrokerProcess(root / "process", ONE_REPLICA)
    with process:
        bootstrap, data_folder = process.bootstrap, process.data_folder
        with_open_transaction = _fill(bootstrap)
        served = {topic: read_partition(bootstrap, topic, 0) for topic in TOPICS}
        committed = read_committed(bootstrap, "transactions", 0)

        def copy(name: str) -> Folder:
            shutil.copytree(data_folder, root / name)
            return Folder(root / name, served, committed)

        found = {"while it runs": copy("running")}
        process.stop()
        found["after a clean stop"] = copy("stopped")
        del with_open_transaction
        yield found


@pytest.fixture(params=["while it runs", "after a clean stop"])
def folder(request: pytest.FixtureRequest, copies: dict[str, Folder]) -> Folder:
    return copies[request.param]


def _fill(bootstrap: str) -> Producer:
    """Ends with a transaction that is open as long as its producer is there."""
    for topic in (*TOPICS, "transactions"):
        create_topic(bootstrap, topic, partition_count=1, config=TOPIC_CONFIG)
    for codec in CODECS:
        records = numbered_records(500, value_size_bytes=200, seed=codec)
        settings = {"compression.type": codec}
        send(bootstrap, codec, records, partition=0, settings=settings)
    for topic in ("segments", "cut"):
        records = numbered_records(3_000, value_size_bytes=1_000, seed=topic)
        send(bootstrap, topic, records, partition=0, settings={"batch.size": 16_384})
    delete_records(bootstrap, "cut", 0, CUT_OFFSET)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "one", "log_level": 0})
    producer.init_transactions(CLIENT_TIMEOUT_S)
    for number in range(TRANSACTION_COUNT):
        producer.begin_transaction()
        for _ in range(TRANSACTION_RECORDS):
            producer.produce("transactions", b"%d" % number * 1_000, partition=0)
        producer.flush(CLIENT_TIMEOUT_S)
        if number % 3 == 1:
            producer.abort_transaction(CLIENT_TIMEOUT_S)
        elif number < TRANSACTION_COUNT - 1:
            producer.commit_transaction(CLIENT_TIMEOUT_S)
    return producer


def read(
    folder: Folder,
    topic: str,
    *,
    is_committed_only: bool = False,
    start_ms: int | None = None,
    end_ms: int | None = None,
    offsets: tuple[int, int] | None = None,
) -> list[StoredRecord]:
    """As far as the files go: a checkpoint of what is committed is some seconds old."""
    (found,) = find_partitions([str(folder.path)], topics={topic})
    plan = plan_partition(
        found,
        Wanted(
            offsets={} if offsets is None else {TopicPartition(topic, 0): offsets},
            start_ms=start_ms,
            end_ms=end_ms,
            is_committed_only=is_committed_only,
            is_beyond_high_watermark=True,
            is_torn_tail_ignored=False,
            slice_bytes=100_000,
        ),
    )
    assert plan.missing == ()
    return [
        StoredRecord(
            offset=row["offset"],
            timestamp_type=row["timestampType"] + 1,  # As librdkafka counts them.
            timestamp_ms=round(row["timestamp"].timestamp() * 1_000),
            key=row["key"],
            value=row["value"],
            headers=tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for each in plan.slices
        for rows in read_slice(each, has_headers=True)
        for row in rows.to_pylist()
    ]


@pytest.mark.parametrize("topic", [*CODECS, "segments"])
def test_everything_that_was_served_is_read(folder: Folder, topic: str) -> None:
    assert read(folder, topic) == folder.served[topic]


def test_deleted_records_are_not_read_once_that_is_written_down(folder: Folder) -> None:
    """`log-start-offset-checkpoint` is written now and then, and at every clean stop."""
    found = [record for record in read(folder, "cut") if record.offset >= CUT_OFFSET]
    assert found == folder.served["cut"]
    if folder.path.name == "stopped":
        assert read(folder, "cut") == found


def test_committed_records_are_those_that_a_consumer_was_given(folder: Folder) -> None:
    found = read(folder, "transactions", is_committed_only=True)
    assert found == folder.committed
    everything = read(folder, "transactions")
    assert len(everything) == TRANSACTION_COUNT * TRANSACTION_RECORDS
    assert 0 < len(found) < len(everything)


@pytest.mark.parametrize("offsets", [(0, 1), (1_234, 2_345), (2_999, 9_999)])
def test_offsets_are_found_by_its_indexes(folder: Folder, offsets: tuple[int, int]) -> None:
    start, end = offsets
    expected = [record for record in folder.served["segments"] if start <= record.offset < end]
    assert read(folder, "segments", offsets=offsets) == expected


@pytest.mark.parametrize("times", [(0, 1), (1_234, 2_345), (2_999, 9_999)])
def test_times_are_found_by_its_indexes(folder: Folder, times: tuple[int, int]) -> None:
    start_ms, end_ms = (FIRST_TIMESTAMP_MS + time for time in times)
    expected = [
        record for record in folder.served["segments"] if start_ms <= record.timestamp_ms < end_ms
    ]
    assert expected
    assert read(folder, "segments", start_ms=start_ms, end_ms=end_ms) == expected
