"""Ways between machines that are cut, slow or reset."""

from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.faults.scene import COORDINATOR, FaultKind, Scene
from tidelog.sim.links import Conditions
from tidelog.sim.operations import Operations


class LinkFaults:
    """Any number of them at once. What TCP was given arrives when the way is free again."""

    def __init__(self, scene: Scene, operations: Operations) -> None:
        self._scene = scene
        self._network = scene.network
        self._operations = operations
        self.kinds = [
            FaultKind("cut one way", 3, self._cut_one_way),
            FaultKind("cut both ways", 3, self._cut_both_ways),
            FaultKind("isolate", 2, self._isolate),
            FaultKind("cut follower from leader", 2, self._cut_follower),
            FaultKind("leader does not hear its controller", 4, self._cut_leader_from_controller),
            FaultKind("cut from coordinator", 2, self._cut_from_coordinator),
            FaultKind("cut leader from coordinator", 2, self._cut_leader_from_coordinator),
            FaultKind("slow link", 2, self._slow_link),
            FaultKind("reset connections", 3, self._reset),
        ]

    def _cut_one_way(self) -> None:
        one, other = self._scene.two_hosts()
        self._network.cut(one, other)
        self._scene.later(lambda: self._network.heal(one, other))

    def _cut_both_ways(self) -> None:
        one, other = self._scene.two_hosts()
        self._network.cut_both(one, other)
        self._scene.later(lambda: self._network.heal_both(one, other))

    def _isolate(self) -> None:
        host, _ = self._scene.two_hosts()
        self._network.isolate(host)
        self._scene.later(self._network.heal_all)

    def _cut_follower(self) -> None:
        """Longer than the leader waits for it, so that the in-sync set has to change."""
        scene = self._scene
        leader = scene.leader()
        if leader is None:
            return
        follower = scene.random.choice([one for one in scene.brokers if one is not leader])
        self._network.cut_both(leader.host, follower.host)
        scene.after(scene.past_lag_s(), lambda: self._network.heal_both(leader.host, follower.host))

    def _cut_leader_from_controller(self) -> None:
        """The leadership moves, and who had it does not hear of it: it speaks on as a leader."""
        scene = self._scene
        partition = scene.any_partition()
        leader, controller = scene.leader_of(partition), scene.cluster.controller()
        if leader is None or controller is None or leader is controller:
            return
        self._network.cut(controller.host, leader.host)
        scene.after(scene.past_lag_s(), lambda: self._heal(controller, leader))
        self._operations.move_leader(partition)

    def _heal(self, source: SimulatedBroker, target: SimulatedBroker) -> None:
        self._network.heal(source.host, target.host)

    def _cut_from_coordinator(self) -> None:
        host, _ = self._scene.two_hosts()
        self._network.cut_both(host, COORDINATOR)
        self._scene.later(lambda: self._network.heal_both(host, COORDINATOR))

    def _cut_leader_from_coordinator(self) -> None:
        """Longer than its session, while clients and followers reach it."""
        leader = self._scene.leader()
        if leader is None:
            return
        self._network.cut_both(leader.host, COORDINATOR)
        self._scene.after(
            self._scene.past_session_s(), lambda: self._network.heal_both(leader.host, COORDINATOR)
        )

    def _slow_link(self) -> None:
        one, other = self._scene.two_hosts()
        slow = Conditions(
            latency_min_s=0.01,
            latency_max_s=0.5,
            loss_probability=0.05,
            retransmission_s=0.3,
            split_probability=0.3,
            bytes_per_s=200_000,
        )
        self._network.set_conditions(one, other, slow)
        self._scene.later(self._network.restore_conditions)

    def _reset(self) -> None:
        self._network.reset(*self._scene.two_hosts())
