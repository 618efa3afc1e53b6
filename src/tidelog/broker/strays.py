"""Folders of replicas that are not this broker's any more: found, and set aside.

While a broker is away topics are deleted, made anew under the same name, or moved to other brokers.
What is left here has nobody who asks for it. It is renamed to `<topic>-<n>.<unique>-stray`, which
takes it out of the way of whatever comes next. (What is deleted while a disk is away, and the
broker is not, is removed when the disk is back: `LogDirRunner.doomed`.)

It is not deleted, now or later, as it is not by Kafka. Nobody here was told to delete it: that it
is not wanted is concluded from what the coordinator says, and whoever restored an old backup of
that would otherwise lose every topic made since, on all brokers, within a minute. A person who
reads the log can remove the folders, or rename them back.

Conditions, all of them:

    S1  A controller has given this registration of this broker all of its roles, and has not named
        the replica; nor does the image, which may have moved on since. Or this broker serves the
        replica from another directory: it was made anew there while this one was away.
    S2  The folder states the id of its topic. What does not was written by nobody whom we know: a
        folder that is merely called like a partition, or one of a very old Kafka.
    S3  A topic that nobody knows can only be taken for a deleted one in a directory from which
        brokers of ours have served before. In another it may be somebody's whose path this is.
        One that is known and has its replicas elsewhere was moved, wherever it lies.
    S4  Nobody uses the folder: it is occupied while it is renamed (`replicas.py`, I1).
"""

import logging
from collections.abc import Callable, Sequence

from tidelog.base.errors import StorageError
from tidelog.base.ids import TopicId, TopicPartition
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.storage.checkpoints import CorruptCheckpoint
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

IsStray = Callable[[TopicPartition, TopicId, LogDirRunner], bool]


async def strays_in(log_dir: LogDirRunner, is_stray: IsStray) -> list[TopicPartition]:
    """The partitions that have a folder in `log_dir` which is nobody's. S2"""
    unused = [one for one in await log_dir.partitions() if one not in log_dir.runners]
    used = log_dir.log_dir
    if not unused or used is None or not log_dir.is_online:
        return []
    try:
        topic_ids = await log_dir.executor.background(_topic_ids, used, unused)
    except StorageError as error:
        log_dir.on_failure(error)
        return []
    strays = []
    for one, topic_id in zip(unused, topic_ids, strict=True):
        if topic_id is not None and is_stray(one, topic_id, log_dir):
            strays.append(one)
        elif one not in log_dir.runners:
            logger.warning(
                "partition folder that nobody asks for is left alone",
                extra={"partition": one, "log_dir": log_dir.path},
            )
    return strays


def _topic_ids(log_dir: LogDir, partitions: Sequence[TopicPartition]) -> list[TopicId | None]:
    """On a thread. None where there is no id, or nonsense in its place."""
    topic_ids: list[TopicId | None] = []
    for one in partitions:
        try:
            topic_ids.append(log_dir.topic_id(one))
        except CorruptCheckpoint:
            topic_ids.append(None)
    return topic_ids
