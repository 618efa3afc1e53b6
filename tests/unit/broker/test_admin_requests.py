"""Elections and moves by request: decided, stored, told (R11, C5, R9)."""

import asyncio

import pytest

from tests.unit.broker.administered import (
    Administered,
    InterruptedTree,
    administered,
    with_three_brokers,
)
from tests.unit.core.controller.clusters import ids
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.config.dynamic import AlterOperation
from tidelog.core.controller.preferred import ElectionType
from tidelog.core.controller.reassignment import Reassignment
from tidelog.core.controller.requests import (
    ConfigAlteration,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tidelog.wire.alter_partition import (
    RECOVERED,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    IsrProposal,
)
from tidelog.wire.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

TOPIC = "moved"
ONE = TopicPartition(TOPIC, 0)


async def move(cluster: Administered, *target: int) -> ErrorCode:
    return await _alter(cluster, Reassignment(TOPIC, 0, ids(*target)))


async def cancel(cluster: Administered) -> ErrorCode:
    return await _alter(cluster, Reassignment(TOPIC, 0, None))


async def _alter(cluster: Administered, reassignment: Reassignment) -> ErrorCode:
    (outcome,) = await cluster.requests.alter_reassignments(
        [reassignment], allow_replication_factor_change=True
    )
    await cluster.settle()
    return outcome.error


async def propose(cluster: Administered, *isr: int) -> AlterPartitionResponse:
    """The leader of TOPIC has seen these catch up."""
    state = cluster.state(TOPIC)
    brokers = cluster.controller.image.brokers
    proposal = IsrProposal(
        0,
        state.leader_epoch,
        tuple(IsrMember(each, brokers[BrokerId(each)].broker_epoch) for each in isr),
        RECOVERED,
        state.partition_epoch,
    )
    topic_id = cluster.controller.image.topics[TOPIC].topic_id
    response = await cluster.requests.alter_partition(
        AlterPartitionRequest(
            state.leader, brokers[state.leader].broker_epoch, [(topic_id.bytes, [proposal])]
        )
    )
    await cluster.settle()
    return response


async def elect(
    cluster: Administered, election_type: ElectionType, *partitions: TopicPartition
) -> list[ErrorCode]:
    outcomes = await cluster.requests.elect_leaders(election_type, partitions or None)
    await cluster.settle()
    return [outcome.error for outcome in outcomes]


async def shut_down(cluster: Administered, number: int) -> ControlledShutdownResponse:
    epoch = cluster.controller.image.brokers[BrokerId(number)].broker_epoch
    return await cluster.requests.controlled_shutdown(ControlledShutdownRequest(number, epoch))


class TestElections:
    def test_the_preferred_replica_leads_again_and_everybody_is_told(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 1, 3))
            await cluster.kill(2)
            await cluster.register(2)
            await cluster.settle()
            assert cluster.state(TOPIC).leader == 1
            await propose(cluster, 1, 2, 3)
            assert await elect(cluster, ElectionType.PREFERRED, ONE) == [ErrorCode.NONE]
            assert cluster.state(TOPIC).leader == 2
            assert {cluster.told[each].roles[ONE].leader for each in ids(1, 2, 3)} == {2}

        with_three_brokers(scenario)

    def test_one_partition_that_cannot_be_elected_does_not_spoil_the_others(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (1, 2))
            codes = await elect(cluster, ElectionType.PREFERRED, ONE, TopicPartition("no", 0))
            assert codes == [
                ErrorCode.ELECTION_NOT_NEEDED,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]

        with_three_brokers(scenario)

    def test_an_unclean_election_by_request_is_counted(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            await cluster.kill(3)
            await cluster.kill(2)
            await cluster.register(3)
            await cluster.settle()
            assert cluster.state(TOPIC).leader == NO_BROKER
            assert await elect(cluster, ElectionType.UNCLEAN, ONE) == [ErrorCode.NONE]
            assert cluster.state(TOPIC).isr == ids(3)
            assert cluster.controller.view.unclean_elections == 1

        with_three_brokers(scenario)

    @pytest.mark.parametrize(
        "resource",
        [
            ConfigResource(ResourceType.TOPIC, TOPIC),
            ConfigResource(ResourceType.BROKER, ""),
            ConfigResource(ResourceType.BROKER, "1"),
        ],
    )
    def test_a_partition_that_may_be_led_uncleanly_from_now_on_is(
        self, resource: ConfigResource
    ) -> None:
        """Where the brokers' setting allowed it, it had to wait for the next broker to come."""

        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            await cluster.kill(3)
            await cluster.kill(2)
            await cluster.register(3)
            await cluster.settle()
            assert cluster.state(TOPIC).leader == NO_BROKER
            setting = ConfigAlteration("unclean.leader.election.enable", AlterOperation.SET, "true")
            (outcome,) = await cluster.requests.incremental_alter_configs(
                [(resource, (setting,))], validate_only=False
            )
            assert outcome.error is ErrorCode.NONE
            assert cluster.state(TOPIC).isr == ids(3)
            assert cluster.controller.view.unclean_elections == 1

        with_three_brokers(scenario)

    def test_leaderships_go_back_when_too_many_are_elsewhere(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 1))
            await cluster.kill(2)
            await cluster.register(2)
            await propose(cluster, 1, 2)
            assert await cluster.requests.rebalance_leaders() == 1
            assert cluster.state(TOPIC).leader == 2
            assert await cluster.requests.rebalance_leaders() == 0

        with_three_brokers(scenario)


