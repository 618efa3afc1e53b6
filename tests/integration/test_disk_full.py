"""A full disk: clear errors, nothing acknowledged lost, service again once there is room (S9).

The log directory lies on a small tmpfs. The broker has a second directory on an ordinary disk,
whose partitions must not notice.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import (
    DeliveryFailed,
    create_topic,
    numbered_records,
    read_partition,
    send,
)
from tests.support.server_process import wait_until

SMALL_DISK = "16m"
TOPIC = "fills-the-disk"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"mounting a tmpfs needs root: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Attempts:
    """Outcomes of single records, each waited for."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.errors: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": 1,
                "retries": 0,
                "linger.ms": 0,
                "message.timeout.ms": 10_000,
                "log_level": 0,
            }
        )

    def send(self, value: bytes) -> None:
        self._producer.produce(TOPIC, value, partition=0, on_delivery=self._on_delivery)
        assert self._producer.flush(20) == 0

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.name())
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        self.acknowledged.append((offset, value))


def test_a_full_disk_loses_nothing_and_comes_back_when_there_is_room(
    start_broker: StartBroker, small_disk: Path, tmp_path: Path
) -> None:
    coordination = tmp_path / "coordination.sqlite"
    broker = start_broker(
        {
            "log.dirs": str(small_disk / "logs"),
            "tidelog.coordination": f"sqlite:{coordination}",
            "tidelog.log.dir.retry.ms": "200",
        }
    )
    create_topic(broker.bootstrap, TOPIC, partition_count=1, config={})
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(8 * 2**20))
    attempts = Attempts(broker)

    number = 0
    while not attempts.errors:
        attempts.send(f"{number:08}".encode() * 8_000)
        number += 1
        assert number < 1_000, "the disk never got full"
    assert attempts.errors == ["KAFKA_STORAGE_ERROR"]
    assert "log directory offline" in broker.log_text()
    assert "No space left" in broker.log_text()
    assert broker.is_running

    ballast.unlink()
    wait_until(lambda: "log directory online" in broker.log_text(), within_s=20, what="it is back")
    attempts.errors.clear()
    attempts.send(b"after")
    assert attempts.errors == []
    stored = {record.offset: record.value for record in read_partition(broker.bootstrap, TOPIC, 0)}
    assert len(stored) == len(attempts.acknowledged)
    for offset, value in attempts.acknowledged:
        assert stored[offset] == value


def test_other_log_directories_serve_on_while_one_is_full(
    start_broker: StartBroker, small_disk: Path, tmp_path: Path
) -> None:
    roomy = tmp_path / "roomy"
    broker = start_broker(
        {
            "log.dirs": f"{roomy},{small_disk / 'logs'}",
            "tidelog.log.dir.retry.ms": "0",
        }
    )
    create_topic(broker.bootstrap, TOPIC, partition_count=2, config={})
    on_small = int((small_disk / "logs" / f"{TOPIC}-1").exists())
    on_roomy = 1 - on_small
    records = numbered_records(1_000, value_size_bytes=20_000, seed="full")
    with pytest.raises(DeliveryFailed, match="KAFKA_STORAGE_ERROR"):
        send(
            broker.bootstrap,
            TOPIC,
            records,
            partition=on_small,
            settings={"retries": 0, "message.timeout.ms": 10_000},
        )
    send(broker.bootstrap, TOPIC, records, partition=on_roomy, settings={})
    assert len(read_partition(broker.bootstrap, TOPIC, on_roomy)) == 1_000
    broker.stop()
    assert (roomy / ".kafka_cleanshutdown").exists()
    assert not (small_disk / "logs" / ".kafka_cleanshutdown").exists()
