"""One look at the partitions of a fetch: what is there to read, within the bounds of an answer.

Rules, Kafka's (R5):

    - Consumers read up to the high watermark, read_committed ones to the last stable offset.
    - They may read at a follower as well (KIP-392), up to what that knows to be committed. Only a
      leader can say that an offset beyond the end of the log is nobody's: a follower says that
      it is not available there.
    - `max_bytes` bounds the answer and each partition, but the first batch found is always
      returned, however large, so that a reader can make progress.
    - A failure of one partition is that partition's error code.
    - A read_committed reader is told which transactions in what it gets were aborted, and skips
      their records itself.

With `is_rack_aware`, a consumer that says where it stands is told of a replica there rather than
given records, and a follower is told of a high watermark that it does not know without a wait: it
has consumers of its own who wait for that.

A follower whose log starts before ours is told so without a wait, too: somebody may wait for it to
forget what was deleted (DeleteRecords), and nothing else may happen to this partition for long.

A follower that lags, of a partition whose leader is throttled (KIP-73), gets nothing while that
sends as much as it may. It is left out, without an end of its wait.

Reads come from the page cache. If the first partition that has something to read is not there, it
is named in `Look.cold`, for a thread to read; the next look is then given what the thread found.
Cold partitions further down are left out and come first in a later look, so that partitions with
fresh data do not starve those without.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from tidelog.base.errors import ErrorCode, RequestRefused, StorageError
from tidelog.base.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset
from tidelog.base.ports import BytesLike
from tidelog.broker.fetch_interest import FetchInterest
from tidelog.broker.memory import MemoryBound
from tidelog.broker.partition_runner import DiskRead, PartitionRunner
from tidelog.broker.partitions import Partitions
from tidelog.broker.replication_throttle import ReplicationThrottle
from tidelog.core.partition.epochs import UNKNOWN_EPOCH_END
from tidelog.core.partition.leader import PartitionLeader
from tidelog.core.partition.replica_selector import preferred_read_replica
from tidelog.core.sessions import Fetch, FetchSession, FetchTarget, KnownOffsets
from tidelog.storage.log import Log, LogRead
from tidelog.storage.transaction_index import AbortedTransaction as Aborted
from tidelog.wire.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchRequest,
)

READ_COMMITTED = 1
NO_PREFERRED_REPLICA = -1
_UNKNOWN_OFFSETS = KnownOffsets(Offset(-1), Offset(-1), Offset(-1))
_NOTHING_READ = DiskRead(LogRead(b"", Offset(-1)), ())

TopicResults = list[tuple[str | None, bytes | None, list[FetchPartitionResult]]]


class ColdRead(NamedTuple):
    """A read that would have had to wait for the disk."""

    target: FetchTarget
    runner: PartitionRunner
    log: Log
    truncation_count: int
    end_offset: Offset
    max_bytes: int

    def is_of(self, target: FetchTarget, runner: PartitionRunner) -> bool:
        """Whether it was for `target`, and the log is still what it was when it was begun.

        A topic made anew has another runner, a directory that came back another log, and other
        records at the same offsets; so has a log that was cut.
        """
        return (
            self.target is target
            and self.runner is runner
            and self.log is runner.log
            and self.truncation_count == runner.log.truncation_count
        )


class ReadByThread(NamedTuple):
    """What a thread made of a `ColdRead`."""

    cold: ColdRead
    found: DiskRead | RequestRefused


class Look:
    """What one look at the partitions found."""

    __slots__ = (
        "cold",
        "is_full",
        "max_bytes",
        "must_tell",
        "size_bytes",
        "throttled_bytes",
        "topics",
    )

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.topics: TopicResults = []
        self.must_tell = False
        """There is an error, or something else that a client must hear without waiting."""
        self.is_full = False
        """There is more to read that this answer has no room for or would have to go to the disk
        for: it gets no better by waiting."""
        self.cold: ColdRead | None = None
        self.throttled_bytes = 0
        """Of `size_bytes`, what counts against the leader's throttle."""

    def add(self, target: FetchTarget, result: FetchPartitionResult) -> None:
        topics = self.topics
        if not topics or topics[-1][0] != target.topic or topics[-1][1] != target.topic_id:
            topics.append((target.topic, target.topic_id, []))
        topics[-1][2].append(result)


