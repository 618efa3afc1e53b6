"""Kafka's DumpLogSegments is content with the folders that the broker wrote (S2, S3, S7)."""

from pathlib import Path

import pytest

from tests.compatibility.kafka_peer import Broker, StartBroker
from tests.support.clients import Settings, create_topic, numbered_records, send
from tests.support.dump_log_segments import dump_folder
from tests.support.server_process import wait_until

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
# The smallest that Kafka 4 accepts (KIP-1030).
SEGMENT_BYTES = 1_048_576
SMALL_BATCHES: Settings = {"batch.size": 16_384, "linger.ms": 5}

pytestmark = [pytest.mark.usefixtures("kafka_jars"), pytest.mark.one_broker]


@pytest.fixture
def stopped_folder(start_broker: StartBroker, tmp_path: Path) -> Path:
    """A data folder with every kind of log, left behind by a clean stop."""
    broker = start_broker(tmp_path / "broker", {})
    _fill(broker)
    broker.stop()
    return broker.data_folder


def test_folders_of_every_kind_are_read_without_a_complaint(stopped_folder: Path) -> None:
    for codec in CODECS:
        dump = dump_folder(stopped_folder / f"{codec}-0")
        assert dump.complaints == []
        assert {batch.codec for batch in dump.batches} == {codec}
        assert list(dump.record_offsets) == list(range(1_000))

    _several_segments_are_right(stopped_folder / "segments-0")
    _idempotent_batches_are_right(stopped_folder / "idempotent-0")

    append_time = dump_folder(stopped_folder / "append-time-0")
    assert append_time.complaints == []
    assert {batch.timestamp_type for batch in append_time.batches} == {"LogAppendTime"}

    assert dump_folder(stopped_folder / "empty-0").complaints == []


def _several_segments_are_right(folder: Path) -> None:
    assert len(list(folder.glob("*.log"))) >= 3
    dump = dump_folder(folder)
    assert dump.complaints == []
    assert list(dump.record_offsets) == list(range(3_000))
    # An index that is merely empty would pass every check.
    for index in sorted(folder.glob("*.index"))[:-1]:
        assert index.stat().st_size >= 8 * 32
        assert index.with_suffix(".timeindex").stat().st_size >= 12 * 32


def _idempotent_batches_are_right(folder: Path) -> None:
    dump = dump_folder(folder)
    assert dump.complaints == []
    assert len({batch.producer_id for batch in dump.batches}) == 1
    assert dump.batches[0].producer_id >= 0
    next_sequence = 0
    for batch in dump.batches:
        assert batch.base_sequence == next_sequence
        next_sequence += batch.record_count
    # The snapshot of a clean stop is taken at the end of the log.
    assert (folder / "00000000000000001000.snapshot").exists()
    last = dump.batches[-1]
    assert f"producerId: {last.producer_id} producerEpoch: 0" in dump.snapshots
    assert f"lastSequence: {next_sequence - 1} lastOffset: 999" in dump.snapshots


def test_recovered_folder_is_read_without_a_complaint(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """S6: what recovery rebuilds after kill -9 is as good as what a clean stop leaves."""
    broker = start_broker(tmp_path / "broker", {})
    _fill_segments(broker)
    broker.kill()
    broker.start()
    broker.stop()
    dump = dump_folder(broker.data_folder / "segments-0")
    assert dump.complaints == []
    assert list(dump.record_offsets) == list(range(3_000))


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("00000000000000000000.index", 7),
        ("00000000000000000000.timeindex", 7),
        ("00000000000000000000.log", 200),
    ],
)
def test_the_tool_would_notice_a_wrong_byte(
    start_broker: StartBroker, tmp_path: Path, name: str, position: int
) -> None:
    """The checks above mean something only if a fault is seen."""
    broker = start_broker(tmp_path / "broker", {})
    _fill_segments(broker)
    broker.stop()
    damaged = broker.data_folder / "segments-0" / name
    content = bytearray(damaged.read_bytes())
    content[position] ^= 1
    damaged.write_bytes(content)
    assert dump_folder(damaged.parent).complaints != []


def test_cleaned_up_folder_is_read_without_a_complaint(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    """Segments that retention removed leave a log that starts elsewhere and is still right."""
    settings = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
    broker = start_broker(tmp_path / "broker", settings)
    config = {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(SEGMENT_BYTES)}
    config |= {"retention.ms": "-1", "file.delete.delay.ms": "0"}
    create_topic(broker.bootstrap, "retained", partition_count=1, config=config)
    folder = broker.data_folder / "retained-0"
    _send(broker, "retained", 4_000, value_size_bytes=1_000, settings=SMALL_BATCHES)
    _wait_until_first_segment_is_gone(folder)
    broker.stop()
    dump = dump_folder(folder)
    assert dump.complaints == []
    assert dump.batches[0].base_offset > 0
    assert dump.batches[-1].last_offset == 3_999


def _fill(broker: Broker) -> None:
    for codec in CODECS:
        create_topic(broker.bootstrap, codec, partition_count=1, config={})
        _send(broker, codec, 1_000, value_size_bytes=100, settings={"compression.type": codec})
    _fill_segments(broker)
    create_topic(broker.bootstrap, "idempotent", partition_count=1, config={})
    idempotent = {**SMALL_BATCHES, "enable.idempotence": True}
    _send(broker, "idempotent", 1_000, value_size_bytes=500, settings=idempotent)
    append_time = {"message.timestamp.type": "LogAppendTime"}
    create_topic(broker.bootstrap, "append-time", partition_count=1, config=append_time)
    _send(broker, "append-time", 1_000, value_size_bytes=500, settings=SMALL_BATCHES)
    create_topic(broker.bootstrap, "empty", partition_count=1, config={})


def _fill_segments(broker: Broker) -> None:
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    create_topic(broker.bootstrap, "segments", partition_count=1, config=config)
    _send(broker, "segments", 3_000, value_size_bytes=1_000, settings=SMALL_BATCHES)


def _send(
    broker: Broker,
    topic: str,
    record_count: int,
    *,
    value_size_bytes: int,
    settings: Settings,
) -> None:
    records = numbered_records(record_count, value_size_bytes=value_size_bytes, seed=topic)
    send(broker.bootstrap, topic, records, partition=0, settings=settings)


def _wait_until_first_segment_is_gone(folder: Path) -> None:
    wait_until(
        lambda: not (folder / "00000000000000000000.log").exists(),
        within_s=30,
        what=f"retention removes the first segment of {folder}",
    )
