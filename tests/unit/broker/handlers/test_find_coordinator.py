"""FindCoordinator: the leader of the partition that a key falls to, at the listener asked (P3)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.broker.controlled_world import ControlledWorld, controlled_world
from tests.unit.broker.controllers import ENDPOINTS
from tests.unit.broker.served import Client
from tests.unit.broker.simulated_loop import in_virtual_time
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from tidelog.core.coordinators import partition_of
from tidelog.wire.api import ApiKey

GROUP, TRANSACTION, SHARE = 0, 1, 2
FIRST_WITH_MANY_KEYS = 4
NEWEST = 6
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "1",
}
HERE = (1, ENDPOINTS[0].host, ENDPOINTS[0].port)
Found = tuple[str | None, int, int, str, int]
"""Key, code, node id, host, port."""


async def find(
    controlled: ControlledWorld,
    *keys: str,
    kind: int = GROUP,
    version: int = NEWEST,
    client: Client | None = None,
) -> list[Found]:
    client = client or controlled.served.client()
    many = {"coordinator_keys": keys}
    client.send(
        ApiKey.FIND_COORDINATOR,
        version,
        {"key_type": kind, **(many if version >= FIRST_WITH_MANY_KEYS else {"key": keys[0]})},
    )
    await controlled.settle()
    (response,) = client.take()
    if version < FIRST_WITH_MANY_KEYS:
        return [_found(None, response)]
    return [_found(one.key, one) for one in response.coordinators]


def _found(key: str | None, answer: Any) -> Found:
    return key, int(answer.error_code), answer.node_id, answer.host, answer.port


@in_virtual_time
async def test_the_first_who_asks_has_the_topic_made() -> None:
    async with controlled_world(SETTINGS) as controlled:
        assert await find(controlled, "a", "b", "a") == [(key, 0, *HERE) for key in ("a", "b", "a")]
        image = controlled.controller.image
        assert len(image.topics[CONSUMER_OFFSETS].partitions) == 3
        assert image.topic_config(CONSUMER_OFFSETS) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        assert TRANSACTION_STATE not in image.topics


@in_virtual_time
async def test_transactional_ids_have_a_topic_of_their_own() -> None:
    async with controlled_world(SETTINGS) as controlled:
        assert await find(controlled, "a", kind=TRANSACTION) == [("a", 0, *HERE)]
        image = controlled.controller.image
        assert len(image.topics[TRANSACTION_STATE].partitions) == 2
        assert image.topic_config(TRANSACTION_STATE) == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }


@in_virtual_time
async def test_many_who_ask_at_once_make_one_topic() -> None:
    async with controlled_world(SETTINGS) as controlled:
        clients = [controlled.served.client() for _ in range(5)]
        for client in clients:
            client.send(
                ApiKey.FIND_COORDINATOR, NEWEST, {"key_type": GROUP, "coordinator_keys": ("a",)}
            )
        await controlled.settle()
        answers = [client.take() for client in clients]
        assert all(int(one.coordinators[0].error_code) == 0 for (one,) in answers)


@pytest.mark.parametrize("version", range(4))
@in_virtual_time
async def test_versions_of_one_key_are_answered(version: int) -> None:
    async with controlled_world(SETTINGS) as controlled:
        assert await find(controlled, "a", version=version) == [(None, 0, *HERE)]


@pytest.mark.parametrize(
    ("kind", "version", "code"),
    [
        (TRANSACTION, 1, ErrorCode.NONE),
        (TRANSACTION, NEWEST, ErrorCode.NONE),
        (SHARE, NEWEST, ErrorCode.INVALID_REQUEST),
        (3, NEWEST, ErrorCode.INVALID_REQUEST),
        (-1, NEWEST, ErrorCode.INVALID_REQUEST),
    ],
)
@in_virtual_time
async def test_kinds_of_keys_are_known_from_their_version_on(
    kind: int, version: int, code: ErrorCode
) -> None:
    async with controlled_world(SETTINGS) as controlled:
        ((_key, found, *_rest),) = await find(controlled, "a", kind=kind, version=version)
        assert found == code


@in_virtual_time
async def test_the_coordinator_is_the_leader_of_the_keys_own_partition() -> None:
    async with controlled_world(SETTINGS) as controlled:
        await find(controlled, "a")
        image = controlled.controller.image
        partition = partition_of("a", 3)
        other = next(key for key in "bcdefgh" if partition_of(key, 3) != partition)
        leaderless = image.topics[CONSUMER_OFFSETS].partitions[partition]
        leaderless = replace(
            leaderless, leader=NO_BROKER, partition_epoch=leaderless.partition_epoch + 1
        )
        controlled.world.partitions.image = image.apply(
            PartitionChanged(CONSUMER_OFFSETS, partition, leaderless)
        )
        nobody = (int(ErrorCode.COORDINATOR_NOT_AVAILABLE), -1, "", -1)
        assert await find(controlled, "a", other) == [("a", *nobody), (other, 0, *HERE)]


@in_virtual_time
async def test_too_few_brokers_for_the_topic_is_said_with_the_setting() -> None:
    async with controlled_world(
        {**SETTINGS, "offsets.topic.replication.factor": "3"}
    ) as controlled:
        client = controlled.served.client()
        client.send(
            ApiKey.FIND_COORDINATOR, NEWEST, {"key_type": GROUP, "coordinator_keys": ("a",)}
        )
        await controlled.settle()
        (answer,) = client.take()
        (one,) = answer.coordinators
        assert int(one.error_code) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert "offsets.topic.replication.factor is 3" in one.error_message
        assert CONSUMER_OFFSETS not in controlled.controller.image.topics
