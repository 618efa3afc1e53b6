"""Coordinators that are paused, succeeded, and lead again as soon as they are back.

They find questions in their sockets that others have answered meanwhile. Chance alone gets there
seldom: the pause has to outlast the session and the patience of who asked, and the election has to
come while what was found is still kept (`broker/coordinators.py`).
"""

from functools import partial

from tidelog.base.ids import TopicPartition
from tidelog.core.controller.names import INTERNAL_TOPICS
from tidelog.sim.brokers import SimulatedBroker
from tidelog.sim.faults.processes import ProcessFaults
from tidelog.sim.faults.scene import FaultKind, Scene
from tidelog.sim.operations import Operations

PATIENCE_MAX_S = 3.0
ELECT_EVERY_S = 0.1
ELECTIONS_MAX = 20


class ComebackFaults:
    """For runs that aim at coordinators."""

    def __init__(self, scene: Scene, processes: ProcessFaults, operations: Operations) -> None:
        self._scene = scene
        self._processes = processes
        self._operations = operations
        self.kinds = [FaultKind("pause coordinator, which leads again", 12, self._pause)]

    def _pause(self) -> None:
        scene = self._scene
        partition = scene.any_partition_of(scene.random.choice(sorted(INTERNAL_TOPICS)))
        leader = None if partition is None else scene.leader_of(partition)
        if partition is None or leader is None or not scene.may_take(leader):
            return
        duration_s = scene.past_session_s() + scene.random.uniform(0.0, PATIENCE_MAX_S)
        self._processes.pause(leader, duration_s)
        scene.after(duration_s, partial(self._elect, partition, leader, ELECTIONS_MAX))

    def _elect(self, partition: TopicPartition, broker: SimulatedBroker, tries_left: int) -> None:
        state = self._scene.cluster.state_of(partition)
        if state is None or state.leader == broker.broker_id or not tries_left:
            return
        self._operations.move_leader_to(partition, broker.broker_id)
        self._scene.after(ELECT_EVERY_S, partial(self._elect, partition, broker, tries_left - 1))
