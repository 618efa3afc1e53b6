"""Moves that were decided and not finished, as a restart or a directory that is back finds them.

A log that is marked is nobody's: its copy is the replica, wherever that is by now (I2 of
`log_dir_moves.py`). What is left to do is to give the copy its name and to delete the log, before
anything of the two is opened.
"""

import logging
from collections.abc import Callable, Sequence

from tidelog.base.errors import StorageError
from tidelog.base.ids import TopicId, TopicPartition
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.replica_mover import Occupy, OpenIn
from tidelog.storage.future_log import Moved
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)


class DecidedMoves:
    """Reads marks, in all log directories of this broker, and does what they say."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        log_dirs: Sequence[LogDirRunner],
        occupy: Occupy,
        is_occupied: Callable[[TopicPartition], bool],
        open_in: OpenIn,
    ) -> None:
        """`open_in` opens a log that is in this directory from now on."""
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._occupy = occupy
        self._is_occupied = is_occupied
        self._open_in = open_in

    async def resolve(self) -> None:
        """Finish moves that were decided and not finished. Before anything is opened. I2"""
        for source in self._log_dirs:
            if source.log_dir is None or not source.is_online:
                continue
            try:
                moved = await source.executor.background(source.log_dir.moved)
            except StorageError as error:
                source.on_failure(error)
                continue
            for one, mark in moved.items():
                if not self._is_occupied(one):
                    await self._resolve_one(source, one, mark)

    async def _resolve_one(
        self, source: LogDirRunner, one: TopicPartition, mark: Moved | None
    ) -> None:
        target = None if mark is None else self._by_id(mark.directory_id)
        if target is None and not all(one.is_online for one in self._log_dirs):
            return  # It may come back. F3 of `future_log.py`
        vacate = self._occupy([one])
        try:
            is_there = self._is_served_beside(source, one) or (
                target is not None and await self._promote_left(target, one, mark)
            )
            await self._take_away(source, one, is_there)
        finally:
            vacate()
        runner = source.runners.get(one)
        if runner is not None and target is not None and is_there:
            del source.runners[one]
            target.runners[one] = runner
            runner.log_directory = target
            await self._open_in(target, one)

    def _is_served_beside(self, source: LogDirRunner, one: TopicPartition) -> bool:
        """Whether it is served elsewhere: the replica that was moved, or one that came after it."""
        runner = self._partitions.find(*one)
        return runner is not None and not runner.is_offline and runner.log_directory is not source

    def _by_id(self, directory_id: str) -> LogDirRunner | None:
        for log_dir in self._log_dirs:
            if log_dir.log_dir is not None and log_dir.log_dir.directory_id == directory_id:
                return log_dir if log_dir.is_online else None
        return None

    async def _promote_left(
        self, target: LogDirRunner, one: TopicPartition, mark: Moved | None
    ) -> bool:
        assert target.log_dir is not None
        assert mark is not None
        topic = self._partitions.image.topics.get(one.topic)
        topic_id = None if topic is None else topic.topic_id
        try:
            return await target.executor.background(
                _promote_left, target.log_dir, one, mark, topic_id
            )
        except StorageError as error:
            target.on_failure(error)
            return False

    async def _take_away(self, source: LogDirRunner, one: TopicPartition, is_there: bool) -> None:
        """Delete a log that is nobody's; where its copy is not found, it is set aside."""
        log_dir = source.log_dir
        if log_dir is None or not source.is_online:
            return
        work = _delete_folder if is_there else _set_aside
        try:
            await source.executor.background(work, log_dir, one)
        except StorageError as error:
            source.on_failure(error)


def _promote_left(
    log_dir: LogDir, one: TopicPartition, mark: Moved, topic_id: TopicId | None
) -> bool:
    """On a thread: whether the copy is where the mark says, by whichever of its names.

    Nor is it needed where there is a folder of the topic that has the name now, `topic_id`, and
    the copy is of one before.
    """
    copies = {name: found for _, name, found in copies_in(log_dir)}
    if mark.future_name not in copies:
        return one in log_dir.partitions()
    is_in_use = copies[mark.future_name] != topic_id and _is_of_topic(log_dir, one, topic_id)
    if not is_in_use:
        log_dir.promote(one, mark.future_name)
    return True


def _is_of_topic(log_dir: LogDir, one: TopicPartition, topic_id: TopicId | None) -> bool:
    try:
        return one in log_dir.partitions() and log_dir.topic_id(one) == topic_id
    except StorageError:
        return False


def _delete_folder(log_dir: LogDir, one: TopicPartition) -> None:
    if not log_dir.is_moved(one):
        return  # Whoever moved it has done so meanwhile.
    folder = log_dir.start_delete_folder(one)
    log_dir.forget_deleted()
    log_dir.finish_delete(folder)


def _set_aside(log_dir: LogDir, one: TopicPartition) -> None:
    if not log_dir.is_moved(one):
        return
    folder = log_dir.set_aside(one)
    log_dir.forget_deleted()
    logger.warning(
        "replica was moved to where it is not found: what was left of it is set aside",
        extra={"partition": one, "folder": folder},
    )


def copies_in(log_dir: LogDir) -> list[tuple[TopicPartition, str, TopicId | None]]:
    """On a thread: whose copies there are, under which names, and of which topics."""
    found: list[tuple[TopicPartition, str, TopicId | None]] = []
    for one, name in log_dir.futures():
        try:
            found.append((one, name, log_dir.future_topic_id(name)))
        except StorageError:
            found.append((one, name, None))
    return found
