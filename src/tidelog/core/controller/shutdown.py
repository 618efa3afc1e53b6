"""Controlled shutdown: a broker that is about to stop hands over first (C5).

It leads nothing any more that another member of the isr can lead, and leaves every isr that keeps a
member. What remains has nobody else in sync; the broker asks again, while others catch up, and in
the end stops all the same. Partitions with a single replica do not count: waiting helps nobody.
"""

from dataclasses import dataclass

from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.core.controller.changes import PartitionChanged
from tidelog.core.controller.election import (
    NOBODY_RETURNED,
    Candidates,
    Elections,
    UncleanElection,
    elect,
)
from tidelog.core.controller.image import ClusterImage
from tidelog.core.controller.reassignment import finish


@dataclass(frozen=True, slots=True)
class Shutdown:
    """`remaining` are led by the broker still, though they have other replicas."""

    changes: list[PartitionChanged]
    unclean: list[UncleanElection]
    remaining: list[TopicPartition]


def controlled_shutdown(
    image: ClusterImage, candidates: Candidates, *, broker_id: BrokerId, broker_epoch: int
) -> Shutdown:
    """What a broker that is about to stop gives up, as one batch.

    Whoever calls this counts the broker as shutting down, under that broker epoch, from now on.
    Raises RequestRefused(STALE_BROKER_EPOCH) unless the broker is registered under it.
    """
    candidates.require_registered(broker_id, broker_epoch)
    others = candidates.without(broker_id)
    given_up = Elections([], [])
    remaining = []
    for name, topic in image.topics.items():
        for number, state in enumerate(topic.partitions):
            if broker_id not in state.isr:
                continue
            each = TopicPartition(name, number)
            wanted = finish(elect(state, each, others, NOBODY_RETURNED), each, others)
            given_up.add(each, state, wanted)
            if wanted.state.leader == broker_id and len(state.replicas) > 1:
                remaining.append(each)
    return Shutdown(given_up.changes, given_up.unclean, remaining)
