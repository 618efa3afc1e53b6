"""Partitions of a cluster, counted: how many there are, how they are, who holds them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.client.values import PartitionState, TopicDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """`leads` and `replicas` are by broker; a broker without any is not in them."""

    topics: int
    partitions: int
    under_replicated: int
    offline: int
    leads: Counter[int]
    replicas: Counter[int]

    @property
    def sentence(self) -> str:
        """`3 with 12 partitions, all in sync`."""
        faults = [
            f"{count} {state}"
            for count, state in (
                (self.under_replicated, PartitionState.UNDER_REPLICATED),
                (self.offline, PartitionState.OFFLINE),
            )
            if count
        ]
        if not self.partitions:
            return "none"
        plural = "" if self.partitions == 1 else "s"
        state = ", ".join(faults) or ("all in sync" if plural else "in sync")
        return f"{self.topics} with {self.partitions:,} partition{plural}, {state}"

    def as_json(self) -> dict[str, int]:
        """What is said of all brokers together."""
        return {
            "topics": self.topics,
            "partitions": self.partitions,
            "under_replicated": self.under_replicated,
            "offline": self.offline,
        }


def count_partitions(topics: Iterable[TopicDescription]) -> PartitionCounts:
    """All partitions of these topics."""
    described = list(topics)
    partitions = [partition for topic in described for partition in topic.partitions]
    states = Counter(partition.state for partition in partitions)
    return PartitionCounts(
        topics=len(described),
        partitions=len(partitions),
        under_replicated=states[PartitionState.UNDER_REPLICATED],
        offline=states[PartitionState.OFFLINE],
        leads=Counter(each.leader for each in partitions if each.leader is not None),
        replicas=Counter(replica for each in partitions for replica in each.replicas),
    )
