"""Roles that a controller gives: taken in order, begun when the last one has ended (C3, C4, R3)."""

import asyncio
from uuid import UUID

import pytest

from tests.support.batches import idempotent_batch, plain_batch
from tests.unit.broker.followed import answer, follower_of, records, take
from tests.unit.broker.served import served_world
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import (
    BROKER,
    OTHER,
    Produced,
    World,
    broker_world,
    replicated,
    topic_partition,
)
from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_BROKER, LeaderEpoch, Offset, TopicId
from tidelog.broker.replicas import Role, StoppedRole
from tidelog.core.controller.changes import BrokerGone, BrokerRegistered
from tidelog.core.controller.image import BrokerImage, Endpoint, LastStop
from tidelog.core.partition.effects import ProposeIsr
from tidelog.core.partition.leader import REFUSED_ISR_RETRY_MS

ALL = -1
OTHER_EPOCH = 20
T0 = topic_partition("t")


async def replicated_world(world: World, epoch: int = 0, **config: str) -> None:
    """This broker leads and another one follows it."""
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "other", 9092)
    world.decide(
        BrokerRegistered(BrokerImage(OTHER, OTHER_EPOCH, (endpoint,), None, LastStop.CLEAN))
    )
    named = {name.replace("_", "."): value for name, value in config.items()}
    world.create("t", config=named, state=replicated(BROKER, epoch))
    await world.settle()


async def become(world: World, state_leader: int, epoch: int) -> None:
    world.change("t", replicated(BROKER if state_leader == BROKER else OTHER, epoch))
    await world.settle()


def fetch(
    world: World, offset: int, *, broker_epoch: int = OTHER_EPOCH, log_start: int = 0
) -> None:
    """The other broker asks for what comes after `offset`."""
    world.runner("t").on_follower_fetch(
        OTHER,
        broker_epoch=broker_epoch,
        fetch_offset=Offset(offset),
        log_start_offset=Offset(log_start),
    )


async def led_world(world: World) -> Produced:
    """A batch that the other broker does not have yet, and an acks=all producer who waits."""
    await replicated_world(world)
    waiting = world.produce("t", plain_batch(1), acks=ALL)
    assert not waiting.is_settled
    return waiting


# -- leading -------------------------------------------------------------------------------------


@in_virtual_time
async def test_an_epoch_begins_at_the_election() -> None:
    """Before anything is written in it, so that a follower can learn what is not here (KIP-101)."""
    async with broker_world() as world:
        await replicated_world(world, 4)
        runner = world.runner("t")
        assert runner.epochs.latest_epoch == 4
        world.produce("t", plain_batch(3))
        await become(world, BROKER, 6)
        assert runner.epochs.entries == ((4, 0), (6, 3))


@in_virtual_time
async def test_an_epoch_is_written_down_when_its_first_record_is_flushed() -> None:
    async with broker_world() as world:
        await replicated_world(world, 4)
        runner = world.runner("t")
        world.produce("t", plain_batch(3))
        await become(world, BROKER, 6)
        checkpoint = runner.log.folder / "leader-epoch-checkpoint"
        await runner.flusher.start()
        assert world.memory_disk.read_file(checkpoint).decode().split() == ["0", "1", "4", "0"]
        world.produce("t", plain_batch(1))
        await runner.flusher.start()
        written = world.memory_disk.read_file(checkpoint).decode().split()
        assert written == ["0", "2", "4", "0", "6", "3"]


@in_virtual_time
async def test_an_epoch_without_records_is_not_written_down_when_records_are_deleted() -> None:
    async with broker_world() as world:
        await replicated_world(world, 4)
        runner = world.runner("t")
        world.produce("t", plain_batch(3))
        fetch(world, 3)
        await become(world, BROKER, 6)
        fetch(world, 3)
        await runner.delete_records(Offset(2))
        await world.settle()
        assert runner.epochs.entries == ((4, 2), (6, 3))
        written = world.memory_disk.read_file(runner.log.folder / "leader-epoch-checkpoint")
        assert written.decode().split() == ["0", "1", "4", "2"]


