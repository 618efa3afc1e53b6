"""The part of the transaction coordinator that belongs to one partition of `__transaction_state`.

A shard (`core/coordinators.py`) for the transactional ids that fall to its partition (D3).

    InitProducerId ─▶ Empty ─ AddPartitions ─▶ Ongoing ─ EndTxn ─▶ Prepare ─ markers ─▶ Complete
                                                  │                   ▲        written
                                                  └── time-out, or a new instance of the producer

Rules, those of a Kafka 4.3 broker:

    T1  Epochs fence. Only the newest epoch of a transactional id gets anything done; an older one
        is answered with PRODUCER_FENCED. The one exception does nothing: the last EndTxn again,
        with transaction version 2 (`ending.py`).
    T2  A transaction has one outcome: what its Prepare record says. Nothing but its Complete record
        follows a Prepare record, and whoever asks for anything else meanwhile is told to come back
        (CONCURRENT_TRANSACTIONS). A producer that begins its next transaction may wait instead: it
        is answered when the last one is complete, or told to come back after `wait_max_ms`.
    T3  Markers are sent when the Prepare record is committed, not before, to every partition of
        the transaction; the Complete record is written when all have answered, not before.
    T4  Every prepared transaction completes, whoever coordinates it: a shard that loads a Prepare
        record sends its markers, again if need be.
    T5  An answer about markers counts for the `WriteMarkers` that it answers, no other; and those
        that nobody waits for any more are not sent again (`awaits_markers`).
    T6  A transaction that is open for longer than its time-out is aborted, with an epoch that
        fences its producer. So is one whose producer has a new instance: that is told to come
        back.
    T7  An id whose epochs are used up goes on with a new producer id; the last epoch there is, is
        kept for fencing. While there is no producer id, whatever takes one is refused.
    T8  A transactional id without a transaction is forgotten when it has not changed for
        `transactional.id.expiration.ms`.
    T9  A transaction's record fits into a batch of the log: partitions that do not are refused.

What is only in memory (W1): who has answered of those that were sent markers, and the epoch before
the current one, so that InitProducerId sent again to another coordinator is refused; as in Kafka.

Not here: which broker leads a partition, how often it is asked (`broker/marker_sender.py`), and
what a marker does to a partition.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import (
    NO_PRODUCER_ID,
    TopicPartition,
)
from tidelog.core.coordinators import NO_EFFECTS, Effect, Effects, Perform, Reply, Token, Write
from tidelog.core.deadlines import Deadlines
from tidelog.core.transactions.answers import (
    DescribeAnswer,
    PartitionsAnswer,
    ProducerAnswer,
    TransactionLimits,
    WriteMarkers,
)
from tidelog.core.transactions.ending import Verdict, judge
from tidelog.core.transactions.initializing import (
    Claim,
    NoProducerId,
    TakeProducerId,
    next_epoch,
    require_claim,
)
from tidelog.core.transactions.listing import TransactionFilter, listed
from tidelog.core.transactions.transitions import completed, new, prepared, with_partitions
from tidelog.records.transactions import (
    IDLE,
    PREPARED,
    VERSION_WITH_BUMP,
    TransactionForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)

_RECORD_FIXED_BYTES = 200
_TOPIC_FIXED_BYTES = 16
_PARTITION_BYTES = 4
_PARTITIONS_MAX = 40_000
"""Far below what a reader of records takes in one piece."""


@dataclass(frozen=True, slots=True)
class _Completion:
    """Who has not answered yet of those that were sent markers."""

    number: int
    unanswered: set[TopicPartition]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A producer that begins its next transaction when its last one is complete."""

    token: Token
    producer: Claim
    partitions: Collection[TopicPartition]
    client_version: int


