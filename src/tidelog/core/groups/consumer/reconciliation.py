"""How a member gets from what it has to what it shall have, without two having the same.

The coordinator decides a *target*; members know only what they *have*. Each heartbeat brings the
two closer, by one of these steps:

    STABLE ──────────── has all of its target, in the target's epoch
      │ ▲
      ▼ │ the rest is given as it becomes free
    UNREVOKED ───────── is asked to give something back, and stays in its epoch until it has
      │
      ▼
    UNRELEASED ──────── is in the target's epoch, and waits for what others have yet to give back

Rules:

    C1  A partition is given to a member only when nobody else has it or has yet to give it back.
    C2  A member that gives back stays in its epoch: whoever has something that it shall not have
        may still commit offsets for it.
    C3  A member has given back when it says what it owns and that is not among it. If it does not
        say what it owns, it has not.
    C4  What a member no longer subscribes to it does not keep, even if the target is older.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidelog.base.ids import TopicId, TopicIdPartition
from tidelog.records.consumer_groups import (
    NOTHING_OWNED,
    CurrentAssignment,
    MemberState,
    OwnedPartitions,
    Partitions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a member shall get to.

    `is_subscribed` says that it subscribes to a topic, `is_free` that nobody has a partition, nor
    has yet to give it back. `owned` is what the member says that it has, None if it does not say.
    """

    epoch: int
    partitions: Partitions
    is_subscribed: Callable[[TopicId], bool]
    is_free: Callable[[TopicIdPartition], bool]
    owned: Partitions | None


def reconcile(
    current: CurrentAssignment, target: Target, *, has_new_subscription: bool
) -> CurrentAssignment:
    """The next step of a member; the same if there is none to take now."""
    if current.state is MemberState.STABLE and current.epoch == target.epoch:
        return _without_unsubscribed(current, target) if has_new_subscription else current
    is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS
    if is_revoking and _has_any(current.revoking, target.owned):
        return _without_unsubscribed(current, target) if has_new_subscription else current
    return _towards(current, target)


def _has_any(revoking: OwnedPartitions, owned: Partitions | None) -> bool:
    """C3"""
    return owned is None or any(partition in revoking for partition in owned)


def _without_unsubscribed(current: CurrentAssignment, target: Target) -> CurrentAssignment:
    """Take from a member what it no longer subscribes to. C4"""
    kept, taken = _divided(
        current.assigned, lambda partition: target.is_subscribed(partition.topic_id)
    )
    if not taken:
        return current
    revoking = {**current.revoking, **taken}
    if not _has_any(revoking, target.owned):
        return _moved(current, current.epoch, current.state, kept, current.revoking)
    return _moved(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)


def _towards(current: CurrentAssignment, target: Target) -> CurrentAssignment:
    wanted = {one for one in target.partitions if target.is_subscribed(one.topic_id)}
    kept, taken = _divided(current.assigned, wanted.__contains__)
    if taken and _has_any(taken, target.owned):
        return _moved(current, current.epoch, MemberState.UNREVOKED_PARTITIONS, kept, taken)
    given = {
        partition: target.epoch
        for partition in wanted
        if partition not in kept and (partition in current.revoking or target.is_free(partition))
    }
    is_whole = len(kept) + len(given) == len(wanted)
    state = MemberState.STABLE if is_whole else MemberState.UNRELEASED_PARTITIONS
    return _moved(current, target.epoch, state, {**kept, **given}, NOTHING_OWNED)


def _divided(
    owned: OwnedPartitions, is_kept: Callable[[TopicIdPartition], bool]
) -> tuple[OwnedPartitions, OwnedPartitions]:
    kept = {partition: epoch for partition, epoch in owned.items() if is_kept(partition)}
    return kept, {partition: epoch for partition, epoch in owned.items() if partition not in kept}


def _moved(
    current: CurrentAssignment,
    epoch: int,
    state: MemberState,
    assigned: OwnedPartitions,
    revoking: OwnedPartitions,
) -> CurrentAssignment:
    return replace(
        current,
        previous_epoch=current.epoch,
        epoch=epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
