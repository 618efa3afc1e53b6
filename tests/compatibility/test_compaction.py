"""What Kafka's cleaner leaves of a log and what ours leaves of the same (S5).

Both brokers get the same batches: keys, tombstones, records without keys, idempotent producers in
every codec, transactions that commit and that abort. Nothing is compacted while they are written;
then both are told to, once, and what is left is compared, batch by batch. Three rounds of it, with
no time for tombstones, so that those and the markers of transactions go as well.

And Kafka finishes what we had begun when we were killed.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess
from tests.support.clients import StoredRecord, create_topic, read_committed, read_partition
from tests.support.hash_keys import HASH_KEY
from tests.support.kafka_process import ALONE, KafkaProcess
from tests.support.server_process import wait_until
from tests.unit.storage.compacted_folder import (
    AMPLE,
    append_pairs,
    cleanable_of,
    keyed_batch,
)
from tests.unit.storage.log_folder import NOW_MS, LogFolder, append_batch, log_config
from tidelog.records.batch import BatchHeader, iter_headers
from tidelog.storage.compaction import Compaction, Replace
from tidelog.storage.disk import RealDisk

pytestmark = pytest.mark.one_broker

TOPIC = "accounts"
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.initial.task.delay.ms": "0"}
CONFIG = {
    "cleanup.policy": "delete",
    "internal.segment.bytes": "1200",
    "index.interval.bytes": "200",
    "min.cleanable.dirty.ratio": "1.0",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "100",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROUNDS = 3
# What must not depend on who compacted. The others are a checksum, the size that a compressor
# came to, ids that each cluster gives out by itself, and the time of the broker.
COMPARED = (
    "base_offset",
    "last_offset_delta",
    "attributes",
    "producer_epoch",
    "base_sequence",
    "record_count",
)

Broker = BrokerProcess | KafkaProcess


class Left(NamedTuple):
    """What a broker has after a round."""

    segments: Sequence[str]
    batches: Sequence[tuple[object, ...]]
    records: Sequence[tuple[object, ...]]
    committed: Sequence[tuple[object, ...]]


class Writers:
    """The same producers at each of the two brokers."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "linger.ms": 10_000, "log_level": 0}
        self._plain = [
            Producer({**settings, "compression.type": codec, "enable.idempotence": idempotent})
            for codec, idempotent in zip(CODECS, (False, True, False, True, True), strict=True)
        ]
        self._transactional = Producer({**settings, "transactional.id": "teller"})
        self._transactional.init_transactions(30)
        self._numbers = count()
        self._reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "watermarks"})
        self._end_offset = 0

    def write(self, round_number: int) -> None:
        """Some of everything; a flush makes one batch of what was produced before it."""
        for turn in range(6):
            for producer in self._plain:
                self._write_batch(producer, 4 + turn % 3)
            self._transactional.begin_transaction()
            self._write_batch(self._transactional, 3)
            self._write_batch(self._plain[0], 2)
            self._write_batch(self._transactional, 2)
            if (turn + round_number) % 2:
                self._transactional.commit_transaction(30)
            else:
                self._transactional.abort_transaction(30)
            self._end_offset += 1
            # The marker may come after the answer. What is written next must not overtake it.
            wait_until(self._is_marked, within_s=30, what="the transaction is marked as ended")
        self._write_batch(self._plain[1], 3)  # Readers wait for a record with the last offset.

    def _is_marked(self) -> bool:
        partition = TopicPartition(TOPIC, 0)
        _, high_watermark = self._reader.get_watermark_offsets(partition, timeout=10)
        return bool(high_watermark == self._end_offset)

    def _write_batch(self, producer: Producer, record_count: int) -> None:
        for _ in range(record_count):
            number = next(self._numbers)
            key = None if number % 23 == 0 else b"key-%d" % (number * 7 % 31)
            value = None if number % 5 == 0 else b"%d" % number + b"x" * (number % 40)
            producer.produce(
                TOPIC,
                value,
                key,
                partition=0,
                timestamp=1_700_000_000_000 + number * 37 % 1000,
                headers=[("number", b"%d" % number)],
            )
        assert producer.flush(30) == 0
        self._end_offset += record_count


@pytest.fixture(scope="module")
def rounds(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Left, Left]]:
    """What Kafka has left after each round, and what we have."""
    folder = tmp_path_factory.mktemp("compaction")
    brokers: list[Broker] = [
        KafkaProcess(folder / "theirs", SETTINGS, heap_mib=256),
        BrokerProcess(folder / "ours", {**SETTINGS, **ALONE}),
    ]
    with ExitStack() as running:
        for broker in brokers:
            running.enter_context(broker)
            create_topic(broker.bootstrap, TOPIC, partition_count=1, config=CONFIG)
        return list(_played(brokers))


