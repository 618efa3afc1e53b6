"""DeleteRecords is answered when no live replica has the records any more."""

from collections.abc import Sequence
from datetime import timedelta

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_records.v2.response import DeleteRecordsResponse
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.broker.dispatch import Postponed, RequestContext
from tidelog.broker.handlers.delete_records import DeleteRecordsHandler

TOPIC = "deleted"
LONG_WAIT = {"replica.fetch.wait.max.ms": "20000"}


class Deletion:
    """One request to the leader of a topic's only partition."""

    def __init__(self, cluster: SimulatedCluster, offset: int, *, timeout_s: float) -> None:
        leader = cluster.brokers[cluster.state(TOPIC).leader]
        assert leader.broker is not None
        assert leader.process is not None
        partition = DeleteRecordsPartition(partition_index=i32(0), offset=i64(offset))
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name=TopicName(TOPIC), partitions=(partition,)),),
            timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
        )
        handler = DeleteRecordsHandler(partitions=leader.broker.partitions)
        self.task = leader.process.loop.create_task(_answer(handler, request))

    def result(self, cluster: SimulatedCluster) -> tuple[int, int]:
        """Error code and low watermark, once they are there."""
        cluster.until(self.task.done)
        return self.task.result()


async def _answer(handler: DeleteRecordsHandler, request: DeleteRecordsRequest) -> tuple[int, int]:
    context = RequestContext(api_version=2, client_id=None, peer_host="", listener_name="")
    response = await handler.handle(request, context)
    if isinstance(response, Postponed):
        waited = await response.wait()
        assert isinstance(waited, DeleteRecordsResponse)
        response = waited
    ((result,),) = [topic.partitions for topic in response.topics]
    return int(result.error_code), result.low_watermark


def log_starts(cluster: SimulatedCluster, *numbers: int) -> Sequence[int]:
    runners = [cluster.runner(number, TOPIC) for number in numbers]
    return [-1 if runner is None else runner.log.log_start_offset for runner in runners]


def stored(cluster: SimulatedCluster) -> None:
    cluster.create(TOPIC, (1, 2, 3))
    assert cluster.produce(TOPIC, 5).error_code == ErrorCode.NONE


def test_it_is_answered_when_all_have_deleted_and_that_is_soon() -> None:
    """Nothing is written, and followers wait long for something to be."""
    with simulated_cluster(3, LONG_WAIT) as cluster:
        stored(cluster)
        cluster.run_for(1)
        began_s = cluster.world.now_s
        assert Deletion(cluster, 4, timeout_s=30).result(cluster) == (0, 4)
        assert log_starts(cluster, 1, 2, 3) == [4, 4, 4]
        assert cluster.world.now_s - began_s < 0.5


def test_a_follower_that_does_not_answer_uses_up_the_time() -> None:
    with simulated_cluster(3, {"broker.session.timeout.ms": "60000"}) as cluster:
        stored(cluster)
        cluster.network.cut_both("broker-1", "broker-3")
        deletion = Deletion(cluster, 4, timeout_s=3)
        assert deletion.result(cluster) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert log_starts(cluster, 1, 2) == [4, 4]
        cluster.network.heal_all()
        assert Deletion(cluster, 4, timeout_s=60).result(cluster) == (0, 4)
        assert log_starts(cluster, 1, 2, 3) == [4, 4, 4]


def test_a_follower_that_dies_is_not_waited_for_any_more() -> None:
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.brokers[3].kill()
        assert Deletion(cluster, 4, timeout_s=30).result(cluster) == (0, 4)


def test_a_leader_that_is_followed_by_another_says_so() -> None:
    with simulated_cluster(3) as cluster:
        stored(cluster)
        cluster.network.cut_both("broker-1", "broker-2")
        cluster.network.cut_both("broker-1", "broker-3")
        deletion = Deletion(cluster, 4, timeout_s=30)
        cluster.network.cut_both("broker-1", "coordinator")
        assert deletion.result(cluster) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
