"""Produce in transactions (D3, KIP-890), and to topics that are the broker's own."""

import pytest

from tests.support.batches import plain_batch, transactional_batch
from tests.support.kio_codec import Values, milliseconds
from tests.unit.broker.served import Client, ServedWorld, served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import aborted, end, follower_has
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import TopicPartition
from tidelog.broker.transaction_verifier import Question
from tidelog.wire.api import ApiKey

ADDS = 12
VERIFIES = 11
OLD = 10
T0 = TopicPartition("t", 0)


def send(
    client: Client,
    batches: dict[int, bytearray],
    *,
    topic: str = "t",
    version: int = ADDS,
    transactional_id: str | None = "id",
    acks: int = 1,
    is_answered: bool = True,
) -> None:
    values: Values = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": milliseconds(1_000),
        "topic_data": [
            {
                "name": topic,
                "partition_data": [
                    {"index": index, "records": bytes(batch)} for index, batch in batches.items()
                ],
            }
        ],
    }
    client.send(ApiKey.PRODUCE, version, values, is_answered=is_answered)


def results(client: Client) -> list[tuple[int, int]]:
    """Code and base offset of every partition of every answer."""
    return [
        (int(partition.error_code), partition.base_offset)
        for answer in client.take()
        for topic in answer.responses
        for partition in topic.partition_responses
    ]


async def with_topic(served: ServedWorld, partitions: int = 1, **config: str) -> Client:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    served.world.create("t", partitions=partitions, config=settings)
    await served.world.settle()
    return served.client()


@pytest.mark.parametrize(("version", "is_addition"), [(ADDS, True), (VERIFIES, False)])
@in_virtual_time
async def test_the_first_batch_of_a_transaction_waits_for_its_coordinator(
    version: int, is_addition: bool
) -> None:
    async with served_world() as served:
        client = await with_topic(served)
        served.verifier.hold()
        send(client, {0: transactional_batch()}, version=version)
        await served.world.settle()
        assert served.verifier.asked == [Question("id", 7, 0, (T0,), is_addition)]
        assert client.take() == []
        assert served.world.runner("t").log.log_end_offset == 0
        served.verifier.release()
        await served.world.settle()
        assert results(client) == [(0, 0)]
        assert served.unverified_memory.held_bytes == 0


@in_virtual_time
async def test_topics_are_asked_about_by_name_however_they_are_called() -> None:
    """From version 13 on a request has topic ids."""
    async with served_world() as served:
        client = await with_topic(served)
        topic_id = served.world.image.topics["t"].topic_id
        values: Values = {
            "transactional_id": "id",
            "acks": 1,
            "timeout": milliseconds(1_000),
            "topic_data": [
                {
                    "topic_id": topic_id,
                    "partition_data": [{"index": 0, "records": bytes(transactional_batch())}],
                }
            ],
        }
        client.send(ApiKey.PRODUCE, 13, values)
        await served.world.settle()
        assert results(client) == [(0, 0)]
        assert served.verifier.asked == [Question("id", 7, 0, (T0,), True)]


@in_virtual_time
async def test_the_coordinator_is_asked_once_per_transaction_and_partition() -> None:
    async with served_world() as served:
        client = await with_topic(served, partitions=2)
        for sequence in range(3):
            send(client, {0: transactional_batch(sequence)})
            await served.world.settle()
        send(client, {0: transactional_batch(3), 1: transactional_batch(0)})
        await served.world.settle()
        asked = [question.partitions for question in served.verifier.asked]
        assert asked == [(T0,), (TopicPartition("t", 1),)]
        assert results(client) == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 0)]
        end(served.world, epoch=1, version=2)
        send(client, {0: transactional_batch(0, epoch=1)})
        await served.world.settle()
        assert len(served.verifier.asked) == 3
        assert results(client) == [(0, 5)]


@in_virtual_time
async def test_what_follows_on_the_connection_does_not_overtake_it() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        served.verifier.hold()
        send(client, {0: transactional_batch(0)})
        send(client, {0: transactional_batch(1)})
        await served.world.settle()
        served.verifier.release()
        await served.world.settle()
        assert results(client) == [(0, 0), (0, 1)]
        assert len(served.verifier.asked) == 1


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.INVALID_TXN_STATE, ADDS, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, ADDS, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ADDS, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFIES, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADDS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NETWORK_EXCEPTION, VERIFIES, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, VERIFIES, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ADDS, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
@in_virtual_time
async def test_what_the_coordinator_does_not_vouch_for_is_refused(
    said: ErrorCode, version: int, told: ErrorCode
) -> None:
    async with served_world() as served:
        client = await with_topic(served, partitions=2)
        served.verifier.codes[T0] = said
        send(client, {0: transactional_batch(), 1: transactional_batch()}, version=version)
        await served.world.settle()
        assert results(client) == [(told, -1), (0, 0)]
        assert served.world.runner("t").log.log_end_offset == 0


@in_virtual_time
async def test_a_marker_that_comes_before_the_answer_ends_what_had_not_begun() -> None:
    """The coordinator said yes, and then ended the transaction."""
    async with served_world() as served:
        client = await with_topic(served)
        served.verifier.hold()
        send(client, {0: transactional_batch()})
        await served.world.settle()
        end(served.world, epoch=1, version=2)
        served.verifier.release()
        await served.world.settle()
        assert results(client) == [(ErrorCode.INVALID_TXN_STATE, -1)]
        assert served.world.runner("t").last_stable_offset == 1


