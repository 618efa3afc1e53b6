"""Which brokers a target means at this moment (B3).

Who has a role is asked of the brokers, and waited for while nobody has it to whom the deed can be
done: while a dead leader is still believed to lead, the next one is about to. Of several, those are
drawn to whom it can be done.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from tidelog.client.coordinators import GROUP, TRANSACTION, find_coordinator
from tidelog.client.errors import ClientError
from tidelog.lab.cluster_look import ClusterLook, ProcessState, look_at, process_state
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.fault_kinds import Role
from tidelog.lab.local_cluster import LocalCluster, NotInTime
from tidelog.lab.roles import group_size
from tidelog.lab.running import find_brokers
from tidelog.lab.targets import (
    BrokersTarget,
    CoordinatorTarget,
    PartitionTarget,
    RoleTarget,
    Target,
)

_FOUND_WITHIN_S: Final = 30.0
_ANSWER_WITHIN_S: Final = 1.0
_POLL_INTERVAL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Eligible:
    """To whom a deed can be done: those in one of `states`, which `word` sums up."""

    states: frozenset[ProcessState]
    word: str

    def why_not(self, broker_id: int, state: ProcessState) -> str:
        """Why it cannot be done to this one, which is in another state."""
        if state is ProcessState.PAUSED:
            return f"broker {broker_id} is paused"
        return f"broker {broker_id} is not {self.word}"


RUNNING: Final = Eligible(frozenset({ProcessState.UP, ProcessState.PAUSED}), "running")
AWAKE: Final = Eligible(frozenset({ProcessState.UP}), "running")
PAUSED: Final = Eligible(frozenset({ProcessState.PAUSED}), "paused")
DOWN: Final = Eligible(frozenset({ProcessState.DOWN}), "down")
ANYBODY: Final = Eligible(frozenset(ProcessState), "there")


class Aim:
    """Finds the brokers of `cluster` that a target means."""

    def __init__(
        self, cluster: LocalCluster, chance: random.Random, *, is_cancelled: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._chance = chance
        self._is_cancelled = is_cancelled

    def brokers(self, target: Target, eligible: Eligible) -> list[int]:
        """Their numbers, one at least; LabError says why it is nobody."""
        match target:
            case BrokersTarget(broker_ids):
                return self._numbered(broker_ids, eligible)
            case RoleTarget(Role.CONTROLLER):
                return [self._wait_for(target, eligible, self._controller)]
            case RoleTarget(role):
                return self._several(role, eligible)
            case PartitionTarget():
                self._require_partition(target)
                return [self._wait_for(target, eligible, lambda: self._holders(target))]
            case CoordinatorTarget():
                return [self._wait_for(target, eligible, lambda: self._coordinator(target))]
            case _:
                assert_never(target)

    def eligible(self, eligible: Eligible) -> list[int]:
        """All to whom it can be done."""
        return [
            broker.id
            for broker in self._cluster.brokers
            if process_state(broker) in eligible.states
        ]

    # -- by number -------------------------------------------------------------------------------

    def _numbered(self, broker_ids: Sequence[int], eligible: Eligible) -> list[int]:
        for broker in find_brokers(self._cluster.folder, broker_ids):
            state = process_state(broker)
            if state not in eligible.states:
                raise LabError(eligible.why_not(broker.id, state))
        return list(broker_ids)

    def _several(self, role: Role, eligible: Eligible) -> list[int]:
        ids = self.eligible(eligible)
        if not ids:
            raise LabError(f"no broker is {eligible.word}")
        wanted = group_size(role, len(self._cluster.brokers))
        return sorted(self._chance.sample(ids, min(wanted, len(ids))))

    # -- by role ---------------------------------------------------------------------------------

    def _controller(self) -> list[int]:
        found = look_at(self._cluster).controller_id
        return [] if found is None else [found]

    def _holders(self, target: PartitionTarget) -> list[int]:
        partition = look_at(self._cluster).partitions.get((target.topic, target.partition))
        if partition is None:
            return []
        if target.role is Role.LEADER:
            return [] if partition.leader is None else [partition.leader]
        return [each for each in partition.replicas if each != partition.leader]

    def _coordinator(self, target: CoordinatorTarget) -> list[int]:
        kind = GROUP if target.role is Role.GROUP_COORDINATOR else TRANSACTION
        for broker in self._cluster.brokers:
            if process_state(broker) is not ProcessState.UP:
                continue
            try:
                found = find_coordinator(
                    broker.endpoint, target.name, kind, timeout_s=_ANSWER_WITHIN_S
                )
            except ClientError:
                continue
            return [found.id]
        return []

    def _require_partition(self, target: PartitionTarget) -> None:
        look = look_at(self._cluster)
        if not look.has_answer:
            raise LabError(f"no broker answers, so nobody knows the {target}")
        count = _partition_count(look, target.topic)
        if not count:
            raise LabError(f"there is no topic {target.topic}")
        if target.partition >= count:
            raise LabError(f"{target.topic} has {count} partitions, 0 to {count - 1}")
        replicas = look.partitions[target.topic, target.partition].replicas
        if target.role is Role.FOLLOWER and len(replicas) == 1:
            raise LabError(f"{target.topic}-{target.partition} has one replica, so nobody follows")

    def _wait_for(
        self, target: Target, eligible: Eligible, look: Callable[[], Sequence[int]]
    ) -> int:
        give_up_at = time.monotonic() + _FOUND_WITHIN_S
        while True:
            possible = self.eligible(eligible)
            found = [each for each in look() if each in possible]
            if found:
                return self._chance.choice(found)
            if not self.eligible(AWAKE):
                raise LabError(f"no broker is running, so nobody is {target}")
            if self._is_cancelled():
                raise StartCancelled(f"nobody is {target} yet")
            if time.monotonic() >= give_up_at:
                raise NotInTime(
                    f"nobody who is {eligible.word} is {target} after {_FOUND_WITHIN_S:g} s"
                )
            time.sleep(_POLL_INTERVAL_S)


def _partition_count(look: ClusterLook, topic: str) -> int:
    return sum(name == topic for name, _ in look.partitions)
