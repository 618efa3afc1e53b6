"""Folders change hands: the broker serves what Kafka wrote, Kafka what the broker wrote (S1-S7).

Taking over means: stop Kafka, start the broker with `log.dirs` on the folder that Kafka used. The
broker finds topics it was never told of and adopts them:

    A1  A broker whose coordinator knows no cluster yet takes `cluster.id` from `meta.properties`,
        and refuses to start if `node.id` there is not its own.
    A2  Every `<topic>-<n>` folder becomes a partition led by this broker, with the topic id of its
        `partition.metadata`, a leader epoch above the last one in `leader-epoch-checkpoint`, and
        its log start offset and high watermark from the checkpoint files of the log dir.
    A3  Kafka keeps topic settings in a log of its own that is not read here. So that nothing
        expires before the operator has set them again, adopted topics start with retention off.
    A4  `__cluster_metadata-0`, `*-delete`, `*-stray` and other files are not served, not touched.
    A5  New producer ids are larger than any found in the adopted logs.
    A6  Without Kafka's `.kafka_cleanshutdown` the logs are recovered like our own after a crash;
        Kafka's preallocated index files (10 MB, zeros at the end) are rebuilt.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compatibility.kafka_peer import Broker, StartBroker, StartKafka
from tests.support.clients import (
    FIRST_TIMESTAMP_MS,
    Settings,
    StoredRecord,
    create_topic,
    delete_records,
    numbered_records,
    offset_by_timestamp,
    read_partition,
    send,
    topic_id,
)
from tests.support.dump_log_segments import dump_folder
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_tools import KafkaTools
from tests.support.server_process import ServerFailed
from tests.support.subject import SUBJECT

pytestmark = pytest.mark.one_broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
TOPIC_CONFIG = {"segment.bytes": "1048576", "retention.ms": "-1"}
SMALL_BATCHES: Settings = {"batch.size": 16_384, "linger.ms": 5}
IDEMPOTENT: Settings = {**SMALL_BATCHES, "enable.idempotence": True}
CUT_OFFSET = 1_500
PARTITIONS = [
    *((codec, 0) for codec in CODECS),
    *(("spread", partition) for partition in range(3)),
    ("segments", 0),
    ("cut", 0),
    ("idempotent", 0),
    ("empty", 0),
]


@dataclass(frozen=True, slots=True)
class WrittenByKafka:
    """A copy of Kafka's data folder, and what Kafka itself served from it."""

    data_folder: Path
    records: Mapping[tuple[str, int], list[StoredRecord]]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Adoption:
    """The broker under test, started on a folder of Kafka's."""

    broker: Broker
    written: WrittenByKafka


