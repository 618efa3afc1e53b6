"""The groups of a run: members that come, go and are killed, and what they were told."""

from collections.abc import Callable
from functools import partial

from tidelog.sim.checkers.groups import GroupsChecker
from tidelog.sim.client import SimulatedClient
from tidelog.sim.group_ledger import GroupLedger
from tidelog.sim.group_member import Pace, SimulatedMember
from tidelog.sim.observation import Cluster
from tidelog.sim.process import Process
from tidelog.sim.world import World

MEMBERS = {"group-a": 3, "group-b": 2}
CALM_S = 4.0
KILL_AFTER_MIN_S, KILL_AFTER_MAX_S = 3.0, 25.0

MakeClient = Callable[[Process], SimulatedClient]


class SimulatedGroups:
    """A few groups on one topic. A member that is killed is followed by another."""

    def __init__(self, world: World, cluster: Cluster, *, topic: str, partition_count: int) -> None:
        self._world = world
        self._random = world.random_for("groups")
        self._topic = topic
        self._partition_count = partition_count
        self._ledger = GroupLedger()
        self._members: dict[str, list[SimulatedMember]] = {group: [] for group in MEMBERS}
        self._spawned = 0
        self._is_resting = False
        self._last_places: object = None
        self._calm_since_s = 0.0
        self.checker = GroupsChecker(
            cluster, self._ledger, self._members, partition_count=partition_count
        )

    @property
    def commit_count(self) -> int:
        return len(self._ledger.commits)

    def start(self, client: MakeClient) -> None:
        for group, count in MEMBERS.items():
            for _ in range(count):
                self._spawn(group, client)

    def rest(self) -> None:
        """Nobody comes or goes any more, nor commits."""
        self._is_resting = True
        for members in self._members.values():
            for member in members:
                member.is_resting = True

    @property
    def is_at_rest(self) -> bool:
        """Whether every member has had its place for longer than a session lasts: of one that is
        gone without a word, nobody knows before that."""
        places = {
            group: {(id(member), member.place) for member in members}
            for group, members in self._members.items()
        }
        if places != self._last_places:
            self._last_places = places
            self._calm_since_s = self._world.now_s
        return self._world.now_s - self._calm_since_s > CALM_S and all(
            len({member.place.generation if member.place else None for member in members}) == 1
            and self.checker.is_owned_once(members)
            for members in self._members.values()
        )

    @property
    def unrest(self) -> str:
        """Who has which place, for somebody who waits in vain."""
        places = {
            group: [member.place for member in members] for group, members in self._members.items()
        }
        return f"members have {places}"

    def _spawn(self, group: str, client: MakeClient) -> None:
        self._spawned += 1

        async def take_part(process: Process) -> None:
            member = SimulatedMember(
                client(process),
                self._ledger,
                group=group,
                topic=self._topic,
                partition_count=self._partition_count,
                pace=Pace(),
            )
            member.is_resting = self._is_resting
            self._members[group].append(member)
            process.at_end(partial(self._members[group].remove, member))
            await member.run()

        process = self._world.spawn(f"member-{self._spawned}", take_part)
        self._world.call_later(
            self._random.uniform(KILL_AFTER_MIN_S, KILL_AFTER_MAX_S),
            partial(self._replace, process, group, client),
        )

    def _replace(self, process: Process, group: str, client: MakeClient) -> None:
        if self._is_resting or not process.is_alive:
            return
        process.kill()
        self._spawn(group, client)
