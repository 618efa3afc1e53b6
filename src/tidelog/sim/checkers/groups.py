"""P12-P15: what the members of a group were told fits together.

P12  a committed offset never goes back: whoever asks later is told at least as much
P13  the members of a generation are given what one leader has decided
P14  nobody commits in a generation after another was told of a later one
P15  when nothing happens any more, every partition is somebody's, and only one member's
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.group_ledger import GroupLedger, Shares
from tidelog.sim.group_member import SimulatedMember
from tidelog.sim.observation import Judge, Sight


class GroupsChecker:
    """Looks once, when everything has come to rest."""

    def __init__(
        self,
        judge: Judge,
        ledger: GroupLedger,
        members: Mapping[str, Sequence[SimulatedMember]],
        *,
        partition_count: int,
    ) -> None:
        """`members` by group: those that are alive in the end."""
        self._judge = judge
        self._ledger = ledger
        self._members = members
        self._partition_count = partition_count

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Members see nothing of replicas."""

    def is_owned_once(self, members: Sequence[SimulatedMember]) -> bool:
        """Whether each partition is one member's of those."""
        return _owned(members) == list(range(self._partition_count))

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
                raise self._judge.fail(
                    "a committed offset never goes back",
                    f"{read.member} was told at {read.told_s:.3f} s that {read.offset} is "
                    f"committed of partition {read.partition} of {read.group}, where {known} "
                    "was acknowledged before",
                )

    def _given_what_was_decided(self) -> None:
        """P13."""
        told: dict[tuple[str, int], Shares] = {}
        for one in self._ledger.assigned:
            known = told.setdefault((one.group, one.generation), {})
            if known.setdefault(one.member, one.partitions) != one.partitions:
                raise self._judge.fail(
                    "a member is given one share in a generation",
                    f"{one.member} of {one.group} was given {known[one.member]} and then "
                    f"{one.partitions} in generation {one.generation}",
                )
        for place, shares in told.items():
            decisions = self._ledger.given.get(place, [])
            if not any(shares.items() <= decided.items() for decided in decisions):
                raise self._judge.fail(
                    "members are given what one leader decided",
                    f"in group and generation {place} they were given {shares}, where leaders "
                    f"had decided {decisions}",
                )

    def _no_commit_in_an_old_generation(self) -> None:
        """P14."""
        newest: dict[str, _Highest] = {}
        for one in sorted(self._ledger.assigned, key=lambda one: one.at_s):
            newest.setdefault(one.group, _Highest()).note(one.at_s, one.generation)
        for commit in self._ledger.commits:
            known = newest.get(commit.group, _Highest()).before(commit.asked_s)
            if known > commit.generation:
                raise self._judge.fail(
                    "nobody commits in an old generation",
                    f"{commit} was acknowledged, though generation {known} had begun",
                )

    def _owned_once(self) -> None:
        """P15."""
        for group, members in self._members.items():
            if not self.is_owned_once(members):
                owned = _owned(members)
                raise self._judge.fail(
                    "every partition is one member's in the end",
                    f"those of {group} own {owned}, of {self._partition_count}",
                )


def _owned(members: Sequence[SimulatedMember]) -> list[int]:
    return sorted(one for member in members if member.place for one in member.place.partitions)


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
