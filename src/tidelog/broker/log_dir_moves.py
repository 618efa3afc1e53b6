"""Replicas on their way from one log directory of this broker to another (KIP-113).

    AlterReplicaLogDirs ──▶ LogDirMoves ──▶ ReplicaMover, one for each replica
                                               │ copies: read in one directory, write in the other
                                               │ catches up
                                               ▼
        appends wait ── rest ── mark ── promote ── the runner goes on with the copy ── appends go on

Here is known who is moved where, and which copies are to be begun anew. How one replica is moved is
in `replica_mover.py`, what follows from a mark that a crash has left in `decided_moves.py`. One
replica at a time is copied to a directory; the others wait for their turn.

Invariants:

    I1  Nothing is appended, cut, rolled or removed between the moment at which the rest is read and
        the moment at which the runner has the copy (`AppendQueue.pause`, `is_rearranged`); and
        nobody else opens or deletes the folders (`occupy`).
    I2  Until the mark is written the log is the replica, whatever becomes of the copy. From then on
        the copy is, whatever becomes of the log. Which of the two holds is read from the disk where
        it is not known: after a restart, and when a directory comes back (`decided_moves.py`).
    I3  A copy is removed when it is not wanted: another directory was asked for, the replica is
        gone, the disk is full. It is kept, and begun anew, if a directory fails or the broker
        stops.
    I4  Of those who ask for a replica at once the last one has its way. It is answered when a
        restart would find its copy, or none if none is needed, and no other's.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from uuid import uuid4

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import TopicId, TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.decided_moves import DecidedMoves, copies_in
from tidelog.broker.log_dir_runner import STRAY, LogDirRunner
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.replica_mover import RETRY_S, Occupy, OpenIn, ReplicaMover, discard
from tidelog.broker.strays import IsStray
from tidelog.config.replication import ReplicationConfig
from tidelog.storage import layout

logger = logging.getLogger(__name__)

ASKED_MAX = 10_000
_PACE_S = 0.5


class LogDirMoves:
    """Every replica of this broker that is to lie in another log directory."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        log_dirs: Sequence[LogDirRunner],
        config: ReplicationConfig,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        start: Callable[[Coroutine[None, None, None]], None],
        occupy: Occupy,
        is_occupied: Callable[[TopicPartition], bool],
        open_in: OpenIn,
    ) -> None:
        """`start` runs what has to end before the broker does, `open_in` opens a log that is in
        this directory from now on."""
        self.partitions = partitions
        self.config = config
        self.clock = clock
        self.start = start
        self.occupy = occupy
        self.is_occupied = is_occupied
        self.open_in = open_in
        self.decided = DecidedMoves(
            partitions=partitions,
            log_dirs=log_dirs,
            occupy=occupy,
            is_occupied=is_occupied,
            open_in=open_in,
        )
        self._log_dirs = log_dirs
        self._tasks = tasks
        self._movers: dict[TopicPartition, ReplicaMover] = {}
        self._turns = {log_dir: asyncio.Lock() for log_dir in log_dirs}
        self._asked: dict[TopicPartition, LogDirRunner] = {}
        """Where replicas were last asked to be, since the broker was started."""
        self._paced_until_s = 0.0
        self._is_resumed_soon = False
        self._is_stopped = False

    def on_config(self, config: ReplicationConfig) -> None:
        self.config = config

    # -- what is asked for -----------------------------------------------------------------------

    async def alter(self, one: TopicPartition, path: str) -> None:
        """Have a replica lie in the directory `path`. Returns when a restart would know of it.

        Raises RequestRefused, with Kafka's codes. Who is not here yet is put there when it comes.
        """
        if layout.future_folder_name(one, uuid4()) is None:
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        target = self._log_dir(path)
        self._require_place(one, target)
        self._ask(one, target)
        await self._end_other(one, target)
        if not self._is_asked_for(one, target):
            return  # Somebody else has asked since, and it is as if that had come behind this.
        self._require_place(one, target)
        runner = self.partitions.find(*one)
        if runner is None:
            raise RequestRefused(self._absence(one))
        if (mover := self._movers.get(one)) is not None:
            await self._until_begun(mover)
        elif runner.log_directory is not target:
            name = layout.future_folder_name(one, uuid4())
            assert name is not None
            await self._begin(runner, target, name)

    def _log_dir(self, path: str) -> LogDirRunner:
        for log_dir in self._log_dirs:
            if path in (str(log_dir.path), str(log_dir.path.absolute())):
                return log_dir
        raise RequestRefused(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")

    def _require_place(self, one: TopicPartition, target: LogDirRunner) -> None:
        """Whether it can be there, as far as the disks are concerned."""
        if not target.is_online:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path} is offline")
        runner, mover = self.partitions.find(*one), self._movers.get(one)
        is_offline = self.partitions.is_marked_offline(one) if runner is None else runner.is_offline
        if is_offline:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {one} is offline")
        is_on_its_way = mover is not None and mover.target is target
        if runner is not None and runner.log_directory is not target and not is_on_its_way:
            self._require_all_online()

    def _require_all_online(self) -> None:
        """Else there may be a copy of it in a directory that cannot be read."""
        for log_dir in self._log_dirs:
            if not log_dir.is_online:
                raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} is offline")

    def _absence(self, one: TopicPartition) -> ErrorCode:
        if self.partitions.image.partition(*one) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def _ask(self, one: TopicPartition, target: LogDirRunner) -> None:
        self._asked.pop(one, None)
        if len(self._asked) >= ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        self._asked[one] = target

    def _is_asked_for(self, one: TopicPartition, target: LogDirRunner) -> bool:
        """Whether nobody has asked for another directory since."""
        return self._asked.get(one, target) is target

    def take_asked(self, one: TopicPartition) -> LogDirRunner | None:
        """Where a replica was asked to be before it was here; asked for once."""
        return self._asked.pop(one, None)

    async def _end_other(self, one: TopicPartition, target: LogDirRunner) -> None:
        """A move to another directory than `target` is not wanted any more, nor is its copy."""
        while (
            self._is_asked_for(one, target)
            and (mover := self._movers.get(one)) is not None
            and (mover.target is not target or mover.is_cancelled)
        ):
            mover.cancel("another log directory was asked for")
            await asyncio.wait([mover.ended])
            if mover.removal is not None:
                await asyncio.wait([mover.removal])  # Ended by the disk, or its failure.

    async def _begin(self, runner: PartitionRunner, target: LogDirRunner, name: str) -> None:
        assert target.log_dir is not None
        one = runner.topic_partition
        source = next(known for known in self._log_dirs if known.runners.get(one) is runner)
        mover = ReplicaMover(self, runner, source, target, name)
        self._movers[one] = mover
        task = self._tasks.create_task(mover.run(self._turns[target]))
        mover.task = task
        task.add_done_callback(mover.on_task_done)
        await self._until_begun(mover)

    async def _until_begun(self, mover: ReplicaMover) -> None:
        await asyncio.wait([mover.begun, mover.ended], return_when=asyncio.FIRST_COMPLETED)
        if not mover.begun.done() and not mover.is_cancelled:
            path = mover.target.path
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} has failed")

    def ended(self, mover: ReplicaMover) -> None:
        if self._movers.get(mover.topic_partition) is mover:
            del self._movers[mover.topic_partition]

    def on_deleted(self, one: TopicPartition) -> None:
        """The replica is not served here any more."""
        self._asked.pop(one, None)
        mover = self._movers.get(one)
        if mover is not None:
            mover.cancel("the replica is gone")

    def stop(self) -> list["asyncio.Task[None]"]:
        """Copy nothing any more; what is about to change places does. Who waits for the tasks knows
        when all of it has ended or is under way by `start`."""
        self._is_stopped = True
        tasks = [mover.task for mover in self._movers.values() if mover.task is not None]
        for task in tasks:
            task.cancel()
        return tasks

    async def pace(self, size_bytes: int) -> None:
        """Wait as `replica.alter.log.dirs.io.max.bytes.per.second` asks for, all moves together."""
        rate = self.config.replica_alter_log_dirs_io_max_bytes_per_second
        now_s = asyncio.get_running_loop().time()
        self._paced_until_s = max(self._paced_until_s, now_s) + size_bytes / max(rate, 1)
        until_s = self._paced_until_s
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, _PACE_S))
            if self.config.replica_alter_log_dirs_io_max_bytes_per_second != rate:
                self._paced_until_s = 0.0
                return

    # -- copies that were left ------------------------------------------------------------------

    def resume_soon(self) -> None:
        """Once for all that ask for it together."""
        if not self._is_resumed_soon and not self._is_stopped:
            self._is_resumed_soon = True
            self.start(self._resume_soon())

    async def _resume_soon(self) -> None:
        await asyncio.sleep(RETRY_S)
        self._is_resumed_soon = False
        await self.resume()

    async def resume(self) -> None:
        """Begin moves anew of which the folders say that they were under way. I3"""
        for target in self._log_dirs:
            if target.log_dir is None or not target.is_online or self._is_stopped:
                continue
            try:
                found = await target.executor.background(copies_in, target.log_dir)
            except StorageError as error:
                target.on_failure(error)
                continue
            for one, name, topic_id in found:
                await self._resume_one(target, one, name, topic_id)

    async def set_strays_aside(self, log_dir: LogDirRunner, is_stray: IsStray) -> None:
        """Copies of replicas that are not this broker's any more; by the rules of `strays.py`."""
        used = log_dir.log_dir
        if used is None or not log_dir.is_online:
            return
        try:
            for one, name, topic_id in await log_dir.executor.background(copies_in, used):
                if topic_id is None or one in self._movers:
                    continue
                if is_stray(one, topic_id, log_dir):
                    folder = await log_dir.executor.background(used.set_future_aside, one, name)
                    logger.warning(STRAY, extra={"partition": one, "folder": folder})
        except StorageError as error:
            log_dir.on_failure(error)

    async def _resume_one(
        self, target: LogDirRunner, one: TopicPartition, name: str, topic_id: TopicId | None
    ) -> None:
        mover, runner = self._movers.get(one), self.partitions.find(*one)
        if (mover is not None and mover.name == name) or self.is_occupied(one):
            return
        if self._is_stopped:
            return
        if runner is None or runner.is_offline:
            logger.warning(
                "copy of a replica that is not served here is left alone",
                extra={"partition": one, "folder": target.path / name},
            )
            return
        is_wanted = (
            runner.topic_id == topic_id
            and runner.log_directory is not target
            and mover is None
            and self._is_asked_for(one, target)
        )
        if not is_wanted:
            discard(target, one, name)
            return
        try:
            await self._begin(runner, target, name)
        except RequestRefused as refusal:
            logger.warning("replica cannot be moved", extra={"partition": one, "reason": refusal})
