"""A controller that hangs is succeeded, and nobody goes on waiting for its answers (C3)."""

from tests.support.simulated_cluster import simulated_cluster
from tidelog.base.errors import ErrorCode

TOPIC = "orders"
SESSION_S = 2.0
LAG_S = 0.5


def test_a_proposal_that_a_hanging_controller_was_sent_is_made_to_the_next_one() -> None:
    """It was after thirty seconds, and writers who asked for acks=all waited with it."""
    settings = {"replica.lag.time.max.ms": str(int(LAG_S * 1_000))}
    with simulated_cluster(4, settings) as cluster:
        cluster.create(TOPIC, (2, 4))
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        process = cluster.brokers[1].process
        assert process is not None
        process.pause()
        cluster.network.cut_both("broker-2", "broker-4")
        began_at_s = cluster.world.agenda.now_s
        assert cluster.produce(TOPIC, 1).error_code == ErrorCode.NONE
        assert cluster.world.agenda.now_s - began_at_s < SESSION_S + 3.0
        assert cluster.state(TOPIC).isr == (2,)
