"""D3: who may end a transaction, what that says to the next batch, and what is stable then."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.core.transactions.batches import (
    EXPIRATION_MS,
    OTHER,
    PRODUCER,
    end,
    header,
    marker,
    states,
    transactional,
    write,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.core.transactions.producer import PRODUCER_EPOCH_MAX
from tidelog.core.transactions.producers import ProducerStates
from tidelog.records.batch import BatchHeader
from tidelog.records.control import ControlType, TransactionEnd

V2 = 2


def refused_end(producers: ProducerStates, offset: int, **told: int) -> ErrorCode:
    with pytest.raises(RequestRefused) as refused:
        end(producers, offset, **told)  # type: ignore[arg-type]
    return refused.value.code


def stable(producers: ProducerStates, high_watermark: int) -> int:
    return producers.last_stable_offset(Offset(high_watermark))


# -- who may end a transaction -------------------------------------------------------------------


def test_coordinator_that_was_replaced_ends_nothing() -> None:
    """M1"""
    producers = states()
    write(producers, transactional(0), 0)
    end(producers, 1, coordinator_epoch=5)
    write(producers, transactional(1), 2)
    code = refused_end(producers, 3, coordinator_epoch=4)
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert producers.first_open_transaction_offset == 2
    assert end(producers, 3, coordinator_epoch=5) is not None


def test_epoch_of_the_coordinator_outlives_that_of_the_producer() -> None:
    """M1"""
    producers = states()
    end(producers, 0, epoch=3, coordinator_epoch=5)
    write(producers, transactional(0, epoch=4), 1)
    code = refused_end(producers, 2, epoch=5, coordinator_epoch=4)
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_epoch_of_the_coordinator_outlives_a_restart() -> None:
    """M1"""
    producers = states()
    end(producers, 0, coordinator_epoch=5)
    restored = states()
    restored.restore(producers.entries(), end_offset=Offset(1))
    code = refused_end(restored, 1, coordinator_epoch=4)
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_epoch_of_the_coordinator_is_learned_from_the_log() -> None:
    """M1"""
    producers = states()
    producers.on_replayed(marker(offset=0), TransactionEnd(ControlType.ABORT, 5))
    code = refused_end(producers, 1, coordinator_epoch=4)
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("version", [1, 2])
def test_marker_of_an_older_epoch_ends_nothing(version: int) -> None:
    """M2"""
    producers = states()
    write(producers, transactional(0, epoch=3), 0)
    code = refused_end(producers, 1, epoch=2, version=version)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.first_open_transaction_offset == 0


def test_marker_of_the_same_epoch_ends_a_transaction_of_version_1() -> None:
    """M2"""
    producers = states()
    write(producers, transactional(0, epoch=3), 0)
    assert end(producers, 1, epoch=3, version=1) is not None


def test_late_marker_does_not_end_the_next_transaction_of_version_2() -> None:
    """M2: the transaction of epoch 3 was ended with epoch 4, and epoch 4 has begun its own."""
    producers = states()
    write(producers, transactional(0, epoch=3), 0)
    end(producers, 1, epoch=4, version=V2)
    write(producers, transactional(0, epoch=4), 2)
    code = refused_end(producers, 3, epoch=4, version=V2)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.first_open_transaction_offset == 2


def test_marker_that_was_written_already_may_be_written_again() -> None:
    """M2"""
    producers = states()
    write(producers, transactional(0, epoch=3), 0)
    assert end(producers, 1, epoch=4, version=V2) is not None
    assert end(producers, 2, epoch=4, version=V2) is None


def test_last_epoch_there_is_ends_what_it_began() -> None:
    """M2"""
    producers = states()
    write(producers, transactional(0, epoch=PRODUCER_EPOCH_MAX), 0)
    assert end(producers, 1, epoch=PRODUCER_EPOCH_MAX, version=V2) is not None


def test_refused_marker_changes_nothing() -> None:
    producers = states()
    write(producers, transactional(0, epoch=3), 0)
    before = producers.entries()
    refused_end(producers, 1, epoch=2)
    assert producers.entries() == before


# -- what follows --------------------------------------------------------------------------------


def test_epoch_that_a_marker_begins_starts_at_sequence_0() -> None:
    """M3"""
    producers = states()
    write(producers, transactional(0, count=5), 0)
    end(producers, 5, epoch=1, version=V2)
    with pytest.raises(RequestRefused, match="sequence 5, expected 0"):
        write(producers, transactional(5, epoch=1), 6)
    write(producers, transactional(0, epoch=1), 6)


def test_marker_of_a_newer_epoch_fences_the_producer() -> None:
    """M3: a zombie's write after its transaction was aborted is refused."""
    producers = states()
    write(producers, transactional(0), 0)
    end(producers, 1, epoch=1, version=V2)
    with pytest.raises(RequestRefused) as refused:
        write(producers, transactional(1), 2)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_a_producer_nobody_knows_ends_nothing_and_fences() -> None:
    """M3"""
    producers = states()
    assert end(producers, 0, epoch=2, version=V2) is None
    with pytest.raises(RequestRefused) as refused:
        producers.on_batch(header(0, epoch=1))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_abort_says_where_the_transaction_was_and_what_is_stable_behind_it() -> None:
    producers = states()
    write(producers, transactional(0), 0)
    write(producers, transactional(0, producer=OTHER), 1)
    aborted = end(producers, 2)
    assert aborted == (PRODUCER, 0, 2, 1, True)
    committed = end(producers, 3, producer=OTHER, commit=True)
    assert committed == (OTHER, 1, 3, 4, False)


