"""Two lanes to each leader: who has little to fetch does not wait behind who has much (R2, T4).

The leader is the test.
"""

import asyncio
from dataclasses import replace
from random import Random

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
from tidelog.base.ids import BrokerId
from tidelog.broker.replica_fetcher import LULLS
from tidelog.core.controller.changes import BrokerConfigChanged, PartitionChanged
from tidelog.core.sessions import FetchSessionCache, Opened

ONE_RECORD_BYTES = len(records(1, offset=0, epoch=3))
TWO_ARE_BULK = {"tidelog.replica.bulk.bytes": str(ONE_RECORD_BYTES + 1)}


async def answered(leader: Leader, count: int, *, offset: int) -> None:
    """The lane that asks for the first partition gets so many records of it, and before that
    nothing to what it asked before."""
    (asking,) = (one for one in leader.unanswered if 0 in named(one.request))
    lane = [one for one in leader.unanswered if one.connection is asking.connection]
    leader.unanswered.sort(key=lambda one: one.connection is not asking.connection)
    for _ in lane[: lane.index(asking)]:
        leader.answer()
    leader.answer(answer(records(count, offset=offset, epoch=3)))
    await leader.asked()


async def small_answers(leader: Leader, count: int, *, offset: int) -> None:
    for number in range(offset, offset + count):
        await answered(leader, 1, offset=number)


async def in_bulk_lane(leader: Leader) -> tuple[Unanswered, Unanswered]:
    """Two partitions are followed, and the first has got four records in two answers. What is
    parked in the quick lane and in the bulk lane."""
    await leader.asked_once()
    leader.answer(answer(records(2, offset=0, epoch=3)))
    await leader.asked_once()
    leader.answer(answer(records(2, offset=2, epoch=3)))
    await leader.asked()
    quick, bulk = leader.unanswered
    return quick, bulk


def end_offsets(world: World) -> list[int]:
    return [world.runner("t", number).log.log_end_offset for number in (0, 1)]


# -- who is in which lane ------------------------------------------------------------------------


@in_virtual_time
async def test_what_gets_much_at_once_goes_on_over_another_connection() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        quick, bulk = await in_bulk_lane(leader)
        assert quick.connection is not bulk.connection
        assert (named(quick.request), forgotten(quick.request)) == ({}, [0])
        assert (named(bulk.request), bulk.request.session_epoch) == ({0: 4}, 0)


@in_virtual_time
async def test_nobody_waits_for_the_other_connection_to_be_made() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        await leader.asked_once()
        leader.answer(answer(records(2, offset=0, epoch=3)))
        assert named(await leader.asked_once()) == {0: 2}
        quick, *bulk = leader.far.connections
        assert leader.unanswered[0].connection is quick
        assert len(bulk) == 1


@in_virtual_time
async def test_a_record_for_a_quiet_partition_overtakes_an_answer_for_a_busy_one() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, _ = await in_bulk_lane(leader)
        # The busy one's answer is still on its way.
        leader.answer(answer(records(1, offset=0, epoch=3), partition=1))
        assert end_offsets(world) == [4, 1]
        (request,) = await leader.asked()
        assert named(request) == {1: 1}
        assert leader.unanswered[-1].connection is quick.connection


@in_virtual_time
async def test_little_at_once_stays_where_it_is() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        await leader.asked_once()
        await small_answers(leader, 2 * LULLS, offset=0)
        assert len(leader.far.connections) == 1


@in_virtual_time
async def test_a_few_small_answers_in_a_row_bring_a_partition_back() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, bulk = await in_bulk_lane(leader)
        await small_answers(leader, LULLS - 1, offset=4)
        assert leader.unanswered[-1].connection is bulk.connection
        await small_answers(leader, 1, offset=3 + LULLS)
        assert leader.unanswered[-1].connection is quick.connection
        assert named(leader.unanswered[-1].request) == {0: 4 + LULLS}
        assert end_offsets(world) == [4 + LULLS, 0]


