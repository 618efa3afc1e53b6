"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: what clients see (P1)."""

from datetime import timedelta

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from tests.unit.broker.administered import Administered, with_three_brokers
from tests.unit.broker.handlers.samples import context
from tidelog.broker.handlers.alter_partition_reassignments import (
    AlterPartitionReassignmentsHandler,
)
from tidelog.broker.handlers.elect_leaders import ElectLeadersHandler
from tidelog.broker.handlers.list_partition_reassignments import (
    ListPartitionReassignmentsHandler,
)

TOPIC = "t"
PREFERRED, NO_SUCH_ELECTION = 0, 7


async def elect(
    cluster: Administered,
    *topics: tuple[str, tuple[int, ...]],
    everything: bool = False,
    election_type: int = PREFERRED,
    timeout_s: float = 60,
) -> ElectLeadersResponse:
    handler = ElectLeadersHandler(controller=cluster.requests, delivered=cluster.settle)
    named = tuple(
        TopicPartitions(topic=TopicName(topic), partitions=tuple(map(i32, partitions)))
        for topic, partitions in topics
    )
    request = ElectLeadersRequest(
        election_type=i8(election_type),
        topic_partitions=None if everything else named,
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
    )
    return await handler.handle(request, context())


async def move(
    cluster: Administered, *partitions: tuple[int, tuple[int, ...] | None], timeout_s: float = 60
) -> AlterPartitionReassignmentsResponse:
    handler = AlterPartitionReassignmentsHandler(controller=cluster.requests)
    request = AlterPartitionReassignmentsRequest(
        topics=(
            ReassignableTopic(
                name=TopicName(TOPIC),
                partitions=tuple(
                    ReassignablePartition(
                        partition_index=i32(partition),
                        replicas=None if target is None else tuple(map(BrokerId, target)),
                    )
                    for partition, target in partitions
                ),
            ),
        ),
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
    )
    return await handler.handle(request, context())


async def moving(
    cluster: Administered, *topics: tuple[str, tuple[int, ...]], everything: bool = False
) -> ListPartitionReassignmentsResponse:
    handler = ListPartitionReassignmentsHandler(controller=cluster.requests)
    named = tuple(
        ListPartitionReassignmentsTopics(
            name=TopicName(topic), partition_indexes=tuple(map(i32, partitions))
        )
        for topic, partitions in topics
    )
    return await handler.handle(
        ListPartitionReassignmentsRequest(topics=None if everything else named), context()
    )


def elected(response: ElectLeadersResponse) -> list[tuple[str, int, ErrorCode]]:
    return [
        (topic.topic, one.partition_id, one.error_code)
        for topic in response.replica_election_results
        for one in topic.partition_result
    ]


def moved(response: AlterPartitionReassignmentsResponse) -> list[tuple[int, ErrorCode]]:
    return [
        (one.partition_index, one.error_code)
        for topic in response.responses
        for one in topic.partitions
    ]


def test_every_partition_that_is_named_is_answered_as_often_as_it_is_named() -> None:
    async def scenario(cluster: Administered) -> None:
        await cluster.create(TOPIC, (1, 2), (2, 1))
        response = await elect(cluster, (TOPIC, (1, 1)), ("no", (0,)), (TOPIC, (1,)))
        assert response.error_code is ErrorCode.none
        assert elected(response) == [
            (TOPIC, 1, ErrorCode.election_not_needed),
            (TOPIC, 1, ErrorCode.election_not_needed),
            ("no", 0, ErrorCode.unknown_topic_or_partition),
            (TOPIC, 1, ErrorCode.election_not_needed),
        ]

    with_three_brokers(scenario)


def test_an_election_for_all_names_those_for_which_there_is_something_to_say() -> None:
    async def scenario(cluster: Administered) -> None:
        await cluster.create(TOPIC, (1, 2), (2, 1))
        await cluster.kill(2)
        assert elected(await elect(cluster, everything=True)) == [
            (TOPIC, 1, ErrorCode.preferred_leader_not_available)
        ]

    with_three_brokers(scenario)


def test_an_election_that_there_is_not_is_refused_as_a_whole() -> None:
    async def scenario(cluster: Administered) -> None:
        await cluster.create(TOPIC, (1, 2))
        response = await elect(cluster, (TOPIC, (0,)), election_type=NO_SUCH_ELECTION)
        assert response.error_code is ErrorCode.invalid_request
        assert elected(response) == [(TOPIC, 0, ErrorCode.invalid_request)]
        nothing = await elect(cluster, election_type=NO_SUCH_ELECTION)
        assert nothing.error_code is ErrorCode.none

    with_three_brokers(scenario)


def test_without_time_nothing_is_elected_or_moved() -> None:
    async def scenario(cluster: Administered) -> None:
        await cluster.create(TOPIC, (1, 2))
        election = await elect(cluster, (TOPIC, (0,)), timeout_s=0)
        assert election.error_code is ErrorCode.request_timed_out
        move_response = await move(cluster, (0, (3,)), timeout_s=0)
        assert move_response.error_code is ErrorCode.request_timed_out
        assert moved(move_response) == [(0, ErrorCode.request_timed_out)]
        assert cluster.state(TOPIC).adding_replicas == ()

    with_three_brokers(scenario)


def test_a_move_begins_is_listed_and_is_taken_back() -> None:
    async def scenario(cluster: Administered) -> None:
        await cluster.create(TOPIC, (1, 2), (1, 2))
        begun = await move(cluster, (0, (1, 3)), (1, (1, 7)), (2, (1,)))
        assert begun.error_code is ErrorCode.none
        assert moved(begun) == [
            (0, ErrorCode.none),
            (1, ErrorCode.invalid_replica_assignment),
            (2, ErrorCode.unknown_topic_or_partition),
        ]
        (topic,) = (await moving(cluster, everything=True)).topics
        (ongoing,) = topic.partitions
        assert ongoing.replicas == (1, 3, 2)
        assert (ongoing.adding_replicas, ongoing.removing_replicas) == ((3,), (2,))
        assert (await moving(cluster, (TOPIC, (1,)), ("no", (0,)))).topics == ()
        assert moved(await move(cluster, (0, None))) == [(0, ErrorCode.none)]
        assert (await moving(cluster, everything=True)).topics == ()

    with_three_brokers(scenario)


def test_who_is_not_controller_says_so_of_the_whole_request() -> None:
    async def scenario(cluster: Administered) -> None:
        await cluster.create(TOPIC, (1, 2))
        await cluster.lose_claim()
        assert (await elect(cluster, (TOPIC, (0,)))).error_code is ErrorCode.not_controller
        assert (await move(cluster, (0, (3,)))).error_code is ErrorCode.not_controller
        assert (await moving(cluster, everything=True)).error_code is ErrorCode.not_controller

    with_three_brokers(scenario)
