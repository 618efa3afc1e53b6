"""Transactions that no coordinator will end are found and ended, by Kafka's tool and ours (D3, P1).

Verification of partitions (KIP-890) keeps brokers from taking records of a transaction that its
coordinator knows nothing of. It can be switched off, as it was in all brokers before; then a late
record of an older producer opens a transaction that nobody ends.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compatibility.kafka_peer import StartBroker
from tests.support.batches import plain_batch, transactional_batch
from tests.support.clients import create_topic, read_committed
from tests.support.command_line import objects, tidelog
from tests.support.kafka_tools import KafkaTools
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tidelog.base.errors import ErrorCode
from tidelog.client.admin import Admin
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.one_broker

TOPIC = "payments"
SETTINGS = {"transaction.partition.verification.enable": "false"}
HOUR_MS = 3_600_000
OLD_PRODUCE_VERSION = 9
START_OFFSET = 3


@dataclass(frozen=True)
class Hanging:
    """Three records that count, then one of a transaction that hangs, then three more."""

    bootstrap: str
    producer_id: int
    epoch: int

    @property
    def last_stable_offset(self) -> int:
        with Admin(self.bootstrap) as admin:
            return admin.last_stable_offsets(TOPIC, [0])[0]

    def assert_over(self) -> None:
        """Readers of committed records get past it, and do not see it."""
        wait_until(lambda: self.last_stable_offset > 7, within_s=10, what="the end is stable")
        offsets = [record.offset for record in read_committed(self.bootstrap, TOPIC, 0)]
        assert offsets == [0, 1, 2, 4, 5, 6]


@pytest.fixture(params=["an id that never wrote here", "no transactional id at all"])
def hanging(start_broker: StartBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Hanging:
    broker = start_broker(tmp_path, SETTINGS)
    create_topic(broker.bootstrap, TOPIC, partition_count=1, config={})
    with RawClient(broker.port) as client:
        topic = client.known_topic(TOPIC)
        producer_id, epoch = client.new_producer_id(), 0
        if request.param == "an id that never wrote here":
            producer_id, epoch = _initialized(client)
        late = transactional_batch(
            producer=producer_id, epoch=epoch, timestamp_ms=_now_ms() - HOUR_MS
        )
        plain = plain_batch(timestamp_ms=_now_ms())
        assert client.produce(topic, plain).code == ErrorCode.NONE
        written = client.produce(topic, late, transactional_id="late", version=OLD_PRODUCE_VERSION)
        assert (written.code, written.base_offset) == (ErrorCode.NONE, START_OFFSET)
        assert client.produce(topic, plain).code == ErrorCode.NONE
    found = Hanging(broker.bootstrap, producer_id, epoch)
    assert found.last_stable_offset == START_OFFSET
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _initialized(client: RawClient) -> tuple[int, int]:
    """The coordinator knows the id; its transaction, if there is one, has no partitions."""
    answers = []

    def is_answered() -> bool:
        answer = client.init_producer_id({"transactional_id": "late"})
        answers.append(answer)
        return bool(answer.error_code == ErrorCode.NONE)

    _find_coordinator(client)
    wait_until(is_answered, within_s=30, what="the coordinator serves")
    return int(answers[-1].producer_id), int(answers[-1].producer_epoch)


def _find_coordinator(client: RawClient) -> None:
    """Has `__transaction_state` made; the only broker is the coordinator."""
    client.request(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ("late",)})


def test_kafkas_tool_finds_and_aborts_it(hanging: Hanging, kafka_jars: None) -> None:
    tools = KafkaTools(hanging.bootstrap)
    found = tools.transactions("find-hanging", "--broker-id", "1")
    (row,) = [line.split() for line in found.splitlines() if line.startswith(TOPIC)]
    assert row[:5] == [TOPIC, "0", str(hanging.producer_id), str(hanging.epoch), "-1"]
    assert row[5] == str(START_OFFSET)
    tools.transactions(
        *("abort", "--topic", TOPIC, "--partition", "0", "--start-offset", str(START_OFFSET))
    )
    hanging.assert_over()
    again = tools.transactions("find-hanging", "--broker-id", "1", "--topic", TOPIC)
    assert not [line for line in again.splitlines() if line.startswith(TOPIC)]


def test_our_command_finds_and_aborts_it(hanging: Hanging) -> None:
    bootstrap = ("--bootstrap", hanging.bootstrap)
    found = tidelog("transactions", "find-hanging", "--json", *bootstrap)
    assert found.returncode == 1
    (one,) = objects(found.stdout)
    assert (one["topic"], one["partition"], one["open_since"]) == (TOPIC, 0, START_OFFSET)
    assert (one["producer_id"], one["producer_epoch"]) == (hanging.producer_id, hanging.epoch)
    aborted = tidelog(
        *("transactions", "abort", TOPIC, "--partition", "0"),
        *("--start-offset", str(START_OFFSET), *bootstrap),
    )
    assert aborted.returncode == 0, aborted.stderr
    hanging.assert_over()
    assert tidelog("transactions", "find-hanging", *bootstrap).returncode == 0
