"""D2: a retry is recognised, a gap is refused, a fenced writer is turned away."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.core.transactions.batches import (
    EXPIRATION_MS,
    OTHER,
    header,
    marker,
    states,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId
from tidelog.core.transactions.producer import NO_COORDINATOR_EPOCH
from tidelog.core.transactions.producers import ProducerStates
from tidelog.records.batch import SEQUENCE_MAX, TRANSACTIONAL_FLAG, BatchHeader
from tidelog.records.control import ControlType, TransactionEnd
from tidelog.records.producer import REMEMBERED_BATCHES_MAX, ProducedBatch, ProducerEntry

COMMITTED = TransactionEnd(ControlType.COMMIT, 0)


def append(producers: ProducerStates, batch: BatchHeader, base_offset: int) -> None:
    assert producers.on_batch(batch) is None
    producers.on_appended(
        batch, base_offset=Offset(base_offset), timestamp_ms=batch.max_timestamp_ms
    )


def replay_end(producers: ProducerStates, end: BatchHeader) -> None:
    producers.on_replayed(end, COMMITTED)


def refusal(producers: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(RequestRefused) as refused:
        producers.on_batch(batch)
    return refused.value.code


def test_batch_after_the_last_is_accepted() -> None:
    producers = states()
    append(producers, header(0, count=3), 0)
    assert producers.on_batch(header(3)) is None


def test_repeated_batch_is_answered_with_the_offsets_of_its_first_copy() -> None:
    producers = states()
    append(producers, header(0, count=3, timestamp_ms=42), 10)
    assert producers.on_batch(header(0, count=3)) == ProducedBatch(
        base_sequence=0,
        last_sequence=2,
        base_offset=Offset(10),
        last_offset=Offset(12),
        timestamp_ms=42,
    )


def test_deciding_changes_nothing_until_the_batch_is_appended() -> None:
    producers = states()
    assert producers.on_batch(header(0)) is None
    assert producers.on_batch(header(0)) is None
    assert len(producers) == 0


def test_each_of_the_last_five_batches_is_recognised() -> None:
    producers = states()
    for sequence in range(8):
        append(producers, header(sequence), sequence)
    for sequence in range(3, 8):
        copy = producers.on_batch(header(sequence))
        assert copy is not None
        assert copy.base_offset == sequence


def test_repetition_older_than_five_batches_is_out_of_order() -> None:
    producers = states()
    for sequence in range(REMEMBERED_BATCHES_MAX + 1):
        append(producers, header(sequence), sequence)
    assert refusal(producers, header(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_that_only_overlaps_a_remembered_one_is_out_of_order() -> None:
    producers = states()
    append(producers, header(0, count=3), 0)
    assert refusal(producers, header(0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_gap_is_out_of_order() -> None:
    producers = states()
    append(producers, header(0), 0)
    assert refusal(producers, header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequence_after_the_largest_is_zero() -> None:
    producers = states()
    append(producers, header(SEQUENCE_MAX), 0)
    append(producers, header(0), 1)
    assert producers.on_batch(header(1)) is None


def test_batch_across_the_largest_sequence_is_recognised_when_repeated() -> None:
    producers = states()
    append(producers, header(SEQUENCE_MAX - 1, count=4), 0)
    copy = producers.on_batch(header(SEQUENCE_MAX - 1, count=4))
    assert copy is not None
    assert copy.last_sequence == 1
    assert producers.on_batch(header(2)) is None


def test_unknown_producer_may_start_at_any_sequence() -> None:
    assert states().on_batch(header(41)) is None


def test_older_epoch_is_fenced() -> None:
    producers = states()
    append(producers, header(0, epoch=3), 0)
    assert refusal(producers, header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_repetition_of_a_fenced_epoch_is_not_answered_as_a_duplicate() -> None:
    producers = states()
    append(producers, header(0, epoch=0), 0)
    append(producers, header(0, epoch=1), 1)
    assert refusal(producers, header(0, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_new_epoch_starts_at_sequence_zero() -> None:
    producers = states()
    append(producers, header(0, epoch=0), 0)
    assert refusal(producers, header(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(producers, header(0, epoch=1), 1)
    assert producers.on_batch(header(1, epoch=1)) is None


def test_producers_do_not_share_sequences() -> None:
    producers = states()
    append(producers, header(0, count=5), 0)
    append(producers, header(0, producer=OTHER), 5)
    assert producers.on_batch(header(5)) is None
    assert producers.on_batch(header(1, producer=OTHER)) is None


def test_refusal_names_what_was_found_and_what_was_expected() -> None:
    producers = states()
    append(producers, header(0), 0)
    with pytest.raises(RequestRefused, match="sent sequence 5, expected 1"):
        producers.on_batch(header(5))


def test_silent_producer_expires() -> None:
    producers = states()
    append(producers, header(0, timestamp_ms=100), 0)
    assert producers.on_tick(100 + EXPIRATION_MS - 1) == 0
    assert producers.on_tick(100 + EXPIRATION_MS) == 1
    assert producers.on_batch(header(41)) is None


def test_producer_in_a_transaction_does_not_expire() -> None:
    producers = states()
    append(producers, header(0, attributes=TRANSACTIONAL_FLAG), 0)
    assert producers.on_tick(10 * EXPIRATION_MS) == 0
    replay_end(producers, marker(offset=1))
    assert producers.on_tick(10 * EXPIRATION_MS) == 1


def test_transaction_takes_only_transactional_batches() -> None:
    producers = states()
    append(producers, header(0, attributes=TRANSACTIONAL_FLAG), 0)
    assert refusal(producers, header(1)) is ErrorCode.INVALID_TXN_STATE
    append(producers, header(1, attributes=TRANSACTIONAL_FLAG), 1)
    assert producers.first_open_transaction_offset == 0


def test_oldest_open_transaction_is_the_first_unstable_one() -> None:
    producers = states()
    append(producers, header(0, attributes=TRANSACTIONAL_FLAG), 0)
    append(producers, header(0, producer=OTHER, attributes=TRANSACTIONAL_FLAG), 1)
    assert producers.first_open_transaction_offset == 0
    replay_end(producers, marker(offset=2))
    assert producers.first_open_transaction_offset == 1
    replay_end(producers, marker(offset=3, producer=OTHER))
    assert producers.first_open_transaction_offset is None


def test_sequence_goes_on_after_the_marker_of_the_same_epoch() -> None:
    producers = states()
    append(producers, header(0, attributes=TRANSACTIONAL_FLAG), 0)
    replay_end(producers, marker(offset=1))
    assert producers.on_batch(header(1)) is None


def test_marker_of_a_newer_epoch_fences_the_producer() -> None:
    producers = states()
    append(producers, header(0, attributes=TRANSACTIONAL_FLAG), 0)
    replay_end(producers, marker(offset=1, epoch=1))
    assert refusal(producers, header(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.on_batch(header(0, epoch=1)) is None


def test_marker_of_a_producer_nobody_knows_is_remembered() -> None:
    producers = states()
    replay_end(producers, marker(offset=0, epoch=2))
    assert refusal(producers, header(0, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_replay_does_not_judge() -> None:
    producers = states()
    producers.on_replayed(header(0, offset=0))
    producers.on_replayed(header(9, offset=1))
    assert producers.on_batch(header(10)) is None


def test_replay_ignores_batches_without_a_producer() -> None:
    producers = states()
    producers.on_replayed(header(-1, producer=NO_PRODUCER_ID, epoch=-1))
    assert len(producers) == 0


def test_restored_snapshot_decides_as_before() -> None:
    producers = states()
    for sequence in range(3):
        append(producers, header(sequence), sequence)
    restored = states()
    restored.restore(producers.entries(), end_offset=Offset(3))
    assert restored.entries() == producers.entries()
    assert restored.on_batch(header(1)) == producers.on_batch(header(1))
    assert restored.on_batch(header(3)) is None


def test_restored_transactions_are_ordered_by_their_first_offset() -> None:
    producers = states()
    entries = [
        ProducerEntry(
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            coordinator_epoch=NO_COORDINATOR_EPOCH,
            last_timestamp_ms=0,
            current_txn_first_offset=Offset(first_offset),
            batches=(),
        )
        for producer, first_offset in ((1, 30), (2, 10))
    ]
    producers.restore(entries, end_offset=Offset(40))
    assert producers.first_open_transaction_offset == 10


def test_entry_without_batches_expects_sequence_zero() -> None:
    producers = states()
    replay_end(producers, marker(offset=0))
    restored = states()
    restored.restore(producers.entries(), end_offset=Offset(1))
    assert refusal(restored, header(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restored.on_batch(header(0)) is None


def test_truncation_beyond_what_was_appended_forgets_nothing() -> None:
    producers = states()
    append(producers, header(0), 0)
    assert producers.on_truncated(Offset(1))
    assert producers.on_batch(header(0)) is not None


def test_truncated_batch_may_be_sent_again() -> None:
    producers = states()
    append(producers, header(0, timestamp_ms=5), 0)
    append(producers, header(1, timestamp_ms=6), 1)
    append(producers, header(0, producer=OTHER), 2)
    assert not producers.on_truncated(Offset(1))
    assert len(producers) == 1
    append(producers, header(1), 1)


def test_truncated_transaction_is_no_longer_open() -> None:
    producers = states()
    append(producers, header(0), 0)
    append(producers, header(1, attributes=TRANSACTIONAL_FLAG), 1)
    append(producers, header(0, producer=OTHER, attributes=TRANSACTIONAL_FLAG), 2)
    producers.on_truncated(Offset(1))
    assert producers.first_open_transaction_offset is None
    assert producers.on_batch(header(1)) is None


def test_truncation_inside_a_transaction_leaves_it_open() -> None:
    producers = states()
    append(producers, header(0, attributes=TRANSACTIONAL_FLAG), 0)
    append(producers, header(1, attributes=TRANSACTIONAL_FLAG), 1)
    producers.on_truncated(Offset(1))
    assert producers.first_open_transaction_offset == 0


def test_number_of_producers_is_bounded() -> None:
    producers = states(producers_max=20)
    for producer in range(500):
        append(producers, header(0, producer=producer), producer)
        assert len(producers) <= 20
    assert producers.on_batch(header(0, producer=499)) is not None


def test_longest_silent_producer_is_forgotten_first() -> None:
    producers = states(producers_max=2)
    append(producers, header(0, producer=1), 0)
    append(producers, header(0, producer=2), 1)
    append(producers, header(1, producer=1), 2)
    append(producers, header(0, producer=3), 3)
    assert {entry.producer_id for entry in producers.entries()} == {1, 3}


def test_bound_does_not_forget_an_open_transaction() -> None:
    producers = states(producers_max=1)
    append(producers, header(0, producer=1, attributes=TRANSACTIONAL_FLAG), 0)
    append(producers, header(0, producer=2), 1)
    assert producers.first_open_transaction_offset == 0
    assert producers.is_in_transaction(1, 0)


@dataclass
class Written:
    """The model: the log as a list, and everything recomputed from it."""

    batches: list[BatchHeader] = field(default_factory=list)
    forgotten_before: dict[int, int] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else 0

    def of(self, producer: int) -> list[BatchHeader]:
        since = self.forgotten_before.get(producer, 0)
        return [b for b in self.batches if b.producer_id == producer and b.base_offset >= since]

    def data_of_newest_epoch(self, producer: int) -> list[BatchHeader]:
        newest: list[BatchHeader] = []
        epoch = None
        for batch in self.of(producer):
            if batch.producer_epoch != epoch:
                newest, epoch = [], batch.producer_epoch
            if not batch.is_control:
                newest.append(batch)
        return newest

    def transaction_start(self, producer: int) -> int | None:
        start = None
        for batch in self.of(producer):
            if batch.is_control:
                start = None
            elif batch.is_transactional and start is None:
                start = batch.base_offset
        return start

    def expected_sequence(self, producer: int) -> int:
        newest = self.data_of_newest_epoch(producer)
        return (newest[-1].last_sequence + 1) % (SEQUENCE_MAX + 1) if newest else 0

    def decide(self, batch: BatchHeader) -> ErrorCode | BatchHeader:
        known = self.of(batch.producer_id)
        if not known:
            return ErrorCode.NONE
        epoch = known[-1].producer_epoch
        newest = self.data_of_newest_epoch(batch.producer_id)
        for earlier in newest[-REMEMBERED_BATCHES_MAX:] if batch.producer_epoch == epoch else []:
            if (earlier.base_sequence, earlier.last_sequence) == (
                batch.base_sequence,
                batch.last_sequence,
            ):
                return earlier
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        same_epoch = batch.producer_epoch == epoch
        expected = self.expected_sequence(batch.producer_id) if same_epoch else 0
        if batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.transaction_start(batch.producer_id) is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE


PRODUCERS = (1, 2, 3)


class JudgesLikeAReaderOfTheWholeLog(RuleBasedStateMachine):
    """Whatever happened, a decision is the one that the log's full history gives."""

    def __init__(self) -> None:
        super().__init__()
        self.producers = states()
        self.log = Written()
        self.now_ms = 0

    @rule(
        producer=st.sampled_from(PRODUCERS),
        epoch_step=st.sampled_from((0, 0, 0, 0, 1, -1)),
        step=st.sampled_from((None, 0, 0, 0, 0, -1, -2, -6, 1, SEQUENCE_MAX)),
        count=st.integers(1, 3),
        is_transactional=st.booleans(),
        elapsed_ms=st.integers(0, 300),
    )
    def send(
        self,
        *,
        producer: int,
        epoch_step: int,
        step: int | None,
        count: int,
        is_transactional: bool,
        elapsed_ms: int,
    ) -> None:
        self.now_ms += elapsed_ms
        known = self.log.of(producer)
        epoch = max(0, (known[-1].producer_epoch if known else 0) + epoch_step)
        expected = self.log.expected_sequence(producer)
        sequence = 0 if step is None else (expected + step) % (SEQUENCE_MAX + 1)
        self._send(
            header(
                sequence,
                count=count,
                producer=producer,
                epoch=epoch,
                offset=self.log.end_offset,
                timestamp_ms=self.now_ms,
                attributes=TRANSACTIONAL_FLAG if is_transactional else 0,
            )
        )

    @precondition(lambda self: self.log.batches)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from(self.log.batches[-12:]))
        if not batch.is_control:
            self._send(batch._replace(base_offset=self.log.end_offset))

    def _send(self, batch: BatchHeader) -> None:
        outcome = self._outcome(batch)
        assert outcome == self._expected(batch)
        if outcome is ErrorCode.NONE:
            self.producers.on_appended(
                batch, base_offset=Offset(batch.base_offset), timestamp_ms=batch.max_timestamp_ms
            )
            self.log.batches.append(batch)

    def _outcome(self, batch: BatchHeader) -> ErrorCode | tuple[int, int]:
        try:
            copy = self.producers.on_batch(batch)
        except RequestRefused as refused:
            return refused.code
        return ErrorCode.NONE if copy is None else (copy.base_offset, copy.last_offset)

    def _expected(self, batch: BatchHeader) -> ErrorCode | tuple[int, int]:
        decision = self.log.decide(batch)
        if isinstance(decision, ErrorCode):
            return decision
        return decision.base_offset, decision.last_offset

    @rule(producer=st.sampled_from(PRODUCERS), epoch_step=st.integers(0, 1))
    def end_transaction(self, producer: int, epoch_step: int) -> None:
        known = self.log.of(producer)
        if not known:
            return
        end = marker(
            offset=self.log.end_offset,
            producer=producer,
            epoch=known[-1].producer_epoch + epoch_step,
            at_ms=self.now_ms,
        )
        replay_end(self.producers, end)
        self.log.batches.append(end)

    @rule()
    def restart_from_a_snapshot(self) -> None:
        entries = self.producers.entries()
        self.producers = states()
        self.producers.restore(entries, end_offset=Offset(self.log.end_offset))

    @rule()
    def restart_by_reading_the_log(self) -> None:
        self.producers = states()
        for batch in self.log.batches:
            if batch.base_offset >= self.log.forgotten_before.get(batch.producer_id, 0):
                self.producers.on_replayed(batch, COMMITTED if batch.is_control else None)

    @precondition(lambda self: self.log.batches)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        boundaries = [batch.base_offset for batch in self.log.batches] + [self.log.end_offset]
        end_offset = data.draw(st.sampled_from(boundaries))
        cut = [batch for batch in self.log.batches if batch.base_offset >= end_offset]
        self.log.batches = [b for b in self.log.batches if b.base_offset < end_offset]
        for producer, since in self.log.forgotten_before.items():
            self.log.forgotten_before[producer] = min(since, end_offset)
        untouched = self.producers.on_truncated(Offset(end_offset))
        assert untouched or cut
        if not untouched:
            self.restart_by_reading_the_log()

    @rule()
    def expire(self) -> None:
        before_ms = self.now_ms - EXPIRATION_MS
        for producer in PRODUCERS:
            known = self.log.of(producer)
            if (
                known
                and known[-1].max_timestamp_ms <= before_ms
                and self.log.transaction_start(producer) is None
            ):
                self.log.forgotten_before[producer] = self.log.end_offset
        self.producers.on_tick(self.now_ms)

    @invariant()
    def stable_offset_is_that_of_the_log(self) -> None:
        starts = [self.log.transaction_start(producer) for producer in PRODUCERS]
        expected = min((start for start in starts if start is not None), default=None)
        assert self.producers.first_open_transaction_offset == expected

    @invariant()
    def only_producers_of_the_log_are_known(self) -> None:
        assert len(self.producers) == sum(bool(self.log.of(producer)) for producer in PRODUCERS)


TestJudgesLikeAReaderOfTheWholeLog = JudgesLikeAReaderOfTheWholeLog.TestCase
