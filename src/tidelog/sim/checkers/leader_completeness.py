"""P10: who begins to lead has everything that is committed.

Looked at when a leader is first seen in the epoch that the coordinator has: nobody can have
committed anything after it then. One that hears of its election late, when somebody else leads by
now, may lack what its successors have committed.
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.observation import Cluster, Sight


class LeaderCompletenessChecker:
    """Remembers in which epochs it has seen a leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: set[tuple[int, int]] = set()

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        place = (sight.partition, sight.leader_epoch)
        if not sight.leads or place in self._seen:
            return
        self._seen.add(place)
        state = self._cluster.state(sight.partition)
        if state is None or state.leader_epoch != sight.leader_epoch:
            return
        committed_end = self._cluster.committed_ends[sight.partition]
        if sight.log_end_offset < committed_end and not self._cluster.is_excused(sight.partition):
            raise self._cluster.fail(
                "who leads has everything that is committed",
                f"partition {sight.partition} epoch {sight.leader_epoch}: the log of broker "
                f"{sight.broker_id} ends at {sight.log_end_offset}, committed is {committed_end}",
            )

    def at_end(self) -> None:
        """Watched all along."""
