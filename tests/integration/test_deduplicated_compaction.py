"""A compacted topic that drops duplicates, with records of long ago, on three brokers (D5, S5).

By any clock all of it is old enough to be compacted. By the log's own time the second half is
within the window: whoever leads next, after reading its log again, has to know those ids.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from tests.support.clients import CLIENT_TIMEOUT_S
from tests.support.identified import DEDUP, HEADER, stored_ids
from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.client.admin import Admin

WINDOW_MS = 60_000
LONG_AGO_MS = 1_700_000_000_000
KEY_COUNT = 10
PER_HALF = 400
CONFIG = {
    **DEDUP,
    "tidelog.dedup.window.ms": str(WINDOW_MS),
    "cleanup.policy": "compact",
    "internal.segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
    "message.timestamp.before.max.ms": str(2**62),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    settings = {"log.cleaner.backoff.ms": "50", "default.replication.factor": "3"}
    with ThreeBrokers(tmp_path, settings) as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic("t", partitions=1, configs=CONFIG)
        yield running


def send(cluster: ThreeBrokers, numbers: Sequence[int], *, at_ms: int) -> list[int]:
    """Record `n` has the id n and one of ten keys; where each is, by what the client was told."""
    told: list[int] = []

    def delivered(error: object, message: Message) -> None:
        offset = message.offset()
        assert error is None
        assert offset is not None
        told.append(offset)

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 1, "log_level": 0}
    )
    for number in numbers:
        name = b"%d" % number
        producer.produce(
            "t",
            name,
            key=b"%d" % (number % KEY_COUNT),
            headers=[(HEADER, name)],
            timestamp=at_ms,
            on_delivery=delivered,
        )
    assert producer.flush(CLIENT_TIMEOUT_S) == 0
    return told


def test_ids_that_count_are_known_to_whoever_reads_a_compacted_log(cluster: ThreeBrokers) -> None:
    early, late = range(PER_HALF), range(PER_HALF, 2 * PER_HALF)
    send(cluster, early, at_ms=LONG_AGO_MS)
    later_ms = LONG_AGO_MS + 10 * WINDOW_MS
    first = send(cluster, late, at_ms=later_ms)

    def is_compacted() -> bool:
        stored = {int(one) for _, one in stored_ids(cluster.bootstrap, "t")}
        return len(stored & set(early)) < PER_HALF / 2

    wait_until(is_compacted, within_s=30, what="the first half is compacted")
    cluster.kill()
    cluster.start()
    cluster.wait_whole("t")
    assert send(cluster, late, at_ms=later_ms) == first
    leader = cluster.leader("t")
    leader.kill()
    assert send(cluster, late, at_ms=later_ms) == first
    leader.start()
    stored = [int(one) for _, one in stored_ids(cluster.bootstrap, "t")]
    assert [number for number in stored if number in late] == [*late]
