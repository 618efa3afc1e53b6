"""Faults, done to a cluster and undone (B3).

Faults may overlap: who is dead already is not killed again, who was started by somebody else
meanwhile is not started, and links are healed when the fault that cut them is over, not before.

What a fault needs and the cluster has not - a network that can be cut, a disk that can be filled -
is a LabError that says so.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_membership
from tidelog.coordination.expiry import expire_owner
from tidelog.lab import small_disks
from tidelog.lab.errors import LabError
from tidelog.lab.fault_kinds import NETWORK, Deed, Others, Role
from tidelog.lab.fault_schedule import Fault
from tidelog.lab.local_cluster import LocalCluster, NotInTime
from tidelog.lab.log_damage import change_bytes, tear_logs
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import CLIENTS, Party, broker_party, server_party
from tidelog.lab.roles import Roles

_ANSWER_WITHIN_S: Final = 1.0
_FENCED_WITHIN_S: Final = 60.0
_POLL_INTERVAL_S: Final = 0.02


@dataclass(slots=True)
class BegunFault:
    """A fault that happens: to whom, since when (`time.monotonic`), and how it is undone."""

    fault: Fault
    names: tuple[str, ...]
    at: float
    undo: Callable[[], None]
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
            victims = self._alive(victims)
            undo = self._harm_brokers(fault, victims, chance) if victims else _nothing
        return BegunFault(fault, tuple(f"{kind} {each}" for each in victims), at, undo)

    def _alive(self, broker_ids: Sequence[int]) -> list[int]:
        alive = {broker.id for broker in self._cluster.brokers if broker.is_alive}
        return [broker_id for broker_id in broker_ids if broker_id in alive]

    def _harm_server(self, deed: Deed, server_id: int) -> Callable[[], None]:
        if deed is Deed.PAUSE:
            self._cluster.pause_server(server_id)
            return lambda: self._cluster.resume_server(server_id)
        assert deed is Deed.KILL
        self._cluster.kill_server(server_id)
        return lambda: self._cluster.restart_server(server_id)

    def _harm_brokers(
        self, fault: Fault, victims: Sequence[int], chance: random.Random
    ) -> Callable[[], None]:
        harm: dict[Deed, Callable[[], Callable[[], None]]] = {
            Deed.KILL: lambda: self._end(victims, self._cluster.kill),
            Deed.STOP: lambda: self._end(victims, self._cluster.stop_broker),
            Deed.PAUSE: lambda: self._pause(victims),
            Deed.CUT: lambda: self._separate(fault, victims),
            Deed.SLOW: lambda: self._separate(fault, victims),
            Deed.EXPIRE: lambda: self._expire(victims),
            Deed.FILL_DISK: lambda: self._fill_disks(victims),
            Deed.TEAR: lambda: self._damage(tear_logs, victims, chance),
            Deed.CORRUPT: lambda: self._damage(change_bytes, victims, chance),
        }
        return harm[fault.deed]()

    # -- processes -------------------------------------------------------------------------------

    def _end(self, victims: Sequence[int], end: Callable[[int], None]) -> Callable[[], None]:
        for victim in victims:
            end(victim)
        return lambda: self._start_again(victims)

    def _start_again(self, victims: Sequence[int]) -> None:
        alive = self._alive(victims)
        dead = [victim for victim in victims if victim not in alive]
        if dead:
            self._cluster.restart(*dead)

    def _pause(self, victims: Sequence[int]) -> Callable[[], None]:
        for victim in victims:
            self._cluster.pause(victim)

        def resume() -> None:
            for victim in self._alive(victims):
                self._cluster.resume(victim)

        return resume

    # -- links -----------------------------------------------------------------------------------

    def _separate(self, fault: Fault, victims: Sequence[int]) -> Callable[[], None]:
        network = self._network()
        pairs = self._links(fault.others, victims)
        for these, those in pairs:
            if fault.deed is Deed.CUT:
                network.cut_between(these, those)
            else:
                network.slow_between(these, those, delay_ms=max(1, round(1_000 * fault.delay_s)))

        def heal() -> None:
            for these, those in pairs:
                network.heal_between(these, those)

        return heal

    def _links(
        self, others: Others, victims: Sequence[int]
    ) -> list[tuple[list[Party], list[Party]]]:
        """Of the victims together with each group of others; of all brokers with each other."""
        hit = [broker_party(victim) for victim in victims]
        ids = [broker.id for broker in self._cluster.brokers]
        rest = [broker_party(each) for each in ids if each not in victims]
        ensemble = self._cluster.engine.ensemble
        servers = [server_party(each) for each in ensemble.server_ids] if ensemble else []
        groups = {
            Others.BROKERS: rest,
            Others.CLIENTS: [CLIENTS],
            Others.ZOOKEEPER: servers,
            Others.EVERYBODY: [*rest, CLIENTS, *servers],
        }
        links = [(hit, groups[others])] if groups[others] else []
        if not rest and others in {Others.BROKERS, Others.EVERYBODY}:
            links += [([one], [other for other in hit if other != one]) for one in hit[:-1]]
        return links

    def _network(self) -> LabNetwork:
        network = self._cluster.engine.network
        if network is None:
            raise LabError("the cluster has no network that can be cut")
        return network

    # -- sessions --------------------------------------------------------------------------------

    def _expire(self, victims: Sequence[int]) -> Callable[[], None]:
        coordination = self._cluster.folder.coordination_file
        for victim in victims:
            if coordination.exists():
                expire_owner(coordination, f"/brokers/ids/{victim}")
            else:
                self._keep_silent(victim)
        return _nothing

    def _keep_silent(self, victim: int) -> None:
        """Let nobody hear of it until its session has ended."""
        ensemble = self._cluster.engine.ensemble
        others = Others.BROKERS if ensemble is None else Others.ZOOKEEPER
        (link,) = self._links(others, [victim])
        network = self._network()
        network.cut_between(*link)
        try:
            self._wait_until_forgotten(victim)
        finally:
            network.heal_between(*link)

    def _wait_until_forgotten(self, victim: int) -> None:
        give_up_at = time.monotonic() + _FENCED_WITHIN_S
        while self._is_known(victim):
            if time.monotonic() >= give_up_at:
                raise NotInTime(f"others know broker {victim} after {_FENCED_WITHIN_S:g} s")
            time.sleep(_POLL_INTERVAL_S)

    def _is_known(self, victim: int) -> bool:
        for broker in self._cluster.brokers:
            if broker.id == victim:
                continue
            try:
                known = ask_membership(broker.endpoint, timeout_s=_ANSWER_WITHIN_S).broker_ids
            except ClientError:
                continue
            if victim not in known:
                return False
        return True

    # -- disks -----------------------------------------------------------------------------------

    def _fill_disks(self, victims: Sequence[int]) -> Callable[[], None]:
        folders = [self._cluster.folder.log_dir(victim) for victim in victims]
        for folder in folders:
            small_disks.fill(folder)

        def make_room() -> None:
            for folder in folders:
                small_disks.make_room(folder)

        return make_room

    def _damage(
        self,
        damage: Callable[[Path, str, random.Random], int],
        victims: Sequence[int],
        chance: random.Random,
    ) -> Callable[[], None]:
        undo = self._end(victims, self._cluster.kill)
        for victim in victims:
            damage(self._cluster.folder.log_dir(victim), self._topic, chance)
        return undo


def _nothing() -> None:
    """Nobody was hit, or it is over already."""
