"""One shard of a coordinator on a real partition: W1-W4 of `core/coordinators.py` (P3, D3).

The machine keeps one number per name. Time is virtual, the other replica is played by the test.
"""

import asyncio
from dataclasses import astuple

import pytest

from tests.support.batches import plain_batch
from tests.unit.broker.numbers_shard import (
    REPLACED_NAME,
    TIMEOUT_MS,
    Coordinated,
    Numbers,
    coordinated_world,
    elected_again,
    overtaken,
    refusal,
    stored,
)
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.stepped_executor import URGENT
from tests.unit.broker.world import BROKER, OTHER, replicated
from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.broker.append_terms import Marker
from tidelog.core.coordinators import Effects, Perform, Transactional, Write
from tidelog.records.control import ControlType, TransactionEnd

PRODUCER = Transactional(ProducerId(7), ProducerEpoch(1))


# -- answering -----------------------------------------------------------------------------------


@in_virtual_time
async def test_an_answer_is_given_when_the_record_is_in_the_log() -> None:
    async with coordinated_world() as one:
        assert one.set("a", 1).result() == 1
        assert one.get("a").result() == 1
        assert stored(one.world) == [(b"a", b"1")]


@in_virtual_time
async def test_an_answer_waits_until_the_other_replica_has_the_record() -> None:
    """W2: also that of somebody who only reads what was written."""
    async with coordinated_world(alone=False) as one:
        written, read = one.set("a", 1), one.get("a")
        await one.world.settle()
        assert not written.done()
        assert not read.done()
        one.fetched(1)
        assert written.result() == 1
        assert read.result() == 1


@in_virtual_time
async def test_a_sign_of_life_waits_for_nothing() -> None:
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        assert one.ping().result() == "pong"


@in_virtual_time
async def test_answers_are_given_in_the_order_of_what_was_written() -> None:
    async with coordinated_world(alone=False) as one:
        first, second = one.set("a", 1), one.set("a", 2)
        one.fetched(1)
        assert first.done()
        assert not second.done()
        one.fetched(2)
        assert second.result() == 2


@in_virtual_time
async def test_a_deed_waits_like_an_answer() -> None:
    async with coordinated_world(alone=False) as one:
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),)), Perform("send it")))
        assert one.kind.deeds == []
        one.fetched(1)
        assert one.kind.deeds == ["send it"]


