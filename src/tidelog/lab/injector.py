"""Faults of a schedule, done to whoever has the role, and undone (B3).

Faults may overlap: who is dead already is not killed again. How harm is done is `harm.py`.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.lab.fault_kinds import NETWORK, Deed, Role
from tidelog.lab.fault_schedule import Fault
from tidelog.lab.harm import Harm, Undo
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.log_damage import change_bytes, tear_logs
from tidelog.lab.roles import Roles


@dataclass(slots=True)
class BegunFault:
    """A fault that happens: to whom, since when (`time.monotonic`), and how it is undone."""

    fault: Fault
    names: tuple[str, ...]
    at: float
    undo: Undo
    ended_at: float | None = None
    """When it was undone: who was away serves again, bytes pass. None while it lasts."""

    def end(self) -> None:
        """Undo it, and note when that was done."""
        self.undo()
        self.ended_at = time.monotonic()

    def as_line(self) -> str:
        """`kill leader of partition 3: broker 2, for 0.8 s`."""
        fault = self.fault
        by = f", by {1_000 * fault.delay_s:.0f} ms" if fault.deed is Deed.SLOW else ""
        away = f", for {fault.away_s:.1f} s" if fault.away_s else ""
        return f"{self.what}: {', '.join(self.names) or 'nobody is left'}{by}{away}"

    @property
    def what(self) -> str:
        """`cut leader of partition 3 from clients`."""
        fault = self.fault
        is_of_partition = fault.victim in {Role.LEADER, Role.FOLLOWER}
        whose = f" of partition {fault.partition}" if is_of_partition else ""
        whom = f" from {fault.others}" if fault.deed in NETWORK else ""
        return f"{fault.deed} {fault.victim}{whose}{whom}"


class Injector:
    """Whoever does harm to `cluster`; `topic` is whose logs are damaged."""

    def __init__(self, cluster: LocalCluster, roles: Roles, topic: str) -> None:
        self._cluster = cluster
        self._roles = roles
        self._topic = topic
        self._harm = Harm(cluster)

    def begin(self, fault: Fault) -> BegunFault:
        """Do it; who is hit is decided now."""
        chance = random.Random(fault.chosen)
        victims = self._roles.victims(fault.victim, fault.partition, chance)
        is_server = fault.victim is Role.ZOOKEEPER_LEADER
        kind = "server" if is_server else "broker"
        at = time.monotonic()
        if is_server:
            undo = self._harm_server(fault.deed, victims[0])
        else:
            victims = self._harm.alive(victims)
            undo = self._harm_brokers(fault, victims, chance) if victims else _nothing
        return BegunFault(fault, tuple(f"{kind} {each}" for each in victims), at, undo)

    def _harm_server(self, deed: Deed, server_id: int) -> Undo:
        if deed is Deed.PAUSE:
            self._cluster.pause_server(server_id)
            return lambda: self._cluster.resume_server(server_id)
        assert deed is Deed.KILL
        self._cluster.kill_server(server_id)
        return lambda: self._cluster.restart_server(server_id)

    def _harm_brokers(self, fault: Fault, victims: Sequence[int], chance: random.Random) -> Undo:
        harm = self._harm
        ways: dict[Deed, Callable[[], Undo]] = {
            Deed.KILL: lambda: harm.kill(victims),
            Deed.STOP: lambda: harm.stop(victims),
            Deed.PAUSE: lambda: harm.pause(victims),
            Deed.CUT: lambda: harm.cut(harm.links(fault.others, victims)),
            Deed.SLOW: lambda: harm.slow(harm.links(fault.others, victims), delay_s=fault.delay_s),
            Deed.EXPIRE: lambda: harm.expire(victims),
            Deed.FILL_DISK: lambda: harm.fill_disks(victims),
            Deed.TEAR: lambda: harm.damage(tear_logs, victims, [self._topic], chance).undo,
            Deed.CORRUPT: lambda: harm.damage(change_bytes, victims, [self._topic], chance).undo,
        }
        return ways[fault.deed]()


def _nothing() -> None:
    """Nobody was hit."""
