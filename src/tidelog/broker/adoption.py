"""Logs that another cluster wrote, say a Kafka that was here before: found, opened, made topics.

Only a new cluster, in which the coordinator knows no topic at all, adopts what lies in its log
directories. Later on, a folder that nobody asked for is what is left of a topic that was deleted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from tidelog.base.errors import StorageError
from tidelog.base.ids import NO_BROKER, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, TopicId
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.replica_logs import OpenedReplica, WantedReplica, open_replica
from tidelog.config.topic import TopicConfig
from tidelog.core.controller.changes import TopicCreated
from tidelog.core.controller.image import PartitionImage, TopicImage

# Kafka keeps topic settings elsewhere. Until somebody sets them again, nothing may expire.
ADOPTED_SETTINGS = {"retention.ms": "-1", "retention.bytes": "-1"}
NO_STATE = PartitionImage(
    leader=NO_BROKER,
    leader_epoch=NO_LEADER_EPOCH,
    replicas=(),
    isr=(),
    adding_replicas=(),
    removing_replicas=(),
    partition_epoch=0,
)

Found = dict[OpenedReplica, LogDirRunner]


async def open_found(
    log_dirs: Sequence[LogDirRunner],
    config: TopicConfig,
    *,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> Found:
    """Open every partition that lies in `log_dirs`. One that cannot be takes its dir offline."""
    opened: Found = {}
    known = set()
    for log_dir in log_dirs:
        for topic_partition in await log_dir.partitions():
            if topic_partition in known or log_dir.log_dir is None:
                continue
            try:
                topic_id = await log_dir.executor.urgent(log_dir.log_dir.topic_id, topic_partition)
                wanted = WantedReplica(topic_partition, topic_id or TopicId(uuid4()), config)
                one = await log_dir.executor.urgent(
                    partial(
                        open_replica,
                        log_dir.log_dir,
                        wanted,
                        producer_id_expiration_ms=producer_id_expiration_ms,
                        now_ms=now_ms,
                    )
                )
            except StorageError as error:
                log_dir.on_failure(error)
                break
            known.add(topic_partition)
            opened[one] = log_dir
    return {one: log_dir for one, log_dir in opened.items() if log_dir.is_online}


def found_topics(opened: Iterable[OpenedReplica], broker_id: BrokerId) -> list[TopicCreated]:
    """The topics that these logs belong to; numbers that are missing become empty partitions."""
    logs: dict[str, dict[int, OpenedReplica]] = {}
    for one in opened:
        topic, partition = one.wanted.topic_partition
        logs.setdefault(topic, {})[partition] = one
    return [
        TopicCreated(
            TopicImage(
                topic,
                next(iter(partitions.values())).wanted.topic_id,
                tuple(
                    _found_state(partitions.get(number), broker_id)
                    for number in range(max(partitions) + 1)
                ),
            ),
            ADOPTED_SETTINGS,
        )
        for topic, partitions in logs.items()
    ]


def _found_state(opened: OpenedReplica | None, broker_id: BrokerId) -> PartitionImage:
    last_epoch = -1 if opened is None else opened.epochs.latest_epoch
    return replace(
        NO_STATE,
        leader=broker_id,
        leader_epoch=LeaderEpoch(last_epoch + 1),
        replicas=(broker_id,),
        isr=(broker_id,),
    )
