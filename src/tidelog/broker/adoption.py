"""Logs that another cluster wrote, say a Kafka that was here before: found, opened, made topics.

Only a new cluster, in which the coordinator knows no topic at all, adopts what lies in its log
directories. Later on, a folder that nobody asked for is what is left of a topic that was deleted.

A folder is a partition's if it is called like one, holds a segment, and is numbered like one: an
operator's `backup-20260101` is nobody's, and taking it for a partition would make twenty million.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import uuid4

from tidelog.base.errors import ConfigError, RequestRefused, StorageError
from tidelog.base.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.replica_logs import OpenedReplica, WantedReplica, open_replica
from tidelog.config.topic import TopicConfig
from tidelog.core.controller import names
from tidelog.core.controller.changes import TopicCreated
from tidelog.core.controller.image import PartitionImage, TopicImage
from tidelog.core.controller.topics import PARTITIONS_PER_REQUEST_MAX
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

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


class Adopter(Protocol):
    """Who may make topics out of what was found."""

    async def adopt_topics(self, found: Sequence[TopicCreated], *, producer_end_id: int) -> None:
        """Raises RequestRefused if that cannot be stored."""
        ...


async def adopt(
    adopter: Adopter,
    log_dirs: Sequence[LogDirRunner],
    *,
    broker_id: BrokerId,
    topic_defaults: TopicConfig,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> None:
    """Make topics of the logs in `log_dirs`. They are opened again when they are wanted."""
    opened = await open_found(
        log_dirs,
        TopicConfig.resolve(ADOPTED_SETTINGS, topic_defaults),
        producer_id_expiration_ms=producer_id_expiration_ms,
        now_ms=now_ms,
    )
    if not opened:
        return
    for one, log_dir in opened.items():
        await log_dir.close_unused([one.log])
        offset = one.producers.first_open_transaction_offset
        if offset is not None:
            # Nobody here knows how it was to end, and either guess could be wrong.
            logger.warning(
                "undecided transaction: read_committed consumers read up to it",
                extra={"partition": one.wanted.topic_partition, "offset": offset},
            )
    await adopter.adopt_topics(
        found_topics(opened, broker_id),
        producer_end_id=max(one.producers.end_producer_id for one in opened),
    )
    logger.info("partitions adopted", extra={"partitions": len(opened)})


async def open_found(
    log_dirs: Sequence[LogDirRunner],
    config: TopicConfig,
    *,
    producer_id_expiration_ms: int,
    now_ms: int,
) -> Found:
    """Open every partition that lies in `log_dirs`. One that cannot be takes its dir offline.

    Raises ConfigError if two directories have the same one.
    """
    opened: Found = {}
    for topic_partition, log_dir in (await _places(log_dirs)).items():
        if log_dir.log_dir is None or not log_dir.is_online:
            continue
        try:
            topic_id = await log_dir.executor.urgent(log_dir.log_dir.topic_id, topic_partition)
            wanted = WantedReplica(topic_partition, topic_id or TopicId(uuid4()), config)
            one = await log_dir.executor.urgent(
                open_replica,
                log_dir.log_dir,
                wanted,
                is_new=False,
                producer_id_expiration_ms=producer_id_expiration_ms,
                now_ms=now_ms,
            )
        except StorageError as error:
            log_dir.on_failure(error)
            continue
        opened[one] = log_dir
    return {one: log_dir for one, log_dir in opened.items() if log_dir.is_online}


async def _places(log_dirs: Sequence[LogDirRunner]) -> dict[TopicPartition, LogDirRunner]:
    """Where each partition lies."""
    places: dict[TopicPartition, LogDirRunner] = {}
    for log_dir in log_dirs:
        if log_dir.log_dir is None or not log_dir.is_online:
            continue
        try:
            found = await log_dir.executor.urgent(_logs_in, log_dir.log_dir)
        except StorageError as error:
            log_dir.on_failure(error)
            continue
        for one in found:
            if one in places:
                raise in_two_places(one, places[one], log_dir)
            places[one] = log_dir
    return {one: places[one] for one in _numbered_like_partitions(places)}


def in_two_places(one: TopicPartition, *log_dirs: LogDirRunner) -> ConfigError:
    """Nobody but the operator knows which of the two is the right one."""
    folders = " and ".join(str(log_dir.path / str(one)) for log_dir in log_dirs)
    return ConfigError(f"{folders} are the same partition: move one of them away")


def _logs_in(log_dir: LogDir) -> list[TopicPartition]:
    return [one for one in log_dir.partitions() if _is_legal(one) and log_dir.holds_log(one)]


def _is_legal(one: TopicPartition) -> bool:
    try:
        names.require_legal(one.topic)
    except RequestRefused:
        return False
    return True


def _numbered_like_partitions(found: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those before which not more are missing than one request may create."""
    kept: list[TopicPartition] = []
    ends: dict[str, int] = {}
    for one in sorted(found):
        if one.partition - ends.get(one.topic, 0) <= PARTITIONS_PER_REQUEST_MAX:
            ends[one.topic] = one.partition + 1
            kept.append(one)
    return kept


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