class TestMoves:
    def test_a_replica_that_is_added_is_told_its_role(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (1, 2))
            assert await move(cluster, 1, 3) is ErrorCode.NONE
            assert cluster.told[BrokerId(3)].roles[ONE].leader == 1
            assert cluster.told[BrokerId(1)].roles[ONE].replicas == (1, 3, 2)
            assert [one for one, _ in await cluster.requests.list_reassignments(None)] == [ONE]

        with_three_brokers(scenario)

    def test_a_move_ends_when_its_target_is_in_sync(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (1, 2))
            await move(cluster, 3, 2)
            response = await propose(cluster, 1, 2, 3)
            assert response.topics[0][1][0].error_code == ErrorCode.NEW_LEADER_ELECTED
            state = cluster.state(TOPIC)
            assert (state.replicas, state.leader) == (ids(3, 2), 3)
            assert cluster.told[BrokerId(1)].stopped == [ONE]
            assert cluster.told[BrokerId(2)].stopped == []
            assert await cluster.requests.list_reassignments(None) == []

        with_three_brokers(scenario)

    def test_a_move_that_is_taken_back_stops_who_was_being_added(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (1, 2))
            await move(cluster, 1, 3)
            assert await cancel(cluster) is ErrorCode.NONE
            assert cluster.state(TOPIC).replicas == ids(1, 2)
            assert cluster.told[BrokerId(3)].stopped == [ONE]
            assert await cancel(cluster) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

        with_three_brokers(scenario)

    def test_the_next_controller_goes_on_with_a_move(self) -> None:
        async def run() -> None:
            tree = InterruptedTree()
            async with administered(tree, (1, 2, 3), {}) as before:
                await before.create(TOPIC, (2, 1))
                await move(before, 2, 3)
                before.leave_brokers()
            async with administered(tree, (1,), {}) as after:
                assert after.state(TOPIC).adding_replicas == ids(3)
                assert after.told[BrokerId(3)].roles[ONE].leader == 2
                await propose(after, 2, 3)
                assert after.state(TOPIC).replicas == ids(2, 3)

        asyncio.run(run())

    def test_what_removes_a_replica_and_adds_it_again_does_not_delete_it(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (1, 2))
            slow = cluster.told[BrokerId(2)]
            slow.listening.clear()
            # What it is being told now it will have heard before the rest.
            await cluster.requests.create_topics([NewTopic(name="other")], validate_only=False)
            await asyncio.sleep(0)
            for target in (ids(1), ids(1, 2)):
                await cluster.requests.alter_reassignments(
                    [Reassignment(TOPIC, 0, target)], allow_replication_factor_change=True
                )
            slow.listening.set()
            await cluster.settle()
            assert slow.stopped == []
            assert cluster.told[BrokerId(2)].roles[ONE].replicas == (1, 2)

        with_three_brokers(scenario)


