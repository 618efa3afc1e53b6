"""Checkers see every replica after every turn of its broker that changed something about it."""

from tests.support.simulated_cluster import SimulatedCluster, simulated_cluster
from tidelog.base.errors import ErrorCode
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.ledger import Ledger
from tidelog.sim.observation import Cluster, Observation, Sight

TOPIC = "seen"


class _Remembering:
    """A checker that finds everything right."""

    def __init__(self) -> None:
        self.sights: list[Sight] = []

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        assert runner.log.log_end_offset == sight.log_end_offset
        list(runner.log.headers_from(runner.log.log_start_offset))
        self.sights.append(sight)

    def at_end(self) -> None:
        """Never reached."""


def observed(cluster: SimulatedCluster) -> _Remembering:
    seen = Cluster(
        cluster.world,
        cluster.coordination,
        cluster.brokers,
        Ledger(),
        topic=TOPIC,
        partition_count=1,
        allow_unclean=False,
    )
    checker = _Remembering()
    Observation(seen, [checker])
    return checker


def test_the_log_of_every_replica_is_seen_to_grow() -> None:
    with simulated_cluster(3) as cluster:
        cluster.create(TOPIC, (1, 2, 3))
        checker = observed(cluster)
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        cluster.run_for(2)
        ends = {(sight.broker_id, sight.log_end_offset) for sight in checker.sights}
        assert ends >= {(1, 1), (2, 1), (3, 1)}
        assert {sight.high_watermark for sight in checker.sights if sight.leads} == {0, 1}
