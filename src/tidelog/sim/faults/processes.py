"""Brokers that are killed, lose power, stop for a while, or are restarted."""

from functools import partial

from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.faults.scene import FaultKind, Scene

POWER_CUT_SHARE = 0.4


class ProcessFaults:
    """One broker at a time, unless the plan allows more."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        cuts_power = scene.plan.cuts_power
        self.kinds = [
            FaultKind("kill", 6, self._kill),
            FaultKind("power cut", 4 if cuts_power else 0, self._power_cut),
            FaultKind(
                "power cut of the controller",
                3 if cuts_power else 0,
                self._power_cut_of_controller,
            ),
            FaultKind("pause", 4, self._pause),
            FaultKind("pause leader past its session", 2, self._pause_leader),
            FaultKind("pause controller past its session", 2, self._pause_controller),
            FaultKind("clean restart", 3, self._restart),
            FaultKind("kill leader", 4, self._kill_leader),
            FaultKind("kill controller", 2, self._kill_controller),
            FaultKind("kill leaders in a row", 3, self._kill_leaders_in_a_row),
            FaultKind("outage", 2, self._outage),
        ]

    # -- killed ----------------------------------------------------------------------------------

    def _kill(self) -> None:
        self._kill_this(self._scene.victim())

    def _kill_this(self, victim: SimulatedBroker | None) -> None:
        scene = self._scene
        if victim is None or not scene.may_take(victim):
            return
        scene.take(victim, "kill -9")
        victim.kill()
        scene.later(partial(scene.start_again, victim))

    def _kill_leader(self) -> None:
        self._kill_this(self._scene.leader())

    def _kill_controller(self) -> None:
        self._kill_this(self._scene.cluster.controller())

    def _kill_leaders_in_a_row(self) -> None:
        """The next leader dies before it has done much."""
        scene = self._scene
        partition = scene.any_partition()
        self._kill_this(scene.leader_of(partition))
        scene.after(
            scene.random.uniform(0.01, 0.08),
            lambda: self._kill_this(scene.leader_of(partition)),
        )

    def _outage(self) -> None:
        """All at once, some of them with their machines; back in any order."""
        scene = self._scene
        if scene.plan.down_at_once < len(scene.brokers):
            self._kill()
            return
        for broker in scene.brokers:
            if scene.random.random() < POWER_CUT_SHARE and scene.plan.cuts_power:
                self.cut_power_of(broker, scene.any_duration_s())
            else:
                self._kill_this(broker)

    def _power_cut(self) -> None:
        self.cut_power_of(self._scene.victim(), self._scene.any_duration_s())

    def _power_cut_of_controller(self) -> None:
        """It is back before its session has ended: nobody has seen it go."""
        scene = self._scene
        off_s = scene.random.uniform(0.05, scene.plan.session_timeout_s)
        self.cut_power_of(scene.cluster.controller(), off_s)

    def cut_power_of(self, victim: SimulatedBroker | None, off_s: float) -> None:
        scene = self._scene
        if victim is None or not scene.may_take(victim):
            return
        scene.take(victim, "power cut")
        victim.power_cut(scene.random)
        scene.cluster.on_power_cut(victim.broker_id)
        scene.after(off_s, partial(scene.start_again, victim))

    # -- stopped for a while ---------------------------------------------------------------------

    def _pause(self) -> None:
        self.pause(self._scene.victim(), self._scene.any_duration_s())

    def _pause_leader(self) -> None:
        """It wakes up as a leader that others have replaced."""
        self.pause(self._scene.leader(), self._scene.past_session_s())

    def _pause_controller(self) -> None:
        self.pause(self._scene.cluster.controller(), self._scene.past_session_s())

    def pause(self, victim: SimulatedBroker | None, duration_s: float) -> None:
        scene = self._scene
        if victim is None or not scene.may_take(victim):
            return
        process = victim.process
        assert process is not None
        scene.take(victim, "SIGSTOP")
        process.pause()

        def resume() -> None:
            scene.unwell.discard(victim.broker_id)
            if process.is_alive:
                scene.note("SIGCONT", victim.broker_id)
                process.resume()

        scene.after(duration_s, resume)

    def _restart(self) -> None:
        victim = self._scene.victim()
        if victim is not None:
            self._scene.take(victim, "SIGTERM")
            victim.stop()
            self._scene.later(partial(self._start_when_ended, victim))

    def _start_when_ended(self, broker: SimulatedBroker) -> None:
        if broker.is_running:
            self._scene.later(partial(self._start_when_ended, broker))
        else:
            self._scene.start_again(broker)
