"""P13-P18: what the members of a group were told fits together.

P13  a committed offset never goes back: whoever asks later is told at least as much
P14  the members of a classic generation are given what one leader has decided
P15  nobody commits what has become another's: neither in a generation after somebody was told of
     a later one, nor a partition after somebody else was told that it has it
P16  nobody has what another has, as long as both are members
P17  epochs only grow: a member is told none that is smaller than before, and one that joins none
     that is smaller than anybody's
P18  when nothing happens any more, every partition is somebody's, and only one member's: whoever
     has the members around asks that of them (`sim/groups.py`)
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator

from tidelog.base.ids import TopicPartition
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.sim.group_ledger import Commit, Gained, GroupLedger, Holding, Lease, Shares
from tidelog.sim.observation import Judge, Sight


class GroupsChecker:
    """Looks once, when everything has come to rest."""

    def __init__(
        self,
        judge: Judge,
        ledger: GroupLedger,
        *,
        classic_groups: Collection[str],
        consumer_groups: Collection[str],
    ) -> None:
        """Groups that have members of one protocol only; others change theirs."""
        self._judge = judge
        self._ledger = ledger
        self._classic_groups = classic_groups
        self._consumer_groups = consumer_groups

    def on_sight(self, sight: Sight, runner: PartitionRunner) -> None:
        """Members see nothing of replicas."""

    def at_end(self) -> None:
        self._epochs_grow()
        self._given_what_was_decided()
        self._owned_once()
        self._no_commit_in_an_old_generation()
        self._no_commit_of_what_is_another_s()
        self._offsets_never_go_back()

    def _offsets_never_go_back(self) -> None:
        """P13."""
        highest: dict[tuple[str, TopicPartition], _Highest] = {}
        for commit in sorted(self._ledger.commits, key=lambda one: one.told_s):
            place = highest.setdefault((commit.group, commit.partition), _Highest())
            place.note(commit.told_s, commit.offset)
        for read in self._ledger.fetched:
            known = highest.get((read.group, read.partition), _Highest()).before(read.asked_s)
            if read.offset < known:
                raise self._judge.fail(
                    "a committed offset never goes back",
                    f"{read.member} was told at {read.told_s:.3f} s that {read.offset} is "
                    f"committed of {read.partition} of {read.group}, where {known} "
                    "was acknowledged before",
                )

    def _given_what_was_decided(self) -> None:
        """P14."""
        told: dict[tuple[str, int], Shares] = {}
        for one in self._ledger.assigned:
            if one.group not in self._classic_groups:
                continue
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
        """P15."""
        newest: dict[str, _Highest] = {}
        for one in sorted(self._ledger.assigned, key=lambda one: one.at_s):
            newest.setdefault(one.group, _Highest()).note(one.at_s, one.generation)
        for commit in self._ledger.commits:
            if commit.group not in self._classic_groups:
                continue
            known = newest.get(commit.group, _Highest()).before(commit.asked_s)
            if known > commit.generation:
                raise self._judge.fail(
                    "nobody commits in an old generation",
                    f"{commit} was acknowledged, though generation {known} had begun",
                )

    def _no_commit_of_what_is_another_s(self) -> None:
        """P15. Whoever was told while another was may have been before or behind it.

        What a member was told by somebody who was not the coordinator yet when it asked counts
        for the member, but not against others: the word may be that of one who was no more.
        """
        gained: dict[tuple[str, TopicPartition], list[Gained]] = {}
        for one in self._ledger.gained:
            gained.setdefault((one.group, one.partition), []).append(one)
        for commit in self._ledger.commits:
            all_of_it = gained.get((commit.group, commit.partition), [])
            others_s = max(
                (
                    one.asked.at_s
                    for one in all_of_it
                    if one.member != commit.member
                    and one.asked.is_of_coordinator
                    and one.told_s < commit.asked_s
                ),
                default=-1.0,
            )
            own_s = max(
                (one.told_s for one in all_of_it if one.member == commit.member), default=-1.0
            )
            if own_s < others_s:
                raise self._not_its_own(commit, own_s, others_s)

    def _not_its_own(self, commit: Commit, own_s: float, others_s: float) -> AssertionError:
        return self._judge.fail(
            "nobody commits what is another's",
            f"{commit} was acknowledged, of which it was told last at {own_s:.3f} s that it has "
            f"it, and another that asked at {others_s:.3f} s",
        )

    def _owned_once(self) -> None:
        """P16."""
        for group, holdings in self._ledger.holdings.items():
            by_partition: dict[TopicPartition, list[Holding]] = {}
            for held in holdings:
                by_partition.setdefault(held.partition, []).append(held)
            for one, other in _overlapping(by_partition.values()):
                common = self._both_members(group, one, other)
                if common is not None:
                    raise self._judge.fail(
                        "a partition is one member's",
                        f"{one.partition} of {group} was that of {one.member} and "
                        f"{other.member} from {common.from_s:.3f} to {common.until_s:.3f} s",
                    )

    def _both_members(self, group: str, one: Holding, other: Holding) -> Lease | None:
        """When both held it, and were members."""
        from_s, until_s = max(one.from_s, other.from_s), min(one.until_s, other.until_s)
        for lease in self._ledger.leases.get((group, one.member), ()):
            for another in self._ledger.leases.get((group, other.member), ()):
                common = Lease(
                    max(from_s, lease.from_s, another.from_s),
                    min(until_s, lease.until_s, another.until_s),
                )
                if common.from_s < common.until_s:
                    return common
        return None

    def _epochs_grow(self) -> None:
        """P17."""
        highest: dict[tuple[str, str | None], _Highest] = {}
        for one in sorted(self._ledger.epochs, key=lambda one: one.told_s):
            if one.group not in self._consumer_groups:
                continue
            whose = None if one.is_joining else one.member
            known = highest.get((one.group, whose), _Highest()).before(one.asked_s)
            if one.epoch < known:
                raise self._judge.fail("epochs only grow", f"{one} came after {known}")
            for place in (None, one.member):
                highest.setdefault((one.group, place), _Highest()).note(one.told_s, one.epoch)


def _overlapping(
    by_partition: Collection[list[Holding]],
) -> Iterator[tuple[Holding, Holding]]:
    """Of one partition each, and of two members."""
    for holdings in by_partition:
        holdings.sort(key=lambda held: held.from_s)
        for place, one in enumerate(holdings):
            for other in holdings[place + 1 :]:
                if other.from_s >= one.until_s:
                    break
                if other.member != one.member:
                    yield one, other


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