@in_virtual_time
async def test_a_large_answer_among_small_ones_keeps_it_where_it_is() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (_, leader):
        _, bulk = await in_bulk_lane(leader)
        await small_answers(leader, LULLS - 1, offset=4)
        await answered(leader, 2, offset=3 + LULLS)
        await small_answers(leader, LULLS - 1, offset=5 + LULLS)
        assert leader.unanswered[-1].connection is bulk.connection


@in_virtual_time
async def test_a_lane_that_nobody_was_in_is_used_again() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        await in_bulk_lane(leader)
        offset = 4
        for _ in range(3):
            await small_answers(leader, LULLS, offset=offset)
            await answered(leader, 2, offset=offset + LULLS)
            offset += LULLS + 2
        assert end_offsets(world) == [offset, 0]
        assert len(leader.far.connections) == 2


@in_virtual_time
async def test_a_new_epoch_of_the_same_leader_leaves_it_in_its_lane() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        _, bulk = await in_bulk_lane(leader)
        leader.unanswered.reverse()
        leader.answer()
        await leader.asked_once()
        world.change("t", replicated(OTHER, 4), 0)
        request = await leader.asked_once()
        assert (named(request), leader.unanswered[-1].connection) == ({0: 4}, bulk.connection)


@in_virtual_time
async def test_a_partition_that_changes_lanes_while_a_thread_has_its_log_waits_for_that() -> None:
    one_batch = {"internal.segment.bytes": "150"}
    async with followed(2, settings=one_batch, broker_settings=TWO_ARE_BULK) as (world, leader):
        await leader.asked_once()
        leader.answer(answer(records(2, offset=0, epoch=3)))
        await leader.asked()
        world.executor.hold(URGENT)
        await answered(leader, 2, offset=2)
        assert not [one for one in leader.unanswered if 0 in named(one.request)]
        world.executor.release(URGENT)
        assert named(await leader.asked_once()) == {0: 4}
        assert leader.unanswered[-1].connection is leader.far.connection
        assert end_offsets(world) == [4, 0]


# -- ends and failures ---------------------------------------------------------------------------


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
async def test_a_lane_that_was_left_and_taken_again_ends_too() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        await in_bulk_lane(leader)
        await small_answers(leader, LULLS, offset=4)
        await answered(leader, 2, offset=4 + LULLS)
        for number in (0, 1):
            world.change("t", replicated(BROKER, 4), number)
        await world.settle()
        assert all(one.is_closed for one in leader.far.connections)


@in_virtual_time
async def test_a_leader_that_listens_elsewhere_is_asked_there_for_both_lanes_partitions() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, bulk = await in_bulk_lane(leader)
        world.decide(registered(OTHER, 21))
        assert named(await leader.asked_once()) == {0: 4, 1: 0}
        assert quick.connection.is_closed
        assert bulk.connection.is_closed


@in_virtual_time
async def test_a_partition_is_fetched_for_if_there_is_no_second_connection_to_be_had() -> None:
    """The leader may be at its `max.connections`, or out of descriptors."""
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        await leader.asked_once()
        leader.far.is_refusing = True
        for offset in range(0, 10, 2):
            await asyncio.sleep(1)
            await answered(leader, 2, offset=offset)
        assert end_offsets(world) == [10, 0]
        assert len(leader.far.connections) == 1
        assert leader.far.attempts > 2


@in_virtual_time
async def test_a_bulk_lane_that_breaks_gives_its_partitions_back() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, bulk = await in_bulk_lane(leader)
        leader.far.is_refusing = True
        leader.unanswered.remove(bulk)
        bulk.connection.close()
        leader.answer()
        assert {0: 4} in [named(one) for one in await leader.asked()]
        assert leader.unanswered[-1].connection is quick.connection
        assert world.lost == []


@in_virtual_time
async def test_a_lane_without_partitions_has_lost_nobody() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        quick, _ = await in_bulk_lane(leader)
        world.change("t", replicated(BROKER, 4), 1)  # The quick lane has nobody now.
        await leader.asked()
        quick.connection.close()
        await asyncio.sleep(5)
        assert world.lost == []


