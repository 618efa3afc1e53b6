"""P1: in one leader epoch of a partition, one life of one broker leads, and nobody else ever does.

Also the same broker may not lead twice in one epoch, with a restart in between: its log may have
lost its end, and the records it wrote next would have the offsets and the epoch of those it lost.
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

    def at_end(self) -> None:
        """Watched all along."""