class FetchReader:
    """Looks at partitions for fetches. Remembers nothing between two looks."""

    __slots__ = (
        "_answer_memory",
        "fetch_max_bytes",
        "is_rack_aware",
        "partitions",
        "throttle",
    )

    def __init__(
        self,
        *,
        partitions: Partitions,
        answer_memory: MemoryBound,
        fetch_max_bytes: int,
        throttle: ReplicationThrottle,
        is_rack_aware: bool,
    ) -> None:
        """`throttle` is of what this broker sends as leader."""
        self.throttle = throttle
        self.is_rack_aware = is_rack_aware
        self.partitions = partitions
        self._answer_memory = answer_memory
        self.fetch_max_bytes = fetch_max_bytes

    def look(
        self,
        interest: FetchInterest,
        request: FetchRequest,
        read_by_thread: ReadByThread | None,
    ) -> Look:
        """Look at every partition that may have news, up to the size of an answer."""
        look = Look(
            min(request.max_bytes, self.fetch_max_bytes, self._answer_memory.available_bytes)
        )
        fetch = interest.fetch
        is_session = isinstance(fetch, FetchSession)
        for target in fetch.candidates():
            if not fetch.is_full and look.size_bytes >= look.max_bytes > 0:
                look.is_full = True
                break  # They stay dirty and come first in the next answer.
            try:
                runner = self.runner(target, request)
                if self.is_rack_aware and request.rack_id and request.replica_id < 0:
                    preferred = self._preferred(interest, target, runner, request.rack_id)
                    if preferred is not None:
                        self._tell_preferred(look, interest, target, runner, preferred)
                        continue
                if is_session:
                    interest.watch(target, runner)
                look_at = self._look_at
                if self.throttle.is_active and self._is_throttled(runner, request):
                    look_at = self._look_at_throttled
                look_at(look, interest, target, runner, request, read_by_thread)
            except RequestRefused as refusal:
                self._tell_error(look, interest, target, refusal.code, request)
        return look

    def runner(self, target: FetchTarget, request: FetchRequest) -> PartitionRunner:
        """The partition that `target` names, or RequestRefused."""
        topic = target.topic
        if target.topic_id is not None:
            topic = self.partitions.topic_name(target.topic_id)
            if topic is None:
                raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_ID)
        assert topic is not None
        wanted = target.wanted
        # As in Kafka, any negative epoch is no claim; other requests know only -1.
        epoch = max(wanted.current_leader_epoch, NO_LEADER_EPOCH)
        if request.replica_id >= 0:
            runner = self.partitions.led(topic, wanted.partition, epoch)
            _admit_follower(runner.leading, request)
            return runner
        if request.rack_id is None:
            return self.partitions.led(topic, wanted.partition, epoch)
        return self.partitions.readable(topic, wanted.partition, epoch)

    def note_positions(self, request: FetchRequest) -> None:
        """What a follower asks for says how much it has (R3): tell the leaders of what it names.

        Nothing is refused here. What is wrong with a partition is found again, and said, by the
        look that follows.
        """
        for topic, topic_id, partitions in request.topics:
            for wanted in partitions:
                target = FetchTarget(topic, topic_id, wanted)
                with suppress(RequestRefused):
                    self._note_position(target, self.runner(target, request), request)

    def _note_position(
        self, target: FetchTarget, runner: PartitionRunner, request: FetchRequest
    ) -> None:
        wanted = target.wanted
        fetch_offset = Offset(wanted.fetch_offset)
        if wanted.last_fetched_epoch >= 0 and _diverging_epoch(runner, target) is not None:
            return
        if runner.log.log_start_offset <= fetch_offset <= runner.leading.log_end_offset:
            runner.on_follower_fetch(
                BrokerId(request.replica_id),
                broker_epoch=request.replica_epoch,
                fetch_offset=fetch_offset,
                log_start_offset=Offset(wanted.log_start_offset),
            )

    def _look_at(
        self,
        look: Look,
        interest: FetchInterest,
        target: FetchTarget,
        runner: PartitionRunner,
        request: FetchRequest,
        read_by_thread: ReadByThread | None,
    ) -> None:
        offsets = _offsets(runner)
        if runner.leader is None:
            _require_held(runner, target)
        if target.wanted.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(runner, target)
            if diverging is not None:
                interest.fetch.note_error(target)
                look.must_tell = True
                look.add(target, _result(target, offsets, None, diverging, b""))
                return
        is_committed_only = request.isolation_level == READ_COMMITTED
        end_offset = self._end_for(target, runner, offsets, request)
        if read_by_thread is not None and read_by_thread.cold.is_of(target, runner):
            if isinstance(read_by_thread.found, RequestRefused):
                raise read_by_thread.found
            cold, (read, aborted) = read_by_thread.cold, read_by_thread.found
            look.is_full |= _has_no_room(read, target, cold.end_offset, cold.max_bytes)
        else:
            read, aborted = self._read(look, target, runner, end_offset)
        data = read.data
        if len(data) == 0 and target.wanted.fetch_offset < end_offset:
            # The answer is full, or the bytes are on disk. Either way there is more to read.
            belongs = interest.fetch.note_left_out(target, offsets)
        else:
            belongs = interest.fetch.note_result(target, offsets, has_data=len(data) > 0)
        if request.replica_id >= 0:
            look.must_tell |= _is_to_hear(interest.fetch, target, offsets, self.is_rack_aware)
        if belongs:
            told = _told(aborted) if is_committed_only else None
            look.add(target, _result(target, offsets, told, None, data))
        look.size_bytes += len(data)

    def _is_throttled(self, runner: PartitionRunner, request: FetchRequest) -> bool:
        """In-sync replicas are not: they would leave the isr for it."""
        return (
            request.replica_id >= 0
            and BrokerId(request.replica_id) not in runner.leading.isr
            and self.throttle.names(runner.topic_partition)
        )

    def _look_at_throttled(
        self,
        look: Look,
        interest: FetchInterest,
        target: FetchTarget,
        runner: PartitionRunner,
        request: FetchRequest,
        read_by_thread: ReadByThread | None,
    ) -> None:
        if self.throttle.is_exceeded():
            offsets = _offsets(runner)
            if interest.fetch.note_left_out(target, offsets):
                look.add(target, _result(target, offsets, None, None, b""))
            return
        before_bytes = look.size_bytes
        self._look_at(look, interest, target, runner, request, read_by_thread)
        look.throttled_bytes += look.size_bytes - before_bytes

    def _read(
        self, look: Look, target: FetchTarget, runner: PartitionRunner, end_offset: Offset
    ) -> DiskRead:
        wanted = target.wanted
        fetch_offset = Offset(wanted.fetch_offset)
        log = runner.log
        if (
            fetch_offset >= end_offset
            and log.log_start_offset <= fetch_offset <= log.log_end_offset
        ):
            return _NOTHING_READ
        max_bytes = max(0, min(wanted.max_bytes, look.max_bytes - look.size_bytes))
        try:
            read = log.read_cached(
                fetch_offset,
                end_offset=end_offset,
                max_bytes=max_bytes,
                at_least_one=look.size_bytes == 0,
            )
            aborted = _aborted_in(log, read, fetch_offset)
        except StorageError as error:
            raise runner.refuse_reader(error, runner.log_directory) from error
        if read is None or aborted is None:
            if look.cold is None and look.size_bytes == 0:
                look.cold = ColdRead(
                    target, runner, log, log.truncation_count, end_offset, max_bytes
                )
            look.is_full = True
            return _NOTHING_READ
        look.is_full |= _has_no_room(read, target, end_offset, max_bytes)
        return DiskRead(read, aborted)

    def _end_for(
        self,
        target: FetchTarget,
        runner: PartitionRunner,
        offsets: KnownOffsets,
        request: FetchRequest,
    ) -> Offset:
        """Up to where this reader may read."""
        if request.replica_id >= 0:
            leader = runner.leading
            if not leader.has_fetched(BrokerId(request.replica_id)):
                # It asked before we led, and will not say again where it stands.
                self._note_position(target, runner, request)
            return leader.log_end_offset
        if request.isolation_level == READ_COMMITTED:
            return offsets.last_stable_offset
        return offsets.high_watermark

    def _preferred(
        self, interest: FetchInterest, target: FetchTarget, runner: PartitionRunner, rack: str
    ) -> BrokerId | None:
        """Whom a consumer in `rack` should ask; None: us."""
        if runner.leader is None:
            return None
        brokers = self.partitions.image.brokers

        def is_near(replica: BrokerId) -> bool:
            broker = brokers.get(replica)
            return (
                broker is not None
                and broker.rack == rack
                and broker.endpoint(interest.listener_name) is not None
            )

        return preferred_read_replica(runner.leader, Offset(target.wanted.fetch_offset), is_near)

    def _tell_preferred(
        self,
        look: Look,
        interest: FetchInterest,
        target: FetchTarget,
        runner: PartitionRunner,
        preferred: BrokerId,
    ) -> None:
        interest.fetch.note_error(target)
        interest.unwatch((target,))  # It is looked at every time while it is asked for.
        look.must_tell = True
        result = _result(target, _offsets(runner), None, None, b"")
        look.add(target, result._replace(preferred_read_replica=preferred))

    def _tell_error(
        self,
        look: Look,
        interest: FetchInterest,
        target: FetchTarget,
        code: ErrorCode,
        request: FetchRequest,
    ) -> None:
        interest.fetch.note_error(target)
        interest.unwatch((target,))  # It is looked at every time while the error lasts.
        look.must_tell = True
        offsets = _UNKNOWN_OFFSETS
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and request.replica_id >= 0:
            # A follower starts afresh where our log starts, and need not ask where that is.
            offsets = _offsets(self.runner(target, request))
        result = _result(target, offsets, None, None, b"")
        look.add(target, result._replace(error_code=code))


