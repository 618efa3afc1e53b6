"""Disks that are slow or full, and processes that die in the middle of a write."""

from functools import partial

from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.faults.scene import FaultKind, Scene

CHANGES_MAX = 30


class DiskFaults:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.kinds = [
            FaultKind("slow disk", 2, self._slow),
            FaultKind("full disk", 2, self._fill),
            FaultKind("die in a write", 3, self._die_in_a_write),
        ]

    def _slow(self) -> None:
        scene = self._scene
        broker = scene.random.choice(scene.brokers)
        broker.disk.slow(scene.random.choice([5.0, 50.0]))
        scene.later(broker.disk.heal)

    def _fill(self) -> None:
        victim = self._scene.victim()
        if victim is not None:
            self._scene.take(victim, "disk full")
            victim.disk.fill()
            self._scene.later(partial(self._make_room, victim))

    def _make_room(self, victim: SimulatedBroker) -> None:
        self._scene.unwell.discard(victim.broker_id)
        victim.disk.heal()

    def _die_in_a_write(self) -> None:
        scene = self._scene
        victim = scene.victim()
        if victim is not None:
            scene.take(victim, "dies in a write")
            victim.disk.kill_after(scene.random.randint(1, CHANGES_MAX))
            scene.later(partial(self._kill_if_still_there, victim))

    def _kill_if_still_there(self, victim: SimulatedBroker) -> None:
        victim.disk.heal()
        if victim.is_running:
            victim.kill()
        self._scene.start_again(victim)
