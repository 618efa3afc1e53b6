"""One replica on its way to another log directory of its broker: copied, and then changed places.

What to copy is decided by `core/partition/log_move.py`, what lies on the disk at each moment is
drawn in `storage/future_log.py`. Here the two meet threads and whatever else happens to a replica
meanwhile. The invariants I1 to I3 are those of `log_dir_moves.py`, which knows who is moved where.

A move that was decided and could not be finished here is left to `decided_moves.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import ParamSpec, Protocol, TypeVar, assert_never

from tidelog.base.errors import DiskFull, StorageError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Clock
from tidelog.broker.disk_executor import as_storage_error
from tidelog.broker.log_dir_runner import LogDirRunner
from tidelog.broker.partition_ports import succeeded_in
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.config.replication import ReplicationConfig
from tidelog.core.partition.log_move import (
    CopyBytes,
    DropCopies,
    FinishSegment,
    LogMove,
    Pause,
    SegmentView,
)
from tidelog.storage.future_log import BESIDE_LOG, FutureLog, Moved, Source
from tidelog.storage.log import Log

logger = logging.getLogger(__name__)

FLUSHES_BEFORE_PAUSE = 3
RETRY_S = 0.01

P = ParamSpec("P")
T = TypeVar("T")

Occupy = Callable[[Sequence[TopicPartition]], Callable[[], None]]
OpenIn = Callable[[LogDirRunner, TopicPartition], Awaitable[None]]


class Moves(Protocol):
    """What a mover has to do with the others, and with its broker (`log_dir_moves.py`)."""

    @property
    def partitions(self) -> Partitions: ...
    @property
    def config(self) -> ReplicationConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def start(self) -> Callable[[Coroutine[None, None, None]], None]: ...
    @property
    def occupy(self) -> Occupy: ...
    @property
    def is_occupied(self) -> Callable[[TopicPartition], bool]: ...
    @property
    def open_in(self) -> OpenIn: ...

    def ended(self, mover: "ReplicaMover") -> None: ...
    def resume_soon(self) -> None: ...
    async def pace(self, size_bytes: int) -> None: ...


class _GivenUp(Exception):
    """The move ends here. `discard`: and so does its copy. I3"""

    def __init__(self, reason: str, *, discard: bool) -> None:
        super().__init__(reason)
        self.discard = discard


class ReplicaMover:
    """Moves one replica. The only caller of its LogMove, always on the event loop."""

    def __init__(
        self,
        moves: Moves,
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
        self._slice_bytes = moves.config.tidelog_log_dir_move_slice_bytes
        self._machine = LogMove(
            slice_bytes=self._slice_bytes,
            rest_bytes_max=moves.config.tidelog_log_dir_move_rest_bytes,
        )
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
        self.removal: asyncio.Future[None] | None = None
        """Of its copy, if that is not wanted."""
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

    @property
    def is_cancelled(self) -> bool:
        return self._why_cancelled is not None

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
                await asyncio.sleep(RETRY_S)
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
                    self._source.read_beside, step.base_offset, suffix, position, self._slice_bytes
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
            await asyncio.sleep(RETRY_S)
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
            await self._source_dir.close_unused([old])  # Its mark is needed (`decided_moves.py`).
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
        if discarded and self.target.is_online:
            self.removal = discard(self.target, self.topic_partition, self.name)
        self._end()

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


def discard(log_dir: LogDirRunner, one: TopicPartition, name: str) -> "asyncio.Future[None]":
    """Remove a copy that nobody wants."""
    assert log_dir.log_dir is not None
    removed = log_dir.executor.background(log_dir.log_dir.discard_future, one, name)
    removed.add_done_callback(lambda done: succeeded_in(log_dir, done))
    return removed
