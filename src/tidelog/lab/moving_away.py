"""A broker that is to go gives its replicas to others first (B3).

    asked: who holds what? ──▶ moves begun ──▶ in sync elsewhere, and it holds nothing ──▶ done
                ▲                    │
                └── others are asked again: a topic may have been created meanwhile

Refused before anything has moved if the others are too few to hold as many replicas.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import ClusterView, ask_cluster
from tidelog.client.reassignment import alter_reassignments
from tidelog.client.values import PartitionDescription
from tidelog.lab.errors import LabError, StartCancelled
from tidelog.lab.starting import Patience
from tidelog.lab.state import BrokerState

_ANSWER_WITHIN_S: Final = 5.0
_POLL_INTERVAL_S: Final = 0.05

PartitionKey = tuple[str, int]


def plan_moves(
    partitions: Mapping[PartitionKey, PartitionDescription],
    *,
    leaving: int,
    staying: Collection[int],
) -> dict[PartitionKey, tuple[int, ...]]:
    """The replicas that partitions of `leaving` should have; LabError if there cannot be so many.

    Whoever holds the fewest gets the next one, in the place of the one that leaves: who is
    preferred to lead stays so, and if it was the one that leaves, its successor is.
    """
    held = dict.fromkeys(sorted(staying), 0)
    for state in partitions.values():
        for replica in state.replicas:
            if replica in held:
                held[replica] += 1
    moves: dict[PartitionKey, tuple[int, ...]] = {}
    for key, state in sorted(partitions.items()):
        if leaving not in state.replicas:
            continue
        free = [each for each in held if each not in state.replicas]
        if not free:
            raise LabError(
                f"broker {leaving} cannot go: {key[0]}-{key[1]} has {len(state.replicas)} "
                f"replicas, and only {len(held)} other brokers are there to hold them"
            )
        heir = min(free, key=lambda each: held[each])
        held[heir] += 1
        moves[key] = tuple(heir if each == leaving else each for each in state.replicas)
    return moves


def move_away(
    brokers: Callable[[], Sequence[BrokerState]], leaving: int, patience: Patience
) -> None:
    """Return once `leaving` holds nothing, and all that it held is in sync elsewhere."""
    give_up_at = time.monotonic() + patience.ready_within_s
    begun: set[PartitionKey] = set()
    while True:
        staying = [each for each in brokers() if each.id != leaving and each.is_alive]
        if not staying:
            raise LabError(f"broker {leaving} cannot go: no other one is alive")
        views = [_ask(broker) for broker in staying]
        if all(view is not None and _is_gone(view, leaving, begun) for view in views):
            return
        for broker, view in zip(staying, views, strict=True):
            if view is not None:
                begun |= _begin(broker, view, leaving, {each.id for each in staying}, begun)
        if patience.is_cancelled():
            raise StartCancelled(f"not all replicas of broker {leaving} have moved yet")
        if time.monotonic() >= give_up_at:
            raise LabError(
                f"replicas of broker {leaving} have not moved after {patience.ready_within_s:g} s"
            )
        time.sleep(_POLL_INTERVAL_S)


def _begin(
    broker: BrokerState,
    view: ClusterView,
    leaving: int,
    staying: Collection[int],
    begun: Collection[PartitionKey],
) -> set[PartitionKey]:
    """Ask for what nobody was asked for yet; what of it was granted."""
    left = {key: state for key, state in view.partitions.items() if key not in begun}
    moves = plan_moves(left, leaving=leaving, staying=staying)
    if not moves:
        return set()
    try:
        alter_reassignments(broker.endpoint, moves, timeout_s=_ANSWER_WITHIN_S)
    except ClientError:
        return set()  # No controller at the moment, perhaps. It is asked again.
    return set(moves)


def _is_gone(view: ClusterView, leaving: int, moved: Collection[PartitionKey]) -> bool:
    if any(leaving in state.replicas for state in view.partitions.values()):
        return False
    states = [view.partitions[key] for key in moved if key in view.partitions]
    return all(len(state.isr) == len(state.replicas) for state in states)


def _ask(broker: BrokerState) -> ClusterView | None:
    try:
        return ask_cluster(broker.endpoint, timeout_s=_ANSWER_WITHIN_S)
    except ClientError:
        return None
