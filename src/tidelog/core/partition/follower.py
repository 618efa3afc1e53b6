"""A follower's view of one partition: what is committed, and where its log leaves the leader's.

A follower asks the leader for what comes after its own log, and names the epoch of its last record.
The leader answers with records, or with the place where the two logs part (R2, R3, R7):

              ┌──────────────── records: append them byte for byte ────────────────┐
              ▼                                                                    │
     fetch (log end, last epoch) ──▶ leader ──┬────────────────────────────────────┘
              ▲                               ├─ diverging epoch: truncate, ask again
              │                               └─ below the leader's start: start afresh there
              └────────────────────────────────────────┘

It truncates to where the logs part and never to its high watermark, which is one fetch old: cutting
there could drop records that were acknowledged (KIP-101).

The high watermark is the smaller of the leader's and the own log's end. A new leader's may be older
than what the follower has heard from the one before; what was committed stays so, and the follower
keeps what it knows. Only a truncation takes it back, which means that somebody was elected who
lacked committed records.

Consumers may read from a follower what it knows to be committed (KIP-392).
"""

from dataclasses import dataclass

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.core.partition.epochs import UNKNOWN_EPOCH_END, EpochEnd, EpochHistory


@dataclass(slots=True, kw_only=True)
class PartitionFollower:
    """Decides nothing about others: it copies. Owns no file, socket, task or clock."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    high_watermark: Offset

    def on_leader_changed(self, leader: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Somebody else leads, or the same broker in a new epoch."""
        assert leader_epoch > self.leader_epoch
        self.leader = leader
        self.leader_epoch = leader_epoch

    def on_fetched(self, *, leader_high_watermark: Offset, log_end_offset: Offset) -> bool:
        """An answer was taken in; the own log now ends at `log_end_offset`. True if more is
        committed than was known."""
        committed = min(leader_high_watermark, log_end_offset)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    def on_truncated(self, *, log_start_offset: Offset, log_end_offset: Offset) -> bool:
        """The own log was cut, or begins elsewhere. True if committed records went.

        What lies below the start of a leader's log was committed before it was deleted.
        """
        before = self.high_watermark
        self.high_watermark = max(log_start_offset, min(before, log_end_offset))
        return log_end_offset < before


def truncation_offset(
    history: EpochHistory, leader_end: EpochEnd, *, log_end_offset: Offset
) -> Offset:
    """Where to cut a log that the leader calls diverging at `leader_end`.

    The leader names the largest epoch of its own that is not above ours, and where that ends. If
    we never saw that epoch, ours below it is the last that both can have. The logs may agree up to
    there or part even earlier; then the next fetch is answered with an earlier epoch.
    """
    own = history.end_offset_for(leader_end.leader_epoch, log_end_offset=log_end_offset)
    if own == UNKNOWN_EPOCH_END:
        return min(leader_end.end_offset, log_end_offset)
    return min(own.end_offset, leader_end.end_offset, log_end_offset)
