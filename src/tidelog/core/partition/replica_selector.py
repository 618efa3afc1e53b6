"""Which replica a consumer should read from: the most caught up of those near it (KIP-392).

    the leader is near            it, and nobody else
    followers near are in sync,   the one whose log is longest; of several, the one that was caught
    alive, and hold what is       up last; of several, that with the largest id
    asked for
    nobody near is                the leader: it is all there is

What the leader knows of a follower it knows from its last fetch. That of an earlier life of the
same broker says nothing about what it has now, so it has to have fetched in this one.
"""

from collections.abc import Callable

from tidelog.base.ids import BrokerId, Offset
from tidelog.core.partition.leader import PartitionLeader


def preferred_read_replica(
    leader: PartitionLeader, fetch_offset: Offset, is_near: Callable[[BrokerId], bool]
) -> BrokerId | None:
    """Whom a consumer that wants `fetch_offset` should ask; None: the leader itself."""
    if is_near(leader.broker):
        return None
    candidates = [
        (progress.log_end_offset, progress.caught_up_at_ms, replica)
        for replica, progress in leader.followers.items()
        if progress.log_start_offset <= fetch_offset <= progress.log_end_offset
        and replica in leader.isr
        and leader.is_heard_of(replica)
        and is_near(replica)
    ]
    return max(candidates)[2] if candidates else None
