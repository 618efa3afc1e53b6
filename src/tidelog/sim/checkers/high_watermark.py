"""P2: within an epoch, the high watermark of who leads never moves back; nor is it, on any replica,
above the end of the log.
"""

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.observation import Cluster, Sight


class HighWatermarkChecker:
    """Remembers the high watermark of each leader."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._high_watermarks: dict[tuple[int, int, int, int], int] = {}

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        if sight.high_watermark > sight.log_end_offset and not self._cluster.is_excused(
            sight.partition
        ):
            raise self._cluster.fail(
                "a high watermark is never above the end of its log",
                f"partition {sight.partition}, broker {sight.broker_id}: {sight.high_watermark} "
                f"where the log ends at {sight.log_end_offset}",
            )
        if not sight.leads:
            return
        key = (sight.partition, sight.leader_epoch, sight.broker_id, sight.life)
        known = self._high_watermarks.get(key, 0)
        if sight.high_watermark < known:
            raise self._cluster.fail(
                "the high watermark never moves back within an epoch",
                f"partition {sight.partition} epoch {sight.leader_epoch}, broker "
                f"{sight.broker_id}: from {known} to {sight.high_watermark}",
            )
        self._high_watermarks[key] = sight.high_watermark

    def at_end(self) -> None:
        """Watched all along."""
