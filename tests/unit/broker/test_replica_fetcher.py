"""Fetching from one leader for many partitions: little is said twice, nothing is said wrongly (R2).

The leader is the test.
"""

import asyncio

import pytest

from tests.unit.broker.followed import answer, follower_of, records
from tests.unit.broker.played_leader import (
    SESSION,
    Leader,
    followed,
    forgotten,
    named,
    opened,
    registered,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, broker_world, replicated
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import BrokerId
from tidelog.broker.replica_fetcher import FIRST_REST_MS
from tidelog.core.controller.changes import BrokerGone

THIRD = BrokerId(3)
BACKOFF_S = 1.0


# -- what is said --------------------------------------------------------------------------------


@in_virtual_time
async def test_only_requests_of_a_session_are_parked() -> None:
    """Within a session, what has changed can be said at any time."""
    async with followed(2) as (world, leader):
        longest_ms = world.config.replication.replica_fetch_wait_max_ms
        assert (await leader.asked_once()).max_wait_ms == 0
        leader.answer()
        assert (await leader.asked_once()).max_wait_ms == longest_ms
        leader.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        assert (await leader.asked_once()).max_wait_ms == 0
        leader.answer(session_id=0)  # It has no room; asking at once for ever would wear it out.
        assert (await leader.asked_once()).max_wait_ms == longest_ms


@in_virtual_time
async def test_the_first_request_names_everything_and_opens_a_session() -> None:
    async with followed(3) as (world, leader):
        request = await leader.asked_once()
        assert named(request) == {0: 0, 1: 0, 2: 0}
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert (request.replica_id, request.replica_epoch) == (BROKER, 1)
        replication = world.config.replication
        assert request.max_wait_ms == 0
        assert request.min_bytes == replication.replica_fetch_min_bytes
        assert request.max_bytes == replication.tidelog_replica_fetch_answer_bytes
        ((_, topic_id, (first, *_)),) = request.topics
        assert topic_id == world.image.topics["t"].topic_id.bytes
        assert (first.current_leader_epoch, first.last_fetched_epoch) == (3, -1)
        assert first.max_bytes == replication.replica_fetch_max_bytes


@in_virtual_time
async def test_later_requests_name_only_what_has_changed() -> None:
    async with followed(3) as (world, leader):
        await leader.asked_once()
        leader.answer(answer(records(2, offset=0, epoch=3), partition=1, high_watermark=1))
        request = await leader.asked_once()
        assert (request.session_id, request.session_epoch) == (SESSION, 1)
        assert named(request) == {1: 2}
        assert forgotten(request) == []
        leader.answer()
        request = await leader.asked_once()
        assert (request.session_epoch, named(request)) == (2, {})
        leader.answer(answer(partition=1, high_watermark=2))
        request = await leader.asked_once()
        assert (request.session_epoch, named(request)) == (3, {})
        assert world.runner("t", 1).high_watermark == 2


@in_virtual_time
async def test_the_next_request_leaves_before_anything_else_happens() -> None:
    """A turn of the loop is milliseconds under load, and producers wait for followers. I2"""
    async with followed(1) as (_, leader):
        await opened(leader)
        leader.answer(answer(records(1, offset=0, epoch=3)))
        assert len(leader.far.connection.requests()) == 1


@in_virtual_time
async def test_a_partition_whose_log_is_worked_on_leaves_the_session_until_it_is_ready() -> None:
    async with followed(2, settings={"internal.segment.bytes": "150"}) as (world, leader):
        await opened(leader)
        world.executor.hold(URGENT)
        leader.answer(answer(records(2, offset=0, epoch=3)))
        request = await leader.asked_once()
        assert (named(request), forgotten(request)) == ({}, [0])
        leader.answer()
        assert (named(await leader.asked_once())) == {}
        world.executor.release(URGENT)
        request = await leader.asked_once()
        assert (named(request), forgotten(request)) == ({0: 2}, [])


@in_virtual_time
async def test_a_partition_that_is_led_elsewhere_is_forgotten() -> None:
    async with followed(2) as (world, leader):
        await opened(leader)
        world.change("t", replicated(BROKER, 4), 1)
        request = await leader.asked_once()
        assert (named(request), forgotten(request)) == ({}, [1])


@in_virtual_time
async def test_a_new_leader_epoch_is_told_to_the_same_leader() -> None:
    async with followed(2) as (world, leader):
        await opened(leader)
        world.change("t", replicated(OTHER, 4), 1)
        request = await leader.asked_once()
        assert named(request) == {1: 0}
        assert request.topics[0][2][0].current_leader_epoch == 4


# -- sessions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
@in_virtual_time
async def test_a_session_that_the_leader_has_forgotten_is_opened_anew(code: ErrorCode) -> None:
    async with followed(2) as (_world, leader):
        await opened(leader)
        leader.answer(error=code, session_id=0)
        request = await leader.asked_once()
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert named(request) == {0: 0, 1: 0}
        leader.answer(session_id=SESSION + 1)
        request = await leader.asked_once()
        assert (request.session_id, request.session_epoch) == (SESSION + 1, 1)
        assert named(request) == {}


@in_virtual_time
async def test_a_leader_without_room_for_sessions_is_told_everything_every_time() -> None:
    async with followed(2) as (world, leader):
        await leader.asked_once()
        for end in (1, 2):
            leader.answer(answer(records(1, offset=end - 1, epoch=3)), session_id=0)
            request = await leader.asked_once()
            assert (request.session_id, request.session_epoch) == (0, 0)
            assert named(request) == {0: end, 1: 0}
        assert world.runner("t").log.log_end_offset == 2


@in_virtual_time
async def test_after_a_lost_connection_there_is_a_rest_and_a_new_session() -> None:
    async with followed(2) as (_world, leader):
        await opened(leader)
        leader.far.connection.close()
        assert await leader.asked() == []
        await asyncio.sleep(FIRST_REST_MS / 1_000)
        request = await leader.asked_once()
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert named(request) == {0: 0, 1: 0}


@in_virtual_time
async def test_a_leader_that_cannot_be_reached_is_tried_once_in_a_while() -> None:
    async with broker_world() as world:
        leader = Leader(world)
        leader.far.is_refusing = True
        world.decide(registered(OTHER, 20))
        world.create("t", state=replicated(OTHER, 3))
        await world.settle()
        await asyncio.sleep(10 * BACKOFF_S)
        # A few times at first, then every `replica.fetch.backoff.ms`.
        assert 11 <= leader.far.attempts <= 15
        leader.far.is_refusing = False
        await asyncio.sleep(2 * BACKOFF_S)
        assert named(await leader.asked_once()) == {0: 0}
        world.replicas.stop_fetching()


@in_virtual_time
async def test_a_leader_that_is_silent_for_too_long_is_given_up() -> None:
    async with followed() as (world, leader):
        leader.far.timeout_ms = 1_000
        world.decide(registered(OTHER, 21))
        await opened(leader)
        await asyncio.sleep(1 + FIRST_REST_MS / 1_000 + 0.1)
        (request,) = await leader.asked()
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert len(leader.far.connections) == 2


@in_virtual_time
async def test_an_answer_that_is_none_costs_the_session_and_a_rest() -> None:
    async with followed() as (world, leader):
        await opened(leader)
        header = leader.unanswered[0].header
        leader.far.connection.send(
            b"\x00\x00\x00\x06" + header.correlation_id.to_bytes(4, "big") + b"\x00\xff"
        )
        assert await leader.asked() == []
        await asyncio.sleep(BACKOFF_S + 0.1)
        assert named(await leader.asked_once()) == {0: 0}
        assert world.runner("t").log.log_end_offset == 0


@in_virtual_time
async def test_what_nobody_asked_for_in_an_answer_is_passed_over() -> None:
    async with followed() as (world, leader):
        await opened(leader)
        leader.answer(answer(records(1, offset=0, epoch=3), partition=9))
        request = await leader.asked_once()
        assert named(request) == {}
        leader.answer(answer(records(1, offset=0, epoch=3)), topic_id=bytes(16))
        request = await leader.asked_once()
        assert named(request) == {}
        assert world.runner("t").log.log_end_offset == 0


# -- errors --------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_partition_that_got_an_error_rests_and_others_do_not() -> None:
    async with followed(2) as (_world, leader):
        await opened(leader)
        refused = answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, log_start=-1, high_watermark=-1)
        leader.answer(refused)
        request = await leader.asked_once()
        assert (named(request), forgotten(request)) == ({}, [0])
        leader.answer(answer(records(1, offset=0, epoch=3), partition=1))
        assert named(await leader.asked_once()) == {1: 1}
        await asyncio.sleep(FIRST_REST_MS / 1_000)
        request = await leader.asked_once()
        assert (named(request), forgotten(request)) == ({0: 0}, [])


