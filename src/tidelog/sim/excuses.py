"""When a cluster may lose what was acknowledged, and only then.

A record that was acknowledged is on every member of the in-sync set. It may be gone when every
member of the set that the coordinator holds has lost power, and with it perhaps what was not
flushed. Killing a process takes nothing from its disk, so it is no excuse, however many are killed.

    power cut ──▶ its broker has lost something, perhaps ─┬▶ it is registered again, and not in the
                                                          │  set: what it has now, it has fetched
                                                          └▶ it was given a role again: whoever did
                                                             so answers for it

A partition that is excused once is not looked at any more for the rest of a run, except that its
replicas become equal in the end. So are partitions of which somebody was elected from outside the
set, where the settings of a run allow that (R9).
"""

from collections.abc import Callable, Mapping

from tidelog.base.ids import NO_BROKER
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.stored_state import StoredState

Find = Callable[[int], StoredState | None]


class Excuses:
    """Keeps who has lost something, and the partitions that are excused."""

    def __init__(
        self, brokers: Mapping[int, SimulatedBroker], *, partition_count: int, allow_unclean: bool
    ) -> None:
        self.partitions: set[int] = set()
        self._brokers = brokers
        self._allow_unclean = allow_unclean
        self._lost: list[set[int]] = [set() for _ in range(partition_count)]
        self._last: list[StoredState | None] = [None] * partition_count

    def has_lost(self, broker_id: int, partition: int) -> bool:
        """Whether a broker may lack what it has been known to hold."""
        return broker_id in self._lost[partition]

    def on_power_cut(self, broker_id: int, find: Find) -> None:
        for partition, lost in enumerate(self._lost):
            lost.add(broker_id)
            self._judge(partition, find(partition))

    def on_registered(self, find: Find) -> None:
        """Some broker is registered that was not."""
        for partition in range(len(self._lost)):
            self._judge(partition, find(partition))

    def on_role(self, broker_id: int, partition: int) -> None:
        """A broker leads or follows in the life it lives now."""
        self._lost[partition].discard(broker_id)

    def on_state(self, partition: int, state: StoredState | None) -> None:
        """The coordinator holds another state."""
        before, self._last[partition] = self._last[partition], state
        if (
            self._allow_unclean
            and before is not None
            and state is not None
            and state.leader not in (NO_BROKER, *before.isr)
        ):
            self.partitions.add(partition)
        self._judge(partition, state)

    def _judge(self, partition: int, state: StoredState | None) -> None:
        lost = self._lost[partition]
        if state is None or not lost:
            return
        if lost.issuperset(state.isr):
            self.partitions.add(partition)
        for broker_id in lost.difference(state.isr):
            if self._brokers[broker_id].is_registered:
                lost.discard(broker_id)
