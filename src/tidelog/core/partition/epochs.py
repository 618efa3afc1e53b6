"""Which leader epoch wrote which offsets, and where two logs part (R7, KIP-101, KIP-279, KIP-320).

Each epoch that wrote anything is one entry, the offset of its first record. It ends where the next
entry starts; the last one ends at the log's end:

    epoch       0           2        3
                ├───────────┼────────┼───────────▶ log end
    offset      0           50       70

A follower that last wrote in epoch e asks where e ends on the leader. If the leader never saw e,
the answer is the largest epoch below it; the follower then looks for that one in its own history
and asks again if need be. So the two arrive at the last offset they have in common.

Invariants:

    I1  epochs grow from entry to entry
    I2  start offsets grow from entry to entry

The history is also a file, `leader-epoch-checkpoint`. Methods that change the history return
whether they did, so that the caller knows when to write it: before the records it speaks of can be
read by anybody, after a truncation at leisure, because entries beyond the log's end are cut at
start.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.base.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset


class EpochStart(NamedTuple):
    """The first offset that was written in an epoch; one line of the checkpoint."""

    leader_epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_EPOCH_END = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class EpochHistory:
    """The epochs of one log. Owned by whoever owns the log."""

    __slots__ = ("_epochs", "_starts", "latest_epoch")

    def __init__(self, entries: Iterable[EpochStart]) -> None:
        """`entries` as read from a checkpoint. What contradicts a later entry is dropped."""
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        self.latest_epoch = NO_LEADER_EPOCH
        for entry in entries:
            self.assign(entry.leader_epoch, start_offset=entry.start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(map(EpochStart, self._epochs, self._starts))

    def assign(self, leader_epoch: LeaderEpoch, *, start_offset: Offset) -> bool:
        """A batch of `leader_epoch` is appended at `start_offset`. Called for every batch.

        A newer log contradicts what an older leader wrote at or after it, so those entries go:
        a follower may be told of an epoch only if the records are still there.
        """
        if leader_epoch == self.latest_epoch:
            return False
        assert leader_epoch >= 0
        assert start_offset >= 0
        keep = min(bisect_left(self._epochs, leader_epoch), bisect_left(self._starts, start_offset))
        self._keep_first(keep)
        self._epochs.append(leader_epoch)
        self._starts.append(start_offset)
        self.latest_epoch = leader_epoch
        assert self._epochs[-2:] == sorted(set(self._epochs[-2:]))  # I1
        assert self._starts[-2:] == sorted(set(self._starts[-2:]))  # I2
        return True

    def end_offset_for(self, leader_epoch: LeaderEpoch, *, log_end_offset: Offset) -> EpochEnd:
        """Where `leader_epoch`, or the largest known one below it, ends in this log.

        `UNKNOWN_EPOCH_END` if this log has not reached that epoch: whoever asks knows more.
        An epoch below all known ones has nothing left here, so it ends where the log begins.
        """
        if leader_epoch == self.latest_epoch and leader_epoch != NO_LEADER_EPOCH:
            return EpochEnd(leader_epoch, log_end_offset)
        if leader_epoch < 0:
            return UNKNOWN_EPOCH_END
        above = bisect_right(self._epochs, leader_epoch)
        if above == len(self._epochs):
            return UNKNOWN_EPOCH_END
        if above == 0:
            return EpochEnd(leader_epoch, self._starts[0])
        return EpochEnd(self._epochs[above - 1], self._starts[above])

    def epoch_of(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`, which must be in the log; NO_LEADER_EPOCH if unknown."""
        above = bisect_right(self._starts, offset)
        return self._epochs[above - 1] if above > 0 else NO_LEADER_EPOCH

    def diverging_end(
        self, leader_epoch: LeaderEpoch, *, fetch_offset: Offset, log_end_offset: Offset
    ) -> EpochEnd | None:
        """Where a follower must truncate that asks for `fetch_offset`.

        `leader_epoch` is that of its last record. None if its log is a prefix of this one.
        `UNKNOWN_EPOCH_END` if this log has not reached `leader_epoch`; the caller refuses with
        OFFSET_OUT_OF_RANGE, as Kafka does.
        """
        end = self.end_offset_for(leader_epoch, log_end_offset=log_end_offset)
        if end.leader_epoch == leader_epoch and fetch_offset <= end.end_offset:
            return None
        return end

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """The log now ends at `end_offset`: epochs that began there or later wrote nothing."""
        keep = bisect_left(self._starts, end_offset)
        if keep == len(self._starts):
            return False
        self._keep_first(keep)
        return True

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """The log now starts at `start_offset`; the epoch that wrote it starts there too."""
        before = bisect_right(self._starts, start_offset)
        if before == 0 or (before == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: before - 1]
        del self._starts[: before - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> bool:
        """The log is empty and will start anywhere."""
        if not self._epochs:
            return False
        self._keep_first(0)
        return True

    def _keep_first(self, count: int) -> None:
        del self._epochs[count:]
        del self._starts[count:]
        self.latest_epoch = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH
