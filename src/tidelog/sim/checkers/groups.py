"""P12-P15: what the members of a group were told fits together.

P12  a committed offset never goes back: whoever asks later is told at least as much
P13  each member of a generation is given what its leader decided, and it had one leader
P14  nobody commits in a generation after another was told of a later one
P15  when nothing happens any more, every partition is somebody's, and only one member's
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.group_ledger import GroupLedger
from tidelog.sim.group_member import SimulatedMember
from tidelog.sim.observation import Cluster, Sight


class GroupsChecker:
    """Looks once, when everything has come to rest."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: GroupLedger,
        members: Mapping[str, Sequence[SimulatedMember]],
        *,
        partition_count: int,
    ) -> None:
        """`members` by group: those that are alive in the end."""
        self._cluster = cluster
        self._ledger = ledger
        self._members = members
        self._partition_count = partition_count

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Members see nothing of replicas."""

    def at_end(self) -> None:
        self._offsets_never_go_back()
        self._given_what_was_decided()
        self._no_commit_in_an_old_generation()
        self._owned_once()

    def _offsets_never_go_back(self) -> None:
        """P12."""
        highest: dict[tuple[str, int], _Highest] = {}
        for commit in sorted(self._ledger.commits, key=lambda one: one.told_s):
            place = highest.setdefault((commit.group, commit.partition), _Highest())
            place.note(commit.told_s, commit.offset)
        for read in self._ledger.fetched:
            known = highest.get((read.group, read.partition), _Highest()).before(read.asked_s)
            if read.offset < known:
                raise self._cluster.fail(
                    "a committed offset never goes back",
                    f"{read.member} was told at {read.told_s:.3f} s that {read.offset} is "
                    f"committed of partition {read.partition} of {read.group}, where {known} "
                    "was acknowledged before",
                )

    def _given_what_was_decided(self) -> None:
        """P13."""
        if self._ledger.twice:
            raise self._cluster.fail(
                "a generation has one leader", f"not so in {self._ledger.twice}"
            )
        for one in self._ledger.assigned:
            decided = self._ledger.given.get((one.group, one.generation), {})
            if decided.get(one.member) != one.partitions:
                raise self._cluster.fail(
                    "a member is given what its leader decided",
                    f"{one.member} of {one.group} was given {one.partitions} in generation "
                    f"{one.generation}, where its leader had decided {decided}",
                )

    def _no_commit_in_an_old_generation(self) -> None:
        """P14."""
        newest: dict[str, _Highest] = {}
        for one in sorted(self._ledger.assigned, key=lambda one: one.at_s):
            newest.setdefault(one.group, _Highest()).note(one.at_s, one.generation)
        for commit in self._ledger.commits:
            known = newest.get(commit.group, _Highest()).before(commit.asked_s)
            if known > commit.generation:
                raise self._cluster.fail(
                    "nobody commits in an old generation",
                    f"{commit} was acknowledged, though generation {known} had begun",
                )

    def _owned_once(self) -> None:
        """P15."""
        for group, members in self._members.items():
            owned = [one for member in members if member.place for one in member.place.partitions]
            if sorted(owned) != list(range(self._partition_count)):
                raise self._cluster.fail(
                    "every partition is one member's in the end",
                    f"those of {group} own {sorted(owned)}, of {self._partition_count}",
                )


class _Highest:
    """The highest number that was told by a time."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._numbers: list[int] = []

    def note(self, time_s: float, number: int) -> None:
        """In order of time."""
        self._times.append(time_s)
        self._numbers.append(max(number, self._numbers[-1] if self._numbers else number))

    def before(self, time_s: float) -> int:
        """-1: there was none."""
        count = bisect_left(self._times, time_s)
        return self._numbers[count - 1] if count else -1
