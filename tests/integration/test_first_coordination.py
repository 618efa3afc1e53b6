"""The first FindCoordinator of a cluster names a coordinator that answers (T1, P3, D3).

It has a topic of many partitions made, which three brokers then open. Whoever is sent to the
coordinator meanwhile is answered by it, not sent away to look again.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import Coordinator, FindCoordinatorResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.types import GroupId, ProducerId, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta

from tests.support.message_client import MessageClient
from tests.support.three_brokers import ThreeBrokers
from tidelog.base.errors import ErrorCode

SETTINGS = {
    "offsets.topic.num.partitions": "300",
    "transaction.state.log.num.partitions": "300",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
GROUP, TRANSACTION = 0, 1
KEYS = [f"key-{number}" for number in range(12)]
"""Enough that every broker coordinates some."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path, SETTINGS) as running:
        yield running


def coordinators(cluster: ThreeBrokers, kind: int) -> tuple[Coordinator, ...]:
    with MessageClient("127.0.0.1", cluster.port) as client:
        answer = client.ask(FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=tuple(KEYS)))
    assert isinstance(answer, FindCoordinatorResponse)
    return answer.coordinators


def test_a_producer_is_initialized_by_the_coordinator_that_it_is_sent_to(
    cluster: ThreeBrokers,
) -> None:
    for found in coordinators(cluster, TRANSACTION):
        with MessageClient(found.host, found.port) as client:
            answer = client.ask(
                InitProducerIdRequest(
                    transactional_id=TransactionalId(found.key),
                    transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)),
                    producer_id=ProducerId(-1),
                    producer_epoch=i16(-1),
                )
            )
        assert isinstance(answer, InitProducerIdResponse)
        assert int(answer.error_code) == ErrorCode.NONE


def test_a_member_is_heard_by_the_coordinator_that_it_is_sent_to(cluster: ThreeBrokers) -> None:
    """Which knows no such member, and says so: that is an answer of the coordinator."""
    for found in coordinators(cluster, GROUP):
        with MessageClient(found.host, found.port) as client:
            answer = client.ask(
                HeartbeatRequest(
                    group_id=GroupId(found.key), generation_id=i32(1), member_id="nobody"
                )
            )
        assert isinstance(answer, HeartbeatResponse)
        assert int(answer.error_code) == ErrorCode.UNKNOWN_MEMBER_ID
