"""A leader that hangs holds up transactions for as long as its session lasts, and no longer (D3).

    committed ──▶ marker for the leader that hangs ──▶ its session ends ──▶ marker for the next one
                  next transaction waits for it                             next transaction goes on

A paused broker keeps its connections. Until its session ends nobody can know; from then on nobody
may wait for an answer of it.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.clients import CLIENT_TIMEOUT_S
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tidelog.core.coordinators import partition_of

ID = "orders"
TOPIC = "orders"
LOG = "__transaction_state"
LOG_PARTITION_COUNT = 5
SESSION_S = 2.0
# Well below request.timeout.ms and replica.socket.timeout.ms, which are 30 s, with room for a
# client that waits for its own requests to the hung broker.
GOES_ON_WITHIN_S = 15.0
SETTINGS = {
    "broker.session.timeout.ms": str(round(1_000 * SESSION_S)),
    "broker.heartbeat.interval.ms": "400",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": str(LOG_PARTITION_COUNT),
    # So that the hung broker has no part in deciding: markers are on their way while it hangs.
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path, SETTINGS) as running:
        yield running


def test_next_transaction_does_not_wait_for_a_leader_that_hangs(brokers: ThreeBrokers) -> None:
    producer = Producer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "transactional.id": ID,
            "socket.timeout.ms": 3_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    coordinator = brokers.leader(LOG, partition_of(ID, LOG_PARTITION_COUNT))
    others = [one for one in BROKER_IDS if brokers.brokers[one] is not coordinator]
    first, second = ([one, *(each for each in BROKER_IDS if each != one)] for one in others)
    brokers.create(TOPIC, first, second)
    brokers.wait_whole(TOPIC)
    hung = brokers.leader(TOPIC, 0)

    producer.begin_transaction()
    producer.produce(TOPIC, "before", partition=0)
    producer.flush(CLIENT_TIMEOUT_S)
    hung.pause()
    paused_at = time.monotonic()
    producer.commit_transaction(CLIENT_TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, "after", partition=1)
    producer.commit_transaction(GOES_ON_WITHIN_S)
    took_s = time.monotonic() - paused_at

    assert took_s < GOES_ON_WITHIN_S
    hung.resume()
