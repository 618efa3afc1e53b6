"""Replicas on their way from one log directory of this broker to another (KIP-113).

    AlterReplicaLogDirs ──▶ LogDirMoves ──▶ ReplicaMover, one for each replica
                                               │ copies: read in one directory, write in the other
                                               │ catches up
                                               ▼
        appends wait ── rest ── mark ── promote ── the runner goes on with the copy ── appends go on

What to copy is decided by `core/partition/log_move.py`, what lies on the disk at each moment is
drawn in `storage/future_log.py`. Here the two meet threads and whatever else happens to a replica
meanwhile. One replica at a time is copied to a directory; the others wait for their turn.

Invariants:

    I1  Nothing is appended, cut, rolled or removed between the moment at which the rest is read and
        the moment at which the runner has the copy (`AppendQueue.pause`, `is_rearranged`); and
        nobody else opens or deletes the folders (`occupy`).
    I2  Until the mark is written the log is the replica, whatever becomes of the copy. From then on
        the copy is, whatever becomes of the log. Which of the two holds is read from the disk where
        it is not known: after a restart, and when a directory comes back (`resolve`).
    I3  A copy is removed when it is not wanted: another directory was asked for, the replica is
        gone, the disk is full. It is kept, and begun anew, if a directory fails or the broker
        stops.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import ParamSpec, TypeVar, assert_never
from uuid import uuid4

from tidelog.base.errors import DiskFull, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.disk_executor import as_storage_error
from tidelog.broker.log_dir_runner import STRAY, LogDirRunner
from tidelog.broker.partition_ports import succeeded_in
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.strays import IsStray
from tidelog.config.replication import ReplicationConfig
from tidelog.core.partition.log_move import (
    CopyBytes,
    DropCopies,
    FinishSegment,
    LogMove,
    Pause,
    SegmentView,
)
from tidelog.storage import layout
from tidelog.storage.future_log import BESIDE_LOG, FutureLog, Moved, Source
from tidelog.storage.log import Log
from tidelog.storage.log_dir import LogDir

logger = logging.getLogger(__name__)

SLICE_BYTES = 1024 * 1024
REST_BYTES_MAX = 4 * SLICE_BYTES
"""What may be left to copy while appends wait."""
FLUSHES_BEFORE_PAUSE = 3
PREFERRED_MAX = 10_000
_RETRY_S = 0.01
_PACE_S = 0.5

P = ParamSpec("P")
T = TypeVar("T")

Occupy = Callable[[Sequence[TopicPartition]], Callable[[], None]]
OpenIn = Callable[[LogDirRunner, TopicPartition], Awaitable[None]]


class _GivenUp(Exception):
    """The move ends here. `discard`: and so does its copy. I3"""

    def __init__(self, reason: str, *, discard: bool) -> None:
        super().__init__(reason)
        self.discard = discard


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
        self.clock = clock
        self.start = start
        self.occupy = occupy
        self.is_occupied = is_occupied
        self.open_in = open_in
        self._log_dirs = log_dirs
        self._config = config
        self._tasks = tasks
        self._movers: dict[TopicPartition, ReplicaMover] = {}
        self._turns = {log_dir: asyncio.Lock() for log_dir in log_dirs}
        self._preferred: dict[TopicPartition, LogDirRunner] = {}
        self._paced_until_s = 0.0
        self._is_resumed_soon = False
        self._is_stopped = False

    def on_config(self, config: ReplicationConfig) -> None:
        self._config = config

    # -- what is asked for -----------------------------------------------------------------------

    async def alter(self, one: TopicPartition, path: str) -> None:
        """Have a replica lie in the directory `path`. Returns when a restart would know of it.

        Raises RequestRefused, with Kafka's codes. Who is not here yet is put there when it comes.
        """
        if layout.future_folder_name(one, uuid4()) is None:
            raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        target = self._log_dir(path)
        self._require_online(one, target)
        await self._end_other(one, target)
        runner = self.partitions.find(*one)
        if runner is None:
            self._remember(one, target)
            raise RequestRefused(self._absence(one))
        if runner.log_directory is target:
            if not self._are_all_online:
                self._remember(one, target)  # For `resume`: there may be a copy of it.
            return
        if one in self._movers:
            return
        self._require_online(one, target)
        self._require_all_online()
        name = layout.future_folder_name(one, uuid4())
        assert name is not None
        await self._begin(runner, target, name)

    def _log_dir(self, path: str) -> LogDirRunner:
        for log_dir in self._log_dirs:
            if path in (str(log_dir.path), str(log_dir.path.absolute())):
                return log_dir
        raise RequestRefused(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")

    def _require_online(self, one: TopicPartition, target: LogDirRunner) -> None:
        if not target.is_online:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path} is offline")
        runner = self.partitions.find(*one)
        is_offline = self.partitions.is_marked_offline(one) if runner is None else runner.is_offline
        if is_offline:
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {one} is offline")

    def _require_all_online(self) -> None:
        """Else there may be a copy of it in a directory that cannot be read."""
        for log_dir in self._log_dirs:
            if not log_dir.is_online:
                raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{log_dir.path} is offline")

    @property
    def _are_all_online(self) -> bool:
        return all(log_dir.is_online for log_dir in self._log_dirs)

    def _absence(self, one: TopicPartition) -> ErrorCode:
        if self.partitions.image.partition(*one) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.REPLICA_NOT_AVAILABLE

    def _remember(self, one: TopicPartition, target: LogDirRunner) -> None:
        self._preferred.pop(one, None)
        if len(self._preferred) >= PREFERRED_MAX:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[one] = target

    def take_preferred(self, one: TopicPartition) -> LogDirRunner | None:
        """Where a replica was asked to be before it was here; asked for once."""
        return self._preferred.pop(one, None)

    async def _end_other(self, one: TopicPartition, target: LogDirRunner) -> None:
        """A move to another directory than `target` is not wanted any more."""
        while (mover := self._movers.get(one)) is not None and mover.target is not target:
            mover.cancel("another log directory was asked for")
            await asyncio.wait([mover.ended])

    async def _begin(self, runner: PartitionRunner, target: LogDirRunner, name: str) -> None:
        assert target.log_dir is not None
        one = runner.topic_partition
        source = next(known for known in self._log_dirs if known.runners.get(one) is runner)
        self._preferred.pop(one, None)
        mover = ReplicaMover(self, runner, source, target, name)
        self._movers[one] = mover
        task = self._tasks.create_task(mover.run(self._turns[target]))
        mover.task = task
        task.add_done_callback(mover.on_task_done)
        await asyncio.wait([mover.begun, task], return_when=asyncio.FIRST_COMPLETED)
        if not mover.begun.done():
            raise RequestRefused(ErrorCode.KAFKA_STORAGE_ERROR, f"{target.path} has failed")

    def ended(self, mover: "ReplicaMover") -> None:
        if self._movers.get(mover.topic_partition) is mover:
            del self._movers[mover.topic_partition]

    def on_deleted(self, one: TopicPartition) -> None:
        """The replica is not served here any more."""
        self._preferred.pop(one, None)
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
        rate = self._config.replica_alter_log_dirs_io_max_bytes_per_second
        now_s = asyncio.get_running_loop().time()
        self._paced_until_s = max(self._paced_until_s, now_s) + size_bytes / max(rate, 1)
        until_s = self._paced_until_s
        while (left_s := until_s - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left_s, _PACE_S))
            if self._config.replica_alter_log_dirs_io_max_bytes_per_second != rate:
                self._paced_until_s = 0.0
                return

    # -- what the disks say ----------------------------------------------------------------------

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
                if not self.is_occupied(one):
                    await self._resolve_one(source, one, mark)

    async def _resolve_one(
        self, source: LogDirRunner, one: TopicPartition, mark: Moved | None
    ) -> None:
        target = None if mark is None else self._by_id(mark.directory_id)
        if target is None and not self._are_all_online:
            return  # It may come back. F3 of `future_log.py`
        vacate = self.occupy([one])
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
            await self.open_in(target, one)

    def _is_served_beside(self, source: LogDirRunner, one: TopicPartition) -> bool:
        """Whether it is served elsewhere: the replica that was moved, or one that came after it."""
        runner = self.partitions.find(*one)
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
        topic = self.partitions.image.topics.get(one.topic)
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

    def resume_soon(self) -> None:
        """Once for all that ask for it together."""
        if not self._is_resumed_soon and not self._is_stopped:
            self._is_resumed_soon = True
            self.start(self._resume_soon())

    async def _resume_soon(self) -> None:
        await asyncio.sleep(_RETRY_S)
        self._is_resumed_soon = False
        await self.resume()

    async def resume(self) -> None:
        """Begin moves anew of which the folders say that they were under way. I3"""
        for target in self._log_dirs:
            if target.log_dir is None or not target.is_online or self._is_stopped:
                continue
            try:
                found = await target.executor.background(_futures, target.log_dir)
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
            for one, name, topic_id in await log_dir.executor.background(_futures, used):
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
            and self._preferred.get(one, target) is target
        )
        if not is_wanted:
            discard(target, one, name)
            return
        try:
            await self._begin(runner, target, name)
        except RequestRefused as refusal:
            logger.warning("replica cannot be moved", extra={"partition": one, "reason": refusal})


class ReplicaMover:
    """Moves one replica. The only caller of its LogMove, always on the event loop."""

    def __init__(
        self,
        moves: LogDirMoves,
        runner: PartitionRunner,
        source: LogDirRunner,
        target: LogDirRunner,
        name: str,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._moves = moves
        self._runner = runner
        self._log = runner.log
        self._source_dir = source
        self._source = Source(runner.log)
        self._machine = LogMove(slice_bytes=SLICE_BYTES, rest_bytes_max=REST_BYTES_MAX)
        self._flushes = 0
        self._written: tuple[int, Offset] | None = None
        """How often the log had been cut, and where it began, when its offsets were written."""
        self._is_changing_places = False
        self._why_cancelled: str | None = None
        assert target.log_dir is not None
        self._target_log_dir = target.log_dir
        self._future = FutureLog(target.disk, target.path / name)
        self.target = target
        self.name = name
        self.task: asyncio.Task[None] | None = None
        self.begun: asyncio.Future[None] = loop.create_future()
        """Done when the folder of the copy is there."""
        self.ended: asyncio.Future[None] = loop.create_future()
        runner.move = self
        target.futures[runner.topic_partition] = self

    @property
    def topic_partition(self) -> TopicPartition:
        return self._runner.topic_partition

    @property
    def size_bytes(self) -> int:
        return self._machine.copied_bytes

    @property
    def offset_lag(self) -> int:
        log, machine = self._log, self._machine
        if machine.copied_bytes:
            reached_offset = machine.reached_offset(self._view())
        else:  # What sizes there are is perhaps not known yet, and nobody asks the disk here.
            reached_offset = log.segments[0].base_offset
        return max(0, log.log_end_offset - reached_offset)

    def on_cut(self) -> None:
        # Of what is copied the size is known; the rest is not to be asked for on the loop.
        self._machine.on_cut(
            [
                SegmentView(segment.base_offset, segment.known_size_bytes or 0)
                for segment in self._log.segments
            ]
        )

    async def until_placed(self) -> None:
        if self._is_changing_places:
            await asyncio.wait([self.ended])

    def cancel(self, reason: str) -> None:
        """End the move, if it is not too late for that: who changes places finds out by itself."""
        if self.task is not None and not self._is_changing_places:
            self._why_cancelled = reason
            self.task.cancel()

    def _view(self) -> list[SegmentView]:
        return [
            SegmentView(segment.base_offset, segment.size_bytes) for segment in self._log.segments
        ]

    @property
    def _is_wanted(self) -> bool:
        return self._moves.partitions.find(*self.topic_partition) is self._runner

    def _require_replica(self) -> None:
        runner = self._runner
        if not self._is_wanted:
            raise _GivenUp("the replica is gone", discard=True)
        if runner.is_offline or runner.log is not self._log or not self._source_dir.is_online:
            raise _GivenUp("the replica is offline", discard=False)
        if not self.target.is_online or self.target.log_dir is not self._target_log_dir:
            raise _GivenUp("the log directory is offline", discard=False)

    # -- copying ---------------------------------------------------------------------------------

    async def run(self, turn: asyncio.Lock) -> None:
        """Copy until the two may change places, or the move has to be given up."""
        try:
            await self._in_target(self._future.create, self._runner.topic_id)
            self.begun.set_result(None)
            async with turn:  # Ended by the moves before this one, and so by the disk.
                self._require_replica()
                await self._in_source(self._source.know_sizes)
                await self._copy()
        except _GivenUp as given_up:
            self._give_up(str(given_up), discarded=given_up.discard)
            if not given_up.discard and not self._runner.is_offline and self.target.is_online:
                self._moves.resume_soon()  # What had failed is back, and did not see this end.

    def on_task_done(self, _task: "asyncio.Task[None]") -> None:
        """Also if it was cancelled before it had begun."""
        if not self._is_changing_places and not self.ended.done():
            reason = self._why_cancelled
            self._give_up(reason or "the broker stops", discarded=reason is not None)

    async def _copy(self) -> None:
        while True:
            self._require_replica()
            if self._runner.is_rearranged or self._runner.is_cutting:
                # A compaction hears that it is to end; and of a cut, that it is over (`on_cut`).
                await asyncio.sleep(_RETRY_S)
                continue
            step = self._machine.next_step(self._view())
            match step:
                case CopyBytes():
                    await self._copy_bytes(step)
                case FinishSegment():
                    await self._finish_segment(step)
                case DropCopies(base_offsets):
                    await self._in_target(self._future.drop, base_offsets)
                    self._machine.on_dropped(step)
                case Pause():
                    if await self._has_begun_to_change_places(step):
                        return
                case _:
                    assert_never(step)

    async def _copy_bytes(self, step: CopyBytes) -> None:
        data = await self._in_source(
            self._source.read_log, step.base_offset, step.position, step.size_bytes
        )
        if data is None:
            return  # The log has changed: look again.
        await self._in_target(self._future.write, step.base_offset, step.position, data)
        self._machine.on_copied(step)
        await self._moves.pace(len(data))

    async def _finish_segment(self, step: FinishSegment) -> None:
        for suffix in BESIDE_LOG:
            position = 0
            while True:
                part = await self._in_source(
                    self._source.read_beside, step.base_offset, suffix, position, SLICE_BYTES
                )
                if part is None:
                    break
                await self._in_target(
                    self._future.write_beside, step.base_offset, suffix, position, part.data
                )
                position += len(part.data)
                if part.is_last:
                    break
        await self._in_target(self._future.finish, step.base_offset, step.size_bytes)
        self._machine.on_finished(step)

    # -- changing places -------------------------------------------------------------------------

    async def _has_begun_to_change_places(self, step: Pause) -> bool:
        """Prepare what can be while others append, and then keep them waiting. I1"""
        if self._flushes < FLUSHES_BEFORE_PAUSE:
            self._flushes += 1
            await self._in_target(self._future.flush, step.base_offset)
        await self._write_offsets()
        self._require_replica()
        runner = self._runner
        if (
            runner.queue.is_busy
            or runner.is_being_cut
            or runner.is_rearranged
            or self._moves.is_occupied(self.topic_partition)
        ):
            await asyncio.sleep(_RETRY_S)
            return False
        again = self._machine.next_step(self._view())
        if not isinstance(again, Pause):
            return False
        self._is_changing_places = True
        vacate = self._moves.occupy([self.topic_partition])
        runner.queue.pause()
        runner.is_rearranged = True
        self._moves.start(self._change_places(again, vacate))
        return True

    async def _write_offsets(self) -> None:
        """What the checkpoints of the directory have to know if all goes well.

        All that is closed is flushed. The active segment is scanned after a crash.
        """
        log = self._log
        while self._written != (written := (log.truncation_count, log.log_start_offset)):
            await self._in_target(
                self._target_log_dir.write_future_offsets,
                self.topic_partition,
                recovery_point=log.active_base_offset,
                log_start_offset=log.log_start_offset,
                high_watermark=self._runner.high_watermark,
                cleaner_offset=self._source_dir.cleaner_offset(self.topic_partition),
            )
            self._written = written

    async def _change_places(self, step: Pause, vacate: Callable[[], None]) -> None:
        runner, old = self._runner, self._log
        is_decided = False
        new: Log | None = None
        try:
            await self._complete(step)
            self._require_replica()
            await self._mark()
            is_decided = True
            self._hand_over()
            new = await self._in_target_urgently(self._promote)
            if self._is_wanted and not runner.is_offline:
                runner.move_to(new, self.target)
        except _GivenUp as given_up:
            if is_decided:
                # Also if it is merely full: the replica is there now, and cannot be opened.
                self.target.on_failure(StorageError(str(given_up)))
            else:
                self._give_up(str(given_up), discarded=given_up.discard)
        finally:
            runner.is_rearranged = False
            self._end()
            if is_decided:
                runner.log_directory = self.target
            runner.end_pause()
        try:
            await self._clean_up(old, new, is_decided)
        finally:
            vacate()
        if is_decided and new is not None and self._is_wanted and runner.is_offline:
            await self._moves.open_in(self.target, self.topic_partition)

    async def _complete(self, step: Pause) -> None:
        rest = await self._in_source_urgently(
            self._source.rest, step.position, self._runner.producers.entries()
        )
        await self._in_target_urgently(self._future.complete, rest)
        await self._write_offsets()  # A crash must not bring deleted records back.

    async def _mark(self) -> None:
        moved = Moved(self._target_log_dir.directory_id, self.name)
        await self._in_source_urgently(self._source.mark, moved)

    def _hand_over(self) -> None:
        """From here on the replica fails with the other directory. I2"""
        one, runner = self.topic_partition, self._runner
        if self._source_dir.runners.get(one) is runner:
            del self._source_dir.runners[one]
            self.target.runners[one] = runner
            if not self.target.is_online:
                runner.take_offline()

    def _promote(self) -> Log:
        """On a thread."""
        log_dir, log = self._target_log_dir, self._log
        log_dir.promote(self.topic_partition, self.name)
        new = log_dir.open_promoted(
            self.topic_partition,
            topic_id=self._runner.topic_id,
            config=self._runner.config,
            log_start_offset=log.log_start_offset,
            now_ms=self._moves.clock.now_ms(),
        )
        if new.log_end_offset != log.log_end_offset:
            raise StorageError(
                f"{new.folder} ends at {new.log_end_offset}, not {log.log_end_offset}"
            )
        return new

    async def _clean_up(self, old: Log, new: Log | None, is_decided: bool) -> None:
        """Take away what is not needed any more: of the two places one is left, or none."""
        runner, delay_ms = self._runner, self._runner.config.file_delete_delay_ms
        if not is_decided:
            if not self._is_wanted:
                await self._delete(self._source_dir, old, delay_ms)
            return
        if new is None:
            await self._source_dir.close_unused([old])  # Its mark is needed (`resolve`).
            return
        await self._source_dir.delete([old], delay_ms=delay_ms)
        if not self._is_wanted:
            await self._delete(self.target, new, delay_ms)
            return
        if runner.log is not new:
            await self.target.close_unused([new])
            return
        logger.info(
            "replica moved",
            extra={
                "partition": self.topic_partition,
                "from_log_dir": self._source_dir.path,
                "to_log_dir": self.target.path,
                "log_end_offset": new.log_end_offset,
            },
        )

    async def _delete(self, log_dir: LogDirRunner, log: Log, delay_ms: int) -> None:
        """The replica was deleted while nobody else could."""
        if not await log_dir.delete([log], delay_ms=delay_ms):
            log_dir.doomed[self.topic_partition] = self._runner.topic_id

    # -- ending ----------------------------------------------------------------------------------

    def _give_up(self, reason: str, *, discarded: bool) -> None:
        logger.warning(
            "replica is not moved",
            extra={
                "partition": self.topic_partition,
                "to_log_dir": self.target.path,
                "reason": reason,
            },
        )
        self._end()
        if discarded and self.target.is_online:
            discard(self.target, self.topic_partition, self.name)

    def _end(self) -> None:
        if self.ended.done():
            return
        if self._runner.move is self:
            self._runner.move = None
        if self.target.futures.get(self.topic_partition) is self:
            del self.target.futures[self.topic_partition]
        self._moves.ended(self)
        self.ended.set_result(None)

    # -- threads ---------------------------------------------------------------------------------

    async def _in_source(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._done_in(
            self._source_dir, self._source_dir.executor.background(work, *args, **kwargs)
        )

    async def _in_source_urgently(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._done_in(
            self._source_dir, self._source_dir.executor.urgent(work, *args, **kwargs)
        )

    async def _in_target(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._done_in(
            self.target, self.target.executor.background(work, *args, **kwargs)
        )

    async def _in_target_urgently(
        self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._done_in(self.target, self.target.executor.urgent(work, *args, **kwargs))

    async def _done_in(self, log_dir: LogDirRunner, work: "asyncio.Future[T]") -> T:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except DiskFull as error:
            if log_dir is not self.target:
                log_dir.on_failure(error)
            raise _GivenUp(str(error), discard=log_dir is self.target) from error
        except Exception as error:
            log_dir.on_failure(as_storage_error(error))
            raise _GivenUp(str(error), discard=False) from error


def discard(log_dir: LogDirRunner, one: TopicPartition, name: str) -> None:
    """Remove a copy that nobody wants."""
    assert log_dir.log_dir is not None
    removed = log_dir.executor.background(log_dir.log_dir.discard_future, one, name)
    removed.add_done_callback(lambda done: succeeded_in(log_dir, done))


def _promote_left(
    log_dir: LogDir, one: TopicPartition, mark: Moved, topic_id: TopicId | None
) -> bool:
    """On a thread: whether the copy is where the mark says, by whichever of its names.

    Nor is it needed where there is a folder of the topic that has the name now, `topic_id`, and
    the copy is of one before.
    """
    copies = {name: found for _, name, found in _futures(log_dir)}
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


def _futures(log_dir: LogDir) -> list[tuple[TopicPartition, str, TopicId | None]]:
    found: list[tuple[TopicPartition, str, TopicId | None]] = []
    for one, name in log_dir.futures():
        try:
            found.append((one, name, log_dir.future_topic_id(name)))
        except StorageError:
            found.append((one, name, None))
    return found