def test_control_batch_that_compaction_has_emptied_ends_nothing() -> None:
    producers = states()
    write(producers, transactional(0), 0)
    assert producers.on_replayed(marker(offset=1, epoch=4), None) is None
    assert producers.first_open_transaction_offset == 0
    write(producers, transactional(1), 2)


# -- what is stable ------------------------------------------------------------------------------


def test_all_that_is_committed_is_stable_without_transactions() -> None:
    producers = states()
    producers.on_appended(header(0, count=5), base_offset=Offset(0), timestamp_ms=0)
    assert stable(producers, 3) == 3


def test_nothing_is_stable_from_an_open_transaction_on() -> None:
    producers = states()
    write(producers, transactional(0), 2)
    assert (stable(producers, 1), stable(producers, 2), stable(producers, 9)) == (1, 2, 2)


def test_nothing_is_stable_before_the_marker_is_committed() -> None:
    """M4"""
    producers = states()
    write(producers, transactional(0), 2)
    end(producers, 5, commit=True)
    assert stable(producers, 5) == 2
    assert stable(producers, 6) == 6


def test_committing_a_marker_is_news() -> None:
    """M4: whoever waits for committed records has to look."""
    producers = states()
    write(producers, transactional(0), 2)
    end(producers, 5)
    assert not producers.on_committed(Offset(5))
    assert producers.on_committed(Offset(6))
    assert not producers.on_committed(Offset(7))


def test_marker_that_was_cut_off_has_not_ended_anything() -> None:
    """M4"""
    producers = states()
    write(producers, transactional(0), 2)
    snapshot = producers.entries()
    end(producers, 5)
    producers.on_truncated(Offset(4))
    producers.restore(snapshot, end_offset=Offset(3))
    assert stable(producers, 4) == 2
    assert not producers.on_committed(Offset(9))


def test_markers_of_a_log_that_is_read_again_are_not_known_to_be_committed() -> None:
    """M4"""
    producers = states()
    producers.on_replayed(transactional(0, offset=2))
    producers.on_replayed(marker(offset=5), TransactionEnd(ControlType.COMMIT, 0))
    assert stable(producers, 4) == 2
    assert stable(producers, 6) == 6


def test_producer_whose_transaction_has_ended_expires() -> None:
    producers = states()
    write(producers, transactional(0), 0)
    assert producers.on_tick(EXPIRATION_MS) == 0
    end(producers, 1)
    assert producers.on_tick(EXPIRATION_MS) == 1


PRODUCERS = (1, 2, 3)


