"""Runs one shard of a coordinator: the machine that belongs to one partition of an internal topic.

From the moment this broker leads the partition until it does not any more:

    LOADING ──▶ the log is read on the directory's thread, twice: once to note which records later
                ones outdate (`records/superseded.py`), and once to decode the others, which are
                replayed here in slices, until there is nothing more. Requests are told
                COORDINATOR_LOAD_IN_PROGRESS.
    ACTIVE  ──▶ events go to the machine, its writes to the log, its replies to whoever waits:

                ask ──▶ decide ──▶ Write ──▶ append ──▶ ... ──▶ committed
                              └──▶ Reply ──▶ held behind the last write ──┴──▶ future

    ENDED       the broker does not lead any more: everybody is told NOT_COORDINATOR.

The rules W1-W4 of `core/coordinators.py`, as they look from here:

    W2  Replies are kept with the write that they follow. Also those that follow none, right after
        loading: what the log ends with may not be committed yet. Who waits for longer than the
        time-out is told COORDINATOR_NOT_AVAILABLE, and may ask again; what was written stands.
    W3  A write is refused before it is in the log only if something changed after the look that
        preceded it (`_refuse_writes`). Then the machine is thrown away and loaded again.
    W4  A partition that is led anew, in a later epoch, has a new runner.

Time as machines see it goes on evenly, whatever happens to the wall clock: it says what that said
when loading began, and counts from there. A clock that is set does not end every session.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Set
from enum import Enum
from functools import partial
from itertools import count
from typing import Generic, NamedTuple, Protocol, TypeVar, assert_never

from tidelog.base.errors import CorruptBatch, DamagedLog, ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Offset,
)
from tidelog.base.ports import Clock
from tidelog.broker.partition_appends import ACKS_ALL
from tidelog.broker.partition_ports import LogDirectory
from tidelog.broker.partition_runner import PartitionRunner
from tidelog.broker.shard_loading import Ended, Loaded, note_entries, read_entries
from tidelog.core.coordinators import Effects, Perform, Reply, Token, Transactional, Write
from tidelog.core.partition.leader import PartitionLeader
from tidelog.records.batch import HEADER_SIZE_BYTES, Codec
from tidelog.records.record import Record, encode_batch
from tidelog.records.superseded import new_superseded
from tidelog.storage.log import Log
from tidelog.wire.produce import PartitionProduceResult

logger = logging.getLogger(__name__)

REPLAY_TURN_MS = 2
"""After which others have their turn: a commit takes a microsecond, a large group a thousand."""
UNWRITABLE_RETRY_S = 0.5
RECORD_OVERHEAD_BYTES = 32
"""Lengths, deltas and attributes of a record, at most."""


class ShardMachine(Protocol):
    """What every shard has; its requests are its own."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has something to do."""
        ...

    def on_loaded(self, now_ms: int) -> Effects: ...

    def on_tick(self, now_ms: int) -> Effects: ...


S = TypeVar("S", bound=ShardMachine)


class ShardKind(Protocol[S]):
    """What a coordinator knows about its shards: how to make one, and how its records are written.

    `encode` and `decode` hold no state: they are called on threads.
    """

    @property
    def codec(self) -> Codec: ...

    @property
    def kinds(self) -> Collection[int]:
        """What keys begin with, of records of which only the last under a key counts (R1)."""
        ...

    @property
    def kinds_in_transactions(self) -> Collection[int]:
        """The same for records in transactions (R2)."""
        ...

    def create(self, *, leader_epoch: int, record_max_bytes: int) -> S: ...

    def encode(self, record: object) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> object | None:
        """None for what this version does not know, and skips."""
        ...

    def replay(self, shard: S, record: object, transactional: Transactional | None) -> None: ...

    def on_transaction_ended(
        self, shard: S, producer: Transactional, *, is_committed: bool, now_ms: int
    ) -> Effects:
        """A marker is in the log. While loading, what it returns is not performed."""
        ...

    def perform(self, runner: "ShardRunner[S]", deed: object) -> None:
        """Begin what a machine wants done elsewhere; its outcome comes back by `runner.tell`."""
        ...


