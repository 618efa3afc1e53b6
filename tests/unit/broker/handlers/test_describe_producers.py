"""DescribeProducers: transactions that hang can be seen (D3, KIP-664)."""

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import PartitionResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tests.support.batches import NOW_MS
from tests.unit.broker.handlers.samples import context
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.transactions import end, write
from tests.unit.broker.world import OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.broker.handlers.describe_producers import DescribeProducersHandler


async def described(world: World, topic: str, partition: int = 0) -> PartitionResponse:
    handler = DescribeProducersHandler(partitions=world.partitions)
    asked = TopicRequest(name=TopicName(topic), partition_indexes=(i32(partition),))
    answer = await handler.handle(DescribeProducersRequest(topics=(asked,)), context())
    ((one,),) = (topic.partitions for topic in answer.topics)
    return one


@in_virtual_time
async def test_a_producer_is_described_with_its_open_transaction() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        end(world, epoch=2, coordinator_epoch=3)
        write(world, epoch=2, count=4)
        (producer,) = (await described(world, "t")).active_producers
        assert (producer.producer_id, producer.producer_epoch) == (7, 2)
        assert (producer.last_sequence, producer.last_timestamp) == (3, NOW_MS)
        assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (3, 1)


@in_virtual_time
async def test_a_producer_without_a_transaction_has_no_start() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        end(world)
        (producer,) = (await described(world, "t")).active_producers
        assert (producer.last_sequence, producer.current_txn_start_offset) == (-1, -1)


@in_virtual_time
async def test_a_follower_answers_for_itself() -> None:
    async with broker_world() as world:
        world.create("t", state=replicated(OTHER, 0))
        await world.settle()
        assert int((await described(world, "t")).error_code) == 0


@in_virtual_time
async def test_a_partition_that_is_not_here_is_refused() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        unknown = await described(world, "t", 9)
        assert int(unknown.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.log_dir.on_failure(StorageError("for the test"))
        offline = await described(world, "t")
        assert int(offline.error_code) == ErrorCode.KAFKA_STORAGE_ERROR
