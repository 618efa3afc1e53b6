"""P9: a broker that knows its session to be lost leads nothing (C6)."""

from tidelog.broker.cluster_session import NOT_REGISTERED
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.observation import Cluster, Sight


class SessionLossChecker:
    """Looks at every leader whether its broker is registered, as far as the broker knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        broker = self._cluster.brokers[sight.broker_id].broker
        if sight.leads and broker is not None and broker.controller.broker_epoch == NOT_REGISTERED:
            raise self._cluster.fail(
                "a broker without a session leads nothing",
                f"broker {sight.broker_id} leads partition {sight.partition} in epoch "
                f"{sight.leader_epoch}",
            )

    def at_end(self) -> None:
        """Watched all along."""
