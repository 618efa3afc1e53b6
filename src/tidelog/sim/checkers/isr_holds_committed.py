"""P4: every member of the in-sync set holds everything below the leader's high watermark.

The set is the coordinator's, which is what the next leader will be chosen from. A member that is
down holds what it held when it went, unless it lost power: then it may not be elected before it has
left the set (R13), and that is for other checkers.
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.observation import Cluster, Sight


class IsrHoldsCommittedChecker:
    """Looks whenever a leader's high watermark, or its in-sync set, has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        if not sight.leads or sight.partition in self._cluster.excuses.partitions:
            return
        state = self._cluster.state(sight.partition)
        if state is None or state.leader_epoch != sight.leader_epoch:
            return
        for member in state.isr:
            end_offset = self._end_offset(member, sight.partition)
            if end_offset is not None and end_offset < sight.high_watermark:
                raise self._cluster.fail(
                    "every member of the isr holds what is committed",
                    f"partition {sight.partition} epoch {sight.leader_epoch}: high watermark "
                    f"{sight.high_watermark}, broker {member} of isr {list(state.isr)} ends at "
                    f"{end_offset}",
                )

    def _end_offset(self, member: int, partition: int) -> int | None:
        """None where nobody can say: it lost power, or is only just coming back."""
        broker = self._cluster.brokers[member]
        if broker.has_lost_power_since_ready:
            return None
        runner = broker.runner(self._cluster.topic, partition)
        if runner is not None and not runner.is_offline:
            return runner.log.log_end_offset
        return self._cluster.last_end_offsets.get((member, partition))

    def at_end(self) -> None:
        """Watched all along."""
