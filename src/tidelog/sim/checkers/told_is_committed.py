"""P11: who is told that a record is safe is told so when it is committed, and not before (R5, R8).

That is a producer with acks=all, and a consumer of any record. What is not committed can vanish
with the next leader; in most runs it does not, so that looking for what is lost in the end is not
enough.
"""

from collections.abc import Sequence

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.batches import ACKS_ALL
from tidelog.sim.ledger import Acknowledged, Consumed
from tidelog.sim.observation import Cluster, Sight
from tidelog.sim.process import Process


class ToldIsCommittedChecker:
    """Looks at what the ledger has that it had not before."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._acknowledged_count = 0
        self._consumed_count = 0
        cluster.world.observe(self._on_turn)

    def _on_turn(self, _process: Process) -> None:
        ledger = self._cluster.ledger
        if len(ledger.acknowledged) > self._acknowledged_count:
            new = ledger.acknowledged[self._acknowledged_count :]
            self._acknowledged_count = len(ledger.acknowledged)
            self._require_committed("acknowledged", [one for one in new if one.acks == ACKS_ALL])
        if len(ledger.consumed) > self._consumed_count:
            new_consumed = ledger.consumed[self._consumed_count :]
            self._consumed_count = len(ledger.consumed)
            self._require_committed("consumed", new_consumed)

    def _require_committed(
        self, what: str, records: Sequence[Acknowledged] | Sequence[Consumed]
    ) -> None:
        for one in records:
            high_watermark = self._cluster.high_watermarks[one.partition]
            if one.offset >= high_watermark and not self._cluster.is_excused(one.partition):
                raise self._cluster.fail(
                    f"what is {what} is committed",
                    f"{one.value!r} at offset {one.offset} of partition {one.partition}, where no "
                    f"high watermark has been above {high_watermark}",
                )

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Told to clients, not to be seen at a replica."""

    def at_end(self) -> None:
        """Watched all along."""