@pytest.fixture(scope="module")
def written_by_kafka(
    kafka_jars: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, WrittenByKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaProcess(folder) as kafka:
        _fill(kafka)
        served = _served(kafka, PARTITIONS)
        kafka.stop()
        clean = _copied(kafka, folder / "after-clean-stop", served)
        # Kafka writes its checkpoints once a minute, so this topic has to be recovered in full.
        kafka.start()
        create_topic(kafka.bootstrap, "late", partition_count=1, config=TOPIC_CONFIG)
        _send(kafka, "late", 3_000, value_size_bytes=1_000, settings=IDEMPOTENT)
        served = _served(kafka, [*PARTITIONS, ("late", 0)])
        kafka.kill()
        crashed = _copied(kafka, folder / "after-kill", served)
    return {"after a clean stop": clean, "after kill -9": crashed}


def _served(
    kafka: KafkaProcess, partitions: list[tuple[str, int]]
) -> tuple[dict[tuple[str, int], list[StoredRecord]], dict[str, str]]:
    records = {key: read_partition(kafka.bootstrap, *key) for key in partitions}
    topic_ids = {topic: topic_id(kafka.bootstrap, topic) for topic, _partition in partitions}
    return records, topic_ids


def _copied(
    kafka: KafkaProcess,
    target: Path,
    served: tuple[dict[tuple[str, int], list[StoredRecord]], dict[str, str]],
) -> WrittenByKafka:
    shutil.copytree(kafka.data_folder, target)
    return WrittenByKafka(target, *served)


@pytest.fixture(params=["after a clean stop", "after kill -9"])
def adoption(
    request: pytest.FixtureRequest,
    written_by_kafka: dict[str, WrittenByKafka],
    start_broker: StartBroker,
    tmp_path: Path,
) -> Adoption:
    written = written_by_kafka[request.param]
    shutil.copytree(written.data_folder, tmp_path / "broker" / "data")
    return Adoption(start_broker(tmp_path / "broker", {}), written)


def test_everything_kafka_served_is_served(adoption: Adoption) -> None:
    for partition, records in adoption.written.records.items():
        assert read_partition(adoption.broker.bootstrap, *partition) == records


def test_topics_keep_their_ids(adoption: Adoption) -> None:
    for topic, expected in adoption.written.topic_ids.items():
        assert topic_id(adoption.broker.bootstrap, topic) == expected


def test_times_are_found_in_kafkas_indexes(adoption: Adoption) -> None:
    bootstrap = adoption.broker.bootstrap
    for n in (0, 1, 999, 1_000, 2_500, 2_999):
        assert offset_by_timestamp(bootstrap, "segments", 0, FIRST_TIMESTAMP_MS + n) == n


def test_adopted_logs_are_continued(adoption: Adoption) -> None:
    """Idempotent producers too: an id that Kafka had given out would be out of sequence."""
    broker = adoption.broker
    for topic, settings in {"segments": SMALL_BATCHES, "idempotent": IDEMPOTENT}.items():
        _send(broker, topic, 1_500, value_size_bytes=1_000, settings=settings)
        before = adoption.written.records[topic, 0]
        after = read_partition(broker.bootstrap, topic, 0)
        assert after[: len(before)] == before
        assert [record.offset for record in after] == list(range(len(before) + 1_500))
    broker.stop()
    for partition_folder in ("segments-0", "idempotent-0"):
        assert dump_folder(broker.data_folder / partition_folder).complaints == []


def test_adopted_topics_survive_a_restart(adoption: Adoption) -> None:
    adoption.broker.restart()
    for partition, records in adoption.written.records.items():
        assert read_partition(adoption.broker.bootstrap, *partition) == records


def test_nothing_expires_before_the_operator_says_so(adoption: Adoption) -> None:
    """A3: the records are years old, and Kafka's default would delete them in a week's time."""
    described = KafkaTools(adoption.broker.bootstrap).configs(
        "--describe", "--entity-type", "topics", "--entity-name", "segments"
    )
    assert "  retention.ms=-1 " in described


@pytest.mark.skipif(SUBJECT == "kafka", reason="Kafka goes on with its own files")
def test_kafkas_own_log_is_left_alone(adoption: Adoption) -> None:
    """A4: whoever goes back to Kafka finds its metadata as it was."""
    adoption.broker.stop()
    name = Path("__cluster_metadata-0") / "00000000000000000000.log"
    before = (adoption.written.data_folder / name).read_bytes()
    assert (adoption.broker.data_folder / name).read_bytes() == before


def test_folder_of_another_node_is_refused(
    written_by_kafka: dict[str, WrittenByKafka], start_broker: StartBroker, tmp_path: Path
) -> None:
    """A1: two nodes with one id would each take the other's records for their own."""
    written = written_by_kafka["after a clean stop"]
    shutil.copytree(written.data_folder, tmp_path / "broker" / "data")
    with pytest.raises(ServerFailed) as failure:
        start_broker(tmp_path / "broker", {"node.id": "2"})
    assert SUBJECT == "kafka" or "node.id" in str(failure.value)  # Kafka's log is switched off.


def test_kafka_serves_what_the_broker_wrote(
    start_broker: StartBroker, start_kafka: StartKafka, tmp_path: Path
) -> None:
    """Kafka starts as after a clean stop of its own, so it trusts our indexes as they are."""
    broker = start_broker(tmp_path / "broker", {})
    _fill(broker)
    expected = {key: read_partition(broker.bootstrap, *key) for key in PARTITIONS}
    broker.stop()

    kafka = start_kafka(tmp_path / "kafka", {})
    _create_topics(kafka)
    kafka.stop()
    for topic, partition in PARTITIONS:
        name = f"{topic}-{partition}"
        _replace_log(broker.data_folder / name, kafka.data_folder / name)
    shutil.copy(broker.data_folder / "log-start-offset-checkpoint", kafka.data_folder)
    kafka.start()

    for key, records in expected.items():
        assert read_partition(kafka.bootstrap, *key) == records
    for n in (0, 1_000, 2_999):
        found = offset_by_timestamp(kafka.bootstrap, "segments", 0, FIRST_TIMESTAMP_MS + n)
        assert found == n


def _replace_log(source: Path, target: Path) -> None:
    """Kafka keeps its own topic id; everything else in the folder becomes ours."""
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy(path, target)


def _create_topics(broker: Broker) -> None:
    partition_counts = {topic: partition + 1 for topic, partition in PARTITIONS}
    for topic, partition_count in partition_counts.items():
        create_topic(broker.bootstrap, topic, partition_count=partition_count, config=TOPIC_CONFIG)


def _fill(broker: Broker) -> None:
    _create_topics(broker)
    for codec in CODECS:
        _send(broker, codec, 500, value_size_bytes=200, settings={"compression.type": codec})
    for partition in range(3):
        records = numbered_records(100, value_size_bytes=100, seed=str(partition))
        send(broker.bootstrap, "spread", records, partition=partition, settings={})
    _send(broker, "segments", 3_000, value_size_bytes=1_000, settings=SMALL_BATCHES)
    _send(broker, "cut", 3_000, value_size_bytes=1_000, settings=SMALL_BATCHES)
    delete_records(broker.bootstrap, "cut", 0, CUT_OFFSET)
    _send(broker, "idempotent", 1_000, value_size_bytes=500, settings=IDEMPOTENT)


def _send(
    broker: Broker, topic: str, record_count: int, *, value_size_bytes: int, settings: Settings
) -> None:
    records = numbered_records(record_count, value_size_bytes=value_size_bytes, seed=topic)
    send(broker.bootstrap, topic, records, partition=0, settings=settings)
