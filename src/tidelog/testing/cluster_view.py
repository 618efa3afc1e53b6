"""What brokers say of their topics, asked of each that runs, at its own port.

Clients remember; brokers that were cut off go on believing what they heard last. So each is asked
each time, and most of them decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import ClusterView, ask_cluster
from tidelog.client.values import PartitionDescription
from tidelog.lab.state import BrokerState

_ANSWER_WITHIN_S: Final = 2.0


def ask_brokers(brokers: Iterable[BrokerState]) -> dict[int, ClusterView | None]:
    """What each of them says; None of one that says nothing."""
    return {broker.id: _ask(broker) for broker in brokers}


def common_view(brokers: Iterable[BrokerState]) -> ClusterView | None:
    """What most of them say that answer; None while nobody does."""
    views = [view for view in ask_brokers(brokers).values() if view is not None]
    known = [view for view in views if view.membership.controller_id is not None]
    return max(known, key=known.count, default=None)


def out_of_sync(running: Sequence[BrokerState], topic: str | None) -> list[str]:
    """Why it cannot be said that each partition has all its replicas in sync; empty if it can.

    `topic`: of this one only.
    """
    expected = {broker.id for broker in running}
    problems = []
    for broker_id, view in ask_brokers(running).items():
        if view is None:
            problems.append(f"broker {broker_id} does not answer")
            continue
        chosen = partitions_of(view, topic)
        if missing := expected - view.membership.broker_ids:
            problems.append(f"broker {broker_id} does not know of {sorted(missing)}")
        if topic is not None and not chosen:
            problems.append(f"broker {broker_id} does not know {topic}")
        problems += [
            f"{name}-{number} has leader {each.leader} and isr {list(each.isr)} "
            f"of replicas {list(each.replicas)}, says broker {broker_id}"
            for (name, number), each in chosen.items()
            if each.leader is None or len(each.isr) < len(each.replicas)
        ]
    return problems


def partitions_of(
    view: ClusterView, topic: str | None
) -> Mapping[tuple[str, int], PartitionDescription]:
    """Those of one topic, or all."""
    return {
        (name, number): each
        for (name, number), each in view.partitions.items()
        if topic in {None, name}
    }


def _ask(broker: BrokerState) -> ClusterView | None:
    try:
        return ask_cluster(broker.endpoint, timeout_s=_ANSWER_WITHIN_S)
    except ClientError:
        return None
