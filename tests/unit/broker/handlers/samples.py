"""Small clusters for the tests of request handlers."""

from collections.abc import Mapping
from uuid import UUID

from tidelog.base.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from tidelog.broker.dispatch import RequestContext
from tidelog.broker.partitions import Partitions
from tidelog.core.controller.changes import (
    BrokerRegistered,
    Change,
    ClusterNamed,
    ControllerChanged,
    TopicCreated,
)
from tidelog.core.controller.image import (
    EMPTY_IMAGE,
    BrokerImage,
    Endpoint,
    LastStop,
    PartitionImage,
    TopicImage,
)

BROKER = BrokerId(1)
CLUSTER_ID = "a-cluster-of-one"
LISTENER = "PLAINTEXT"


def context(*, api_version: int = 0, listener_name: str = LISTENER) -> RequestContext:
    return RequestContext(
        api_version=api_version,
        client_id="a-client",
        peer_host="127.0.0.1",
        listener_name=listener_name,
    )


def broker(broker_id: int, *endpoints: Endpoint, rack: str | None = None) -> BrokerRegistered:
    return BrokerRegistered(BrokerImage(BrokerId(broker_id), 1, endpoints, rack, LastStop.CLEAN))


def partition(
    *, leader: int = BROKER, replicas: tuple[int, ...] = (BROKER,), isr: tuple[int, ...] = (BROKER,)
) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(3),
        replicas=tuple(BrokerId(replica) for replica in replicas),
        isr=tuple(BrokerId(replica) for replica in isr),
        adding_replicas=(),
        removing_replicas=(),
        partition_epoch=0,
    )


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().ljust(16, b"-")[:16]))


def topic(
    name: str, *partitions: PartitionImage, configs: Mapping[str, str] | None = None
) -> TopicCreated:
    return TopicCreated(TopicImage(name, topic_id(name), partitions), configs or {})


def cluster(*changes: Change) -> Partitions:
    """What a broker knows of a cluster where `changes` have happened."""
    history: list[Change] = [
        ClusterNamed(CLUSTER_ID),
        ControllerChanged(BROKER, ControllerEpoch(1)),
        broker(BROKER, Endpoint(LISTENER, "PLAINTEXT", "one.example", 9092)),
        *changes,
    ]
    partitions = Partitions()
    partitions.on_image(EMPTY_IMAGE.apply_all(history), history)
    return partitions