@in_virtual_time
async def test_a_partition_that_is_refused_again_and_again_rests_longer_and_longer() -> None:
    async with followed() as (_world, leader):
        await leader.asked_once()
        rests_ms = []
        for _ in range(10):
            leader.answer(answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
            rests_ms.append(await until_asked(leader))
        assert rests_ms == [5, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]
        leader.answer(answer(records(1, offset=0, epoch=3)))  # The next error is another one.
        await leader.asked_once()
        leader.answer(answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert await until_asked(leader) == 5


async def until_asked(leader: Leader) -> int:
    """How many milliseconds it takes."""
    waited_ms = 0
    while not await leader.asked():
        await asyncio.sleep(0.001)
        waited_ms += 1
    return waited_ms


@in_virtual_time
async def test_a_new_leader_epoch_ends_a_rest() -> None:
    async with followed(2) as (world, leader):
        await opened(leader)
        leader.answer(answer(error=ErrorCode.UNKNOWN_LEADER_EPOCH))
        assert forgotten(await leader.asked_once()) == [0]
        world.change("t", replicated(OTHER, 4))
        assert named(await leader.asked_once()) == {0: 0}


@in_virtual_time
async def test_nothing_is_asked_while_nothing_can_be_fetched() -> None:
    async with followed() as (world, leader):
        await opened(leader)
        leader.answer(answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert await leader.asked() == []
        loop = asyncio.get_running_loop()
        before = loop.time()
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert loop.time() == before
        assert await leader.asked() == []
        await asyncio.sleep(BACKOFF_S + 0.1)
        request = await leader.asked_once()
        assert (request.session_id, request.session_epoch) == (SESSION, 0)
        assert named(request) == {0: 0}
        leader.answer(answer(records(1, offset=0, epoch=3)))
        await leader.asked_once()
        assert world.runner("t").log.log_end_offset == 1


# -- two at a time -------------------------------------------------------------------------------


@in_virtual_time
async def test_news_do_not_wait_for_a_parked_fetch_and_two_are_enough() -> None:
    async with followed(3) as (world, leader):
        await opened(leader)
        world.change("t", replicated(OTHER, 4), 0)
        request = await leader.asked_once()
        assert (request.session_epoch, named(request)) == (2, {0: 0})
        world.change("t", replicated(OTHER, 4), 1)
        assert await leader.asked() == []
        leader.answer()
        request = await leader.asked_once()
        assert (request.session_epoch, named(request)) == (3, {1: 0})


@in_virtual_time
async def test_an_answer_counts_only_for_what_was_asked_before_it() -> None:
    """I3. Under another leader epoch the same offsets can hold other records."""
    async with followed(2) as (world, leader):
        await opened(leader)
        world.change("t", replicated(OTHER, 4), 0)
        await leader.asked_once()
        leader.answer(
            answer(records(1, offset=0, epoch=3)),
            answer(records(1, offset=0, epoch=3), partition=1),
        )
        assert named(await leader.asked_once()) == {1: 1}
        assert world.runner("t", 0).log.log_end_offset == 0
        assert world.runner("t", 1).log.log_end_offset == 1
        leader.answer(answer(records(1, offset=0, epoch=4)))
        assert named(await leader.asked_once()) == {0: 1}
        assert world.runner("t", 0).log.log_end_offset == 1


@in_virtual_time
async def test_a_second_request_waits_until_there_is_a_session() -> None:
    async with followed(2) as (world, leader):
        assert named(await leader.asked_once()) == {0: 0, 1: 0}
        world.change("t", replicated(OTHER, 4), 0)
        assert await leader.asked() == []
        leader.answer()
        request = await leader.asked_once()
        assert (request.session_id, named(request)) == (SESSION, {0: 0})


@in_virtual_time
async def test_the_leader_is_told_of_a_partition_that_left_before_another_one_comes() -> None:
    """Otherwise it would send the same records of it again and again, and never park."""
    async with followed(2) as (world, leader):
        await opened(leader)
        leader.answer(answer(error=ErrorCode.UNKNOWN_LEADER_EPOCH, partition=1))
        assert forgotten(await leader.asked_once()) == [1]
        world.change("t", replicated(BROKER, 4), 0)
        assert forgotten(await leader.asked_once()) == [0]
        leader.answer()
        await asyncio.sleep(BACKOFF_S + 0.1)
        request = await leader.asked_once()
        assert (request.session_id, named(request)) == (SESSION, {1: 0})


# -- many leaders --------------------------------------------------------------------------------


@in_virtual_time
async def test_a_broker_that_listens_elsewhere_is_reached_there() -> None:
    async with followed(2) as (world, leader):
        await opened(leader)
        first = leader.far.connection
        world.decide(registered(OTHER, 21))
        request = await leader.asked_once()
        assert named(request) == {0: 0, 1: 0}
        assert first.is_closed
        assert world.looked_for == [OTHER, OTHER]


@in_virtual_time
async def test_a_leader_nobody_knows_the_address_of_is_fetched_from_once_somebody_does() -> None:
    async with broker_world() as world:
        world.create("t", state=replicated(OTHER, 3))
        await world.settle()
        assert world.looked_for == [OTHER]
        leader = Leader(world)
        world.decide(registered(OTHER, 20))
        assert named(await leader.asked_once()) == {0: 0}
        world.far_end = None
        world.decide(BrokerGone(OTHER))
        await world.settle()
        assert leader.far.connection.is_closed
        world.change("t", replicated(BROKER, 4))
        await world.settle()
        world.far_end = leader.far
        world.decide(registered(OTHER, 22))
        assert await leader.asked() == []  # Nothing is fetched from it any more.
        world.replicas.stop_fetching()


@in_virtual_time
async def test_a_fetcher_without_partitions_ends() -> None:
    async with followed(2) as (world, leader):
        await opened(leader)
        for number in range(2):
            world.change("t", replicated(BROKER, 4), number)
        await world.settle()
        assert leader.far.connection.is_closed
        assert world.replicas.stop_fetching() == []


@in_virtual_time
async def test_num_replica_fetchers_share_the_partitions_of_a_leader() -> None:
    async with broker_world(settings={"num.replica.fetchers": "3"}) as world:
        leader = Leader(world)
        world.decide(registered(OTHER, 20))
        world.create("t", partitions=7, state=replicated(OTHER, 3))
        requests = await leader.asked()
        assert len(leader.far.connections) == 3
        assert sorted(one for request in requests for one in named(request)) == list(range(7))
        assert max(len(named(request)) for request in requests) == 3
        world.replicas.stop_fetching()


@in_virtual_time
async def test_a_follower_that_goes_to_another_leader_is_fetched_for_there_alone() -> None:
    async with followed(1) as (world, leader):
        await opened(leader)
        first = leader.far.connection
        world.decide(registered(THIRD, 30))
        world.change("t", replicated(THIRD, 4))
        assert named(await leader.asked_once()) == {0: 0}
        assert first.is_closed
        assert world.looked_for == [OTHER, THIRD]
        assert follower_of(world).machine.leader == THIRD


@in_virtual_time
async def test_when_all_are_stopped_nothing_is_appended_any_more() -> None:
    async with followed(1) as (world, leader):
        await opened(leader)
        stopped = world.replicas.stop_fetching()
        await asyncio.wait(stopped)
        assert leader.far.connection.is_closed
        assert all(task.cancelled() for task in stopped)
