"""Proposals of leaders reach the controller: together, again until answered, each once (R6)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.broker.far_end import FarEnd
from tests.unit.broker.simulated_loop import in_virtual_time
from tests.unit.broker.world import BROKER, OTHER, World, broker_world, replicated
from tidelog.base.errors import ErrorCode, WireError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.broker.controller_link import ControllerLink
from tidelog.broker.isr_proposals import RETRY_BACKOFF_MAX_S, RETRY_BACKOFF_S, IsrProposals
from tidelog.broker.peers import PeerUnreachable
from tidelog.core.controller.changes import BrokerRegistered
from tidelog.core.controller.image import BrokerImage, ClusterImage, Endpoint, LastStop
from tidelog.core.controller.nodes import ControllerClaim
from tidelog.core.partition.leader import REFUSED_ISR_RETRY_MS
from tidelog.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    IsrResult,
)
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

OTHER_EPOCH = 20
BOTH = frozenset({BROKER, OTHER})
ALONE = frozenset({BROKER})


class ScriptedController:
    """This broker is controller, and answers as the test says."""

    is_controller = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[AlterPartitionRequest] = []
        self.codes: dict[int, ErrorCode] = {}
        self.whole = ErrorCode.NONE
        self.failure: Exception | None = None
        self.left_out: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def claim(self) -> ControllerClaim:
        raise AssertionError("asked for in the same process")

    @property
    def image(self) -> ClusterImage:
        return self.world.image

    async def controlled_shutdown(
        self, request: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        raise AssertionError("nobody stops here")

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked.append(request)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.whole is not ErrorCode.NONE:
            return AlterPartitionResponse(0, self.whole, [])
        return AlterPartitionResponse(
            0,
            ErrorCode.NONE,
            [
                (
                    topic_id,
                    [
                        IsrResult(
                            one.partition,
                            self.codes.get(one.partition, ErrorCode.NONE),
                            BROKER,
                            one.leader_epoch,
                            tuple(member.broker_id for member in one.new_isr_with_epochs),
                            0,
                            one.partition_epoch + 1,
                        )
                        for one in partitions
                        if one.partition not in self.left_out
                    ],
                )
                for topic_id, partitions in request.topics
            ],
        )


class Proposing:
    """A leader of some partitions that another broker has caught up with."""

    def __init__(self, world: World, controller: ScriptedController) -> None:
        self.world = world
        self.controller = controller
        link = ControllerLink(
            broker_id=BROKER,
            local=controller,
            connect=lambda _address: FarEnd().peer(),
            inter_broker_listener="PLAINTEXT",
        )
        self.proposals = IsrProposals(link, broker_id=BROKER, broker_epoch=lambda: 1)

    async def catch_up(self, *partitions: int) -> None:
        """The other broker has everything, and is proposed to join."""
        for number in partitions:
            self.world.runner("t", number).on_follower_fetch(
                OTHER,
                broker_epoch=OTHER_EPOCH,
                fetch_offset=Offset(0),
                log_start_offset=Offset(0),
            )
        for runner, proposal in self.world.proposed:
            self.proposals.propose(runner, proposal)
        self.world.proposed.clear()
        await self.world.settle()

    def isr(self, partition: int = 0) -> frozenset[BrokerId]:
        return self.world.runner("t", partition).leading.isr

    def in_flight(self, partition: int = 0) -> frozenset[BrokerId] | None:
        return self.world.runner("t", partition).leading.isr_in_flight


@asynccontextmanager
async def proposing(partitions: int = 1) -> AsyncIterator[Proposing]:
    async with broker_world() as world:
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "other", 9092)
        world.decide(
            BrokerRegistered(BrokerImage(OTHER, OTHER_EPOCH, (endpoint,), None, LastStop.CLEAN))
        )
        world.create("t", partitions=partitions, state=replicated(BROKER, 3, isr=(BROKER,)))
        await world.settle()
        found = Proposing(world, ScriptedController(world))
        running = world.tasks.create_task(found.proposals.run())
        yield found
        running.cancel()


def partitions_of(request: AlterPartitionRequest) -> list[int]:
    return [one.partition for _, partitions in request.topics for one in partitions]


@in_virtual_time
async def test_proposals_of_one_turn_are_one_request() -> None:
    async with proposing(5) as leader:
        await leader.catch_up(*range(5))
        (request,) = leader.controller.asked
        assert (request.broker_id, request.broker_epoch) == (BROKER, 1)
        assert partitions_of(request) == list(range(5))
        ((topic_id, (first, *_)),) = request.topics
        assert topic_id == leader.world.image.topics["t"].topic_id.bytes
        assert (first.leader_epoch, first.partition_epoch) == (3, 3)
        # Under which registrations they have caught up (KIP-903).
        assert first.new_isr_with_epochs == (IsrMember(BROKER, 1), IsrMember(OTHER, OTHER_EPOCH))
        assert {leader.isr(each) for each in range(5)} == {BOTH}
        assert {leader.in_flight(each) for each in range(5)} == {None}


@in_virtual_time
async def test_proposals_made_while_one_is_under_way_go_together_in_the_next() -> None:
    async with proposing(3) as leader:
        leader.controller.gate.clear()
        await leader.catch_up(0)
        await leader.catch_up(1)
        await leader.catch_up(2)
        assert [partitions_of(one) for one in leader.controller.asked] == [[0]]
        leader.controller.gate.set()
        await leader.world.settle()
        assert [partitions_of(one) for one in leader.controller.asked] == [[0], [1, 2]]


@pytest.mark.parametrize(
    "failure", [PeerUnreachable("test"), WireError("test"), ErrorCode.NOT_CONTROLLER]
)
@in_virtual_time
async def test_the_same_is_proposed_again_while_nobody_knows_what_became_of_it(
    failure: Exception | ErrorCode,
) -> None:
    async with proposing() as leader:
        if isinstance(failure, ErrorCode):
            leader.controller.whole = failure
        else:
            leader.controller.failure = failure
        await leader.catch_up(0)
        await asyncio.sleep(10)
        asked = leader.controller.asked
        assert 10 / RETRY_BACKOFF_MAX_S <= len(asked) <= 10 / RETRY_BACKOFF_MAX_S + 6
        assert all(one == asked[0] for one in asked)
        assert leader.in_flight() == BOTH
        leader.controller.failure, leader.controller.whole = None, ErrorCode.NONE
        await asyncio.sleep(RETRY_BACKOFF_MAX_S)
        assert leader.isr() == BOTH


@in_virtual_time
async def test_what_an_answer_leaves_open_is_proposed_again() -> None:
    """Also where the controller says that somebody else must be: it may have been taken there."""
    async with proposing(3) as leader:
        leader.controller.codes[1] = ErrorCode.NOT_CONTROLLER
        leader.controller.left_out.add(2)
        await leader.catch_up(0, 1, 2)
        assert [leader.in_flight(each) for each in range(3)] == [None, BOTH, BOTH]
        leader.controller.codes.clear()
        leader.controller.left_out.clear()
        await asyncio.sleep(RETRY_BACKOFF_S)
        await leader.world.settle()
        assert [partitions_of(one) for one in leader.controller.asked] == [[0, 1, 2], [1, 2]]
        assert {leader.isr(each) for each in range(3)} == {BOTH}


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST])
@in_virtual_time
async def test_what_was_refused_is_not_in_flight_any_more(code: ErrorCode) -> None:
    async with proposing() as leader:
        leader.controller.codes[0] = code
        await leader.catch_up(0)
        assert (leader.isr(), leader.in_flight()) == (ALONE, None)
        await asyncio.sleep(10)
        assert len(leader.controller.asked) == 1
        leader.controller.codes.clear()
        leader.world.clock.advance(REFUSED_ISR_RETRY_MS)
        await leader.catch_up(0)
        assert leader.isr() == BOTH


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
@in_virtual_time
async def test_an_outdated_proposal_counts_until_the_controller_says_what_there_is(
    code: ErrorCode,
) -> None:
    """It may have been taken, and the answer lost: the larger set is the safe one."""
    async with proposing() as leader:
        leader.controller.codes[0] = code
        await leader.catch_up(0)
        await asyncio.sleep(10)
        assert len(leader.controller.asked) == 1
        assert leader.in_flight() == BOTH
        leader.world.change("t", replicated(BROKER, 3, isr=(BROKER, OTHER), partition_epoch=4))
        await leader.world.settle()
        assert (leader.isr(), leader.in_flight()) == (BOTH, None)


@in_virtual_time
async def test_proposals_of_a_leadership_that_has_ended_are_dropped() -> None:
    async with proposing(2) as leader:
        leader.controller.failure = PeerUnreachable("test")
        await leader.catch_up(0, 1)
        leader.world.change("t", replicated(OTHER, 4), 0)
        await leader.world.settle()
        leader.controller.asked.clear()
        leader.controller.failure = None
        await asyncio.sleep(RETRY_BACKOFF_MAX_S)
        assert [partitions_of(one) for one in leader.controller.asked] == [[1]]


@in_virtual_time
async def test_an_answer_to_a_leadership_that_has_ended_changes_nothing() -> None:
    async with proposing() as leader:
        leader.controller.gate.clear()
        await leader.catch_up(0)
        leader.world.change("t", replicated(BROKER, 4, isr=(BROKER,), partition_epoch=9))
        await leader.world.settle()
        leader.controller.gate.set()
        await leader.world.settle()
        assert leader.world.runner("t").leading.leader_epoch == LeaderEpoch(4)
        assert (leader.isr(), leader.in_flight()) == (ALONE, None)
        assert leader.world.runner("t").leading.isr_version == 9