class TestControlledShutdown:
    def test_leaderships_move_and_what_only_one_broker_has_is_not_waited_for(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            await cluster.create("single", (2,))
            response = await shut_down(cluster, 2)
            assert response == ControlledShutdownResponse(ErrorCode.NONE, [])
            assert cluster.state(TOPIC).leader == 3
            assert cluster.state("single").leader == 2

        with_three_brokers(scenario)

    def test_what_nobody_else_can_lead_yet_remains(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            await cluster.kill(3)
            response = await shut_down(cluster, 2)
            assert response == ControlledShutdownResponse(ErrorCode.NONE, [(TOPIC, 0)])

        with_three_brokers(scenario)

    def test_a_broker_that_stops_gets_no_new_replica(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await shut_down(cluster, 2)
            await cluster.create(TOPIC, (1,))
            assert await move(cluster, 2) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

        with_three_brokers(scenario)

    def test_an_earlier_life_of_a_broker_cannot_stop_this_one(self) -> None:
        async def scenario(cluster: Administered) -> None:
            response = await cluster.requests.controlled_shutdown(ControlledShutdownRequest(2, 1))
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH

        with_three_brokers(scenario)


class TestFailedReplicas:
    def test_leaderships_of_a_broken_directory_move_and_may_come_back(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            await cluster.create("single", (2,))
            broken = cluster.told[BrokerId(2)]
            broken.broken = {ONE, TopicPartition("single", 0)}
            await cluster.tell_log_dir_event(2)
            assert (cluster.state(TOPIC).leader, cluster.state(TOPIC).isr) == (3, ids(3))
            assert cluster.state("single").leader == NO_BROKER
            assert await elect(cluster, ElectionType.PREFERRED, ONE) == [
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            ]
            broken.broken.clear()
            await cluster.tell_log_dir_event(2)
            assert cluster.state("single").leader == 2

        with_three_brokers(scenario)

    def test_what_follows_from_a_broken_directory_is_not_forgotten_by_a_registration(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            cluster.told[BrokerId(2)].broken = {ONE}
            cluster.register_before_next_write(4)
            await cluster.tell_log_dir_event(2)
            assert cluster.state(TOPIC).leader == 3

        with_three_brokers(scenario)

    def test_a_broker_that_was_restarted_quickly_has_no_broken_directory_any_more(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create("single", (2,))
            cluster.told[BrokerId(2)].broken = {TopicPartition("single", 0)}
            await cluster.tell_log_dir_event(2)
            assert cluster.state("single").leader == NO_BROKER
            cluster.told[BrokerId(2)].broken = set()
            await cluster.restart(2)
            assert cluster.state("single").leader == 2

        with_three_brokers(scenario)

    def test_a_replica_that_follows_is_asked_again_whether_it_is_broken(self) -> None:
        async def scenario(cluster: Administered) -> None:
            await cluster.create(TOPIC, (2, 3))
            cluster.told[BrokerId(3)].broken = {ONE}
            await cluster.tell_log_dir_event(3)
            assert cluster.state(TOPIC).isr == ids(2)
            cluster.told[BrokerId(3)].broken = set()
            await propose(cluster, 2, 3)
            assert cluster.state(TOPIC).isr == ids(2)
            await propose(cluster, 2, 3)
            assert sorted(cluster.state(TOPIC).isr) == [2, 3]

        with_three_brokers(scenario)
