"""What a broker tells of itself when Prometheus asks (O3, D5).

Everything is read from what is there at that moment: no request path pays for it. One look visits
every partition of the broker once.
"""

from collections.abc import Iterable, Sequence

from tidelog.broker.deduplication import Deduplicator
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.telemetry.metrics import Family, Kind, Sample

OF_A_PARTITION = ("topic", "partition")


def gather(partitions: Partitions, *, is_controller: bool) -> list[Family]:
    """Everything, for one answer."""
    served = [*partitions]
    return [
        _count("kafka_controller_kafkacontroller_activecontrollercount", is_controller),
        *_replicas(served, partitions.marked_offline_count),
        *_deduplication(
            [(one, one.deduplicator) for one in served if one.deduplicator is not None]
        ),
    ]


def _replicas(served: Sequence[PartitionRunner], unopened_count: int) -> list[Family]:
    """`unopened_count`: replicas of this broker that it could not open, as their disk is gone."""
    led = [one.leader for one in served if one.leader is not None]
    prefix = "kafka_server_replicamanager"
    return [
        _count(f"{prefix}_partitioncount", len(served) + unopened_count),
        _count(f"{prefix}_leadercount", len(led)),
        _count(
            f"{prefix}_underreplicatedpartitions",
            sum(len(leader.isr) <= len(leader.followers) for leader in led),
        ),
        _count(
            f"{prefix}_underminisrpartitioncount",
            sum(len(leader.isr) < leader.min_insync_replicas for leader in led),
        ),
        _count(
            f"{prefix}_offlinereplicacount",
            sum(one.is_offline for one in served) + unopened_count,
        ),
    ]


def _deduplication(kept: Sequence[tuple[PartitionRunner, Deduplicator]]) -> list[Family]:
    def family(name: str, kind: Kind, documentation: str, values: Iterable[int | None]) -> Family:
        samples = [
            Sample(value, (one.topic_partition.topic, str(one.topic_partition.partition)))
            for (one, _), value in zip(kept, values, strict=True)
            if value is not None
        ]
        return Family(name, kind, documentation, OF_A_PARTITION, samples)

    indexes = [deduplicator.index for _, deduplicator in kept]
    return [
        family(
            "tidelog_deduplication_dropped_records_total",
            Kind.COUNTER,
            "Records that were not stored because their id was seen before",
            [deduplicator.dropped_records for _, deduplicator in kept],
        ),
        family(
            "tidelog_deduplication_remembered_ids",
            Kind.GAUGE,
            "Ids that the index holds",
            [None if index is None else len(index) for index in indexes],
        ),
        family(
            "tidelog_deduplication_index_bytes",
            Kind.GAUGE,
            "Memory of the index",
            [None if index is None else index.size_bytes for index in indexes],
        ),
        family(
            "tidelog_deduplication_forgotten_ids_total",
            Kind.COUNTER,
            "Ids that went before their window had passed, because of tidelog.dedup.ids.max",
            [None if index is None else index.forgotten_early for index in indexes],
        ),
    ]


def _count(name: str, value: int) -> Family:
    return Family(name, Kind.GAUGE, name.rpartition("_")[2], (), [Sample(value)])