def _offsets(runner: PartitionRunner) -> KnownOffsets:
    return KnownOffsets(
        runner.high_watermark, runner.last_stable_offset, runner.log.log_start_offset
    )


def _is_to_hear(
    fetch: Fetch, target: FetchTarget, offsets: KnownOffsets, is_rack_aware: bool
) -> bool:
    """Whether a follower does not know the log start or, where that matters, the high watermark."""
    if not isinstance(fetch, FetchSession):
        return False  # Nobody remembers what it was told; it hears with its next answer.
    told = target.told or _UNKNOWN_OFFSETS
    if is_rack_aware and told.high_watermark < offsets.high_watermark:
        return True
    # What it says itself counts as well: the first answer of a session need not repeat it.
    known = max(told.log_start_offset, target.wanted.log_start_offset)
    return known < offsets.log_start_offset


def _require_held(runner: PartitionRunner, target: FetchTarget) -> None:
    """Refuse a consumer who is ahead of this follower."""
    if target.wanted.fetch_offset > runner.log.log_end_offset:
        raise RequestRefused(ErrorCode.OFFSET_NOT_AVAILABLE)


def _admit_follower(leader: PartitionLeader, request: FetchRequest) -> None:
    replica = BrokerId(request.replica_id)
    if replica not in leader.followers:
        # We may simply not have heard yet of its assignment. This code makes it try again.
        raise RequestRefused(ErrorCode.UNKNOWN_LEADER_EPOCH)
    if request.replica_epoch < leader.live_brokers.get(replica, request.replica_epoch):
        # Sent in an earlier life of that broker, whose log may be another by now (KIP-903).
        raise RequestRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _has_no_room(read: LogRead, target: FetchTarget, end_offset: Offset, max_bytes: int) -> bool:
    """Whether the answer, which had room for `max_bytes`, lacks it for the rest of a partition."""
    return max_bytes < target.wanted.max_bytes and read.end_offset < end_offset


