"""A coordinator that is killed at some step of a commit: the transaction ends once, as told (D3).

    begun ──▶ records written ──▶ EndTxn ──▶ decided ──▶ markers ──▶ complete
          kill              kill          kill  ...  whenever a few milliseconds say

Whoever was told that it committed finds every record once; whoever was told otherwise finds none.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin._listoffsets import OffsetSpec

from tests.support.clients import CLIENT_TIMEOUT_S, Settings
from tests.support.confluent import new_consumer
from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.core.coordinators import partition_of

ID = "orders"
TOPIC = "orders"
LOG = "__transaction_state"
PARTITION_COUNT = 3
NUMBERS = range(PARTITION_COUNT)
LOG_PARTITION_COUNT = 5
KILLED_AFTER_S = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
"""Before the commit, while it is decided, while markers are written; one round each."""
ABORTED = 4
"""The round whose transaction is aborted."""
PATIENCE_S = 60.0
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.state.log.num.partitions": str(LOG_PARTITION_COUNT),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


@dataclass(frozen=True, slots=True)
class Round:
    """One transaction, and what became of it as far as its producer knows."""

    number: int
    is_committed: bool | None
    """None: the producer was not told."""

    @property
    def values(self) -> set[tuple[int, bytes]]:
        return {(number, f"{self.number}".encode()) for number in NUMBERS}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("transactions"), SETTINGS) as running:
        running.create(TOPIC, (1, 2, 3), (2, 3, 1), (3, 1, 2))
        yield running


def test_transaction_ends_once_whenever_its_coordinator_dies(brokers: ThreeBrokers) -> None:
    producer = _new_producer(brokers)
    rounds = []
    for number, delay_s in enumerate(KILLED_AFTER_S):
        outcome, producer = _run_round(
            brokers, producer, number, delay_s, commits=number != ABORTED
        )
        rounds.append(outcome)
        brokers.start()
        brokers.wait_whole(LOG)
    found = _read(brokers)
    for one in rounds:
        present = {place for place in found if place in one.values}
        if one.is_committed is None:
            assert present in (set(), one.values)
        else:
            assert present == (one.values if one.is_committed else set()), one
    assert len(found) == len(set(found))
    assert sum(one.is_committed is True for one in rounds) > len(rounds) // 2


def _run_round(
    brokers: ThreeBrokers, producer: Producer, number: int, delay_s: float, *, commits: bool
) -> tuple[Round, Producer]:
    """One transaction whose coordinator is killed; the producer to go on with."""
    coordinator = brokers.leader(LOG, partition_of(ID, LOG_PARTITION_COUNT))
    producer.begin_transaction()
    for partition in NUMBERS:
        producer.produce(TOPIC, str(number), partition=partition)
    producer.flush(CLIENT_TIMEOUT_S)
    killing = threading.Timer(delay_s, coordinator.kill)
    killing.start()
    try:
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        return Round(number, commits), producer
    except KafkaException as failed:
        error = failed.args[0]
        if error.txn_requires_abort():
            producer.abort_transaction(PATIENCE_S)
            return Round(number, False), producer
        return Round(number, None), _new_producer(brokers)
    finally:
        killing.join()


def _new_producer(brokers: ThreeBrokers) -> Producer:
    producer = Producer(
        {"bootstrap.servers": brokers.bootstrap, "transactional.id": ID, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def _read(brokers: ThreeBrokers) -> list[tuple[int, bytes]]:
    """Everything that is committed, by partition; nothing may be left open."""
    wait_until(
        lambda: (
            _end_offsets(brokers, IsolationLevel.READ_COMMITTED)
            == _end_offsets(brokers, IsolationLevel.READ_UNCOMMITTED)
        ),
        within_s=PATIENCE_S,
        what="every transaction has ended",
    )
    found: list[tuple[int, bytes]] = []
    settings: Settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    with new_consumer(brokers.bootstrap, settings) as consumer:
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in NUMBERS])
        ended = 0
        while ended < PARTITION_COUNT:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error() is not None:
                ended += 1
                continue
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            found.append((partition, value))
    return found


def _end_offsets(brokers: ThreeBrokers, isolation_level: IsolationLevel) -> list[int]:
    wanted = {TopicPartition(TOPIC, number): OffsetSpec.latest() for number in NUMBERS}  # type: ignore[no-untyped-call]
    admin = brokers.admin()
    answers = admin.list_offsets(wanted, isolation_level=isolation_level)
    return [answer.result(CLIENT_TIMEOUT_S).offset for answer in answers.values()]