class _Replayed(NamedTuple):
    """All of a log."""

    end_offset: Offset
    unreadable: Set[bytes]
    """See `Loaded`."""


class _Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class _Held:
    """A write that is not committed yet, and what is to be said and done after it."""

    __slots__ = ("following", "is_committed", "machine")

    def __init__(self, machine: ShardMachine) -> None:
        self.machine = machine
        self.following: list[Reply | Perform] = []
        self.is_committed = False


class ShardRunner(Generic[S]):
    """One shard, its log and whoever waits for it."""

    def __init__(
        self,
        kind: ShardKind[S],
        partition: PartitionRunner,
        *,
        clock: Clock,
        hash_key: bytes,
        loads: asyncio.Semaphore,
        loop: asyncio.AbstractEventLoop,
        tasks: asyncio.TaskGroup,
        reply_timeout_ms: int,
        load_bytes: int,
        on_active: Callable[[], None],
    ) -> None:
        """`hash_key`: see `BrokerPorts`; `loads`: held while loading, so that few do at a time;
        `reply_timeout_ms`: how long a reply may wait for what it follows to be committed;
        `load_bytes`: how much to read at a time while loading, up to what is good for others;
        `on_active`: called each time that the shard has been loaded."""
        self._on_active = on_active
        self._load_bytes = load_bytes
        self.partition = partition
        self._kind = kind
        self._clock = clock
        self._hash_key = hash_key
        self._loads = loads
        self._loop = loop
        self._tasks = tasks
        self._reply_timeout_s = reply_timeout_ms / 1000
        self._leader: PartitionLeader = partition.leading
        self._phase = _Phase.LOADING
        self._shard: S | None = None
        self._tokens = count(1)
        self._waiting: dict[Token, asyncio.Future[object]] = {}
        self._held: deque[_Held] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._clock_offset_ms = clock.now_ms() - clock.monotonic_ms()
        self._load()

    @property
    def leader_epoch(self) -> int:
        return self._leader.leader_epoch

    @property
    def is_active(self) -> bool:
        return self._phase is _Phase.ACTIVE

    @property
    def is_loading(self) -> bool:
        return self._phase is _Phase.LOADING

    @property
    def is_ended(self) -> bool:
        """Whether this broker has ceased to lead the partition since, though it may again. W4"""
        return self._phase is _Phase.ENDED

    @property
    def now_ms(self) -> int:
        return self._clock.monotonic_ms() + self._clock_offset_ms

    def ask(
        self, decide: Callable[[S, Token, int], Effects], *, may_write: bool = True
    ) -> "asyncio.Future[object]":
        """Have the machine decide; the future is what it replies, or RequestRefused.

        Who only reads or says that it is alive (`may_write=False`) is heard also while nothing can
        be written. Whoever stops waiting cancels the future. What else goes wrong in deciding is
        the future's as well: it must cost who has asked, also who has waited for the shard.
        """
        waiting: asyncio.Future[object] = self._loop.create_future()
        refusal = self._refuse_requests(may_write=may_write)
        if refusal is not None:
            waiting.set_exception(refusal)
            return waiting
        shard = self._active_shard
        token = Token(next(self._tokens))
        self._waiting[token] = waiting
        waiting.add_done_callback(partial(self._on_answered, token))
        now_ms = self.now_ms
        try:
            effects = decide(shard, token, now_ms)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            waiting.set_exception(error)
            return waiting
        self._perform(effects)
        return waiting

    def _on_answered(self, token: Token, answered: "asyncio.Future[object]") -> None:
        self._waiting.pop(token, None)
        if not answered.cancelled():
            answered.exception()  # Whoever asked may not be there any more to take it.

    def tell(self, decide: Callable[[S, int], Effects]) -> None:
        """Have the machine know of something that nobody waits for, if it is there to know."""
        if self._phase is _Phase.ACTIVE:
            self._perform(decide(self._active_shard, self.now_ms))

    def on_transaction_ended(
        self, producer: Transactional, *, is_committed: bool, end_offset: Offset
    ) -> None:
        """A marker was appended, behind which the log ends at `end_offset`.

        One that comes while loading is found in the log. Nobody is told what it has changed before
        it is committed. W2
        """
        if self._phase is _Phase.ACTIVE:
            self._hold_until_committed(end_offset)
            effects = self._kind.on_transaction_ended(
                self._active_shard, producer, is_committed=is_committed, now_ms=self.now_ms
            )
            self._perform(effects)

    def end(self) -> None:
        """This broker does not lead the partition any more. W4"""
        self._phase = _Phase.ENDED
        self._forget()

    @property
    def _active_shard(self) -> S:
        assert self._shard is not None
        return self._shard

    # -- refusing --------------------------------------------------------------------------------

    def _refuse_requests(self, *, may_write: bool) -> RequestRefused | None:
        match self._phase:
            case _Phase.LOADING:
                return RequestRefused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            case _Phase.ENDED:
                return RequestRefused(ErrorCode.NOT_COORDINATOR)
            case _Phase.ACTIVE:
                return self._refuse_writes() if may_write else None
            case _:
                assert_never(self._phase)

    def _refuse_writes(self) -> RequestRefused | None:
        """Why nothing could be written just now, as far as that can be foreseen. W3"""
        try:
            self._leader.refuse_before_append(ACKS_ALL)
        except RequestRefused as refused:
            return RequestRefused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{self.partition.topic_partition}: {refused.message}",
            )
        return None

    # -- effects ---------------------------------------------------------------------------------

    def _perform(self, effects: Effects) -> None:
        for effect in effects:
            if self._phase is not _Phase.ACTIVE:
                return  # The write before has failed, or the disk under it.
            match effect:
                case Write():
                    self._write(effect)
                case Reply(token, answer, is_held=False):
                    self._reply(token, answer)
                case Reply() | Perform():
                    self._after_writes(effect)
                case _:
                    assert_never(effect)
        self._set_timer()

    def _after_writes(self, effect: Reply | Perform) -> None:
        """Do it once all that was written so far is committed. W2"""
        if not self._held:
            self._do(effect)
            return
        self._held[-1].following.append(effect)
        if isinstance(effect, Reply):
            self._expire_later(effect.token)

    def _do(self, effect: Reply | Perform) -> None:
        if isinstance(effect, Reply):
            self._reply(effect.token, effect.answer)
        else:
            self._kind.perform(self, effect.deed)

    def _reply(self, token: Token, answer: object) -> None:
        waiting = self._waiting.get(token)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _refuse(self, token: Token, code: ErrorCode) -> None:
        waiting = self._waiting.get(token)
        if waiting is not None and not waiting.done():
            waiting.set_exception(RequestRefused(code))

    def _expire_later(self, token: Token) -> None:
        timer = self._loop.call_later(
            self._reply_timeout_s, self._refuse, token, ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        waiting = self._waiting.get(token)
        if waiting is None or waiting.done():
            timer.cancel()
        else:
            waiting.add_done_callback(lambda _: timer.cancel())

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        now_ms = self._clock.now_ms()
        encoded = [self._kind.encode(record) for record in write.records]
        for together in _in_batches(encoded, self._batch_max_bytes):
            if self._phase is not _Phase.ACTIVE:
                return
            batch = _batch(together, self._kind.codec, write.transactional, now_ms)
            held = _Held(self._active_shard)
            self._held.append(held)
            result = self.partition.append_own(
                batch, now_ms=now_ms, settle=partial(self._on_written, held)
            )
            if result is not None:
                self._on_written(held, result)

    @property
    def _batch_max_bytes(self) -> int:
        config = self.partition.config
        return min(config.max_message_bytes, config.segment_bytes)

    def _on_written(self, held: _Held, result: PartitionProduceResult) -> None:
        """A write is committed, or is not going to be."""
        if self._phase is not _Phase.ACTIVE or held.machine is not self._shard:
            return
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            held.is_committed = True
        elif code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self._on_too_few_replicas(held)
            return
        elif not self._leads:
            self.end()
            return
        else:
            logger.warning(
                "coordinator starts again, because it could not write",
                extra={"partition": self.partition.topic_partition, "reason": code.name},
            )
            self._start_again()
            return
        self._release()

    def _on_too_few_replicas(self, held: _Held) -> None:
        """It stands, but on fewer replicas than anybody may be told. What is to be done waits."""
        if self._phase is not _Phase.ACTIVE or held.machine is not self._shard:
            return
        for effect in held.following:
            if isinstance(effect, Reply):
                self._refuse(effect.token, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._refuse_writes() is None:
            held.is_committed = True
            self._release()
        else:
            self._loop.call_later(UNWRITABLE_RETRY_S, self._on_too_few_replicas, held)

    def _release(self) -> None:
        while self._held and self._held[0].is_committed:
            for effect in self._held.popleft().following:
                self._do(effect)

    # -- time ------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._phase is not _Phase.ACTIVE:
            return
        deadline_ms = self._active_shard.next_deadline_ms
        if deadline_ms == self._timer_ms:
            return
        self._cancel_timer()
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            delay_s = max(0, deadline_ms - self.now_ms) / 1000
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_ms = None
        if self._phase is not _Phase.ACTIVE:
            return
        if self._refuse_writes() is not None:
            # Whatever is due has to be written down: later, then.
            self._timer_ms = self._active_shard.next_deadline_ms
            self._timer = self._loop.call_later(UNWRITABLE_RETRY_S, self._on_timer)
            return
        self._perform(self._active_shard.on_tick(self.now_ms))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_ms = None

    # -- beginning and ending --------------------------------------------------------------------

    def _start_again(self) -> None:
        """What the machine knows is not what the log says. W3"""
        self._phase = _Phase.LOADING
        self._forget()
        self._load()

    def _forget(self) -> None:
        self._shard = None
        self._held.clear()
        self._cancel_timer()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(RequestRefused(ErrorCode.NOT_COORDINATOR))

    def _load(self) -> None:
        self._shard = self._new_shard()
        self._tasks.create_task(self._load_into(self._shard))

    def _new_shard(self) -> S:
        return self._kind.create(
            leader_epoch=self._leader.leader_epoch,
            record_max_bytes=self._batch_max_bytes - HEADER_SIZE_BYTES - RECORD_OVERHEAD_BYTES,
        )

    async def _load_into(self, shard: S) -> None:
        began_ms = self._clock.monotonic_ms()
        spared: frozenset[bytes] = frozenset()
        try:
            replayed = await self._replay_log(shard, spared)
            while replayed is not None and not replayed.unreadable <= spared:
                # What cannot be read does not count, and has outdated what does.
                spared |= replayed.unreadable
                shard = self._shard = self._new_shard()
                replayed = await self._replay_log(shard, spared)
        except Exception as error:  # noqa: BLE001 - what one log has must not end all who lead it
            self._on_unreadable(error)
            return
        if replayed is None or self._shard is not shard:
            return
        end_offset = replayed.end_offset
        self._phase = _Phase.ACTIVE
        logger.info(
            "coordinator loaded",
            extra={
                "partition": self.partition.topic_partition,
                "end_offset": end_offset,
                "took_ms": self._clock.monotonic_ms() - began_ms,
            },
        )
        self._hold_until_committed(end_offset)
        self._perform(shard.on_loaded(self.now_ms))
        self._on_active()

    def _hold_until_committed(self, end_offset: Offset) -> None:
        if self._leader.high_watermark >= end_offset:
            return
        held = _Held(self._active_shard)
        self._held.append(held)

        def look() -> None:
            if (
                self._phase is _Phase.ACTIVE
                and held.machine is self._shard
                and self._leads
                and self._leader.high_watermark >= end_offset
            ):
                held.is_committed = True
                self._release()

        self.partition.when_committed(end_offset, look)

    async def _replay_log(self, shard: S, spared: Set[bytes]) -> _Replayed | None:
        """Replay all of the log that counts; None if this is not to be loaded any more.

        Under the keys that are `spared` everything is replayed.
        """
        await self.partition.queue.idle()  # What this wrote before it started again.
        kind = self._kind
        async with self._loads:
            superseded = new_superseded(kind.kinds, kind.kinds_in_transactions, self._hash_key)
            if await self._walk(shard, partial(note_entries, superseded=superseded)) is None:
                return None
            for key in spared:
                superseded.spare(key)
            read = partial(
                read_entries, superseded=superseded, decode=kind.decode, kinds=kind.kinds
            )
            return await self._walk(shard, read)

    async def _walk(self, shard: S, read: Callable[..., Loaded]) -> _Replayed | None:
        """Go through the log with `read`, and replay what that finds."""
        partition = self.partition
        unreadable: set[bytes] = set()
        offset = partition.log.log_start_offset
        while self._shard is shard and self._leads:
            log = partition.log  # Another one if it was moved meanwhile, with the same records.
            if offset >= log.log_end_offset:
                return _Replayed(offset, unreadable)
            offset = max(offset, log.log_start_offset)
            try:
                loaded = await self._read(log, partition.log_directory, offset, read)
            except RequestRefused:
                continue  # Records went meanwhile, or all of the log did: look again.
            offset = loaded.end_offset
            unreadable |= loaded.unreadable
            turn_ends_ms = self._clock.monotonic_ms() + REPLAY_TURN_MS
            for entry in loaded.entries:
                if isinstance(entry, Ended):
                    self._kind.on_transaction_ended(
                        shard, entry.producer, is_committed=entry.is_committed, now_ms=self.now_ms
                    )
                else:
                    self._kind.replay(shard, *entry)
                if self._clock.monotonic_ms() >= turn_ends_ms:
                    await asyncio.sleep(0)
                    turn_ends_ms = self._clock.monotonic_ms() + REPLAY_TURN_MS
        return None

    async def _read(
        self, log: Log, directory: LogDirectory, offset: Offset, read: Callable[..., Loaded]
    ) -> Loaded:
        """Raises StorageError; its directory has failed then, unless `log` alone is damaged."""
        try:
            return await directory.executor.urgent(
                read, log, offset, end_offset=log.log_end_offset, max_bytes=self._load_bytes
            )
        except DamagedLog:
            raise
        except StorageError as error:
            directory.on_failure(error)
            raise

    @property
    def _leads(self) -> bool:
        return self.partition.leader is self._leader and not self.partition.is_offline

    def _on_unreadable(self, error: Exception) -> None:
        """Nothing can be served: clients are told to wait, an administrator what to do."""
        is_expected = isinstance(error, StorageError | CorruptBatch)
        logger.error(
            "coordinator cannot be loaded",
            extra={"partition": self.partition.topic_partition, "reason": repr(error)},
            exc_info=None if is_expected else error,
        )


def _in_batches(
    encoded: list[tuple[bytes, bytes | None]], max_bytes: int
) -> list[list[tuple[bytes, bytes | None]]]:
    """The same in as few batches as they fit into, in order."""
    batches: list[list[tuple[bytes, bytes | None]]] = []
    room = 0
    for key, value in encoded:
        size_bytes = len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if size_bytes > room or not batches:
            batches.append([])
            room = max_bytes - HEADER_SIZE_BYTES
        batches[-1].append((key, value))
        room -= size_bytes
    return batches


def _batch(
    encoded: list[tuple[bytes, bytes | None]],
    codec: Codec,
    transactional: Transactional | None,
    now_ms: int,
) -> bytearray:
    return encode_batch(
        [Record(number, now_ms, key, value, ()) for number, (key, value) in enumerate(encoded)],
        leader_epoch=-1,
        codec=codec,
        producer_id=NO_PRODUCER_ID if transactional is None else transactional.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if transactional is None else transactional.producer_epoch,
        # Nobody counts them, but a reader who finds a producer expects a number.
        base_sequence=NO_SEQUENCE if transactional is None else 0,
        is_transactional=transactional is not None,
        is_control=False,
    )