@in_virtual_time
async def test_a_lane_whose_session_ended_with_its_last_partition_hopes_for_another() -> None:
    async with followed(2, broker_settings=TWO_ARE_BULK) as (world, leader):
        await in_bulk_lane(leader)
        world.change("t", replicated(BROKER, 4), 1)
        (request,) = await leader.asked()
        assert forgotten(request) == [1]
        # That 0 is forgotten, and that 1 is: there is no session without partitions.
        leader.unanswered.sort(key=lambda one: 0 in named(one.request))
        leader.answer()
        leader.answer(session_id=0)
        await small_answers(leader, LULLS, offset=4)
        request = leader.unanswered[-1].request
        assert (named(request), request.session_epoch) == ({0: 4 + LULLS}, 0)
        assert request.max_wait_ms == 0  # It is not parked, for it may get a session.


@in_virtual_time
async def test_sessions_that_a_lane_leaves_are_closed() -> None:
    """Each answer of the busy partition is flushed, and meanwhile its lane has nobody."""
    settings = {"flush.messages": "1"}
    async with followed(2, settings=settings, broker_settings=TWO_ARE_BULK) as (_, leader):
        cache = FetchSessionCache(slots_max=1_000, partitions_max=10**6, chance=Random(1))
        sessions: dict[int, int] = {}
        offset = 0
        for _ in range(60):
            for request in await leader.asked():
                at_leader = cache.open(
                    session_id=request.session_id,
                    session_epoch=request.session_epoch,
                    topics=request.topics,
                    forgotten=request.forgotten,
                    uses_topic_ids=True,
                    privileged=True,
                    now_ms=0,
                )
                assert isinstance(at_leader, Opened)
                sessions[id(request)] = at_leader.fetch.session_id
            # In the order of each connection, and the one that names the busy partition last.
            leader.unanswered.sort(key=lambda one: 0 in named(one.request))
            for one in list(leader.unanswered):
                if 0 in named(one.request):
                    result = answer(records(2, offset=offset, epoch=3))
                    leader.answer(result, session_id=sessions[id(one.request)])
                    offset += 2
                elif forgotten(one.request):
                    leader.answer(session_id=sessions[id(one.request)])
                else:
                    leader.unanswered.append(leader.unanswered.pop(0))
        assert offset > 40
        assert len(cache) <= 3


@in_virtual_time
async def test_a_partition_that_was_moved_away_is_followed_no_more() -> None:
    async with followed(1) as (world, leader):
        await opened(leader)
        moved = replace(replicated(OTHER, 4), replicas=(OTHER, BrokerId(3)), isr=(OTHER,))
        world.decide(PartitionChanged("t", 0, moved))
        await world.settle()
        assert leader.far.connection.is_closed


@in_virtual_time
async def test_more_fetchers_share_the_partitions_while_the_broker_runs() -> None:
    """P1: `num.replica.fetchers` is dynamic, for all brokers or for one."""
    async with followed(2) as (world, leader):
        assert named(await leader.asked_once()) == {0: 0, 1: 0}
        first = leader.far.connection
        world.decide(BrokerConfigChanged(None, {"num.replica.fetchers": "2"}))
        asked = await leader.asked()
        assert len(leader.far.connections) == 2
        (moved,) = [one for one in leader.unanswered if one.connection is not first]
        assert len(named(moved.request)) == 1
        assert moved.request in asked
        world.decide(BrokerConfigChanged(BROKER, {"num.replica.fetchers": "1"}))
        await leader.asked()
        assert [one.is_closed for one in leader.far.connections] == [False, True]


@in_virtual_time
async def test_a_setting_that_is_none_of_theirs_leaves_fetchers_alone() -> None:
    async with followed(2) as (world, leader):
        await leader.asked_once()
        world.decide(BrokerConfigChanged(None, {"log.retention.ms": "1234"}))
        assert await leader.asked() == []
