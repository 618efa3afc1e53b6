"""D3: markers in the log of one partition, and what they do to readers, writers and followers."""

import pytest

from tests.support.batches import NOW_MS, plain_batch, transactional_batch
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.transactions import aborted, end, follower_has, vouch, write
from tests.unit.broker.world import BROKER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, StorageError
from tidelog.base.ids import Offset
from tidelog.broker.append_terms import Marker
from tidelog.records.batch import Codec, read_header
from tidelog.records.control import ControlType, TransactionEnd, read_transaction_end
from tidelog.storage.log import Log


async def with_topic(world: World, *, is_replicated: bool = False, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    state = replicated(BROKER, 0) if is_replicated else None
    world.create("t", config=settings, state=state)
    await world.settle()


def batches(world: World) -> list[bytes]:
    log = world.runner("t").log
    read = log.read(Offset(0), end_offset=log.log_end_offset, max_bytes=2**20, at_least_one=True)
    data = bytes(read.data)
    found = []
    while data:
        size_bytes = read_header(data, 0).size_bytes
        found.append(data[:size_bytes])
        data = data[size_bytes:]
    return found


@in_virtual_time
async def test_a_marker_is_written_as_kafka_writes_it() -> None:
    async with broker_world() as world:
        await with_topic(world)
        write(world)
        assert end(world, epoch=1, coordinator_epoch=4, version=2, commit=True).code == 0
        header = read_header(batches(world)[1], 0)
        assert (header.base_offset, header.leader_epoch, header.record_count) == (1, 0, 1)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, -1)
        assert header.is_control
        assert header.is_transactional
        assert header.max_timestamp_ms == NOW_MS
        assert read_transaction_end(batches(world)[1]) == TransactionEnd(ControlType.COMMIT, 4)


@in_virtual_time
async def test_a_marker_is_not_compressed_by_a_topic_that_compresses() -> None:
    async with broker_world() as world:
        await with_topic(world, compression_type="gzip")
        assert end(world).code == 0
        assert read_header(batches(world)[0], 0).codec is Codec.NONE


@in_virtual_time
async def test_a_marker_is_larger_than_what_a_topic_lets_producers_send() -> None:
    async with broker_world() as world:
        await with_topic(world, max_message_bytes="10")
        assert end(world).code == 0


@in_virtual_time
async def test_a_marker_has_the_brokers_time_in_a_topic_that_wants_that() -> None:
    async with broker_world() as world:
        await with_topic(world, message_timestamp_type="LogAppendTime")
        world.clock.advance(5)
        end(world)
        assert read_header(batches(world)[0], 0).is_log_append_time


@in_virtual_time
async def test_a_marker_is_answered_when_every_replica_in_sync_has_it() -> None:
    async with broker_world() as world:
        await with_topic(world, is_replicated=True)
        write(world)
        ended = end(world)
        follower_has(world, 1)
        assert not ended.is_settled
        follower_has(world, 2)
        assert ended.code == 0


@in_virtual_time
async def test_a_marker_needs_as_many_replicas_as_acks_all() -> None:
    async with broker_world() as world:
        state = replicated(BROKER, 0, isr=(BROKER,))
        world.create("t", config={"min.insync.replicas": "2"}, state=state)
        await world.settle()
        assert end(world).code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert world.runner("t").log.log_end_offset == 0


@in_virtual_time
async def test_whoever_is_fenced_ends_nothing() -> None:
    async with broker_world() as world:
        await with_topic(world)
        write(world, epoch=3)
        assert end(world, epoch=2).code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert end(world, epoch=3, version=2).code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert end(world, epoch=3, coordinator_epoch=5).code == 0
        late = end(world, epoch=3, coordinator_epoch=4)
        assert late.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert world.runner("t").log.log_end_offset == 2


@in_virtual_time
async def test_what_is_stable_ends_where_a_transaction_begins_until_its_marker_is_committed() -> (
    None
):
    async with broker_world() as world:
        await with_topic(world, is_replicated=True)
        runner = world.runner("t")
        world.produce("t", plain_batch(1))
        write(world)
        follower_has(world, 2)
        assert (runner.high_watermark, runner.last_stable_offset) == (2, 1)
        end(world, commit=True)
        assert runner.last_stable_offset == 1
        world.produce("t", plain_batch(1))
        follower_has(world, 2)
        assert runner.last_stable_offset == 1
        follower_has(world, 4)
        assert runner.last_stable_offset == 4


@in_virtual_time
async def test_what_is_deleted_is_not_unstable() -> None:
    async with broker_world() as world:
        await with_topic(world)
        write(world, count=5)
        await world.runner("t").delete_records(Offset(3))
        assert world.runner("t").last_stable_offset == 3


