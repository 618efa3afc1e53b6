"""What follows for partitions from brokers that come, go and come back (C4, R9, R13).

Everything that follows from one event is one batch. A broker has been away from a partition if it
registered after the partition's state was written: it held its leadership and its place in the isr
under a registration that is gone. `election.py` has the rules for one partition.

    who looks                              knows that a broker has been away because
    a controller that watched all along    its registration is not the one in the image
    a controller that has just loaded      its broker epoch is above the number of the write

The second is sound because registering and writing states exclude each other: nobody writes a state
who has not seen every registration before it.

An event costs a look at every partition and work for those that it concerns.
"""

from collections.abc import Iterable, Mapping

from tidelog.base.ids import NO_BROKER, BrokerId, TopicPartition
from tidelog.core.controller.election import NOBODY_RETURNED, Candidates, Elections, elect
from tidelog.core.controller.image import BrokerImage, ClusterImage, LastStop, PartitionImage
from tidelog.core.controller.reassignment import finish


def on_brokers_changed(image: ClusterImage, candidates: Candidates) -> Elections:
    """All that follows from the registrations in `candidates` where `image` has the last ones.

    The changes are applied to the image together with, or after, those of the brokers.
    """
    before, after = image.brokers, candidates.brokers
    gone = {each for each in before if each not in after}
    returned = {
        broker_id: broker.stop
        for broker_id, broker in after.items()
        if (known := before.get(broker_id)) is None or known.broker_epoch != broker.broker_epoch
    }
    elected = Elections([], [])
    if not gone and not returned:
        return elected
    unsteady = gone | returned.keys()
    for name, topic in image.topics.items():
        for number, state in enumerate(topic.partitions):
            if state.leader == NO_BROKER or not unsteady.isdisjoint(state.isr):
                _settle(elected, state, TopicPartition(name, number), candidates, returned)
    return elected


def on_loaded(
    image: ClusterImage, written_at: Mapping[TopicPartition, int], candidates: Candidates
) -> Elections:
    """All that happened while nobody was controller, of which the tree is the only witness.

    `written_at` is the number of each state's last write, from the counter that broker epochs are
    drawn from. A state without one has just been made from who is alive.
    """
    elected = Elections([], [])
    brokers = candidates.brokers
    latest_epoch = max((broker.broker_epoch for broker in brokers.values()), default=0)
    for name, topic in image.topics.items():
        for number, state in enumerate(topic.partitions):
            topic_partition = TopicPartition(name, number)
            written = written_at.get(topic_partition, latest_epoch)
            returned = (
                _returned(state, brokers, written) if written < latest_epoch else NOBODY_RETURNED
            )
            _settle(elected, state, topic_partition, candidates, returned)
    return elected


def on_replicas_changed(
    image: ClusterImage, partitions: Iterable[TopicPartition], candidates: Candidates
) -> Elections:
    """All that follows for `partitions` where a log directory failed or works again, or where an
    unclean election is allowed now.
    """
    elected = Elections([], [])
    for each in partitions:
        state = image.topics[each.topic].partitions[each.partition]
        _settle(elected, state, each, candidates, NOBODY_RETURNED)
    return elected


def _returned(
    state: PartitionImage, brokers: Mapping[BrokerId, BrokerImage], written: int
) -> dict[BrokerId, LastStop]:
    return {
        member: brokers[member].stop
        for member in state.isr
        if member in brokers and brokers[member].broker_epoch > written
    }


def _settle(
    elected: Elections,
    state: PartitionImage,
    topic_partition: TopicPartition,
    candidates: Candidates,
    returned: Mapping[BrokerId, LastStop],
) -> None:
    wanted = elect(state, topic_partition, candidates, returned)
    elected.add(topic_partition, state, finish(wanted, topic_partition, candidates))
