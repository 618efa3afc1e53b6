"""The lab does to Apache Kafka what it does to tidelog, with the same code (B2, B3)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.base.errors import ConfigError
from tidelog.client.admin import Admin
from tidelog.lab.kafka import QUICK_START_FLAGS, find_kafka
from tidelog.lab.local_cluster import LocalCluster

pytestmark = pytest.mark.one_broker  # Of us: it is about Kafka.
IN_SYNC_WITHIN_S = 120.0


@pytest.fixture
def kafka(kafka_jars: None, tmp_path: Path) -> Iterator[LocalCluster]:
    installation = find_kafka(None, jvm_flags=QUICK_START_FLAGS, heap_mib=256)
    started = LocalCluster.of_kafka(tmp_path, installation, lambda: False)
    try:
        started.start(2, {})
        yield started
    finally:
        started.stop()


def test_kafkas_broker_is_killed_and_comes_back(kafka: LocalCluster) -> None:
    with Admin(kafka.bootstrap) as admin:
        admin.create_topic("shared", partitions=2, replication_factor=2, configs={})
    kafka.wait_in_sync("shared", 2, within_s=IN_SYNC_WITHIN_S)
    before = kafka.brokers[1]
    kafka.kill(2)
    assert not before.is_alive
    kafka.restart(2)
    kafka.wait_in_sync("shared", 2, within_s=IN_SYNC_WITHIN_S)
    assert (kafka.folder.log_dir(1) / "shared-0").is_dir()


def test_a_home_without_kafka_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--kafka-home is .* but there is no libs/kafka_"):
        find_kafka(tmp_path, jvm_flags=(), heap_mib=256)
