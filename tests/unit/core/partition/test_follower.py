"""R3, R7: a follower copies, and truncates to where the logs part and no further (KIP-101)."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.epochs import EpochEnd, EpochHistory, EpochStart
from tidelog.core.partition.follower import PartitionFollower, truncation_offset

LEADER = BrokerId(1)


def follower_of(*, high_watermark: int = 0, leader_epoch: int = 5) -> PartitionFollower:
    return PartitionFollower(
        leader=LEADER,
        leader_epoch=LeaderEpoch(leader_epoch),
        high_watermark=Offset(high_watermark),
    )


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


@pytest.mark.parametrize(
    ("leaders", "log_end", "expected"),
    [(7, 10, 7), (10, 7, 7), (3, 10, 4), (4, 10, 4), (2, 3, 4)],
)
def test_the_high_watermark_is_the_smaller_of_the_leaders_and_the_own_end_and_stays(
    leaders: int, log_end: int, expected: int
) -> None:
    follower = follower_of(high_watermark=4)
    advanced = follower.on_fetched(
        leader_high_watermark=Offset(leaders), log_end_offset=Offset(log_end)
    )
    assert follower.high_watermark == expected
    assert advanced == (expected > 4)


@pytest.mark.parametrize(("log_end", "expected"), [(6, 4), (4, 4), (2, 2), (0, 0)])
def test_only_a_truncation_takes_the_high_watermark_back_and_says_so(
    log_end: int, expected: int
) -> None:
    follower = follower_of(high_watermark=4)
    went = follower.on_truncated(log_start_offset=Offset(0), log_end_offset=Offset(log_end))
    assert went == (expected < 4)
    assert follower.high_watermark == expected


def test_what_the_leader_has_deleted_was_committed() -> None:
    follower = follower_of(high_watermark=4)
    assert not follower.on_truncated(log_start_offset=Offset(9), log_end_offset=Offset(9))
    assert follower.high_watermark == 9


def test_what_was_committed_stays_so_under_the_next_leader() -> None:
    follower = follower_of(high_watermark=4)
    follower.on_leader_changed(BrokerId(2), LeaderEpoch(6))
    assert (follower.leader, follower.leader_epoch, follower.high_watermark) == (2, 6, 4)


@pytest.mark.parametrize("leader_epoch", [4, 5])
def test_a_leader_of_an_older_epoch_is_a_bug(leader_epoch: int) -> None:
    with pytest.raises(AssertionError):
        follower_of().on_leader_changed(BrokerId(2), LeaderEpoch(leader_epoch))


@pytest.mark.parametrize(
    ("own", "leaders", "expected"),
    [
        # The same epoch, of which the leader has less, or as much, or more.
        (history((0, 0), (2, 5)), (2, 7), 7),
        (history((0, 0), (2, 5)), (2, 10), 10),
        (history((0, 0), (2, 5)), (2, 12), 10),
        # The leader never saw ours: an older one that both have ends here or there.
        (history((0, 0), (3, 5)), (0, 4), 4),
        (history((0, 0), (3, 5)), (0, 8), 5),
        # It names one that we never saw; ours below it ends where our next begins.
        (history((0, 0), (3, 5)), (2, 8), 5),
        (history((0, 0), (1, 2), (3, 5)), (2, 3), 3),
        # Nothing is known of our own log.
        (history(), (2, 8), 8),
        (history(), (2, 12), 10),
    ],
)
def test_a_log_is_cut_where_it_leaves_the_leaders(
    own: EpochHistory, leaders: tuple[int, int], expected: int
) -> None:
    end = EpochEnd(LeaderEpoch(leaders[0]), Offset(leaders[1]))
    assert truncation_offset(own, end, log_end_offset=Offset(10)) == expected


@dataclass(slots=True)
class Copy:
    """One replica: the epoch in which each of its records was written."""

    records: list[LeaderEpoch] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=lambda: EpochHistory(()))

    @property
    def end(self) -> Offset:
        return Offset(len(self.records))

    def append(self, records: list[LeaderEpoch]) -> None:
        for epoch in records:
            self.epochs.assign(epoch, start_offset=self.end)
            self.records.append(epoch)

    def truncate(self, offset: Offset) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(self.end)

    def common_with(self, other: "Copy") -> int:
        """How many records both begin with. An epoch and an offset name a record."""
        pairs = zip(self.records, other.records, strict=False)
        return next(
            (number for number, (one, two) in enumerate(pairs) if one != two),
            min(self.end, other.end),
        )


class CopiesBecomeEqual(RuleBasedStateMachine):
    """Whatever elections and crashes came before, fetching makes a copy the leader's.

    Elections may be unclean and crashes may lose any tail, so any two copies can part anywhere.
    """

    replicas = st.integers(0, 2)

    def __init__(self) -> None:
        super().__init__()
        self.copies = [Copy(), Copy(), Copy()]
        self.epoch = 0
        self.leader: int | None = None

    @rule(number=replicas)
    def elect(self, number: int) -> None:
        self.leader = number
        self.epoch += 1
        copy = self.copies[number]
        # At the election, not with the first record: some epochs write nothing.
        copy.epochs.assign(LeaderEpoch(self.epoch), start_offset=copy.end)

    @precondition(lambda self: self.leader is not None)
    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        assert self.leader is not None
        self.copies[self.leader].append([LeaderEpoch(self.epoch)] * count)

    @precondition(lambda self: self.leader is not None)
    @rule(number=replicas, max_records=st.integers(0, 3))
    def fetch(self, number: int, max_records: int) -> None:
        if number != self.leader:
            self.fetch_once(number, max_records)

    @rule(number=replicas, lost=st.integers(0, 3))
    def crash(self, number: int, lost: int) -> None:
        copy = self.copies[number]
        copy.truncate(Offset(max(0, copy.end - lost)))
        if number == self.leader:
            self.leader = None

    def fetch_once(self, number: int, max_records: int) -> None:
        """One round: either a truncation or some records."""
        assert self.leader is not None
        leader, copy = self.copies[self.leader], self.copies[number]
        if copy.epochs.latest_epoch >= 0:
            diverging = leader.epochs.diverging_end(
                copy.epochs.latest_epoch, fetch_offset=copy.end, log_end_offset=leader.end
            )
            if diverging is not None:
                common, before = copy.common_with(leader), copy.epochs.entries
                offset = truncation_offset(copy.epochs, diverging, log_end_offset=copy.end)
                assert common <= offset <= copy.end
                was_cut = offset < copy.end
                copy.truncate(offset)
                assert was_cut or copy.epochs.entries != before  # The next question is another.
                return
        assert copy.records == leader.records[: copy.end]
        copy.append(leader.records[copy.end : copy.end + max_records])

    @invariant()
    def an_epoch_and_an_offset_name_a_record(self) -> None:
        """What the leader would not call diverging is a part of its log."""
        for one in self.copies:
            for other in self.copies:
                common = one.common_with(other)
                assert not set(enumerate(one.records[common:], common)) & set(
                    enumerate(other.records[common:], common)
                )

    def teardown(self) -> None:
        if self.leader is None:
            self.elect(0)
        assert self.leader is not None
        leader = self.copies[self.leader]
        for number, copy in enumerate(self.copies):
            for _ in range(self.epoch + 1):  # At worst one for each epoch, and one to copy.
                if number != self.leader:
                    self.fetch_once(number, max_records=len(leader.records))
            assert copy.records == leader.records


TestCopiesBecomeEqual = CopiesBecomeEqual.TestCase
