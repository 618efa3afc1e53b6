"""P1: in one leader epoch of a partition, one life of one broker leads, and nobody else ever does.

Also the same broker may not lead twice in one epoch, with a restart in between: its log may have
lost its end, and the records it wrote next would have the offsets and the epoch of those it lost.
And it is the broker that the coordinator has as the leader of that epoch.
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.observation import Cluster, Sight


class OneLeaderPerEpochChecker:
    """Remembers who led when."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._leaders: dict[tuple[int, int], tuple[int, int]] = {}

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        if not sight.leads:
            return
        me = (sight.broker_id, sight.life)
        known = self._leaders.setdefault((sight.partition, sight.leader_epoch), me)
        if known != me:
            raise self._cluster.fail(
                "one leader per epoch",
                f"partition {sight.partition} epoch {sight.leader_epoch}: broker {known[0]} "
                f"(life {known[1]}) and broker {me[0]} (life {me[1]})",
            )
        state = self._cluster.state(sight.partition)
        if state is None or sight.leader_epoch > state.leader_epoch:
            raise self._cluster.fail(
                "nobody leads in an epoch that is not stored",
                f"partition {sight.partition}: broker {me[0]} leads in epoch "
                f"{sight.leader_epoch}, stored is {state}",
            )
        if sight.leader_epoch == state.leader_epoch and state.leader != sight.broker_id:
            raise self._cluster.fail(
                "who leads is who is stored as the leader",
                f"partition {sight.partition}: broker {me[0]} leads, stored is {state}",
            )

    def at_end(self) -> None:
        """Watched all along."""
