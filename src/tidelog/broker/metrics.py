"""What a broker tells of itself when Prometheus asks (O3, D5).

Everything is read from what is there at that moment: no request path pays for it. One look visits
every partition of the broker once, a few at a time, so that nobody waits for all of them; what was
seen becomes samples later, on a thread.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.broker.large_requests import in_turns
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.telemetry.metrics import Family, Kind, Sample

OF_A_PARTITION = ("topic", "partition")


class DeduplicationSeen(NamedTuple):
    """What a partition that drops records by id has counted. None: there is no index just now."""

    partition: TopicPartition
    dropped_records: int
    remembered_ids: int | None
    index_bytes: int | None
    forgotten_ids: int | None


class ReplicaSeen(NamedTuple):
    """One replica of this broker, at the moment it was looked at."""

    is_offline: bool
    is_leader: bool
    is_under_replicated: bool
    is_under_min_isr: bool
    deduplication: DeduplicationSeen | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All of them. `unopened_count`: replicas that could not be opened, as their disk is gone."""

    is_controller: bool
    unopened_count: int
    replicas: Sequence[ReplicaSeen]

    def __len__(self) -> int:
        return len(self.replicas)

    def families(self) -> list[Family]:
        """Everything, for one answer. Touches nothing but what was seen."""
        return [
            _count("kafka_controller_kafkacontroller_activecontrollercount", self.is_controller),
            *_replicas(self.replicas, self.unopened_count),
            *_deduplication([one.deduplication for one in self.replicas if one.deduplication]),
        ]


async def look(partitions: Partitions, *, is_controller: bool) -> Seen:
    """What there is to tell, with a turn for everybody else in between."""
    unopened_count = partitions.marked_offline_count
    replicas = [_look_at(one) async for one in in_turns([*partitions])]
    return Seen(is_controller=is_controller, unopened_count=unopened_count, replicas=replicas)


def _look_at(one: PartitionRunner) -> ReplicaSeen:
    leader, deduplicator = one.leader, one.deduplicator
    deduplication = None
    if deduplicator is not None:
        index = deduplicator.index
        deduplication = DeduplicationSeen(
            one.topic_partition,
            deduplicator.dropped_records,
            None if index is None else len(index),
            None if index is None else index.size_bytes,
            None if index is None else index.forgotten_early,
        )
    return ReplicaSeen(
        one.is_offline,
        leader is not None,
        leader is not None and len(leader.isr) <= len(leader.followers),
        leader is not None and len(leader.isr) < leader.min_insync_replicas,
        deduplication,
    )


def _replicas(replicas: Sequence[ReplicaSeen], unopened_count: int) -> list[Family]:
    prefix = "kafka_server_replicamanager"
    return [
        _count(f"{prefix}_partitioncount", len(replicas) + unopened_count),
        _count(f"{prefix}_leadercount", sum(one.is_leader for one in replicas)),
        _count(
            f"{prefix}_underreplicatedpartitions",
            sum(one.is_under_replicated for one in replicas),
        ),
        _count(
            f"{prefix}_underminisrpartitioncount", sum(one.is_under_min_isr for one in replicas)
        ),
        _count(
            f"{prefix}_offlinereplicacount",
            sum(one.is_offline for one in replicas) + unopened_count,
        ),
    ]


def _deduplication(seen: Sequence[DeduplicationSeen]) -> list[Family]:
    def family(name: str, kind: Kind, documentation: str, values: Iterable[int | None]) -> Family:
        samples = [
            Sample(value, (one.partition.topic, str(one.partition.partition)))
            for one, value in zip(seen, values, strict=True)
            if value is not None
        ]
        return Family(name, kind, documentation, OF_A_PARTITION, samples)

    return [
        family(
            "tidelog_deduplication_dropped_records_total",
            Kind.COUNTER,
            "Records that were not stored because their id was seen before",
            [one.dropped_records for one in seen],
        ),
        family(
            "tidelog_deduplication_remembered_ids",
            Kind.GAUGE,
            "Ids that the index holds",
            [one.remembered_ids for one in seen],
        ),
        family(
            "tidelog_deduplication_index_bytes",
            Kind.GAUGE,
            "Memory of the index",
            [one.index_bytes for one in seen],
        ),
        family(
            "tidelog_deduplication_forgotten_ids_total",
            Kind.COUNTER,
            "Ids that went before their window had passed, because of tidelog.dedup.ids.max",
            [one.forgotten_ids for one in seen],
        ),
    ]


def _count(name: str, value: int) -> Family:
    return Family(name, Kind.GAUGE, name.rpartition("_")[2], (), [Sample(value)])
