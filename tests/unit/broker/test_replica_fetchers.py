"""Two lanes to each leader: who has little to fetch does not wait behind who has much (R2, T4).

The leader is the test.
"""

from tests.unit.broker.followed import answer, records
from tests.unit.broker.played_leader import (
    Leader,
    Unanswered,
    followed,
    forgotten,
    named,
    opened,
    registered,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, World, replicated
from tidelog.broker.replica_fetcher import LULLS

ONE_RECORD_BYTES = len(records(1, offset=0, epoch=3))
TWO_ARE_BULK = {"tidelog.replica.bulk.bytes": str(ONE_RECORD_BYTES + 1)}


async def in_bulk_lane(leader: Leader) -> tuple[Unanswered, Unanswered]:
    """Two partitions are followed and the first is bulk: what is parked in the quick lane and in
    the bulk lane."""
    await opened(leader)
    leader.answer(answer(records(2, offset=0, epoch=3)))
    await leader.asked()
    quick, bulk = leader.unanswered
    return quick, bulk


async def small_answers(leader: Leader, count: int, *, offset: int) -> None:
    """Each has one record for the first partition, over the lane that asks for it last."""
    for number in range(offset, offset + count):
        leader.unanswered.sort(key=lambda one: 0 not in named(one.request))
        leader.answer(answer(records(1, offset=number, epoch=3)))
        await leader.asked()


def end_offsets(world: World) -> list[int]:
    return [world.runner("t", number).log.log_end_offset for number in (0, 1)]


@in_virtual_time
async def test_what_gets_much_at_once_goes_on_over_another_connection() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        quick, bulk = await in_bulk_lane(leader)
        assert quick.connection is not bulk.connection
        assert (named(quick.request), forgotten(quick.request)) == ({}, [0])
        assert (named(bulk.request), bulk.request.session_epoch) == ({0: 2}, 0)


@in_virtual_time
async def test_a_record_for_a_quiet_partition_overtakes_an_answer_for_a_busy_one() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, _ = await in_bulk_lane(leader)
        # The busy one's answer is still on its way.
        leader.answer(answer(records(1, offset=0, epoch=3), partition=1))
        assert end_offsets(world) == [2, 1]
        (request,) = await leader.asked()
        assert named(request) == {1: 1}
        assert leader.unanswered[-1].connection is quick.connection


@in_virtual_time
async def test_little_at_once_stays_where_it_is() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        await opened(leader)
        await small_answers(leader, 2 * LULLS, offset=0)
        assert len(leader.far.connections) == 1


@in_virtual_time
async def test_a_few_small_answers_in_a_row_bring_a_partition_back() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, bulk = await in_bulk_lane(leader)
        leader.unanswered.reverse()
        await small_answers(leader, LULLS - 1, offset=2)
        assert leader.unanswered[-1].connection is bulk.connection
        await small_answers(leader, 1, offset=1 + LULLS)
        assert leader.unanswered[-1].connection is quick.connection
        assert named(leader.unanswered[-1].request) == {0: 2 + LULLS}
        assert end_offsets(world) == [2 + LULLS, 0]
        assert not bulk.connection.is_closed  # There may be a use for it again.


@in_virtual_time
async def test_a_large_answer_among_small_ones_keeps_it_where_it_is() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        _, bulk = await in_bulk_lane(leader)
        leader.unanswered.reverse()
        await small_answers(leader, LULLS - 1, offset=2)
        leader.unanswered.sort(key=lambda one: 0 not in named(one.request))
        leader.answer(answer(records(2, offset=1 + LULLS, epoch=3)))
        await leader.asked()
        await small_answers(leader, LULLS - 1, offset=3 + LULLS)
        assert leader.unanswered[-1].connection is bulk.connection


@in_virtual_time
async def test_both_lanes_end_with_the_last_partition_of_a_leader() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, bulk = await in_bulk_lane(leader)
        world.change("t", replicated(BROKER, 4), 0)
        await world.settle()
        assert not bulk.connection.is_closed
        world.change("t", replicated(BROKER, 4), 1)
        await world.settle()
        assert quick.connection.is_closed
        assert bulk.connection.is_closed


@in_virtual_time
async def test_a_leader_that_listens_elsewhere_is_asked_there_for_both_lanes_partitions() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, bulk = await in_bulk_lane(leader)
        world.decide(registered(OTHER, 21))
        assert named(await leader.asked_once()) == {0: 2, 1: 0}
        assert quick.connection.is_closed
        assert bulk.connection.is_closed


@in_virtual_time
async def test_a_new_epoch_of_the_same_leader_leaves_it_in_its_lane() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        _, bulk = await in_bulk_lane(leader)
        leader.unanswered.reverse()
        leader.answer()
        await leader.asked_once()
        world.change("t", replicated(OTHER, 4), 0)
        request = await leader.asked_once()
        assert (named(request), leader.unanswered[-1].connection) == ({0: 2}, bulk.connection)


@in_virtual_time
async def test_a_partition_that_changes_lanes_while_a_thread_has_its_log_waits_for_that() -> None:
    one_batch = {"internal.segment.bytes": "150"}
    async with followed(2, settings=one_batch, broker_settings=TWO_ARE_BULK) as (world, leader):
        await opened(leader)
        world.executor.hold(URGENT)
        leader.answer(answer(records(2, offset=0, epoch=3)))
        request = await leader.asked_once()
        assert (named(request), forgotten(request)) == ({}, [0])
        world.executor.release(URGENT)
        assert named(await leader.asked_once()) == {0: 2}
        assert len(leader.far.connections) == 2
        assert end_offsets(world) == [2, 0]