@in_virtual_time
async def test_acks_all_is_answered_when_the_followers_have_it() -> None:
    async with broker_world() as world:
        waiting = await led_world(world)
        assert world.stored_offsets("t") == []
        fetch(world, 0)
        assert not waiting.is_settled
        fetch(world, 1)
        assert waiting.code == ErrorCode.NONE
        assert world.stored_offsets("t") == [0]


@in_virtual_time
async def test_acks_one_waits_for_nobody() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        assert world.produce("t", plain_batch(1), acks=1).code == ErrorCode.NONE
        assert world.stored_offsets("t") == []


@in_virtual_time
async def test_a_parked_fetch_hears_of_what_the_followers_have() -> None:
    async with served_world() as served:
        world = served.world
        await replicated_world(world)
        client = served.client()
        client.fetch({("t", 0): 0}, max_wait_ms=60_000)
        world.produce("t", plain_batch(1), acks=1)
        await world.settle()
        assert client.take() == []
        fetch(world, 1)
        await world.settle()
        assert client.fetched().offsets() == [0]


@in_virtual_time
async def test_a_follower_that_stays_away_is_proposed_to_leave_and_then_not_waited_for() -> None:
    async with broker_world() as world:
        waiting = await led_world(world)
        world.clock.advance(world.config.replication.replica_lag_time_max_ms + 1)
        await world.upkeep.look_after_in_sync_sets()
        ((runner, proposal),) = world.proposed
        assert runner is world.runner("t")
        assert proposal == ProposeIsr(frozenset({BROKER}), {}, LeaderEpoch(0), 0)
        assert not waiting.is_settled
        runner.on_isr_changed(proposal.isr, version=1)
        assert waiting.code == ErrorCode.NONE


@in_virtual_time
async def test_a_follower_that_has_caught_up_is_proposed_to_join() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        world.change("t", replicated(BROKER, 1, isr=(BROKER,)))
        await world.settle()
        world.produce("t", plain_batch(1), acks=1)
        fetch(world, 0)
        assert world.proposed == []
        fetch(world, 1, broker_epoch=OTHER_EPOCH - 1)
        assert world.proposed == []  # From an earlier life of that broker.
        fetch(world, 1)
        ((runner, proposal),) = world.proposed
        both = frozenset({BROKER, OTHER})
        assert proposal == ProposeIsr(both, {OTHER: OTHER_EPOCH}, LeaderEpoch(1), 1)
        runner.on_isr_refused(ProposeIsr(both, {}, LeaderEpoch(1), 0))  # To an older one.
        fetch(world, 1)
        assert len(world.proposed) == 1
        runner.on_isr_refused(proposal)
        world.clock.advance(REFUSED_ISR_RETRY_MS)
        fetch(world, 1)
        assert [one for _, one in world.proposed] == [proposal, proposal]


@in_virtual_time
async def test_a_role_of_the_same_epoch_changes_the_isr_and_nothing_else() -> None:
    async with broker_world() as world:
        waiting = await led_world(world)
        leader = world.runner("t").leader
        world.change("t", replicated(BROKER, 0, isr=(BROKER,), partition_epoch=1))
        await world.settle()
        assert world.runner("t").leader is leader
        assert waiting.code == ErrorCode.NONE


@in_virtual_time
async def test_who_leads_on_in_a_new_epoch_keeps_those_who_wait() -> None:
    async with broker_world() as world:
        waiting = await led_world(world)
        await become(world, BROKER, 1)
        assert not waiting.is_settled
        fetch(world, 1)
        assert waiting.code == ErrorCode.NONE


# -- deleting records ------------------------------------------------------------------------------


async def deleted_world(world: World) -> "asyncio.Future[None]":
    """What was deleted here and not yet by the other broker."""
    await replicated_world(world)
    world.produce("t", plain_batch(3))
    fetch(world, 3)
    runner = world.runner("t")
    assert await runner.delete_records(Offset(-1)) == 3
    deleted = runner.until_deleted(Offset(3))
    await world.settle()
    assert not deleted.done()
    assert runner.low_watermark == 0
    return deleted


