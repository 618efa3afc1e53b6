"""A cluster at one moment: which processes live, what brokers say, which links are cut.

Brokers are asked at their own ports, past any proxy, and not while they are paused; what they say
is what most of them say. Who is cut off from the others goes on believing in what it heard last.
"""

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.client.errors import ClientError
from tidelog.client.membership import ClusterView, ask_cluster
from tidelog.client.quorum import ask_quorum_leader
from tidelog.client.values import PartitionDescription
from tidelog.lab import small_disks
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.network.status import LinkStatus
from tidelog.lab.processes import is_paused
from tidelog.lab.state import BrokerState

_ANSWER_WITHIN_S: Final = 1.0


class ProcessState(StrEnum):
    """How a broker's process is, as the operating system says."""

    UP = "up"
    PAUSED = "paused"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """One broker; `has_full_disk` is None where its logs share a disk with others."""

    id: int
    state: ProcessState
    has_full_disk: bool | None


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """All of it. `has_answer` says whether any broker has said anything."""

    brokers: tuple[BrokerLook, ...]
    has_answer: bool
    controller_id: int | None
    partitions: dict[tuple[str, int], PartitionDescription]
    links: tuple[LinkStatus, ...]

    @property
    def is_well(self) -> bool:
        """Whether everybody is up and in sync, and nothing is cut, slow or full."""
        return (
            self.has_answer
            and all(each.state is ProcessState.UP for each in self.brokers)
            and not any(each.has_full_disk for each in self.brokers)
            and not self.links
            and not any(is_lacking(each) for each in self.partitions.values())
        )


def is_lacking(partition: PartitionDescription) -> bool:
    """Whether it has no leader, or a replica is out of sync."""
    return partition.leader is None or len(partition.isr) < len(partition.replicas)


def look_at(cluster: LocalCluster) -> ClusterLook:
    """How it is now; takes as long as a broker needs to answer, a second each at most."""
    brokers = cluster.brokers
    looks = tuple(_look_at_broker(cluster, broker) for broker in brokers)
    awake = [
        broker for broker, look in zip(brokers, looks, strict=True) if look.state is ProcessState.UP
    ]
    view = _common_view(awake)
    network = cluster.engine.network
    return ClusterLook(
        brokers=looks,
        has_answer=view is not None,
        controller_id=_controller(cluster, view, awake),
        partitions={} if view is None else view.partitions,
        links=() if network is None else network.status().links,
    )


def _look_at_broker(cluster: LocalCluster, broker: BrokerState) -> BrokerLook:
    log_dir = cluster.folder.log_dir(broker.id)
    is_full = small_disks.is_full(log_dir) if small_disks.is_small_disk(log_dir) else None
    return BrokerLook(broker.id, process_state(broker), is_full)


def process_state(broker: BrokerState) -> ProcessState:
    if not broker.is_alive:
        return ProcessState.DOWN
    return ProcessState.PAUSED if is_paused(broker.process) else ProcessState.UP


def _common_view(brokers: list[BrokerState]) -> ClusterView | None:
    views: list[ClusterView] = []
    for broker in brokers:
        with suppress(ClientError):
            views.append(ask_cluster(broker.endpoint, timeout_s=_ANSWER_WITHIN_S))
    return max(views, key=views.count, default=None)


def _controller(
    cluster: LocalCluster, view: ClusterView | None, brokers: list[BrokerState]
) -> int | None:
    if cluster.engine.tells_controller:
        return None if view is None else view.membership.controller_id
    for broker in brokers:
        with suppress(ClientError):
            return ask_quorum_leader(broker.endpoint, timeout_s=_ANSWER_WITHIN_S)
    return None
