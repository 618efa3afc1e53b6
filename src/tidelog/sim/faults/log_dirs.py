"""Log dirs that fail on their own, and whatever happens to a broker while a replica changes places.

The latter is aimed: a change of places takes a few hundredths of a second, and what can go wrong
with a move goes wrong there (`storage/future_log.py`, steps 3 to 6).
"""

from collections.abc import Callable
from functools import partial

from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.faults.processes import ProcessFaults
from tidelog.sim.faults.scene import FaultKind, Scene

LOOK_EVERY_S = 0.002
LOOKS_MAX = 2_000
CHANGE_MAX_PIECES = 6
"""So many pieces of work on a disk it takes to change places, more or less."""

Accident = Callable[[SimulatedBroker], None]


class LogDirFaults:
    """For brokers that have several of them."""

    def __init__(self, scene: Scene, processes: ProcessFaults) -> None:
        self._scene = scene
        self._processes = processes
        self.kinds = [
            FaultKind("failing log dir", 4, partial(self._begin, self._fail_one)),
            FaultKind("full log dir", 2, partial(self._begin, self._fill_one)),
            FaultKind("kill in a change of places", 15, partial(self._aim, self._kill)),
            FaultKind(
                "failing log dir in a change of places", 6, partial(self._aim, self._fail_one)
            ),
        ]
        if scene.plan.cuts_power:
            self.kinds.append(
                FaultKind("power cut in a change of places", 6, partial(self._aim, self._cut_power))
            )

    def _begin(self, accident: Accident) -> None:
        victim = self._scene.victim()
        if victim is not None:
            accident(victim)

    def _aim(self, accident: Accident) -> None:
        self._look(accident, LOOKS_MAX)

    def _look(self, accident: Accident, looks_left: int) -> None:
        scene = self._scene
        for broker in scene.brokers:
            if scene.may_take(broker) and _changes_places(broker):
                within_s = CHANGE_MAX_PIECES * broker.disk.work_max_s
                scene.after(scene.random.uniform(0.0, within_s), partial(accident, broker))
                return
        if looks_left:
            scene.after(LOOK_EVERY_S, partial(self._look, accident, looks_left - 1))

    # -- what goes wrong -------------------------------------------------------------------------

    def _kill(self, victim: SimulatedBroker) -> None:
        """It is back before its session has ended, so what it lacks by then nobody expects."""
        scene = self._scene
        if scene.may_take(victim):
            scene.take(victim, "kill -9")
            victim.kill()
            scene.after(scene.random.uniform(0.05, 1.0), partial(scene.start_again, victim))

    def _cut_power(self, victim: SimulatedBroker) -> None:
        self._processes.cut_power_of(victim, self._scene.any_duration_s())

    def _fail_one(self, victim: SimulatedBroker) -> None:
        if self._scene.may_take(victim):
            self._scene.take(victim, "log dir fails")
            victim.disk.fail_in(self._scene.random.choice(victim.log_dirs))
            self._scene.later(partial(self._mend, victim))

    def _fill_one(self, victim: SimulatedBroker) -> None:
        if self._scene.may_take(victim):
            self._scene.take(victim, "log dir full")
            victim.disk.fill_in(self._scene.random.choice(victim.log_dirs))
            self._scene.later(partial(self._mend, victim))

    def _mend(self, victim: SimulatedBroker) -> None:
        self._scene.unwell.discard(victim.broker_id)
        victim.disk.heal()


def _changes_places(broker: SimulatedBroker) -> bool:
    return (
        broker.is_running
        and broker.broker is not None
        and any(one.move is not None and one.is_rearranged for one in broker.broker.partitions)
    )