@in_virtual_time
async def test_who_waits_too_long_may_ask_again_and_finds_it_written() -> None:
    async with coordinated_world(alone=False) as one:
        waiting = one.set("a", 1)
        await asyncio.sleep(TIMEOUT_MS / 1000 - 0.01)
        assert not waiting.done()
        await asyncio.sleep(0.02)
        assert refusal(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        one.fetched(1)
        assert one.get("a").result() == 1


@in_virtual_time
async def test_who_stops_waiting_harms_nobody() -> None:
    async with coordinated_world(alone=False) as one:
        first, second = one.set("a", 1), one.set("b", 2)
        first.cancel()
        one.fetched(2)
        await one.world.settle()
        assert second.result() == 2
        assert not one.runner._waiting


# -- what cannot be written ----------------------------------------------------------------------


@in_virtual_time
async def test_nothing_is_decided_while_nothing_can_be_written() -> None:
    """W3: a set that is too small for min.insync.replicas is known beforehand."""
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        one.world.runner("t").on_isr_changed(frozenset({BROKER}), version=1)
        refused = one.set("a", 1)
        assert refusal(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert one.machine.known == {}
        assert one.ping().result() == "pong"


@in_virtual_time
async def test_what_is_on_too_few_replicas_is_kept_but_nobody_is_told() -> None:
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        waiting = one.set("a", 1)
        one.runner.tell(lambda _shard, _now: (Perform("send it"),))
        one.world.runner("t").on_isr_changed(frozenset({BROKER}), version=1)
        assert refusal(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert one.machine.known == {"a": 1}
        assert one.kind.deeds == []
        one.world.runner("t").on_isr_changed(frozenset({BROKER, OTHER}), version=2)
        await asyncio.sleep(1)
        assert one.kind.deeds == ["send it"]


@in_virtual_time
async def test_a_write_that_is_refused_after_all_leaves_what_the_log_says() -> None:
    """W3: the set shrinks while the log is rolled, with the write in the queue."""
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        one.set("a", 1)
        one.fetched(1)
        one.world.executor.hold(URGENT)
        partition = one.world.runner("t")
        partition.queue.roll(one.world.clock.now_ms())
        lost, reader = one.set("a", 2), one.get("a")
        partition.on_isr_changed(frozenset({BROKER}), version=1)
        one.world.executor.release(URGENT)
        await one.world.settle()
        assert refusal(lost) is ErrorCode.NOT_COORDINATOR
        assert refusal(reader) is ErrorCode.NOT_COORDINATOR
        assert one.runner.is_active
        assert one.machine.known == {"a": 1}
        assert one.get("a").result() == 1


@in_virtual_time
async def test_a_failing_disk_ends_the_shard() -> None:
    async with coordinated_world() as one:
        runner = one.runner
        one.world.log_dir.on_failure(StorageError("gone"))
        refused = runner.ask(lambda shard, token, now: shard.on_ping(token, now))
        assert refusal(refused) is ErrorCode.NOT_COORDINATOR
        with pytest.raises(RequestRefused):
            one.coordinators.of("a")


@in_virtual_time
async def test_more_than_a_batch_holds_is_written_in_several() -> None:
    async with coordinated_world(max_message_bytes="400") as one:
        names = [f"name-{number}" for number in range(40)]
        one.runner.tell(lambda _shard, _now: (Write(tuple((name, 1) for name in names)),))
        assert [key for key, _ in stored(one.world)] == [name.encode() for name in names]


# -- loading -------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_next_leader_knows_what_the_log_says() -> None:
    async with coordinated_world() as one:
        one.set("a", 1)
        one.set("a", 2)
        one.set("b", 3)
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {"a": 2, "b": 3}


@in_virtual_time
async def test_a_log_is_loaded_in_as_many_pieces_as_it_takes() -> None:
    async with coordinated_world(load_bytes=1) as one:
        for number in range(20):
            one.set(f"name-{number % 7}", number)
        before = dict(one.machine.known)
        elected_again(one, 1)
        await one.world.settle()
        while not one.runner.is_active:
            await one.world.settle()
        assert one.machine.known == before


@in_virtual_time
async def test_records_that_go_while_a_log_is_loaded_are_not_missed() -> None:
    """Whoever deletes at the start of the log is faster than the thread that reads there."""
    async with coordinated_world(load_bytes=1) as one:
        for number in range(4):
            one.set(f"name-{number}", number)
        one.world.executor.hold(URGENT)
        elected_again(one, 1)
        await one.world.settle()
        one.world.runner("t").log.advance_log_start(Offset(2))
        one.world.executor.release(URGENT)
        while not one.runner.is_active:
            await one.world.settle()
        assert one.machine.known == {"name-2": 2, "name-3": 3}


@in_virtual_time
async def test_nobody_is_answered_before_all_of_the_log_is_read() -> None:
    async with coordinated_world() as one:
        one.set("a", 1)
        one.world.executor.hold(URGENT)
        elected_again(one, 1)
        await one.world.settle()
        assert refusal(one.get("a")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        one.world.executor.release(URGENT)
        await one.world.settle()
        assert one.runner.is_active


@in_virtual_time
async def test_what_was_read_may_be_told_when_it_is_committed() -> None:
    """W2: a new leader's log may end with what nobody else has."""
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        elected_again(one, 1)
        await one.world.settle()
        reader = one.get("a")
        assert not reader.done()
        one.fetched(1)
        assert reader.result() == 1


@in_virtual_time
async def test_who_waits_for_a_leader_that_is_overtaken_looks_for_the_next() -> None:
    async with coordinated_world(alone=False) as one:
        waiting, runner = one.set("a", 1), one.runner
        overtaken(one)
        await one.world.settle()
        assert refusal(waiting) is ErrorCode.NOT_COORDINATOR
        assert not runner.is_active
        with pytest.raises(RequestRefused) as refused:
            one.coordinators.of("a")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_a_reply_held_since_loading_is_not_given_by_losing_the_lead() -> None:
    """Whoever waits for an offset is woken also when this broker does not lead any more."""
    async with coordinated_world(alone=False) as one:
        one.set("a", 1)
        elected_again(one, 1)
        await one.world.settle()
        reader = one.get("a")
        one.world.change("t", replicated(OTHER, 2))
        await one.world.settle()
        assert refusal(reader) is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_what_is_not_known_is_skipped() -> None:
    async with coordinated_world() as one:
        one.runner.tell(lambda _shard, _now: (Write((("unknown", 1), ("a", 2))),))
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {"a": 2}


@in_virtual_time
async def test_what_a_later_record_outdates_is_not_even_decoded() -> None:
    async with coordinated_world(load_bytes=1) as one:
        for number in range(5):
            one.set(REPLACED_NAME, number)
        one.set("a", 7)
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {REPLACED_NAME: 4, "a": 7}
        assert one.kind.decoded == [REPLACED_NAME.encode(), b"a"]


@in_virtual_time
async def test_what_cannot_be_read_outdates_nothing() -> None:
    """What was said before it is what is known."""
    async with coordinated_world() as one:
        for record in ((REPLACED_NAME, 1), (REPLACED_NAME, 2), (REPLACED_NAME, "?"), ("a", 7)):
            one.runner.tell(lambda _shard, _now, record=record: (Write((record,)),))  # type: ignore[misc]
        elected_again(one, 1)
        await one.world.settle()
        assert one.runner.is_active
        assert one.machine.known == {REPLACED_NAME: 2, "a": 7}


@in_virtual_time
async def test_what_nobody_thought_of_costs_the_shard_and_not_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever leads next reads the same log: one record would end them all, one by one."""
    async with coordinated_world() as one:
        one.runner.tell(lambda _shard, _now: (Write((("a", "no number"),)),))
        elected_again(one, 1)
        await one.world.settle()
        assert not one.runner.is_active
        asked = one.get("a")
        await asyncio.sleep(TIMEOUT_MS / 1_000)
        assert refusal(asked) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [one.message for one in caplog.records] == ["coordinator cannot be loaded"]
    assert caplog.records[0].exc_info


@in_virtual_time
async def test_what_is_pending_is_known_though_later_records_outdate_it() -> None:
    async with coordinated_world() as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write(((REPLACED_NAME, 1),), PRODUCER),))
        one.set(REPLACED_NAME, 2)
        one.set(REPLACED_NAME, 3)
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {REPLACED_NAME: 3}
        assert one.machine.undecided == {7: {REPLACED_NAME: 1}}


def vouch_for_producer(one: Coordinated) -> None:
    """As its coordinator does, before anything is written in its transaction."""
    one.world.runner("t").producers.begin_verification(
        *astuple(PRODUCER), sequence=0, bumps_epoch=True, now_ms=0
    )


def end(one: Coordinated, control_type: ControlType) -> None:
    marker = Marker(
        PRODUCER.producer_id, PRODUCER.producer_epoch, TransactionEnd(control_type, 3), 1
    )
    one.world.runner("t").append_marker(
        marker, now_ms=one.world.clock.now_ms(), settle=lambda _: None
    )


@in_virtual_time
async def test_a_transaction_counts_from_its_marker_on() -> None:
    async with coordinated_world() as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),), PRODUCER),))
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == {}
        assert one.machine.undecided == {7: {"a": 1}}
        end(one, ControlType.COMMIT)
        assert one.machine.known == {"a": 1}


@in_virtual_time
async def test_nobody_is_told_what_a_marker_has_changed_before_that_is_committed() -> None:
    """W2"""
    async with coordinated_world(alone=False) as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),), PRODUCER),))
        one.fetched(1)
        end(one, ControlType.COMMIT)
        read = one.get("a")
        await one.world.settle()
        assert not read.done()
        one.fetched(2)
        assert read.done()


@pytest.mark.parametrize("control_type", list(ControlType))
@in_virtual_time
async def test_a_marker_in_the_log_is_replayed(control_type: ControlType) -> None:
    async with coordinated_world() as one:
        vouch_for_producer(one)
        one.runner.tell(lambda _shard, _now: (Write((("a", 1),), PRODUCER),))
        end(one, control_type)
        elected_again(one, 1)
        await one.world.settle()
        assert one.machine.known == ({"a": 1} if control_type is ControlType.COMMIT else {})
        assert one.machine.undecided == {}


@in_virtual_time
async def test_a_partition_that_is_deleted_has_no_coordinator() -> None:
    async with coordinated_world() as one:
        runner = one.runner
        one.world.delete("t")
        await one.world.settle()
        assert not runner.is_active
        with pytest.raises(RequestRefused):
            one.coordinators.of("a")


# -- time ----------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_machine_is_told_when_it_wanted_to_be() -> None:
    async with coordinated_world() as one:
        start_ms = one.world.clock.now_ms()

        def wake_at(shard: Numbers, now_ms: int) -> Effects:
            shard.deadline_ms = now_ms + 700
            return ()

        one.runner.tell(wake_at)
        one.pass_time(700)
        await asyncio.sleep(0.71)
        assert one.machine.ticks == [start_ms + 700]
        assert stored(one.world) == [(b"tick", str(start_ms + 700).encode())]


@in_virtual_time
async def test_what_is_due_waits_while_it_cannot_be_written() -> None:
    async with coordinated_world(alone=False, min_insync_replicas="2") as one:
        partition = one.world.runner("t")
        partition.on_isr_changed(frozenset({BROKER}), version=1)

        def wake_at(shard: Numbers, now_ms: int) -> Effects:
            shard.deadline_ms = now_ms
            return ()

        one.runner.tell(wake_at)
        await asyncio.sleep(3)
        assert one.machine.ticks == []
        partition.on_isr_changed(frozenset({BROKER, OTHER}), version=2)
        await asyncio.sleep(1)
        assert len(one.machine.ticks) == 1


# -- who else writes there -----------------------------------------------------------------------


@in_virtual_time
async def test_the_queue_says_when_it_is_idle() -> None:
    async with coordinated_world() as one:
        partition = one.world.runner("t")
        await asyncio.wait_for(partition.queue.idle(), 1)
        one.world.executor.hold(URGENT)
        partition.queue.roll(one.world.clock.now_ms())
        one.world.produce("t", plain_batch(1))
        waiting = asyncio.ensure_future(partition.queue.idle())
        await one.world.settle()
        assert not waiting.done()
        one.world.executor.release(URGENT)
        await asyncio.wait_for(waiting, 1)
        assert one.world.stored_offsets("t") == [0]
