"""Whether a cluster is as much in sync as it was, for whoever takes its brokers down in turn.

A broker that was stopped is in no in-sync set when it is back, until it has caught up. If the next
one goes down before that, partitions may be left with fewer in-sync replicas than
`min.insync.replicas` asks for, or with none that may lead.

What was out of sync before, for whatever reason, is not waited for; it may never be in sync. But a
broker that was down and was started is: it was out of sync because it was down.

Every broker that runs is asked. One that has not heard the latest would say that all is well.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.client.errors import ClientError
from tidelog.client.membership import ClusterView, ask_cluster
from tidelog.client.values import PartitionDescription
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.running import running_brokers
from tidelog.lab.state import BrokerState

_POLL_INTERVAL_S: Final = 0.1
_ANSWER_WITHIN_S: Final = 5.0

Partitions = Mapping[tuple[str, int], PartitionDescription]


class NotInSync(LabError):
    """The cluster took too long to be as much in sync as it was."""


class Lacking(NamedTuple):
    """A partition that lacks replicas which should be in sync."""

    topic: str
    partition: int
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SyncWait:
    """How long to wait, whether anybody still wants to, and who is told how it goes."""

    within_s: float
    is_cancelled: Callable[[], bool]
    on_progress: Callable[[Sequence[Lacking]], None]


def lacking(before: Partitions, now: Partitions, returned: Collection[int]) -> list[Lacking]:
    """The partitions of `now` that lack replicas which were in sync `before`, or have `returned`.

    Replicas that were moved away, and topics that were deleted, are missed by nobody.
    """
    found = []
    for (topic, number), state in now.items():
        known = before.get((topic, number))
        expected = {*returned, *(known.isr if known is not None else ())}
        missing = [each for each in state.replicas if each in expected and each not in state.isr]
        if missing:
            found.append(Lacking(topic, number, tuple(missing)))
    return found


def partitions_in_sync(folder: ClusterFolder) -> Partitions:
    """All partitions, as one of the brokers that run sees them; none if nobody answers."""
    for broker in running_brokers(folder):
        view = _ask(broker)
        if view is not None:
            return view.partitions
    return {}


def wait_until_in_sync(
    folder: ClusterFolder, before: Partitions, returned: Collection[int], wait: SyncWait
) -> bool:
    """Return True once nothing is lacking; False if nobody wants to wait. Raises NotInSync."""
    give_up_at = time.monotonic() + wait.within_s
    while not wait.is_cancelled():
        missing = _lacking_anywhere(running_brokers(folder), before, returned)
        if missing == []:
            return True
        if missing is not None:
            wait.on_progress(missing)
        if time.monotonic() >= give_up_at:
            raise NotInSync(f"{_reason(missing)} after {wait.within_s:g} s")
        time.sleep(_POLL_INTERVAL_S)
    return False


def _lacking_anywhere(
    brokers: Sequence[BrokerState], before: Partitions, returned: Collection[int]
) -> list[Lacking] | None:
    """What the first broker that is not content says; None if one does not know all others."""
    expected = {broker.id for broker in brokers}
    for broker in brokers:
        view = _ask(broker)
        if view is None or not expected <= view.membership.broker_ids:
            return None
        missing = lacking(before, view.partitions, returned)
        if missing:
            return missing
    return []


def _ask(broker: BrokerState) -> ClusterView | None:
    try:
        return ask_cluster(broker.endpoint, timeout_s=_ANSWER_WITHIN_S)
    except ClientError:
        return None


def _reason(missing: Sequence[Lacking] | None) -> str:
    if not missing:
        return "brokers do not know each other"
    first = missing[0]
    brokers = ", ".join(map(str, first.brokers))
    more = f" and {len(missing) - 1:,} more partitions" if len(missing) > 1 else ""
    return f"{first.topic}-{first.partition} lacks broker {brokers}{more}"