def _played(brokers: Sequence[Broker]) -> Iterator[tuple[Left, Left]]:
    writers = [Writers(broker.bootstrap) for broker in brokers]
    for number in range(ROUNDS):
        for writer in writers:
            writer.write(number)
        for broker in brokers:
            alter(broker, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"})
        for broker in brokers:
            wait_until(
                lambda broker=broker: is_compacted(broker),  # type: ignore[misc]
                within_s=60,
                what=f"{broker.name} has compacted all that may be",
            )
            # Or records without keys would be refused.
            alter(broker, {"cleanup.policy": "delete", "min.cleanable.dirty.ratio": "1.0"})
        theirs, ours = (left_by(broker) for broker in brokers)
        yield theirs, ours


def alter(broker: Broker, settings: dict[str, str]) -> None:
    resource = ConfigResource(
        ResourceType.TOPIC,
        TOPIC,
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ],
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def folder_of(broker: Broker) -> Path:
    return broker.data_folder / f"{TOPIC}-0"


def logs_of(broker: Broker) -> list[Path]:
    return sorted(folder_of(broker).glob("*.log"))


def is_compacted(broker: Broker) -> bool:
    """Up to the segment that is being written."""
    path = broker.data_folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    offsets = {line.split(" ")[0]: int(line.split(" ")[2]) for line in lines}
    return offsets.get(TOPIC) == int(logs_of(broker)[-1].stem)


def left_by(broker: Broker) -> Left:
    headers = [header for path in logs_of(broker) for _, header in iter_headers(path.read_bytes())]
    return Left(
        segments=[path.stem for path in logs_of(broker)],
        batches=[compared(header) for header in headers],
        records=[seen(one) for one in read_partition(broker.bootstrap, TOPIC, 0)],
        committed=[seen(one) for one in read_committed(broker.bootstrap, TOPIC, 0)],
    )


def compared(header: BatchHeader) -> tuple[object, ...]:
    # The broker's clock stamps markers.
    time_ms = None if header.is_control else header.max_timestamp_ms
    return (*(getattr(header, name) for name in COMPARED), time_ms)


def seen(record: StoredRecord) -> tuple[object, ...]:
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


@pytest.mark.parametrize("number", range(ROUNDS))
def test_same_records_are_left(rounds: list[tuple[Left, Left]], number: int) -> None:
    theirs, ours = rounds[number]
    assert ours.records == theirs.records
    assert ours.committed == theirs.committed
    assert len(ours.committed) > 0


@pytest.mark.parametrize("number", range(ROUNDS))
def test_same_batches_are_left(rounds: list[tuple[Left, Left]], number: int) -> None:
    """Emptied ones, markers and delete horizons included."""
    theirs, ours = rounds[number]
    assert ours.batches == theirs.batches


@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_same_segment_is_written_to(rounds: list[tuple[Left, Left]], number: int) -> None:
    """Which of the others are merged depends on how many there were when the cleaner came by."""
    theirs, ours = rounds[number]
    assert ours.segments[-1] == theirs.segments[-1]


@pytest.fixture(scope="module")
def kafka(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    folder = tmp_path_factory.mktemp("interrupted")
    with KafkaProcess(folder / "kafka", heap_mib=256) as kafka:
        for topic in ("decided", "undecided"):
            create_topic(kafka.bootstrap, topic, partition_count=1, config=CONFIG)
        kafka.stop()
        for topic in ("decided", "undecided"):
            written = written_by_us(folder / topic, is_decided=topic == "decided")
            replace_log(written, kafka.data_folder / f"{topic}-0")
        kafka.start()
        yield kafka


class TestInterrupted:
    """Kafka starts on a folder in which we were killed, and does what we would have done."""

    def test_new_segment_that_was_decided_on_is_put_in_place(self, kafka: KafkaProcess) -> None:
        found = read_partition(kafka.bootstrap, "decided", 0)
        assert [one.offset for one in found] == [6, 7, 8, 9]
        names = [path.name for path in (kafka.data_folder / "decided-0").glob("*.log")]
        assert sorted(names) == [f"{0:020d}.log", f"{9:020d}.log"]

    def test_new_segment_that_was_not_is_thrown_away(self, kafka: KafkaProcess) -> None:
        found = read_partition(kafka.bootstrap, "undecided", 0)
        assert [one.offset for one in found] == list(range(10))


def written_by_us(folder: Path, *, is_decided: bool) -> Path:
    """Three segments of three keys and an active one, left in the middle of a compaction."""
    config = log_config(cleanup_policy=("compact",))
    log = LogFolder(RealDisk(), folder, config).open_log()
    keys = [b"a", b"b", b"c"]
    append_pairs(log, *[[(key, b"%d" % number) for key in keys] for number in range(3)])
    append_batch(log, keyed_batch(9, [(b"a", b"last")]))
    compaction = Compaction(
        log, cleanable_of(log), producers=(), limits=AMPLE, hash_key=HASH_KEY, now_ms=NOW_MS
    )
    for step in compaction.steps():
        if isinstance(step, Replace) or (not is_decided and _has_cleaned(folder)):
            break
    log.flush(up_to=log.log_end_offset)
    log.close(clean=False, producers=())
    assert bool(list(folder.glob("*.swap"))) is is_decided
    assert _has_cleaned(folder) is not is_decided
    return folder


def _has_cleaned(folder: Path) -> bool:
    return bool(list(folder.glob("*.cleaned")))


def replace_log(source: Path, target: Path) -> None:
    """Kafka keeps its own topic id; everything else in the folder becomes ours."""
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        shutil.copy(path, target)