@in_virtual_time
async def test_an_abort_is_in_the_index_and_a_commit_is_not() -> None:
    async with broker_world() as world:
        await with_topic(world)
        write(world, producer=7)
        write(world, producer=8)
        end(world, producer=7)
        end(world, producer=8, commit=True)
        end(world, producer=9)
        assert aborted(world) == [(7, 0, 2, 1)]


@in_virtual_time
async def test_a_restart_knows_what_was_aborted_fenced_and_open() -> None:
    async with broker_world() as world:
        await with_topic(world)
        write(world, producer=7)
        end(world, producer=7, coordinator_epoch=6)
        write(world, producer=8)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "append", _fail)
            write(world, producer=9)
        await world.settle()
        assert world.runner("t").is_offline
        await world.reopen()
        await world.settle()
        assert aborted(world) == [(7, 0, 1, 2)]
        assert world.runner("t").last_stable_offset == 2
        assert end(world, coordinator_epoch=5).code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert write(world, producer=8, sequence=1).code == 0
        assert end(world, producer=8).code == 0


def _fail(*_arguments: object, **_named: object) -> None:
    raise StorageError("the disk is gone")


@in_virtual_time
async def test_a_disk_that_cannot_note_an_abort_is_not_used_any_more() -> None:
    async with broker_world() as world:
        await with_topic(world)
        write(world)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "append_aborted", _fail)
            assert end(world).code == ErrorCode.KAFKA_STORAGE_ERROR
        await world.reopen()
        await world.settle()
        assert aborted(world) == [(7, 0, 1, 2)]


@in_virtual_time
async def test_a_marker_waits_in_turn_while_a_segment_is_rolled() -> None:
    async with broker_world() as world:
        await with_topic(world, internal_segment_bytes="200")
        write(world)
        write(world, sequence=1)
        world.executor.hold(URGENT)
        third = write(world, sequence=2)
        ended = end(world)
        late = write(world, sequence=3)
        assert not third.is_settled
        world.executor.release(URGENT)
        await world.settle()
        assert (third.code, third.base_offset) == (0, 2)
        assert (ended.code, ended.base_offset) == (0, 3)
        assert late.code == ErrorCode.INVALID_TXN_STATE
        assert aborted(world) == [(7, 0, 3, 4)]


@in_virtual_time
async def test_a_late_write_of_an_ended_transaction_is_refused() -> None:
    """Nobody would ever end the one that it begins: V2 of `core/transactions/verification.py`."""
    async with broker_world() as world:
        await with_topic(world)
        guard = vouch(world)
        end(world)
        assert write(world, guard=guard).code == ErrorCode.INVALID_TXN_STATE
        assert world.runner("t").last_stable_offset == 1


@in_virtual_time
async def test_a_batch_that_is_rewritten_keeps_its_guard() -> None:
    async with broker_world() as world:
        await with_topic(world, compression_type="gzip")
        written = write(world)
        await world.settle()
        assert written.code == 0
        assert read_header(batches(world)[0], 0).codec is Codec.GZIP


@in_virtual_time
async def test_who_listens_hears_of_markers_that_are_in_the_log() -> None:
    heard: list[tuple[Marker, int]] = []
    async with broker_world() as world:
        await with_topic(world)
        runner = world.runner("t")
        runner.marker_watcher = lambda marker, offset: heard.append((marker, offset))
        write(world, epoch=3)
        end(world, epoch=2)
        end(world, epoch=3, commit=True)
        assert heard == [(Marker(7, 3, TransactionEnd(ControlType.COMMIT, 0), 1), 2)]  # type: ignore[arg-type]


@in_virtual_time
async def test_who_listens_hears_once_of_a_marker_that_has_to_wait() -> None:
    heard: list[int] = []
    async with broker_world() as world:
        await with_topic(world, internal_segment_bytes="100")
        write(world)
        world.runner("t").marker_watcher = lambda _marker, offset: heard.append(offset)
        end(world)
        assert heard == []
        await world.settle()
        assert heard == [2]


@in_virtual_time
async def test_what_a_coordinator_here_writes_in_a_transaction_needs_one() -> None:
    async with broker_world() as world:
        await with_topic(world)
        runner = world.runner("t")

        def own() -> int:
            batch = transactional_batch()
            result = runner.append_own(batch, now_ms=NOW_MS, settle=lambda _: None)
            assert result is not None
            return result.error_code

        assert own() == ErrorCode.INVALID_TXN_STATE
        vouch(world)
        assert [own(), own()] == [0, 0]
        end(world)
        assert own() == ErrorCode.INVALID_TXN_STATE
