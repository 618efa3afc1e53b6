"""Small clusters and their parts, for tests of what the controller decides."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from tidelog.base.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from tidelog.core.controller.election import Candidates
from tidelog.core.controller.image import (
    BrokerImage,
    ClusterImage,
    Endpoint,
    LastStop,
    PartitionImage,
    TopicImage,
)


def broker(number: int, *, rack: str | None = None, broker_epoch: int = 1) -> BrokerImage:
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", f"host-{number}", 9092)
    return BrokerImage(BrokerId(number), broker_epoch, (endpoint,), rack, LastStop.CLEAN)


def brokers(*numbers: int) -> dict[BrokerId, BrokerImage]:
    return {BrokerId(number): broker(number) for number in numbers}


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def partition(
    *replicas: int, leader: int | None = None, isr: Iterable[int] | None = None, epoch: int = 0
) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(replicas[0] if leader is None else leader),
        leader_epoch=LeaderEpoch(epoch),
        replicas=ids(*replicas),
        isr=ids(*(replicas if isr is None else isr)),
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=epoch,
    )


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


def topic(name: str, number: int, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, topic_id(number), partitions or (partition(1),))


def cluster(
    live: dict[BrokerId, BrokerImage],
    *topics: TopicImage,
    topic_configs: dict[str, dict[str, str]] | None = None,
) -> ClusterImage:
    return ClusterImage(
        cluster_id="cluster",
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(1),
        brokers=live,
        topics={each.name: each for each in topics},
        topic_names={each.topic_id: each.name for each in topics},
        topic_configs=topic_configs or {},
    )


def known(
    live: Mapping[BrokerId, BrokerImage],
    *,
    stopping: Iterable[int] = (),
    offline: Mapping[TopicPartition, Iterable[BrokerId]] | None = None,
    allow_unclean: bool = False,
) -> Candidates:
    """The brokers in `live`, of which some are shutting down."""
    return Candidates.of(
        live,
        shutting_down={
            each: live[each].broker_epoch for each in map(BrokerId, stopping) if each in live
        },
        offline_replicas={each: set(found) for each, found in (offline or {}).items()},
        allow_unclean=lambda _topic: allow_unclean,
    )