@in_virtual_time
async def test_records_are_deleted_when_the_followers_say_so() -> None:
    async with broker_world() as world:
        deleted = await deleted_world(world)
        fetch(world, 3, log_start=2)
        assert not deleted.done()
        fetch(world, 3, log_start=3)
        assert deleted.done()
        assert world.runner("t").low_watermark == 3


@in_virtual_time
async def test_the_dead_delete_nothing_and_are_not_waited_for() -> None:
    async with broker_world() as world:
        deleted = await deleted_world(world)
        world.decide(BrokerGone(OTHER))
        assert deleted.done()
        assert world.runner("t").low_watermark == 3


@pytest.mark.parametrize("is_offline", [True, False])
@in_virtual_time
async def test_whoever_waits_for_a_deletion_is_refused_when_the_leadership_ends(
    is_offline: bool,
) -> None:
    async with broker_world() as world:
        deleted = await deleted_world(world)
        if is_offline:
            world.log_dir.on_failure(StorageError("test"))
        else:
            await become(world, OTHER, 1)
        await world.settle()
        assert deleted.done()
        with pytest.raises(RequestRefused):
            _ = world.runner("t").low_watermark


# -- the end of leading --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "claimed_epoch", "code"),
    [
        (OTHER, 0, ErrorCode.FENCED_LEADER_EPOCH),
        (NO_BROKER, -1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
@in_virtual_time
async def test_whoever_waits_is_refused_when_the_leadership_ends(
    leader: int, claimed_epoch: int, code: ErrorCode
) -> None:
    async with served_world() as served:
        world = served.world
        waiting = await led_world(world)
        client = served.client()
        client.fetch({("t", 0): 0}, max_wait_ms=60_000, leader_epoch=claimed_epoch)
        state = replicated(OTHER, 1)
        world.change("t", state if leader == OTHER else replicated(NO_BROKER, 1))
        await world.settle()
        assert waiting.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert client.fetched().partitions["t", 0].code == code
        late = world.produce("t", plain_batch(1))
        assert late.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.runner("t").log.log_end_offset == 1


@in_virtual_time
async def test_a_batch_that_is_being_flushed_is_refused_at_once_when_the_leadership_ends() -> None:
    """By the time it is flushed this broker may lead again, without that batch."""
    async with broker_world() as world:
        await replicated_world(world, flush_messages="1")
        world.executor.hold(BACKGROUND)
        waiting = [world.produce("t", plain_batch(1), acks=acks) for acks in (1, ALL)]
        await become(world, OTHER, 1)
        codes = {one.code for one in waiting}
        assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        world.executor.release(BACKGROUND)
        await world.settle()


@in_virtual_time
async def test_flush_messages_after_a_truncation_asks_for_the_new_end() -> None:
    async with broker_world() as world:
        await replicated_world(world, flush_messages="1")
        for _ in range(3):
            world.produce("t", plain_batch(1), acks=1)
        await become(world, OTHER, 1)
        take(world, answer(diverging=(0, 1)))
        await world.settle()
        await become(world, BROKER, 2)
        world.executor.hold(BACKGROUND)
        produced = world.produce("t", plain_batch(1), acks=1)
        assert not produced.is_settled
        world.executor.release(BACKGROUND)
        await world.settle()
        assert produced.base_offset == 1


@in_virtual_time
async def test_a_repeated_batch_that_was_cut_off_meanwhile_is_written_again() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        first = world.produce("t", idempotent_batch(), acks=ALL)
        await become(world, OTHER, 1)
        assert first.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        take(world, answer(diverging=(0, 0)))
        await world.settle()
        take(world, answer(records(1, offset=0, epoch=1)))
        await become(world, BROKER, 2)
        again = world.produce("t", idempotent_batch(), acks=1)
        assert again.base_offset == 1


# -- from one role to the next -------------------------------------------------------------------


@in_virtual_time
async def test_a_follower_is_told_of_the_next_leader_and_goes_on() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        follower = follower_of(world)
        await become(world, OTHER, 2)
        assert follower_of(world) is follower
        assert follower.machine.leader_epoch == 2
        assert not follower.is_stopped


@in_virtual_time
async def test_who_has_followed_leads_with_its_log_and_high_watermark() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        take(world, answer(records(3, offset=0, epoch=1), high_watermark=2))
        follower = follower_of(world)
        await become(world, BROKER, 2)
        assert follower.is_stopped
        runner = world.runner("t")
        assert runner.follower is None
        assert (runner.high_watermark, runner.leading.log_end_offset) == (2, 3)
        assert runner.leading.epoch_start_offset == 3
        fetch(world, 3)
        assert runner.high_watermark == 3


@in_virtual_time
async def test_leading_waits_for_a_truncation_that_is_under_way() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        take(world, answer(records(3, offset=0, epoch=0), high_watermark=1))
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        await become(world, BROKER, 2)
        runner = world.runner("t")
        assert runner.leader is None
        early = world.produce("t", plain_batch(1))
        assert early.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.executor.release(BACKGROUND)
        await world.settle()
        assert runner.leading.log_end_offset == 2
        assert runner.epochs.entries == ((0, 0), (2, 2))
        assert world.produce("t", plain_batch(1), acks=1).base_offset == 2


@in_virtual_time
async def test_only_the_last_of_several_roles_is_begun_after_a_truncation() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        take(world, answer(records(3, offset=0, epoch=0)))
        before = follower_of(world)
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        await become(world, BROKER, 2)
        looked_for = len(world.looked_for)
        await become(world, OTHER, 3)
        world.executor.release(BACKGROUND)
        await world.settle()
        assert world.runner("t").leader is None
        assert world.runner("t").epochs.entries == ((0, 0),)
        assert follower_of(world) is not before
        assert follower_of(world).position == (3, 2, 0, 0)
        assert len(world.looked_for) > looked_for  # It is fetched for.


@in_virtual_time
async def test_a_truncation_outlives_the_session_and_not_the_next_role() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        take(world, answer(records(3, offset=0, epoch=0)))
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        world.decide(BrokerGone(BROKER))
        world.executor.release(BACKGROUND)
        await world.settle()
        runner = world.runner("t")
        assert (runner.leader, runner.follower, runner.leader_epoch) == (None, None, -1)
        assert runner.log.log_end_offset == 2
        assert runner.epochs.entries == ((0, 0),)


@in_virtual_time
async def test_a_follower_waits_for_a_roll_that_was_begun_as_leader() -> None:
    async with broker_world() as world:
        await replicated_world(world, internal_segment_bytes="150")
        world.produce("t", plain_batch(1), acks=1)
        world.executor.hold(URGENT)
        waiting = world.produce("t", plain_batch(1), acks=1)
        await become(world, OTHER, 1)
        assert not follower_of(world).may_fetch
        ready: list[object] = []
        follower_of(world).on_ready = ready.append
        world.executor.release(URGENT)
        await world.settle()
        assert waiting.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ready == [follower_of(world)]
        assert follower_of(world).may_fetch


@pytest.mark.parametrize(
    "config",
    [{"cleanup_policy": "compact"}, {"tidelog_dedup_header": "key"}],
    ids=["keys are looked at", "ids are read"],
)
@in_virtual_time
async def test_a_follower_fetches_when_what_it_began_as_leader_has_ended(
    config: dict[str, str],
) -> None:
    """Whatever that was: nobody else would tell the one who fetches."""
    async with broker_world() as world:
        await replicated_world(world, 0, **config)
        world.executor.hold(URGENT)
        world.executor.hold(BACKGROUND)
        waiting = world.produce("t", plain_batch(1), acks=1)
        await become(world, OTHER, 1)
        assert not follower_of(world).may_fetch
        ready: list[object] = []
        follower_of(world).on_ready = ready.append
        world.executor.release(URGENT)
        world.executor.release(BACKGROUND)
        await world.settle()
        assert waiting.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ready == [follower_of(world)]
        assert follower_of(world).may_fetch


@pytest.mark.parametrize("is_cut", [False, True])
@in_virtual_time
async def test_retention_leaves_a_log_alone_that_is_cut_meanwhile(is_cut: bool) -> None:
    async with broker_world() as world:
        await replicated_world(world, internal_segment_bytes="150", retention_ms="1")
        await become(world, OTHER, 1)
        sent = records(2, offset=0, epoch=0) + records(3, offset=2, epoch=1)
        take(world, answer(sent, high_watermark=5))
        await world.settle()
        world.clock.advance(86_400_000)
        world.executor.hold(BACKGROUND)
        runner = world.runner("t")
        expiring = asyncio.create_task(runner.enforce_retention(world.clock.now_ms()))
        await world.settle()
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        world.executor.step(BACKGROUND)  # What is expired is known, and then cut off.
        if is_cut:
            world.executor.step(BACKGROUND)
        await world.settle()
        world.executor.release(BACKGROUND)
        assert await expiring == 0
        await world.settle()
        assert (runner.log.log_start_offset, runner.log.log_end_offset) == (0, 2)
        await runner.enforce_retention(world.clock.now_ms())
        assert runner.log.log_start_offset > 0


# -- which of two roles --------------------------------------------------------------------------


@in_virtual_time
async def test_an_older_role_is_no_news() -> None:
    async with broker_world() as world:
        await replicated_world(world, 3)
        topic_id = world.image.topics["t"].topic_id
        for older in (replicated(OTHER, 2), replicated(OTHER, 3)):
            await world.become({T0: Role(topic_id, older)})
            assert world.runner("t").leading.leader_epoch == 3


@in_virtual_time
async def test_a_role_that_changes_while_it_waits_is_begun_as_it_is_by_then() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        take(world, answer(records(3, offset=0, epoch=0)))
        world.executor.hold(BACKGROUND)
        take(world, answer(diverging=(0, 2)))
        await world.settle()
        await become(world, BROKER, 2)
        world.change("t", replicated(BROKER, 2, isr=(BROKER,), partition_epoch=3))
        await world.settle()
        world.executor.release(BACKGROUND)
        await world.settle()
        leader = world.runner("t").leading
        assert (leader.isr, leader.isr_version) == (frozenset({BROKER}), 3)


@in_virtual_time
async def test_a_role_that_comes_before_its_log_is_open_is_taken_when_it_is() -> None:
    async with broker_world() as world:
        world.executor.hold(URGENT)
        world.create("t", state=replicated(BROKER, 3))
        await world.settle()
        assert world.partitions.find("t", 0) is None
        world.executor.release(URGENT)
        await world.settle()
        assert world.runner("t").leading.leader_epoch == 3


@in_virtual_time
async def test_roles_of_a_directory_that_failed_are_told_as_such() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        world.log_dir.on_failure(StorageError("test"))
        role = Role(world.image.topics["t"].topic_id, replicated(BROKER, 1))
        failed = await world.replicas.become({T0: role}, {BROKER: 1})
        assert failed == {T0: ErrorCode.KAFKA_STORAGE_ERROR}


@in_virtual_time
async def test_a_follower_whose_directory_came_back_is_another_one() -> None:
    async with broker_world() as world:
        await replicated_world(world)
        await become(world, OTHER, 1)
        before = follower_of(world)
        world.log_dir.on_failure(StorageError("test"))
        await world.reopen()
        assert follower_of(world) is not before
        assert before.is_stopped
        late = answer(records(1, offset=0, epoch=1))
        before.on_answer(before.position, late)
        assert world.runner("t").log.log_end_offset == 0


@in_virtual_time
async def test_a_replica_that_is_to_end_ends() -> None:
    for delete in (False, True):
        async with broker_world() as world:
            waiting = await led_world(world)
            topic_id = world.image.topics["t"].topic_id
            older = StoppedRole(topic_id, LeaderEpoch(-1), delete)
            world.replicas.stop_replicas({T0: older})
            assert not waiting.is_settled
            another = StoppedRole(TopicId(UUID(int=5)), LeaderEpoch(9), delete)
            world.replicas.stop_replicas({T0: another})
            assert not waiting.is_settled
            world.replicas.stop_replicas({T0: StoppedRole(topic_id, LeaderEpoch(0), delete)})
            assert waiting.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            await world.settle()
            assert (world.partitions.find("t", 0) is None) == delete
