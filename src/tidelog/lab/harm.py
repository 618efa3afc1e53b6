"""What is done to brokers of a cluster, whoever decides to whom, and how it is undone (B3).

Each way of doing harm returns how to undo it. Harm may overlap: who was started by somebody else
meanwhile is not started, who has ended is not resumed, and only links are healed that were cut.

What it takes and the cluster has not - a network that can be cut, a disk that can be filled - is a
LabError that says so.
"""

import random
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_membership
from tidelog.coordination.expiry import expire_owner
from tidelog.lab import small_disks
from tidelog.lab.errors import LabError
from tidelog.lab.fault_kinds import Others
from tidelog.lab.local_cluster import LocalCluster, NotInTime
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import CLIENTS, Party, broker_party, is_server

_ANSWER_WITHIN_S: Final = 1.0
_FENCED_WITHIN_S: Final = 60.0
_POLL_INTERVAL_S: Final = 0.02

Undo = Callable[[], None]
Link = tuple[Sequence[Party], Sequence[Party]]
"""All of the one group with all of the other."""


class Damage(NamedTuple):
    """In how many logs something is missing or wrong, and how their brokers are started again."""

    log_count: int
    undo: Undo


class Harm:
    """What can be done to the brokers of `cluster`, by number."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def alive(self, broker_ids: Sequence[int]) -> list[int]:
        """Those of them that run, or are paused."""
        alive = {broker.id for broker in self._cluster.brokers if broker.is_alive}
        return [broker_id for broker_id in broker_ids if broker_id in alive]

    # -- processes -------------------------------------------------------------------------------

    def kill(self, victims: Sequence[int]) -> Undo:
        return self._end(victims, self._cluster.kill)

    def stop(self, victims: Sequence[int]) -> Undo:
        return self._end(victims, self._cluster.stop_broker)

    def pause(self, victims: Sequence[int]) -> Undo:
        for victim in victims:
            self._cluster.pause(victim)

        def resume() -> None:
            for victim in self.alive(victims):
                self._cluster.resume(victim)

        return resume

    def _end(self, victims: Sequence[int], end: Callable[[int], None]) -> Undo:
        for victim in victims:
            end(victim)
        return lambda: self._start_again(victims)

    def _start_again(self, victims: Sequence[int]) -> None:
        alive = self.alive(victims)
        dead = [victim for victim in victims if victim not in alive]
        if dead:
            self._cluster.restart(*dead)

    # -- links -----------------------------------------------------------------------------------

    def cut(self, links: Sequence[Link]) -> Undo:
        network = self.network
        for these, those in links:
            network.cut_between(these, those)
        return lambda: self._heal(links)

    def slow(self, links: Sequence[Link], *, delay_s: float) -> Undo:
        network = self.network
        for these, those in links:
            network.slow_between(these, those, delay_ms=max(1, round(1_000 * delay_s)))
        return lambda: self._heal(links)

    def _heal(self, links: Sequence[Link]) -> None:
        for these, those in links:
            self.network.heal_between(these, those)

    def links(self, others: Others, victims: Sequence[int]) -> list[Link]:
        """Of the victims together with each group of others; of all brokers with each other."""
        hit = [broker_party(victim) for victim in victims]
        ids = [broker.id for broker in self._cluster.brokers]
        rest = [broker_party(each) for each in ids if each not in victims]
        servers = self._servers()
        groups = {
            Others.BROKERS: rest,
            Others.CLIENTS: [CLIENTS],
            Others.ZOOKEEPER: servers,
            Others.EVERYBODY: [*rest, CLIENTS, *servers],
        }
        links: list[Link] = [(hit, groups[others])] if groups[others] else []
        if not rest and others in {Others.BROKERS, Others.EVERYBODY}:
            links += [([one], [other for other in hit if other != one]) for one in hit[:-1]]
        return links

    def _servers(self) -> list[Party]:
        """Those of ZooKeeper that brokers reach through the network."""
        routes = self.network.status().routes
        return list(dict.fromkeys(route.party for route in routes if is_server(route.party)))

    @property
    def network(self) -> LabNetwork:
        """LabError if the cluster has none."""
        network = self._cluster.engine.network
        if network is None:
            raise LabError(
                "the cluster has no network that can be cut; 'tidelog up --network' starts one "
                "that has"
            )
        return network

    # -- sessions --------------------------------------------------------------------------------

    def expire(self, victims: Sequence[int]) -> Undo:
        """Have their sessions declared dead. They begin others, by themselves."""
        coordination = self._cluster.folder.coordination_file
        for victim in victims:
            if coordination.exists():
                expire_owner(coordination, f"/brokers/ids/{victim}")
            else:
                self._keep_silent(victim)
        return lambda: None

    def _keep_silent(self, victim: int) -> None:
        """Let nobody hear of it until its session has ended."""
        others = Others.ZOOKEEPER if self._servers() else Others.BROKERS
        undo = self.cut(self.links(others, [victim]))
        try:
            self._wait_until_forgotten(victim)
        finally:
            undo()

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

    def fill_disks(self, victims: Sequence[int]) -> Undo:
        folders = [self._cluster.folder.log_dir(victim) for victim in victims]
        for folder in folders:
            small_disks.fill(folder)

        def make_room() -> None:
            for folder in folders:
                small_disks.make_room(folder)

        return make_room

    def damage(
        self,
        how: Callable[[Path, Collection[str] | None, random.Random], int],
        victims: Sequence[int],
        topics: Collection[str] | None,
        chance: random.Random,
    ) -> Damage:
        """Kill them, and damage what they have not flushed of these topics, or of all."""
        undo = self.kill(victims)
        folders = [self._cluster.folder.log_dir(victim) for victim in victims]
        return Damage(sum(how(folder, topics, chance) for folder in folders), undo)
