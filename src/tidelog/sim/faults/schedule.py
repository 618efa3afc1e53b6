"""What goes wrong in a simulation, when, and for how long: drawn from the seed.

A fault begins, lasts, and ends; several may overlap. When the faults of a run are over, everything
is mended at once and everybody is started.
"""

from tidelog.sim.faults.comebacks import ComebackFaults
from tidelog.sim.faults.coordination import CoordinationFaults
from tidelog.sim.faults.disks import DiskFaults
from tidelog.sim.faults.links import LinkFaults
from tidelog.sim.faults.log_dirs import LogDirFaults
from tidelog.sim.faults.processes import ProcessFaults
from tidelog.sim.faults.scene import FaultKind, Scene
from tidelog.sim.operations import Operations


class Faults:
    """Begins faults until told to stop."""

    def __init__(self, scene: Scene, operations: Operations) -> None:
        self._scene = scene
        self._random = scene.random
        self.counts: dict[str, int] = {}
        processes = ProcessFaults(scene)
        self._kinds: list[FaultKind] = [
            *processes.kinds,
            *LinkFaults(scene, operations).kinds,
            *CoordinationFaults(scene).kinds,
            *DiskFaults(scene).kinds,
        ]
        if any(len(broker.log_dirs) > 1 for broker in scene.brokers):
            self._kinds += LogDirFaults(scene, processes).kinds
        if scene.plan.aims_at_coordinators:
            self._kinds += ComebackFaults(scene, processes, operations).kinds
        self._weights = [kind.weight for kind in self._kinds]

    def start(self) -> None:
        self._next()

    def stop(self) -> None:
        """No more faults; everything is mended and everybody started."""
        scene = self._scene
        scene.is_over = True
        scene.network.heal_all()
        scene.network.restore_conditions()
        scene.coordination.heal()
        for broker in scene.brokers:
            broker.disk.heal()
            if broker.is_paused:
                assert broker.process is not None
                broker.process.resume()
        scene.unwell.clear()
        scene.start_what_ended()

    def _next(self) -> None:
        if self._scene.is_over:
            return
        (kind,) = self._random.choices(self._kinds, self._weights)
        self.counts[kind.name] = self.counts.get(kind.name, 0) + 1
        kind.begin()
        self._scene.world.call_later(
            self._random.uniform(0.05, self._scene.plan.pause_between_max_s), self._next
        )
