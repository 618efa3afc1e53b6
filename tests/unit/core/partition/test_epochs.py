"""R7: where an epoch ends in a log, and where two logs part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from tidelog.core.partition.epochs import (
    UNKNOWN_EPOCH_END,
    EpochEnd,
    EpochHistory,
    EpochStart,
)

LOG_END = Offset(100)


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def pairs(epochs: EpochHistory) -> list[tuple[int, int]]:
    return [(entry.leader_epoch, entry.start_offset) for entry in epochs.entries]


def assign(epochs: EpochHistory, epoch: int, start: int) -> bool:
    return epochs.assign(LeaderEpoch(epoch), start_offset=Offset(start))


def end_of(epochs: EpochHistory, epoch: int) -> EpochEnd:
    return epochs.end_offset_for(LeaderEpoch(epoch), log_end_offset=LOG_END)


def test_first_batch_of_an_epoch_is_an_entry() -> None:
    epochs = history()
    assert assign(epochs, 0, 0)
    assert assign(epochs, 2, 50)
    assert pairs(epochs) == [(0, 0), (2, 50)]
    assert epochs.latest_epoch == 2


def test_further_batches_of_an_epoch_change_nothing() -> None:
    epochs = history((1, 10))
    assert not assign(epochs, 1, 11)
    assert pairs(epochs) == [(1, 10)]


def test_epoch_that_wrote_nothing_makes_room_for_the_next() -> None:
    epochs = history((0, 0), (1, 10))
    assign(epochs, 2, 10)
    assert pairs(epochs) == [(0, 0), (2, 10)]


def test_older_epoch_assigned_late_cuts_what_contradicts_it() -> None:
    epochs = history((0, 0), (3, 10), (4, 20))
    assign(epochs, 2, 15)
    assert pairs(epochs) == [(0, 0), (2, 15)]


def test_latest_epoch_ends_at_the_log_end() -> None:
    assert end_of(history((0, 0), (2, 50)), 2) == EpochEnd(LeaderEpoch(2), LOG_END)


def test_former_epoch_ends_where_the_next_begins() -> None:
    assert end_of(history((0, 0), (2, 50), (3, 70)), 0) == EpochEnd(LeaderEpoch(0), Offset(50))


def test_epoch_nobody_wrote_in_is_answered_by_the_largest_below_it() -> None:
    assert end_of(history((0, 0), (2, 50)), 1) == EpochEnd(LeaderEpoch(0), Offset(50))


def test_epoch_below_all_known_ones_ends_where_the_log_begins() -> None:
    assert end_of(history((3, 40), (4, 60)), 1) == EpochEnd(LeaderEpoch(1), Offset(40))


@pytest.mark.parametrize("epoch", [NO_LEADER_EPOCH, 5])
def test_epoch_this_log_has_not_reached_has_no_end(epoch: int) -> None:
    assert end_of(history((0, 0), (2, 50)), epoch) == UNKNOWN_EPOCH_END


@pytest.mark.parametrize("epoch", [NO_LEADER_EPOCH, 0])
def test_empty_history_knows_no_end(epoch: int) -> None:
    assert end_of(history(), epoch) == UNKNOWN_EPOCH_END


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, NO_LEADER_EPOCH), (10, 1), (19, 1), (20, 4), (99, 4)]
)
def test_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert history((1, 10), (4, 20)).epoch_of(Offset(offset)) == epoch


@pytest.mark.parametrize(
    ("epoch", "fetch_offset", "diverges_at"),
    [
        (2, 100, None),
        (2, 60, None),
        (0, 50, None),
        (0, 51, (0, 50)),
        (1, 50, (0, 50)),
        (1, 40, (0, 50)),
        (3, 60, UNKNOWN_EPOCH_END),
    ],
)
def test_log_that_is_no_prefix_is_told_where_to_truncate(
    epoch: int, fetch_offset: int, diverges_at: tuple[int, int] | None
) -> None:
    epochs = history((0, 0), (2, 50))
    found = epochs.diverging_end(
        LeaderEpoch(epoch), fetch_offset=Offset(fetch_offset), log_end_offset=LOG_END
    )
    assert found == diverges_at


def test_truncation_drops_epochs_that_began_at_the_new_end() -> None:
    epochs = history((0, 0), (1, 10), (2, 20))
    assert epochs.truncate_from_end(Offset(10))
    assert pairs(epochs) == [(0, 0)]
    assert epochs.latest_epoch == 0


def test_truncation_inside_the_last_epoch_changes_nothing() -> None:
    epochs = history((0, 0), (1, 10))
    assert not epochs.truncate_from_end(Offset(11))


def test_truncation_of_everything_leaves_no_epoch() -> None:
    epochs = history((0, 0))
    assert epochs.truncate_from_end(Offset(0))
    assert epochs.latest_epoch == NO_LEADER_EPOCH


def test_epoch_at_the_log_start_starts_there() -> None:
    epochs = history((0, 0), (1, 10), (2, 20))
    assert epochs.truncate_from_start(Offset(15))
    assert pairs(epochs) == [(1, 15), (2, 20)]


@pytest.mark.parametrize("start", [5, 10])
def test_log_start_at_or_before_the_first_entry_changes_nothing(start: int) -> None:
    epochs = history((1, 10))
    assert not epochs.truncate_from_start(Offset(start))
    assert pairs(epochs) == [(1, 10)]


def test_log_start_at_an_entry_drops_those_before() -> None:
    epochs = history((0, 0), (1, 10))
    assert epochs.truncate_from_start(Offset(10))
    assert pairs(epochs) == [(1, 10)]


def test_emptied_log_has_no_history() -> None:
    epochs = history((0, 0), (1, 10))
    assert epochs.clear()
    assert not epochs.clear()
    assert epochs.entries == ()


def test_checkpoint_brings_back_the_same_history() -> None:
    epochs = history((0, 0), (2, 50))
    assert EpochHistory(epochs.entries).entries == epochs.entries


Log = list[int]  # The epoch that wrote each offset.


def history_of(log: Log) -> EpochHistory:
    epochs = history()
    for offset, epoch in enumerate(log):
        assign(epochs, epoch, offset)
    return epochs


@st.composite
def two_replicas(draw: st.DrawFn) -> tuple[Log, Log]:
    """Two logs as leader changes can leave them: equal at first, then of different epochs."""
    common = sorted(draw(st.lists(st.integers(0, 4), max_size=8)))
    newest = common[-1] if common else 0
    owner = draw(st.dictionaries(st.integers(newest + 1, 9), st.booleans(), max_size=5))
    tails: tuple[Log, Log] = ([], [])
    for epoch in sorted(owner):
        count = draw(st.integers(0, 3))
        tails[owner[epoch]].extend([epoch] * count)
    return common + tails[0], common + tails[1]


@given(logs=two_replicas())
def test_follower_that_truncates_as_told_ends_with_the_longest_common_prefix(
    logs: tuple[Log, Log],
) -> None:
    leader, follower = logs
    # A leader's epoch is larger than all it has seen, and assigned before followers ask.
    leader = [*leader, max([*leader, *follower], default=0) + 1]
    common = 0
    while common < len(follower) and leader[common] == follower[common]:
        common += 1

    epochs = history_of(leader)
    mine = history_of(follower)
    log_end = Offset(len(follower))
    rounds = 0
    while log_end > 0:
        diverging = epochs.diverging_end(
            mine.latest_epoch, fetch_offset=log_end, log_end_offset=Offset(len(leader))
        )
        if diverging is None:
            break
        rounds += 1
        own = mine.end_offset_for(diverging.leader_epoch, log_end_offset=log_end)
        log_end = min(log_end, diverging.end_offset, own.end_offset)
        mine.truncate_from_end(log_end)
    assert log_end == common
    assert rounds <= len(set(follower))


@given(
    log=st.lists(st.integers(0, 6), min_size=1, max_size=20).map(sorted), asked=st.integers(0, 7)
)
def test_end_of_an_epoch_is_what_scanning_the_log_finds(log: Log, asked: int) -> None:
    found = history_of(log).end_offset_for(LeaderEpoch(asked), log_end_offset=Offset(len(log)))
    if asked > max(log):
        assert found == UNKNOWN_EPOCH_END
    else:
        assert found.end_offset == sum(epoch <= asked for epoch in log)
        assert found.leader_epoch == max((e for e in log if e <= asked), default=asked)


@given(
    log=st.lists(st.integers(0, 6), max_size=20).map(sorted),
    start=st.integers(0, 20),
    end=st.integers(0, 20),
)
def test_truncated_history_is_that_of_the_truncated_log(log: Log, start: int, end: int) -> None:
    epochs = history_of(log)
    epochs.truncate_from_end(Offset(end))
    epochs.truncate_from_start(Offset(min(start, end, len(log))))
    for offset in range(start, min(end, len(log))):
        assert epochs.epoch_of(Offset(offset)) == log[offset]
    assert all(entry.start_offset <= end for entry in epochs.entries)
