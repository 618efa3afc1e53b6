"""What every fault needs: a victim, chance, and a way to end.

What is wrong with a broker's process or disk excludes anything else of that kind: such a broker is
*unwell*, and how many may be so at once is the plan's to say. Cuts in the network come on top.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.faults.plan import FaultPlan
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.observation import Cluster
from tidelog.sim.world import World

COORDINATOR = "coordinator"


class FaultKind(NamedTuple):
    """`weight` is how often it is chosen, beside the others."""

    name: str
    weight: int
    begin: Callable[[], None]


class Scene:
    """Shared by all kinds of faults of a run."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        coordination: SimulatedCoordinatorService,
        cluster: Cluster,
        plan: FaultPlan,
    ) -> None:
        self.world = world
        self.network = network
        self.coordination = coordination
        self.cluster = cluster
        self.plan = plan
        self.random = world.random_for("faults")
        self.is_over = False
        self.unwell: set[int] = set()

    @property
    def brokers(self) -> list[SimulatedBroker]:
        return list(self.cluster.brokers.values())

    @property
    def may_take_another(self) -> bool:
        return len(self.unwell) < self.plan.down_at_once

    def any_duration_s(self) -> float:
        """A time that the plan bounds."""
        return self.random.uniform(0.05, self.plan.duration_max_s)

    def later(self, end: Callable[[], object]) -> None:
        """End a fault after such a time."""
        self.after(self.any_duration_s(), end)

    def after(self, delay_s: float, end: Callable[[], object]) -> None:
        def run() -> None:
            if not self.is_over:
                end()

        self.world.call_later(delay_s, run)

    def past_session_s(self) -> float:
        """A little longer than the coordinator waits for somebody of whom it hears nothing."""
        return self.plan.session_timeout_s + self.random.uniform(0.0, 1.5)

    def past_lag_s(self) -> float:
        """A little longer than a leader waits for a follower that asks for nothing."""
        return self.plan.replica_lag_time_max_s + self.random.uniform(0.0, 2.5)

    # -- who -------------------------------------------------------------------------------------

    def victim(self) -> SimulatedBroker | None:
        """A running broker with which nothing is wrong, if another one may be unwell."""
        self.start_what_ended()
        well = [one for one in self.brokers if self.may_take(one)]
        return self.random.choice(well) if well else None

    def may_take(self, broker: SimulatedBroker | None) -> bool:
        return (
            broker is not None
            and self.may_take_another
            and broker.broker_id not in self.unwell
            and broker.is_running
        )

    def start_what_ended(self) -> None:
        """As a supervisor does: a disk failed, or a session was lost at start."""
        for broker in self.brokers:
            if not broker.is_running and broker.broker_id not in self.unwell:
                broker.start()

    def leader(self) -> SimulatedBroker | None:
        """The leader of some partition."""
        return self.leader_of(self.any_partition())

    def any_partition(self) -> TopicPartition:
        """One of those that the plan aims at."""
        counts = {topic: self.cluster.partition_count_of(topic) for topic in self.plan.aimed_topics}
        partitions = [
            TopicPartition(topic, number)
            for topic, count in counts.items()
            for number in range(count)
        ]
        return partitions[self.random.randrange(len(partitions))]

    def any_partition_of(self, topic: str) -> TopicPartition | None:
        """None while the topic has none."""
        count = self.cluster.partition_count_of(topic)
        return TopicPartition(topic, self.random.randrange(count)) if count else None

    def leader_of(self, partition: TopicPartition) -> SimulatedBroker | None:
        state = self.cluster.state_of(partition)
        return None if state is None else self.cluster.brokers.get(state.leader)

    def two_hosts(self) -> tuple[str, str]:
        one, other = self.random.sample(self.brokers, 2)
        return one.host, other.host

    # -- what ------------------------------------------------------------------------------------

    def take(self, broker: SimulatedBroker, phrase: str) -> None:
        """From now on something is wrong with `broker`."""
        self.unwell.add(broker.broker_id)
        self.note(phrase, broker.broker_id)

    def note(self, phrase: str, broker_id: int) -> None:
        self.world.trace.note("faults", phrase, {"broker": broker_id})

    def start_again(self, broker: SimulatedBroker) -> None:
        self.unwell.discard(broker.broker_id)
        if not broker.is_running:
            broker.start()
