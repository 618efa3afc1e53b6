"""Who may have been succeeded does not judge producers (D2, R7)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest

from tests.support.batches import idempotent_batch
from tests.unit.broker.controllers import FlakyTree
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, OTHER, Produced, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.broker import leadership_checks
from tidelog.broker.cluster_tree import ClusterTree
from tidelog.broker.leadership_checks import PAUSE_S, LeadershipChecks
from tidelog.coordination.port import Coordinator, Operation
from tidelog.core.controller.nodes import state_path

EPOCH = 3  # Also the version of the state node, as the leader knows it.


class SlowCoordinator:
    """Remembers how much was checked at a time; answers are on their way until `gate` is open."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self.transactions: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def transact(self, operations: Sequence[Operation]) -> None:
        self.transactions.append(len(operations))
        try:
            await self._coordinator.transact(operations)
        finally:
            await self.gate.wait()


class Doubting:
    """A leader of some partitions, and the tree that knows whether it still leads them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tree = FlakyTree()
        self.coordinator = self.tree.connect()
        self.slow = SlowCoordinator(self.coordinator)
        self.is_away = False
        self.checks = LeadershipChecks(self.store)

    def store(self) -> ClusterTree:
        if self.is_away:
            raise RequestRefused(ErrorCode.BROKER_NOT_AVAILABLE)
        return ClusterTree(cast(Coordinator, self.slow))

    async def store_states(self, partitions: int) -> None:
        for number in range(partitions):
            path = state_path("t", number)
            await self.coordinator.ensure(path)
            for _ in range(EPOCH):
                await self.coordinator.set(path, b"")

    async def move(self, partition: int) -> None:
        """The controller makes somebody else leader, and this broker does not hear of it."""
        await self.coordinator.set(state_path("t", partition), b"")

    def produce_out_of_order(self, partition: int = 0) -> Produced:
        produced = self.world.produce(
            "t", idempotent_batch(base_sequence=9), acks=-1, partition=partition
        )
        for doubt in self.world.doubted:
            self.checks.refuse_if_leading(*doubt)
        self.world.doubted.clear()
        return produced


@asynccontextmanager
async def doubting(partitions: int = 1) -> AsyncIterator[Doubting]:
    """The first batch of a producer is there, in each partition."""
    async with broker_world() as world:
        world.create("t", partitions=partitions, state=replicated(BROKER, EPOCH))
        await world.settle()
        for number in range(partitions):
            world.produce("t", idempotent_batch(base_sequence=0), acks=1, partition=number)
        leader = Doubting(world)
        await leader.store_states(partitions)
        running = world.tasks.create_task(leader.checks.run())
        yield leader
        running.cancel()


@in_virtual_time
async def test_a_leader_that_is_still_leader_refuses_what_is_out_of_order() -> None:
    async with doubting() as leader:
        produced = leader.produce_out_of_order()
        assert not produced.is_settled
        await leader.world.settle()
        assert produced.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@in_virtual_time
async def test_a_leader_that_was_succeeded_sends_the_producer_away() -> None:
    async with doubting() as leader:
        await leader.move(0)
        produced = leader.produce_out_of_order()
        await leader.world.settle()
        assert produced.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_without_other_replicas_nobody_can_have_succeeded() -> None:
    async with broker_world() as world:
        world.create("t")
        await world.settle()
        world.produce("t", idempotent_batch(base_sequence=0))
        produced = world.produce("t", idempotent_batch(base_sequence=9))
        assert produced.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not world.doubted


@in_virtual_time
async def test_other_refusals_need_no_check() -> None:
    """A newer epoch is no less newer at a successor."""
    async with doubting() as leader:
        batch = idempotent_batch(base_sequence=0, producer_epoch=4)
        leader.world.produce("t", batch, acks=1)
        fenced = leader.world.produce("t", idempotent_batch(base_sequence=3), acks=1)
        assert fenced.code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("why", ["the coordinator does not answer", "there is no session"])
@in_virtual_time
async def test_who_cannot_ask_is_not_sure(why: str) -> None:
    async with doubting() as leader:
        if why == "there is no session":
            leader.is_away = True
        else:
            leader.tree.refusing = 1
        produced = leader.produce_out_of_order()
        await leader.world.settle()
        assert produced.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader.is_away = False
        again = leader.produce_out_of_order()
        await asyncio.sleep(2 * PAUSE_S)
        assert again.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@in_virtual_time
async def test_doubts_of_one_turn_are_one_transaction() -> None:
    async with doubting(4) as leader:
        produced = [leader.produce_out_of_order(number) for number in (0, 1, 2, 3, 3, 3)]
        await leader.world.settle()
        assert {one.code for one in produced} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
        assert leader.slow.transactions == [4]


@in_virtual_time
async def test_one_that_was_succeeded_does_not_cost_the_others_their_word() -> None:
    async with doubting(3) as leader:
        await leader.move(1)
        produced = [leader.produce_out_of_order(number) for number in range(3)]
        await leader.world.settle()
        assert [one.code for one in produced] == [
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ]


@in_virtual_time
async def test_many_are_checked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership_checks, "CHECKED_AT_ONCE_MAX", 2)
    async with doubting(5) as leader:
        produced = [leader.produce_out_of_order(number) for number in range(5)]
        await leader.world.settle()
        assert {one.code for one in produced} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
        assert leader.slow.transactions == [2, 2, 1]


@in_virtual_time
async def test_a_doubt_is_checked_by_what_is_asked_after_it() -> None:
    """What was asked before says nothing of what the producer has seen since."""
    async with doubting() as leader:
        leader.slow.gate.clear()
        first = leader.produce_out_of_order()
        await leader.world.settle()
        assert leader.slow.transactions == [1]
        await leader.move(0)
        second = leader.produce_out_of_order()
        leader.slow.gate.set()
        await asyncio.sleep(2 * PAUSE_S)
        assert (first.code, second.code) == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )


@in_virtual_time
async def test_who_is_told_of_a_successor_meanwhile_is_not_sure() -> None:
    async with doubting() as leader:
        leader.slow.gate.clear()
        produced = leader.produce_out_of_order()
        await leader.world.settle()
        leader.world.change("t", replicated(OTHER, EPOCH + 1))
        await leader.world.settle()
        leader.slow.gate.set()
        await leader.world.settle()
        assert produced.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_whoever_is_always_out_of_order_does_not_keep_the_coordinator_busy() -> None:
    async with doubting() as leader:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 1.0
        refused = 0
        while loop.time() < until_s:
            produced = leader.produce_out_of_order()
            await asyncio.sleep(PAUSE_S / 10)
            refused += produced.is_settled
        assert refused > 0
        assert len(leader.slow.transactions) <= 1.0 / PAUSE_S + 1
