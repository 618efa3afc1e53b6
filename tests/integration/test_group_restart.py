"""Members go on where they were when every broker that could coordinate them was restarted (P3)."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.support.confluent import read
from tests.support.three_brokers import ThreeBrokers
from tidelog.client import Producer

TOPIC = "t"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}


def _send(cluster: ThreeBrokers, count: int) -> None:
    with Producer(cluster.bootstrap, producer_type="async", queue_buffering_max_ms=5) as producer:
        for number in range(count):
            producer.send(TOPIC, str(number).encode(), partition=number % 2)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_keeps_its_partitions_through_a_rolling_restart(
    tmp_path: Path, protocol: str
) -> None:
    with ThreeBrokers(tmp_path, SETTINGS) as cluster:
        cluster.create(TOPIC, [1, 2, 3], [2, 3, 1])
        _send(cluster, 10)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "g",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 200,
            }
        )
        consumer.subscribe([TOPIC])
        try:
            assert len(read(consumer, 10)) == 10
            consumer.commit(asynchronous=False)
            for broker in cluster.brokers.values():
                broker.restart()
                cluster.wait_whole(TOPIC)
                cluster.wait_whole("__consumer_offsets")
                _send(cluster, 10)
                assert len(read(consumer, 10)) == 10
            consumer.commit(asynchronous=False)
            assert len(consumer.assignment()) == 2
        finally:
            consumer.close()