def _aborted_in(log: Log, read: LogRead | None, fetch_offset: Offset) -> tuple[Aborted, ...] | None:
    """The aborted transactions within `read`; None if it takes a thread to say."""
    if read is None or not log.has_aborted:
        return ()
    return log.aborted_cached(fetch_offset, end_offset=read.end_offset)


def _told(aborted: Sequence[Aborted]) -> tuple[AbortedTransaction, ...]:
    return tuple(AbortedTransaction(one.producer_id, one.first_offset) for one in aborted)


def _diverging_epoch(runner: PartitionRunner, target: FetchTarget) -> EpochEndOffset | None:
    """Where the reader's log and ours part, if they do (KIP-595)."""
    wanted = target.wanted
    end = runner.epochs.diverging_end(
        LeaderEpoch(wanted.last_fetched_epoch),
        fetch_offset=Offset(wanted.fetch_offset),
        log_end_offset=runner.log.log_end_offset,
    )
    if end is None:
        return None
    is_unknown = end == UNKNOWN_EPOCH_END
    if runner.leader is None and (is_unknown or end.end_offset >= runner.high_watermark):
        # A follower's log may end before the leader's, and otherwise.
        raise RequestRefused(ErrorCode.OFFSET_NOT_AVAILABLE)
    if is_unknown:
        raise RequestRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
    return EpochEndOffset(end.leader_epoch, end.end_offset)


def _result(
    target: FetchTarget,
    offsets: KnownOffsets,
    aborted: tuple[AbortedTransaction, ...] | None,
    diverging_epoch: EpochEndOffset | None,
    records: BytesLike,
) -> FetchPartitionResult:
    return FetchPartitionResult(
        target.wanted.partition,
        0,
        offsets[0],
        offsets[1],
        offsets[2],
        aborted,
        diverging_epoch,
        None,
        NO_PREFERRED_REPLICA,
        records,
    )
