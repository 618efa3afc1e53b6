"""What goes wrong in a simulation, when, and for how long: drawn from the seed.

A fault begins, lasts, and ends; several may overlap. What is wrong with a broker's process excludes
anything else that is wrong with it, and how many may be down at once is drawn for each run:

    most runs      one broker at a time: what a cluster of three has to bear without a pause
    some runs      two, or all of them: nothing may be lost even so, unless every disk that counts
                   lost power, in which case the partition is excused
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.coordinator import SimulatedCoordinatorService
from tidelog.sim.links import Conditions
from tidelog.sim.network import SimulatedNetwork
from tidelog.sim.observation import Cluster
from tidelog.sim.world import World

COORDINATOR = "coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How rough a run is."""

    down_at_once: int
    pause_between_max_s: float
    duration_max_s: float

    @classmethod
    def draw(cls, random: Random, broker_count: int) -> "FaultPlan":
        down = random.choice([1, 1, 1, 1, 2, broker_count])
        return cls(
            down_at_once=down,
            pause_between_max_s=random.choice([1.5, 3.0, 6.0]),
            duration_max_s=random.choice([1.0, 4.0, 8.0]),
        )


class Faults:
    """Begins faults until told to stop, and mends everything then."""

    def __init__(
        self,
        world: World,
        network: SimulatedNetwork,
        coordination: SimulatedCoordinatorService,
        cluster: Cluster,
        plan: FaultPlan,
    ) -> None:
        self._world = world
        self._network = network
        self._coordination = coordination
        self._cluster = cluster
        self._plan = plan
        self._random = world.random_for("faults")
        self._is_over = False
        self._unwell: set[int] = set()
        self.counts: dict[str, int] = {}
        self._kinds: list[tuple[str, int, Callable[[], None]]] = [
            ("kill", 6, self._kill),
            ("power cut", 4, self._power_cut),
            ("pause", 4, self._pause),
            ("clean restart", 3, self._restart),
            ("kill leader", 4, self._kill_leader),
            ("kill controller", 2, self._kill_controller),
            ("kill leaders in a row", 3, self._kill_leaders_in_a_row),
            ("outage", 2, self._outage),
            ("cut one way", 3, self._cut_one_way),
            ("cut both ways", 3, self._cut_both_ways),
            ("isolate", 2, self._isolate),
            ("cut from coordinator", 3, self._cut_from_coordinator),
            ("slow link", 2, self._slow_link),
            ("reset connections", 3, self._reset),
            ("expire session", 3, self._expire),
            ("coordinator away", 1, self._coordinator_away),
            ("lost answers of the coordinator", 2, self._break_often),
            ("slow disk", 2, self._slow_disk),
            ("full disk", 2, self._full_disk),
            ("die in a write", 3, self._die_in_a_write),
        ]

    def start(self) -> None:
        self._next()

    def stop(self) -> None:
        """No more faults; everything is mended and everybody started."""
        self._is_over = True
        self._network.heal_all()
        self._network.restore_conditions()
        self._coordination.heal()
        for broker in self._cluster.brokers.values():
            broker.disk.heal()
            if broker.is_paused:
                assert broker.process is not None
                broker.process.resume()
            if not broker.is_running:
                broker.start()
        self._unwell.clear()

    # -- the schedule ----------------------------------------------------------------------------

    def _next(self) -> None:
        if self._is_over:
            return
        kinds = [kind for kind in self._kinds for _ in range(kind[1])]
        name, _, begin = self._random.choice(kinds)
        self.counts[name] = self.counts.get(name, 0) + 1
        begin()
        self._world.call_later(
            self._random.uniform(0.05, self._plan.pause_between_max_s), self._next
        )

    def _later(self, end: Callable[[], None]) -> None:
        def run() -> None:
            if not self._is_over:
                end()

        self._world.call_later(self._random.uniform(0.05, self._plan.duration_max_s), run)

    def _victim(self) -> SimulatedBroker | None:
        """A broker with which nothing is wrong, if another one may go down."""
        for broker in self._cluster.brokers.values():
            if not broker.is_running and broker.broker_id not in self._unwell:
                broker.start()  # It ended by itself: a failed disk, a lost session at start.
        well = [one for one in self._cluster.brokers.values() if one.broker_id not in self._unwell]
        if not well or len(self._unwell) >= self._plan.down_at_once:
            return None
        return self._random.choice(well)

    def _take(self, broker: SimulatedBroker) -> None:
        self._unwell.add(broker.broker_id)

    def _note(self, broker: SimulatedBroker, phrase: str) -> None:
        self._world.trace.note("faults", phrase, {"broker": broker.broker_id})

    # -- processes -------------------------------------------------------------------------------

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._kill_this(victim)

    def _kill_this(self, victim: SimulatedBroker) -> None:
        if victim.broker_id in self._unwell or not victim.is_running:
            return
        self._take(victim)
        self._note(victim, "kill -9")
        victim.kill()
        self._later(lambda: self._start_again(victim))

    def _kill_leader(self) -> None:
        self._kill_leader_of(self._random.randrange(self._cluster.partition_count))

    def _kill_controller(self) -> None:
        controller = self._cluster.controller()
        if controller is not None and len(self._unwell) < self._plan.down_at_once:
            self._kill_this(controller)

    def _kill_leaders_in_a_row(self) -> None:
        """The next leader dies before it has done much."""
        if self._plan.down_at_once < 2:
            self._kill_leader()
            return
        partition = self._random.randrange(self._cluster.partition_count)
        self._kill_leader_of(partition)
        self._world.call_later(self._random.uniform(0.01, 0.08), self._kill_leader_of, partition)

    def _kill_leader_of(self, partition: int) -> None:
        state = self._cluster.state(partition)
        if self._is_over or state is None or len(self._unwell) >= self._plan.down_at_once:
            return
        leader = self._cluster.brokers.get(state.leader)
        if leader is not None:
            self._kill_this(leader)

    def _outage(self) -> None:
        """All at once, some of them with their machines; back in any order."""
        if self._plan.down_at_once < len(self._cluster.brokers):
            self._kill()
            return
        for broker in self._cluster.brokers.values():
            if broker.broker_id in self._unwell or not broker.is_running:
                continue
            self._take(broker)
            if self._random.random() < 0.4:
                self._note(broker, "power cut")
                broker.power_cut(self._random)
            else:
                self._note(broker, "kill -9")
                broker.kill()
            self._later(partial(self._start_again, broker))
        self._cluster.look_for_excuses()

    def _power_cut(self) -> None:
        victim = self._victim()
        if victim is None or not victim.is_running:
            return
        self._take(victim)
        self._note(victim, "power cut")
        victim.power_cut(self._random)
        self._cluster.look_for_excuses()
        self._later(lambda: self._start_again(victim))

    def _pause(self) -> None:
        victim = self._victim()
        if victim is None or victim.process is None or not victim.is_running:
            return
        process = victim.process
        self._take(victim)
        self._note(victim, "SIGSTOP")
        process.pause()

        def resume() -> None:
            self._unwell.discard(victim.broker_id)
            if process.is_alive:
                self._note(victim, "SIGCONT")
                process.resume()

        self._later(resume)

    def _restart(self) -> None:
        victim = self._victim()
        if victim is None or not victim.is_running:
            return
        self._take(victim)
        self._note(victim, "SIGTERM")
        victim.stop()
        self._later(lambda: self._start_when_ended(victim))

    def _start_when_ended(self, broker: SimulatedBroker) -> None:
        if broker.is_running:
            self._later(lambda: self._start_when_ended(broker))
        else:
            self._start_again(broker)

    def _start_again(self, broker: SimulatedBroker) -> None:
        self._unwell.discard(broker.broker_id)
        if not broker.is_running:
            broker.start()

    # -- network ---------------------------------------------------------------------------------

    def _two_hosts(self) -> tuple[str, str]:
        one, other = self._random.sample(sorted(self._cluster.brokers), 2)
        return self._cluster.brokers[one].host, self._cluster.brokers[other].host

    def _cut_one_way(self) -> None:
        one, other = self._two_hosts()
        self._network.cut(one, other)
        self._later(lambda: self._network.heal(one, other))

    def _cut_both_ways(self) -> None:
        one, other = self._two_hosts()
        self._network.cut_both(one, other)
        self._later(lambda: self._network.heal_both(one, other))

    def _isolate(self) -> None:
        host, _ = self._two_hosts()
        self._network.isolate(host)
        self._later(self._network.heal_all)

    def _slow_link(self) -> None:
        one, other = self._two_hosts()
        slow = Conditions(
            latency_min_s=0.01,
            latency_max_s=0.5,
            loss_probability=0.05,
            retransmission_s=0.3,
            split_probability=0.3,
            bytes_per_s=200_000,
        )
        self._network.set_conditions(one, other, slow)
        self._later(self._network.restore_conditions)

    def _reset(self) -> None:
        self._network.reset(*self._two_hosts())

    # -- coordination ----------------------------------------------------------------------------

    def _cut_from_coordinator(self) -> None:
        host, _ = self._two_hosts()
        self._network.cut_both(host, COORDINATOR)
        self._later(lambda: self._network.heal_both(host, COORDINATOR))

    def _expire(self) -> None:
        host, _ = self._two_hosts()
        self._coordination.expire_sessions_of(host)

    def _coordinator_away(self) -> None:
        self._coordination.go_away()
        self._later(self._coordination.come_back)

    def _break_often(self) -> None:
        self._coordination.break_often(0.2)
        self._later(lambda: self._coordination.break_often(0.0))

    # -- disks -----------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        broker = self._random.choice(list(self._cluster.brokers.values()))
        broker.disk.slow(self._random.choice([5.0, 50.0]))
        self._later(broker.disk.heal)

    def _full_disk(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        self._take(victim)
        self._note(victim, "disk full")
        victim.disk.fill()

        def heal() -> None:
            self._unwell.discard(victim.broker_id)
            victim.disk.heal()

        self._later(heal)

    def _die_in_a_write(self) -> None:
        victim = self._victim()
        if victim is None or not victim.is_running:
            return
        self._take(victim)
        self._note(victim, "dies in a write")
        victim.disk.kill_after(self._random.randint(1, 30))
        self._later(lambda: self._kill_if_still_there(victim))

    def _kill_if_still_there(self, victim: SimulatedBroker) -> None:
        victim.disk.heal()
        if victim.is_running:
            victim.kill()
        self._start_again(victim)
