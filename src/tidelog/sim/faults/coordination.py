"""Sessions that end, and a coordinator that does not answer."""

from tidelog.sim.faults.scene import FaultKind, Scene


class CoordinationFaults:
    """What the coordinator has acknowledged, it keeps."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._coordination = scene.coordination
        self.kinds = [
            FaultKind("expire session", 3, self._expire),
            FaultKind("coordinator away", 1, self._go_away),
            FaultKind("lost answers of the coordinator", 2, self._break_often),
        ]

    def _expire(self) -> None:
        host, _ = self._scene.two_hosts()
        self._coordination.expire_sessions_of(host)

    def _go_away(self) -> None:
        self._coordination.go_away()
        self._scene.later(self._coordination.come_back)

    def _break_often(self) -> None:
        self._coordination.break_often(0.2)
        self._scene.later(lambda: self._coordination.break_often(0.0))
