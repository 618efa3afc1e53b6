"""Partitions follow the image, whatever their topics and their disks do meanwhile (S1, S9)."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import idempotent_batch, plain_batch
from tests.unit.broker.played_leader import registered
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import BACKGROUND, URGENT
from tests.unit.broker.world import (
    BROKER,
    OTHER,
    World,
    broker_world,
    process_killed,
    replicated,
    topic_partition,
)
from tidelog.base.errors import ConfigError, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset, TopicId
from tidelog.core.controller.changes import BrokerConfigChanged, PartitionChanged

BOTH = (URGENT, BACKGROUND)


def folders(world: World, number: int = 0) -> list[str]:
    """Of partitions, whatever became of them."""
    names = world.disk.list_folder(world.log_dirs[number].path)
    return [name for name in names if name.startswith("t-")]


async def made_anew_elsewhere(world: World) -> None:
    """A partition is others', and this broker's again, while its directory is gone."""
    world.decide(registered(OTHER, 20))
    world.create("t", state=replicated(BROKER, 0))
    await world.settle()
    world.produce("t", plain_batch(3))
    world.log_dirs[0].on_failure(StorageError("test"))
    for state in (
        replace(replicated(OTHER, 1), replicas=(OTHER,), isr=(OTHER,)),
        replicated(BROKER, 2),
    ):
        world.change("t", state)
        await world.settle()


def code_of(world: World, name: str) -> ErrorCode | None:
    try:
        world.partitions.led(name, 0)
    except RequestRefused as refusal:
        return refusal.code
    return None


@in_virtual_time
async def test_a_topic_created_again_at_once_is_empty() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(3))
        world.delete("t")
        world.create("t")
        await world.replicas.settled()
        assert world.runner("t").log.log_end_offset == 0
        assert world.runner("t").topic_id == world.image.topics["t"].topic_id
        assert world.log_dir.is_online


@in_virtual_time
async def test_a_deleted_topic_is_renamed_then_removed_after_the_delay() -> None:
    async with broker_world() as world:
        world.create("t", config={"file.delete.delay.ms": "100"})
        await world.settle()
        world.delete("t")
        await world.replicas.settled()
        assert [name.endswith("-delete") for name in folders(world)] == [True]
        await pass_time(0.2)
        await world.settle()
        assert folders(world) == []


async def pass_time(seconds: float) -> None:
    """Virtual."""
    await asyncio.sleep(seconds)


@in_virtual_time
async def test_a_topic_deleted_while_it_is_being_opened_leaves_nothing() -> None:
    async with broker_world() as world:
        world.executor.hold(*BOTH)
        world.create("t", partitions=2)
        await world.settle()
        world.delete("t")
        world.executor.release(*BOTH)
        await world.settle()
        await pass_time(0.1)
        await world.settle()
        assert folders(world) == []
        assert len(world.partitions) == 0
        assert world.log_dir.is_online


@given(
    created=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    lanes=st.lists(st.sampled_from(BOTH), max_size=40),
)
def test_topics_of_one_name_come_and_go_in_any_rhythm(created: list[int], lanes: list[str]) -> None:
    """After each `created` number of steps the topic is deleted and created again."""

    @in_virtual_time
    async def scenario() -> None:
        async with broker_world() as world:
            world.executor.hold(*BOTH)
            steps = iter(lanes)
            for count in created:
                world.create("t", partitions=2)
                for _ in range(count):
                    await world.settle()
                    lane = next(steps, URGENT)
                    if world.executor.waiting(lane):
                        world.executor.step(lane)
                world.delete("t")
            world.create("t", partitions=2)
            world.executor.release(*BOTH)
            await world.replicas.settled()
            await world.settle()
            assert world.log_dir.is_online
            for number in range(2):
                runner = world.runner("t", number)
                assert runner.topic_id == world.image.topics["t"].topic_id
                assert world.produce("t", plain_batch(1), partition=number).base_offset == 0
            assert [name for name in folders(world) if "." not in name] == ["t-0", "t-1"]

    scenario()


@in_virtual_time
async def test_settings_altered_while_a_partition_is_being_opened_count() -> None:
    async with broker_world() as world:
        world.executor.hold(URGENT)
        world.create("t")
        await world.settle()
        world.configure("t", {"retention.ms": "1234"})
        world.executor.release(URGENT)
        await world.replicas.settled()
        assert world.runner("t").config.retention_ms == 1234
        assert world.runner("t").log.config.retention_ms == 1234


@in_virtual_time
async def test_producers_are_forgotten_by_the_setting_in_force() -> None:
    """P1: `producer.id.expiration.ms` is dynamic, also for partitions that are open."""
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", idempotent_batch(1, producer_id=7, base_sequence=0))
        now_ms = world.clock.now_ms()
        producers = world.runner("t").producers
        assert producers.on_tick(now_ms + 5_000) == 0
        world.decide(BrokerConfigChanged(None, {"producer.id.expiration.ms": "1000"}))
        world.decide(BrokerConfigChanged(BROKER, {"producer.id.expiration.ms": "4000"}))
        assert producers.on_tick(now_ms + 3_000) == 0
        world.decide(BrokerConfigChanged(BROKER, {}))
        assert producers.on_tick(now_ms + 3_000) == 1


@in_virtual_time
async def test_settings_that_contradict_each_other_are_named_once_and_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lag = "log.cleaner.{}.compaction.lag.ms"
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.decide(BrokerConfigChanged(BROKER, {lag.format("min"): "100"}))
        world.decide(BrokerConfigChanged(None, {lag.format("max"): "50", "log.retention.ms": "7"}))
        world.decide(BrokerConfigChanged(None, {lag.format("max"): "50", "log.retention.ms": "8"}))
        config = world.runner("t").log.config
        assert (config.min_compaction_lag_ms, config.retention_ms) == (100, 8)
        [error] = [one for one in caplog.records if one.levelname == "ERROR"]
        assert (error.setting, error.value) == (lag.format("max"), "50")  # type: ignore[attr-defined]


@in_virtual_time
async def test_a_topic_that_contradicts_what_it_inherits_keeps_what_is_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.configure("t", {"min.compaction.lag.ms": "100"})
        world.decide(BrokerConfigChanged(None, {"log.cleaner.max.compaction.lag.ms": "50"}))
        world.decide(BrokerConfigChanged(BROKER, {"max.connections": "7"}))
        assert world.runner("t").log.config.min_compaction_lag_ms == 100
        [error] = [one for one in caplog.records if one.levelname == "ERROR"]
        assert "topic t" in error.where  # type: ignore[attr-defined]


@in_virtual_time
async def test_settings_altered_while_a_directory_comes_back_count() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.log_dir.on_failure(StorageError("test"))
        await world.log_dir.release()
        world.configure("t", {"retention.ms": "1234"})
        await world.reopen()
        assert world.runner("t").log.config.retention_ms == 1234


@in_virtual_time
async def test_an_election_while_a_partition_is_being_opened_counts() -> None:
    async with broker_world() as world:
        world.executor.hold(URGENT)
        world.create("t")
        await world.settle()
        world.elect("t")
        world.executor.release(URGENT)
        await world.replicas.settled()
        assert world.runner("t").leader_epoch == 1


@in_virtual_time
async def test_creating_topics_for_ever_does_not_keep_the_first_one_waiting() -> None:

    async with broker_world() as world:
        world.executor.hold(URGENT)
        world.create("t")
        waiting = asyncio.create_task(world.replicas.settled())
        await world.settle()
        world.create("later")
        await world.settle()
        world.executor.step(URGENT)
        await world.settle()
        assert waiting.done()
        world.executor.release(URGENT)


# -- folders of other topics ---------------------------------------------------------------------


@in_virtual_time
async def test_a_deletion_lost_in_a_crash_does_not_block_its_topic_name() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(3))
        world.executor.hold(*BOTH)
        world.delete("t")
        process_killed(world)
        async with broker_world(before=world) as restarted:
            restarted.create("t")
            await restarted.replicas.settled()
            assert restarted.log_dir.is_online
            assert restarted.produce("t", plain_batch(1)).base_offset == 0
            assert len([name for name in folders(restarted) if name.endswith("-stray")]) == 1
        world.executor.release(*BOTH)


@in_virtual_time
async def test_a_partition_whose_folder_is_gone_starts_empty_and_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with broker_world() as world:
        for name in ("kept", "lost"):
            world.create(name)
        await world.settle()
        for name in ("kept", "lost"):
            world.produce(name, plain_batch(2))
        await world.stop()
        world.disk.remove_folder(world.log_dir.path / "lost-0")
        async with broker_world(before=world) as restarted:
            assert restarted.stored_offsets("kept") == [0, 1]
            assert restarted.stored_offsets("lost") == []
    [warning] = [one for one in caplog.records if "start empty" in one.message]
    assert (warning.partitions, str(warning.first)) == (1, "lost-0")  # type: ignore[attr-defined]


@in_virtual_time
async def test_a_partition_is_opened_in_the_directory_that_has_it() -> None:
    """Another directory has a folder of that name, of a topic that was deleted long ago."""
    async with broker_world(dir_count=2) as world:
        world.create("t")
        await world.settle()
        here = 0 if world.log_dirs[0].runners else 1
        there = 1 - here
        world.produce("t", plain_batch(3))
        world.disk.make_folder(world.log_dirs[there].path / "t-0")
        world.disk.replace_file(
            world.log_dirs[there].path / "t-0" / "partition.metadata",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n",
        )
        process_killed(world)
        async with broker_world(dir_count=2, before=world) as restarted:
            assert restarted.stored_offsets("t") == [0, 1, 2]
            assert all(log_dir.is_online for log_dir in restarted.log_dirs)
            assert topic_partition("t") in restarted.log_dirs[here].runners


@in_virtual_time
async def test_a_partition_that_comes_back_is_opened_where_its_folder_was_left() -> None:
    """It was moved to others and back while nobody knew yet that it was not this broker's: in the
    directory with the fewest it would be there twice, and the broker would not start again."""
    async with broker_world(dir_count=2) as world:
        world.decide(registered(OTHER, 20))
        for name in ("first", "t"):
            world.create(name, state=replicated(BROKER, 0))
            await world.settle()
        world.delete("first")
        await world.settle()
        assert topic_partition("t") in world.log_dirs[1].runners
        world.produce("t", plain_batch(3))
        process_killed(world)
        elsewhere = replace(replicated(OTHER, 1), replicas=(OTHER,), isr=(OTHER,))
        world.image = world.image.apply_all([PartitionChanged("t", 0, elsewhere)])
        async with broker_world(dir_count=2, before=world) as restarted:
            assert restarted.partitions.find("t", 0) is None
            restarted.change("t", replicated(BROKER, 2))
            await restarted.settle()
            assert topic_partition("t") in restarted.log_dirs[1].runners
            assert not restarted.disk.exists(restarted.log_dirs[0].path / "t-0")
            assert restarted.runner("t").log.log_end_offset == 3


@in_virtual_time
async def test_a_partition_made_anew_while_its_directory_was_gone_is_there_once() -> None:
    """It was others' and is this broker's again: what was to be deleted is deleted."""
    async with broker_world(dir_count=2) as world:
        await made_anew_elsewhere(world)
        assert topic_partition("t") in world.log_dirs[1].runners
        await world.reopen(world.log_dirs[0])
        await world.settle()
        assert folders(world, 0) == []
        assert folders(world, 1) == ["t-0"]


@in_virtual_time
async def test_a_folder_of_what_is_served_elsewhere_is_set_aside() -> None:
    """As the test before, but the broker was restarted meanwhile: nobody knows what was to go."""
    async with broker_world(dir_count=2) as world:
        await made_anew_elsewhere(world)
        world.log_dirs[0].doomed.clear()
        world.replicas.on_all_told(())
        await world.reopen(world.log_dirs[0])
        await world.settle()
        assert [name[-6:] for name in folders(world, 0)] == ["-stray"]
        assert folders(world, 1) == ["t-0"]


@in_virtual_time
async def test_a_partition_that_two_directories_have_stops_the_broker() -> None:
    """One of the two was served, perhaps the one that somebody had copied long ago."""
    async with broker_world(dir_count=2) as world:
        world.create("t")
        await world.settle()
        here = 0 if world.log_dirs[0].runners else 1
        copy = world.log_dirs[1 - here].path / "t-0"
        world.disk.make_folder(copy)
        metadata = world.disk.read_file(world.log_dirs[here].path / "t-0" / "partition.metadata")
        world.disk.replace_file(copy / "partition.metadata", metadata)
        process_killed(world)
        with pytest.raises(ExceptionGroup) as caught:
            async with broker_world(dir_count=2, before=world):
                pass
        assert caught.group_contains(ConfigError, match="/logs-0/t-0 and /logs-1/t-0 are the same")


@in_virtual_time
async def test_a_topic_created_elsewhere_meanwhile_is_left_alone_by_a_directory_that_returns() -> (
    None
):
    async with broker_world(dir_count=2) as world:
        world.create("t")
        await world.settle()
        here = 0 if world.log_dirs[0].runners else 1
        world.log_dirs[here].on_failure(StorageError("test"))
        world.delete("t")
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(2))
        await world.reopen(world.log_dirs[here])
        assert world.log_dirs[here].is_online
        assert world.stored_offsets("t") == [0, 1]


@in_virtual_time
async def test_a_topic_created_again_while_its_only_directory_is_offline_comes_with_it() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(3))
        world.log_dir.on_failure(StorageError("test"))
        world.delete("t")
        world.create("t")
        await world.settle()
        assert code_of(world, "t") is ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen()
        assert world.log_dir.is_online
        assert world.produce("t", plain_batch(1)).base_offset == 0


# -- directories that go and come ----------------------------------------------------------------


@in_virtual_time
async def test_a_partition_opened_while_its_directory_fails_is_not_served() -> None:
    async with broker_world() as world:
        world.executor.hold(URGENT)
        world.create("t")
        await world.settle()
        world.executor.step(URGENT)
        world.log_dir.on_failure(StorageError("test"))
        world.executor.release(URGENT)
        await world.settle()
        assert code_of(world, "t") is ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen()
        assert world.produce("t", plain_batch(1)).base_offset == 0


@in_virtual_time
async def test_a_directory_that_fails_again_while_it_comes_back_is_offline() -> None:
    for steps in range(8):
        async with broker_world() as world:
            world.create("t")
            world.create("u")
            await world.settle()
            world.produce("t", plain_batch(3))
            world.log_dir.on_failure(StorageError("first"))
            world.executor.hold(*BOTH)
            reopening = asyncio.create_task(world.reopen())
            for _ in range(steps):
                await world.settle()
                for lane in BOTH:
                    if world.executor.waiting(lane):
                        world.executor.step(lane)
                        break
            world.log_dir.on_failure(StorageError("second"))
            world.executor.release(*BOTH)
            await world.settle()
            await reopening
            while not world.log_dir.is_online:
                await world.reopen()
            assert world.stored_offsets("t") == [0, 1, 2]
            assert world.produce("t", plain_batch(1)).base_offset == 3
            assert world.produce("u", plain_batch(1)).base_offset == 0


@in_virtual_time
async def test_a_topic_deleted_while_its_directory_comes_back_is_gone() -> None:

    for steps in range(8):
        async with broker_world() as world:
            world.create("t", config={"file.delete.delay.ms": "0"})
            await world.settle()
            world.log_dir.on_failure(StorageError("test"))
            world.executor.hold(*BOTH)
            reopening = asyncio.create_task(world.reopen())
            for _ in range(steps):
                await world.settle()
                for lane in BOTH:
                    if world.executor.waiting(lane):
                        world.executor.step(lane)
                        break
            world.delete("t")
            world.executor.release(*BOTH)
            await reopening
            await world.replicas.settled()
            await world.settle()
            assert world.log_dir.is_online
            assert len(world.partitions) == 0
            world.create("t")
            await world.replicas.settled()
            assert world.produce("t", plain_batch(1)).base_offset == 0


@in_virtual_time
async def test_a_topic_deleted_while_its_directory_is_offline_is_removed_when_it_is_back() -> None:
    """Its files stayed open, and so on the disk, which may have been full."""
    async with broker_world() as world:
        world.create("t", config={"file.delete.delay.ms": "0"})
        await world.settle()
        log = world.runner("t").log
        world.log_dir.on_failure(StorageError("test"))
        world.delete("t")
        await world.replicas.settled()
        assert [segment.file for segment in log.segments] == [None]
        assert folders(world) == ["t-0"]
        await world.reopen()
        assert folders(world) == []
        assert world.log_dir.doomed == {}


@in_virtual_time
async def test_a_topic_created_while_no_directory_works_comes_with_the_first_one() -> None:
    async with broker_world() as world:
        world.log_dir.on_failure(StorageError("test"))
        world.create("t")
        await world.settle()
        assert code_of(world, "t") is ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen()
        assert world.produce("t", plain_batch(1)).base_offset == 0


@in_virtual_time
async def test_a_directory_that_comes_back_empty_is_not_taken_for_the_old_one() -> None:
    """Not mounted, say."""
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(3))
        world.log_dir.on_failure(StorageError("test"))
        await world.log_dir.release()
        world.disk.rename(world.log_dir.path, world.log_dir.path.with_name("unmounted"))
        await world.reopen()
        assert not world.log_dir.is_online
        assert code_of(world, "t") is ErrorCode.KAFKA_STORAGE_ERROR
        await world.log_dir.release()
        world.disk.remove_folder(world.log_dir.path)
        world.disk.rename(world.log_dir.path.with_name("unmounted"), world.log_dir.path)
        await world.reopen()
        assert world.stored_offsets("t") == [0, 1, 2]


@in_virtual_time
async def test_deleted_records_stay_deleted_if_checkpoints_are_written_during_recovery() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", plain_batch(5))
        await world.runner("t").delete_records(Offset(3))
        process_killed(world)
        world.disk.arm("lock", "*", StorageError)
        async with broker_world(before=world) as restarted:
            restarted.log_dir.on_failure(StorageError("test"))
            restarted.partitions.remove_topics({"t"})
            restarted.log_dir.runners.clear()  # As if it had been offline from the start.
            await restarted.log_dir.release()
            await restarted.log_dir.open()
            await restarted.log_dir.checkpoint()
            restarted.log_dir.on_failure(StorageError("test"))
            await restarted.reopen()
            assert restarted.stored_offsets("t") == [3, 4]


@pytest.mark.parametrize("number", [0, 1])
@in_virtual_time
async def test_partitions_of_the_other_directory_serve_on(number: int) -> None:
    async with broker_world(dir_count=2) as world:
        world.create("t", partitions=4, topic_id=TopicId(UUID(int=7)))
        await world.settle()
        world.log_dirs[number].on_failure(StorageError("test"))
        codes = [world.produce("t", plain_batch(1), partition=one).code for one in range(4)]
        assert sorted(codes) == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