@in_virtual_time
async def test_the_next_transaction_does_not_wait_for_the_marker_of_the_last() -> None:
    """EndTxn is answered before markers are written, and the client goes on at once."""
    async with served_world() as served:
        client = await with_topic(served)
        served.verifier.hold()
        send(client, {0: transactional_batch(epoch=1)})
        await served.world.settle()
        end(served.world, epoch=1, version=2)
        served.verifier.release()
        await served.world.settle()
        assert results(client) == [(ErrorCode.NONE, 1)]


@in_virtual_time
async def test_a_late_write_is_refused_without_a_question_being_believed() -> None:
    """Its transaction is over, and the coordinator says so."""
    async with served_world() as served:
        client = await with_topic(served)
        send(client, {0: transactional_batch(0)})
        await served.world.settle()
        end(served.world)
        served.verifier.codes[T0] = ErrorCode.INVALID_TXN_STATE
        send(client, {0: transactional_batch(1)})
        await served.world.settle()
        assert results(client) == [(0, 0), (ErrorCode.INVALID_TXN_STATE, -1)]


@in_virtual_time
async def test_acks_all_waits_for_followers_after_the_coordinator() -> None:
    async with served_world() as served:
        served.world.create("t", state=replicated(BROKER, 0))
        await served.world.settle()
        client = served.client()
        send(client, {0: transactional_batch()}, acks=-1)
        await served.world.settle()
        assert client.take() == []
        follower_has(served.world, 1)
        assert results(client) == [(0, 0)]


@in_virtual_time
async def test_a_request_without_acks_gets_no_answer() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        send(client, {0: transactional_batch()}, acks=0, is_answered=False)
        send(client, {0: transactional_batch(1)})
        await served.world.settle()
        assert results(client) == [(0, 1)]


@in_virtual_time
async def test_a_client_that_is_gone_holds_no_memory() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        served.verifier.hold()
        send(client, {0: transactional_batch()})
        await served.world.settle()
        client.disconnect()
        served.verifier.release()
        await served.world.settle()
        assert served.unverified_memory.held_bytes == 0


@in_virtual_time
async def test_more_than_there_is_memory_for_is_to_be_sent_again() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        served.unverified_memory.hold(2**20)
        send(client, {0: transactional_batch()})
        assert results(client) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
        served.unverified_memory.release(2**20)
        send(client, {0: transactional_batch()})
        await served.world.settle()
        assert results(client) == [(0, 0)]


@in_virtual_time
async def test_two_producers_in_one_request_make_no_sense() -> None:
    async with served_world() as served:
        client = await with_topic(served, partitions=2)
        send(client, {0: transactional_batch(), 1: transactional_batch(producer=8)})
        code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert results(client) == [(code, -1), (code, -1)]


@in_virtual_time
async def test_partitions_that_are_not_here_are_not_asked_about() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        served.world.create("followed", state=replicated(OTHER, 0))
        await served.world.settle()
        send(client, {0: transactional_batch()}, topic="followed")
        send(client, {9: transactional_batch()})
        assert results(client) == [
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
        assert served.verifier.asked == []


@in_virtual_time
async def test_damaged_batches_are_refused_as_ever() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        damaged = transactional_batch()
        damaged[16] = 9
        flipped = transactional_batch()
        flipped[-1] ^= 1
        send(client, {0: damaged})
        send(client, {0: flipped})
        await served.world.settle()
        codes = [code for code, _ in results(client)]
        assert codes == [ErrorCode.CORRUPT_MESSAGE] * 2


@in_virtual_time
async def test_a_setting_lets_older_clients_write_unasked() -> None:
    """`transaction.partition.verification.enable`"""
    async with served_world() as served:
        client = await with_topic(served)
        served.is_verifying = False
        send(client, {0: transactional_batch()}, version=VERIFIES)
        assert results(client) == [(0, 0)]
        end(served.world, epoch=1, version=2)
        send(client, {0: transactional_batch(epoch=1)}, version=ADDS)
        await served.world.settle()
        assert len(served.verifier.asked) == 1
        assert aborted(served.world) == [(7, 0, 1, 2)]


@in_virtual_time
async def test_a_transactional_producer_may_write_outside_of_transactions() -> None:
    async with served_world() as served:
        client = await with_topic(served)
        send(client, {0: plain_batch(1)})
        assert results(client) == [(0, 0)]
        assert served.verifier.asked == []


# -- topics of the broker's own ------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
@in_virtual_time
async def test_clients_may_not_write_to_internal_topics(topic: str) -> None:
    async with served_world() as served:
        served.world.create(topic)
        await served.world.settle()
        client = served.client()
        for _ in range(3):
            send(client, {0: plain_batch(1)}, topic=topic, transactional_id=None)
        assert results(client) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)] * 3


@in_virtual_time
async def test_kafkas_own_tools_may() -> None:
    async with served_world() as served:
        served.world.create("__consumer_offsets")
        await served.world.settle()
        client = served.client()
        client.client_id = "__admin_client"
        for _ in range(3):
            send(client, {0: plain_batch(1)}, topic="__consumer_offsets", transactional_id=None)
        assert [code for code, _ in results(client)] == [0, 0, 0]
        other = served.client()
        send(other, {0: plain_batch(1)}, topic="__consumer_offsets", transactional_id=None)
        assert results(other) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
