"""OffsetForLeaderEpoch: where an epoch ended, each query with an answer of its own (R7)."""

from typing import Any

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.served import Client, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.core.controller.changes import BrokerGone
from tidelog.wire.api import ApiKey

VERSION = 4
NONE, UNKNOWN = int(ErrorCode.NONE), (-1, -1)

Query = tuple[str, int, int, int]
"""Topic, partition, the epoch the client believes in, the epoch it asks for."""


async def with_epochs(served: ServedWorld) -> None:
    """Epoch 0 wrote offsets 0 to 2, 1 wrote nothing, 2 wrote 3 and 4, 3 leads."""
    served.world.create("t", partitions=2)
    await served.world.settle()
    served.world.produce("t", plain_batch(3))
    served.world.elect("t")
    await served.world.settle()
    served.world.elect("t")
    await served.world.settle()
    served.world.produce("t", plain_batch(2))
    served.world.elect("t")
    await served.world.settle()


def ask(client: Client, *queries: Query) -> list[tuple[int, int, int]]:
    """Code, epoch and end offset of each query, every one a topic of its own in the request."""
    client.send(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        VERSION,
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": current,
                            "leader_epoch": asked,
                        }
                    ],
                }
                for topic, partition, current, asked in queries
            ],
        },
    )
    (response,) = client.take()
    found: list[Any] = [topic.partitions[0] for topic in response.topics]
    return [(int(one.error_code), one.leader_epoch, one.end_offset) for one in found]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (0, (0, 3)),
        (1, (0, 3)),  # The largest epoch below it that wrote something.
        (2, (2, 5)),
        (3, (3, 5)),  # The leader's own ends where the log does.
        (4, UNKNOWN),
        (-1, UNKNOWN),
    ],
)
@in_virtual_time
async def test_an_epoch_ends_where_the_next_begins(asked: int, expected: tuple[int, int]) -> None:
    async with served_world() as served:
        await with_epochs(served)
        assert ask(served.client(), ("t", 0, -1, asked)) == [(NONE, *expected)]


@in_virtual_time
async def test_a_new_record_moves_the_end_of_the_leaders_epoch_only() -> None:
    async with served_world() as served:
        await with_epochs(served)
        served.world.produce("t", plain_batch(1))
        client = served.client()
        assert ask(client, ("t", 0, 3, 3), ("t", 0, 3, 2)) == [(NONE, 3, 6), (NONE, 2, 5)]


@pytest.mark.parametrize(
    ("current", "code"),
    [
        (-1, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),  # As in Kafka: only -1 makes no claim here.
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@in_virtual_time
async def test_a_client_that_knows_another_leader_is_told(current: int, code: ErrorCode) -> None:
    async with served_world() as served:
        await with_epochs(served)
        ((found, *_),) = ask(served.client(), ("t", 0, current, 0))
        assert found == code


@in_virtual_time
async def test_one_querys_failure_is_its_own() -> None:
    async with served_world() as served:
        await with_epochs(served)
        assert ask(
            served.client(), ("t", 0, -1, 0), ("t", 2, -1, 0), ("u", 0, -1, 0), ("t", 1, -1, 0)
        ) == [
            (NONE, 0, 3),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *UNKNOWN),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *UNKNOWN),
            (NONE, 0, 0),
        ]


@in_virtual_time
async def test_a_partition_that_is_not_served_says_why() -> None:
    async with served_world() as served:
        await with_epochs(served)
        client = served.client()
        served.world.decide(BrokerGone(BROKER))
        assert ask(client, ("t", 0, -1, 0)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, *UNKNOWN)]
        await served.world.become_all()
        served.world.log_dir.on_failure(StorageError("test"))
        assert ask(client, ("t", 0, -1, 0)) == [(ErrorCode.KAFKA_STORAGE_ERROR, *UNKNOWN)]