class TransactionShard:
    """Looks after the transactional ids of one partition."""

    def __init__(
        self,
        *,
        limits: TransactionLimits,
        coordinator_epoch: int,
        take_producer_id: TakeProducerId,
        numbers: Iterator[int],
    ) -> None:
        """`numbers` are for `WriteMarkers`; no other shard has the same ones. T5"""
        self._limits = limits
        self._coordinator_epoch = coordinator_epoch
        self._take_producer_id = take_producer_id
        self._numbers = numbers
        self._transactions: dict[str, TransactionMetadata] = {}
        self._completions: dict[str, _Completion] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._patience: Deadlines[str] = Deadlines()
        self._timeouts: Deadlines[str] = Deadlines()
        self._expiries: Deadlines[str] = Deadlines()
        self._abort_look_ms = 0
        self._expiry_look_ms = 0

    def __len__(self) -> int:
        return len(self._transactions)

    # -- loading -----------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord) -> None:
        """Believe what the log says. Timers are set on the way, not all in one go at its end."""
        if isinstance(record, TransactionForgotten):
            self._transactions.pop(record.transactional_id, None)
            self._timeouts.cancel(record.transactional_id)
            self._expiries.cancel(record.transactional_id)
        else:
            self._transactions[record.transactional_id] = record
            self._set_timers(record)

    def on_loaded(self, now_ms: int) -> Effects:
        """The log has been read to its end: what is prepared is completed. T4"""
        self._abort_look_ms = now_ms + self._limits.abort_interval_ms
        self._expiry_look_ms = now_ms + self._limits.expiry_interval_ms
        unfinished = [each for each in self._transactions.values() if each.state in PREPARED]
        return [self._write_markers(metadata) for metadata in unfinished]

    # -- requests ----------------------------------------------------------------------------------

    def on_init_producer_id(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        claim: Claim | None,
        token: Token,
        now_ms: int,
    ) -> Effects:
        """A producer wants the transactional id, or its next epoch. Answer: `ProducerAnswer`."""
        if not transactional_id:
            raise RequestRefused(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._limits.timeout_max_ms:
            raise RequestRefused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self._transactions.get(transactional_id)
        if known is None:
            known = new(
                transactional_id, self._take_producer_id(), timeout_ms=timeout_ms, now_ms=now_ms
            )
            self._require_size(known)
        try:
            require_claim(known, claim)
            _require_not_completing(known)
            if known.state is TransactionState.ONGOING:
                effects = self._abort_with_fence(known, now_ms)
                concurrent = ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
                return [*effects, Reply(token, concurrent)]
            metadata = next_epoch(
                known,
                claim,
                take_producer_id=self._take_producer_id,
                timeout_ms=timeout_ms,
                now_ms=now_ms,
            )
        except NoProducerId:
            raise
        except RequestRefused as refusal:
            return [Reply(token, ProducerAnswer(refusal.code))]
        answer = ProducerAnswer(ErrorCode.NONE, metadata.producer_id, metadata.producer_epoch)
        return [self._change(metadata), Reply(token, answer)]

    def on_add_partitions(
        self,
        transactional_id: str,
        *,
        producer: Claim,
        partitions: Collection[TopicPartition],
        client_version: int,
        may_wait: bool,
        token: Token,
        now_ms: int,
    ) -> Effects:
        """The transaction is to reach to these as well. Answer: `PartitionsAnswer`."""
        try:
            known = self._require_producer(transactional_id, producer)
            if may_wait and known.state in PREPARED and transactional_id not in self._waiting:
                waiting = _Waiting(token, producer, partitions, client_version)
                self._waiting[transactional_id] = waiting
                self._patience.set(transactional_id, now_ms + self._limits.wait_max_ms)
                return NO_EFFECTS
            _require_not_completing(known)
            codes = dict.fromkeys(partitions, ErrorCode.NONE)
            if known.state is TransactionState.ONGOING and known.partitions.issuperset(partitions):
                return [Reply(token, PartitionsAnswer(codes))]
            metadata = with_partitions(
                known, partitions, client_version=client_version, now_ms=now_ms
            )
            self._require_size(metadata)
        except RequestRefused as refusal:
            return [Reply(token, PartitionsAnswer(dict.fromkeys(partitions, refusal.code)))]
        return [self._change(metadata), Reply(token, PartitionsAnswer(codes))]

    def on_verify_partitions(
        self,
        transactional_id: str,
        *,
        producer: Claim,
        partitions: Collection[TopicPartition],
        token: Token,
    ) -> Effects:
        """A broker asks whether these are in the transaction. Answer: `PartitionsAnswer`."""
        try:
            known = self._require_producer(transactional_id, producer)
            _require_not_completing(known)
        except RequestRefused as refusal:
            return [Reply(token, PartitionsAnswer(dict.fromkeys(partitions, refusal.code)))]
        codes = {
            partition: ErrorCode.NONE
            if partition in known.partitions
            else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }
        return [Reply(token, PartitionsAnswer(codes))]

    def on_end(
        self,
        transactional_id: str,
        *,
        producer: Claim,
        is_commit: bool,
        client_version: int,
        token: Token,
        now_ms: int,
    ) -> Effects:
        """The producer commits or aborts. Answer: `ProducerAnswer`, with what it goes on with."""
        try:
            known = self._require_known(transactional_id)
            verdict = judge(
                known,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_commit=is_commit,
                client_version=client_version,
            )
            if verdict is Verdict.HAS_ENDED:
                return [Reply(token, _answer_to_end(known, client_version))]
            effects = self._end(
                known, is_commit=is_commit, client_version=client_version, now_ms=now_ms
            )
        except NoProducerId:
            raise
        except RequestRefused as refusal:
            return [Reply(token, ProducerAnswer(refusal.code))]
        ended = self._transactions[transactional_id]
        if ended.state in PREPARED:
            ended = completed(ended, now_ms=now_ms)
        return [*effects, Reply(token, _answer_to_end(ended, client_version))]

    def on_describe(self, transactional_id: str, *, token: Token) -> Effects:
        """Answer: `DescribeAnswer`; while markers are written, with the partitions without one."""
        metadata = self._transactions.get(transactional_id)
        completion = self._completions.get(transactional_id)
        if metadata is not None and completion is not None:
            metadata = replace(metadata, partitions=frozenset(completion.unanswered))
        return [Reply(token, DescribeAnswer(metadata))]

    def on_list(self, wanted: TransactionFilter, *, token: Token, now_ms: int) -> Effects:
        """Answer: a tuple of `ListedTransaction`."""
        return [Reply(token, listed(self._transactions.values(), wanted, now_ms))]

    # -- markers -----------------------------------------------------------------------------------

    def awaits_markers(self, transactional_id: str, number: int) -> bool:
        """Whether the transaction of `WriteMarkers` `number` waits for them. T5"""
        completion = self._completions.get(transactional_id)
        return completion is not None and completion.number == number

    def on_markers_written(
        self,
        transactional_id: str,
        number: int,
        partitions: Iterable[TopicPartition],
        *,
        token: Token,
        now_ms: int,
    ) -> Effects:
        """These have the marker of `WriteMarkers` `number`, or are gone and need none.

        The answer says nothing but that it was heard.
        """
        heard = Reply(token, None, is_held=False)
        if not self.awaits_markers(transactional_id, number):
            return [heard]
        unanswered = self._completions[transactional_id].unanswered
        unanswered.difference_update(partitions)
        if unanswered:
            return [heard]
        complete = self._complete(self._transactions[transactional_id], now_ms)
        return [complete, *self._begin_waiting(transactional_id, now_ms), heard]

    def _begin_waiting(self, transactional_id: str, now_ms: int) -> Effects:
        """The last transaction is complete: whoever waits for that begins the next. T2"""
        waiting = self._waiting.pop(transactional_id, None)
        if waiting is None:
            return NO_EFFECTS
        self._patience.cancel(transactional_id)
        return self.on_add_partitions(
            transactional_id,
            producer=waiting.producer,
            partitions=waiting.partitions,
            client_version=waiting.client_version,
            may_wait=False,
            token=waiting.token,
            now_ms=now_ms,
        )

    def _come_back(self, transactional_id: str) -> Reply:
        waiting = self._waiting.pop(transactional_id)
        codes = dict.fromkeys(waiting.partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
        return Reply(waiting.token, PartitionsAnswer(codes))

    # -- time --------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> int | None:
        """When there is something to do, if nothing happens before."""
        times_ms = [
            max(due_ms, look_ms)
            for due_ms, look_ms in (
                (self._patience.next_ms, 0),
                (self._timeouts.next_ms, self._abort_look_ms),
                (self._expiries.next_ms, self._expiry_look_ms),
            )
            if due_ms is not None
        ]
        return min(times_ms, default=None)

    def on_tick(self, now_ms: int) -> Effects:
        """Abort what has run out of time, forget what nobody has used."""
        effects: list[Effect] = [
            self._come_back(transactional_id) for transactional_id in self._patience.due(now_ms)
        ]
        if now_ms >= self._abort_look_ms:
            effects += self._abort_overdue(now_ms)
        if now_ms >= self._expiry_look_ms:
            effects += self._forget_expired(now_ms)
        return effects

    def _abort_overdue(self, now_ms: int) -> list[Effect]:
        """T6"""
        effects: list[Effect] = []
        overdue = self._timeouts.due(now_ms)
        if overdue:
            self._abort_look_ms = now_ms + self._limits.abort_interval_ms
        for transactional_id in overdue:
            known = self._transactions[transactional_id]
            try:
                effects += self._abort_with_fence(known, now_ms)
            except NoProducerId:  # There will be one, some time later. T7
                self._set_timers(known)
        return effects

    def _forget_expired(self, now_ms: int) -> list[Effect]:
        """T8"""
        expired = self._expiries.due(now_ms)
        if not expired:
            return []
        self._expiry_look_ms = now_ms + self._limits.expiry_interval_ms
        for transactional_id in expired:
            del self._transactions[transactional_id]
        return [Write(tuple(TransactionForgotten(expired_id) for expired_id in expired))]

    # -- changes -----------------------------------------------------------------------------------

    def _abort_with_fence(self, known: TransactionMetadata, now_ms: int) -> list[Effect]:
        """Raises NoProducerId if that takes one and there is none. T6, T7"""
        return self._end(known, is_commit=False, client_version=VERSION_WITH_BUMP, now_ms=now_ms)

    def _end(
        self, known: TransactionMetadata, *, is_commit: bool, client_version: int, now_ms: int
    ) -> list[Effect]:
        needs_id = client_version >= VERSION_WITH_BUMP and known.is_epoch_exhausted
        metadata = prepared(
            known,
            is_commit=is_commit,
            client_version=client_version,
            next_producer_id=self._take_producer_id() if needs_id else NO_PRODUCER_ID,
            now_ms=now_ms,
        )
        decided = self._change(metadata)
        if not metadata.partitions:
            return [decided, self._complete(metadata, now_ms)]
        return [decided, self._write_markers(metadata)]

    def _write_markers(self, metadata: TransactionMetadata) -> Perform:
        """T3"""
        number = next(self._numbers)
        self._completions[metadata.transactional_id] = _Completion(number, set(metadata.partitions))
        markers = WriteMarkers(
            number=number,
            coordinator_epoch=self._coordinator_epoch,
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            is_commit=metadata.state is TransactionState.PREPARE_COMMIT,
            transaction_version=metadata.client_version,
            partitions=metadata.partitions,
        )
        return Perform(markers)

    def _complete(self, metadata: TransactionMetadata, now_ms: int) -> Write:
        self._completions.pop(metadata.transactional_id, None)
        return self._change(completed(metadata, now_ms=now_ms))

    def _change(self, metadata: TransactionMetadata) -> Write:
        self._transactions[metadata.transactional_id] = metadata
        self._set_timers(metadata)
        return Write((metadata,))

    def _set_timers(self, metadata: TransactionMetadata) -> None:
        transactional_id = metadata.transactional_id
        self._timeouts.cancel(transactional_id)
        self._expiries.cancel(transactional_id)
        if metadata.state is TransactionState.ONGOING:
            self._timeouts.set(transactional_id, metadata.start_ms + metadata.timeout_ms + 1)
        elif metadata.state in IDLE:
            expires_ms = metadata.last_update_ms + self._limits.id_expiration_ms
            self._expiries.set(transactional_id, expires_ms)

    # -- refusals ----------------------------------------------------------------------------------

    def _require_known(self, transactional_id: str) -> TransactionMetadata:
        if not transactional_id:
            raise RequestRefused(ErrorCode.INVALID_REQUEST)
        known = self._transactions.get(transactional_id)
        if known is None:
            raise RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    def _require_producer(self, transactional_id: str, producer: Claim) -> TransactionMetadata:
        """T1"""
        known = self._require_known(transactional_id)
        if known.goes_on_as(producer.producer_id):
            raise RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)  # T2, T7
        if known.producer_id != producer.producer_id:
            raise RequestRefused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.producer_epoch != producer.producer_epoch:
            raise RequestRefused(ErrorCode.PRODUCER_FENCED)
        return known

    def _require_size(self, metadata: TransactionMetadata) -> None:
        """T9"""
        topics = {partition.topic for partition in metadata.partitions}
        size_bytes = (
            _RECORD_FIXED_BYTES
            + len(metadata.transactional_id.encode())
            + sum(len(topic.encode()) + _TOPIC_FIXED_BYTES for topic in topics)
            + _PARTITION_BYTES * len(metadata.partitions)
        )
        is_too_long = len(metadata.partitions) > _PARTITIONS_MAX
        if is_too_long or size_bytes > self._limits.record_max_bytes:
            raise RequestRefused(ErrorCode.UNKNOWN_SERVER_ERROR, "the transaction is too large")


def _require_not_completing(known: TransactionMetadata) -> None:
    """T2"""
    if known.state in PREPARED:
        raise RequestRefused(ErrorCode.CONCURRENT_TRANSACTIONS)


def _answer_to_end(metadata: TransactionMetadata, client_version: int) -> ProducerAnswer:
    """A producer of version 0 keeps what it has."""
    if client_version < VERSION_WITH_BUMP:
        return ProducerAnswer(ErrorCode.NONE)
    return ProducerAnswer(ErrorCode.NONE, metadata.producer_id, metadata.producer_epoch)
