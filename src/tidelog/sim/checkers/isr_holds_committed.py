"""P4: every member of the in-sync set holds everything that is committed.

The set is the coordinator's, which is what the next leader will be chosen from. A member that is
down holds what it held when it went, unless it lost power: then nobody can say until it has left
the set, or was given a role in it, which the controller must not do before (R13).
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.observation import Cluster, Sight


class IsrHoldsCommittedChecker:
    """Looks at all members whenever something about a replica has changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        partition = sight.partition
        state = self._cluster.state(partition)
        if state is None or self._cluster.is_excused(partition):
            return
        high_watermark = self._cluster.high_watermarks[partition]
        for member in state.isr:
            end_offset = self._end_offset(member, partition)
            if end_offset is not None and end_offset < high_watermark:
                raise self._cluster.fail(
                    "every member of the isr holds what is committed",
                    f"partition {partition}: high watermark {high_watermark}, broker {member} of "
                    f"isr {list(state.isr)} ends at {end_offset}",
                )

    def _end_offset(self, member: int, partition: int) -> int | None:
        """None where nobody can say."""
        if self._cluster.excuses.has_lost(member, partition):
            return None
        runner = self._cluster.brokers[member].runner(self._cluster.topic, partition)
        if runner is not None and not runner.is_offline:
            return runner.log.log_end_offset
        return self._cluster.last_end_offsets.get((member, partition))

    def at_end(self) -> None:
        """Watched all along."""
