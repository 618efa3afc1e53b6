"""Who has which role in a cluster now: leader, follower, controller, coordinator (B3).

It is asked of the brokers each time, and waited for while nobody has the role: a cluster that is
electing somebody will have somebody. Who is dead has no role; who is paused may have one.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tidelog.client.coordinators import GROUP, TRANSACTION, find_coordinator
from tidelog.client.errors import ClientError
from tidelog.client.membership import TopicView
from tidelog.client.quorum import ask_quorum_leader
from tidelog.client.values import PartitionDescription
from tidelog.lab.fault_kinds import BrokerNumber, Role, Victim
from tidelog.lab.local_cluster import LocalCluster, NotInTime
from tidelog.lab.state import BrokerState

_FOUND_WITHIN_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 1.0
_POLL_INTERVAL_S: Final = 0.05

SEVERAL: Final = frozenset({Role.MINORITY, Role.MAJORITY, Role.ALL, Role.RANDOM})

T = TypeVar("T")


class Roles:
    """Of the brokers of `cluster`, as far as `topic` and the group or id of that name go."""

    def __init__(
        self, cluster: LocalCluster, topic: str, *, is_cancelled: Callable[[], bool]
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._is_cancelled = is_cancelled

    def victims(self, victim: Victim, partition: int, chance: random.Random) -> list[int]:
        """The ids of brokers, or of the ZooKeeper server, that `victim` means now."""
        if isinstance(victim, BrokerNumber):
            return [victim.broker_id]
        if victim in SEVERAL:
            ids = [broker.id for broker in self._cluster.brokers]
            return sorted(chance.sample(ids, group_size(victim, len(ids))))
        looks: dict[Role, Callable[[], int | None]] = {
            Role.LEADER: lambda: self._partition(partition).leader,
            Role.FOLLOWER: lambda: chance.choice(followers_of(self._partition(partition))),
            Role.CONTROLLER: self._controller,
            Role.GROUP_COORDINATOR: lambda: self._coordinator(GROUP),
            Role.TRANSACTION_COORDINATOR: lambda: self._coordinator(TRANSACTION),
            Role.ZOOKEEPER_LEADER: self._cluster.ensemble_leader,
        }
        return [self._wait_for(looks[victim], victim)]

    def _view(self) -> TopicView:
        return self._cluster.view(self._topic)

    def _partition(self, partition: int) -> PartitionDescription:
        partitions = self._view().partitions
        return partitions[partition % len(partitions)]

    def _controller(self) -> int | None:
        if self._cluster.engine.tells_controller:
            return self._view().membership.controller_id
        return self._ask_anybody(
            lambda broker: ask_quorum_leader(broker.endpoint, timeout_s=_ANSWER_WITHIN_S)
        )

    def _coordinator(self, kind: int) -> int | None:
        return self._ask_anybody(
            lambda broker: (
                find_coordinator(broker.endpoint, self._topic, kind, timeout_s=_ANSWER_WITHIN_S).id
            )
        )

    def _ask_anybody(self, question: Callable[[BrokerState], T | None]) -> T | None:
        for broker in self._cluster.brokers:
            try:
                answer = question(broker)
            except ClientError:
                continue
            if answer is not None:
                return answer
        return None

    def _wait_for(self, look: Callable[[], int | None], role: Role) -> int:
        give_up_at = time.monotonic() + _FOUND_WITHIN_S
        while (found := look()) is None:
            if self._is_cancelled() or time.monotonic() >= give_up_at:
                raise NotInTime(f"nobody is {role} after {_FOUND_WITHIN_S:g} s")
            time.sleep(_POLL_INTERVAL_S)
        return found


def group_size(role: Role, broker_count: int) -> int:
    """How many brokers a role of several means, or `random`, which is one."""
    match role:
        case Role.MINORITY:
            return max(1, (broker_count - 1) // 2)
        case Role.MAJORITY:
            return broker_count // 2 + 1
        case Role.ALL:
            return broker_count
        case _:
            return 1


def followers_of(partition: PartitionDescription) -> Sequence[int]:
    """Its replicas but the leader; the leader where there is no other."""
    others = [each for each in partition.replicas if each != partition.leader]
    return others or list(partition.replicas)