@dataclass
class Model:
    """The log as a list of headers and outcomes; what is stable is worked out from all of it."""

    log: list[tuple[BatchHeader, bool | None]] = field(default_factory=list)
    """With whether a marker aborts."""
    high_watermark: int = 0

    @property
    def end_offset(self) -> int:
        return self.log[-1][0].end_offset if self.log else 0

    def transactions(self) -> list[tuple[int, int, int | None, bool]]:
        """Producer, first offset, marker offset and whether it was aborted, by first offset."""
        found: list[tuple[int, int, int | None, bool]] = []
        opened: dict[int, int] = {}
        for batch, is_abort in self.log:
            if is_abort is None:
                opened.setdefault(batch.producer_id, batch.base_offset)
            elif batch.producer_id in opened:
                first = opened.pop(batch.producer_id)
                found.append((batch.producer_id, first, batch.base_offset, is_abort))
        found += [(producer, first, None, False) for producer, first in opened.items()]
        return sorted(found, key=lambda one: one[1])

    def last_stable_offset(self) -> int:
        undecided = [
            first
            for _, first, marked, _ in self.transactions()
            if marked is None or marked >= self.high_watermark
        ]
        return min([self.high_watermark, *undecided])


class StableIsWhatTheLogSays(RuleBasedStateMachine):
    """Whatever producers, coordinators, followers and crashes do to one partition."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.producers = states()
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.aborted: list[tuple[int, int, int]] = []

    @rule(producer=st.sampled_from(PRODUCERS), count=st.integers(1, 3))
    def produce(self, producer: int, count: int) -> None:
        batch = transactional(
            self.sequences[producer],
            producer=producer,
            epoch=self.epochs[producer],
            offset=self.model.end_offset,
            count=count,
        )
        write(self.producers, batch, batch.base_offset)
        self.sequences[producer] += count
        self.model.log.append((batch, None))

    @rule(producer=st.sampled_from(PRODUCERS), is_abort=st.booleans(), bumps=st.booleans())
    def mark(self, producer: int, is_abort: bool, bumps: bool) -> None:
        offset = self.model.end_offset
        if bumps:
            self.epochs[producer] += 1
            self.sequences[producer] = 0
        epoch = self.epochs[producer]
        ended = end(
            self.producers,
            offset,
            producer=producer,
            epoch=epoch,
            version=V2 if bumps else 1,
            commit=not is_abort,
        )
        if ended is not None and ended.is_abort:
            self.aborted.append((ended.producer_id, ended.first_offset, ended.marker_offset))
        self.model.log.append((marker(offset=offset, producer=producer, epoch=epoch), is_abort))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.model.high_watermark = data.draw(
            st.integers(self.model.high_watermark, self.model.end_offset)
        )
        self.producers.on_committed(Offset(self.model.high_watermark))

    @precondition(lambda self: self.model.log)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """Another leader has what is committed, and nothing beyond."""
        kept = data.draw(st.integers(0, len(self.model.log)))
        self.model.log = self.model.log[:kept]
        self.model.high_watermark = min(self.model.high_watermark, self.model.end_offset)
        self.aborted = [one for one in self.aborted if one[2] < self.model.end_offset]
        self.restart()

    @rule()
    def restart(self) -> None:
        self.producers = states()
        for number in PRODUCERS:
            self.epochs[number] = self.sequences[number] = 0
        for batch, is_abort in self.model.log:
            outcome = ControlType.ABORT if is_abort else ControlType.COMMIT
            self.producers.on_replayed(
                batch, None if is_abort is None else TransactionEnd(outcome, 0)
            )
            if batch.producer_epoch != self.epochs[batch.producer_id]:
                self.epochs[batch.producer_id] = batch.producer_epoch
                self.sequences[batch.producer_id] = 0
            if is_abort is None:
                self.sequences[batch.producer_id] = batch.last_sequence + 1
        self.producers.on_committed(Offset(self.model.high_watermark))

    @invariant()
    def stable_is_what_the_log_says(self) -> None:
        high_watermark = Offset(self.model.high_watermark)
        expected = self.model.last_stable_offset()
        assert self.producers.last_stable_offset(high_watermark) == expected

    @invariant()
    def aborted_is_what_the_log_says(self) -> None:
        expected = [
            (producer, first, marked)
            for producer, first, marked, is_abort in self.model.transactions()
            if marked is not None and is_abort
        ]
        assert sorted(self.aborted) == sorted(expected)


TestStableIsWhatTheLogSays = StableIsWhatTheLogSays.TestCase
