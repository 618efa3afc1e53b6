"""KIP-890: nothing is written in a transaction that its coordinator does not know of."""

import pytest

from tests.unit.core.transactions.batches import (
    EXPIRATION_MS,
    OTHER,
    PRODUCER,
    end,
    states,
    transactional,
    write,
)
from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.base.ids import Offset
from tidelog.core.transactions.producers import ProducerStates
from tidelog.core.transactions.verification import Guard
from tidelog.records.batch import BatchHeader


def begin(
    producers: ProducerStates, batch: BatchHeader, *, bumps_epoch: bool = False, now_ms: int = 0
) -> Guard | None:
    return producers.begin_verification(
        batch.producer_id,
        batch.producer_epoch,
        sequence=batch.base_sequence,
        bumps_epoch=bumps_epoch,
        now_ms=now_ms,
    )


def refusal(producers: ProducerStates, batch: BatchHeader, guard: Guard | None) -> ErrorCode:
    with pytest.raises(RequestRefused) as refused:
        producers.on_transactional_batch(batch, guard)
    return refused.value.code


def test_batch_that_nobody_has_vouched_for_is_refused() -> None:
    """V1"""
    producers = states()
    assert refusal(producers, transactional(0), None) is ErrorCode.INVALID_TXN_STATE
    begin(producers, transactional(0))
    assert refusal(producers, transactional(0), None) is ErrorCode.INVALID_TXN_STATE


def test_first_batch_brings_its_guard_and_the_next_need_none() -> None:
    """V1"""
    producers = states()
    guard = begin(producers, transactional(0))
    assert guard is not None
    assert producers.on_transactional_batch(transactional(0), guard) is None
    producers.on_appended(transactional(0), base_offset=Offset(0), timestamp_ms=0)
    assert begin(producers, transactional(1)) is None
    assert producers.on_transactional_batch(transactional(1), None) is None


def test_another_producers_guard_is_no_guard() -> None:
    """V1"""
    producers = states()
    guard = begin(producers, transactional(0))
    begin(producers, transactional(0, producer=OTHER))
    batch = transactional(0, producer=OTHER)
    assert refusal(producers, batch, guard) is ErrorCode.INVALID_TXN_STATE


def test_open_transaction_of_another_epoch_says_nothing() -> None:
    """V1: a client that numbers its epochs itself may have begun another transaction."""
    producers = states()
    write(producers, transactional(0), 0)
    assert refusal(producers, transactional(0, epoch=1), None) is ErrorCode.INVALID_TXN_STATE


def test_late_write_after_the_marker_is_refused() -> None:
    """V2: nobody would ever end the transaction that it begins."""
    producers = states()
    write(producers, transactional(0), 0)
    assert begin(producers, transactional(1)) is None
    end(producers, 1)
    assert refusal(producers, transactional(1), None) is ErrorCode.INVALID_TXN_STATE


def test_marker_between_question_and_answer_makes_the_answer_worthless() -> None:
    """V2"""
    producers = states()
    guard = begin(producers, transactional(0))
    end(producers, 0)
    assert refusal(producers, transactional(0), guard) is ErrorCode.INVALID_TXN_STATE
    assert begin(producers, transactional(0)) is not guard
    assert refusal(producers, transactional(0), guard) is ErrorCode.INVALID_TXN_STATE


def test_next_transaction_begins_while_the_marker_of_the_last_is_on_its_way() -> None:
    """V2: with version 2 that marker has the epoch of the next transaction."""
    producers = states()
    write(producers, transactional(0, epoch=4), 0)
    guard = begin(producers, transactional(0, epoch=5), bumps_epoch=True)
    assert guard is not None
    for offset in (1, 2):  # It may come twice.
        end(producers, offset, epoch=5, version=2)
        assert producers.on_transactional_batch(transactional(0, epoch=5), guard) is None
    end(producers, 3, epoch=6, version=2)
    refused = refusal(producers, transactional(0, epoch=5), guard)
    assert refused is ErrorCode.INVALID_TXN_STATE


def test_batch_that_overtakes_the_first_is_out_of_order() -> None:
    """V3"""
    producers = states()
    guard = begin(producers, transactional(0))
    assert begin(producers, transactional(1)) is guard
    assert refusal(producers, transactional(1), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.on_transactional_batch(transactional(0), guard) is None


def test_earlier_batch_that_asks_later_goes_first() -> None:
    """V3"""
    producers = states()
    guard = begin(producers, transactional(5))
    begin(producers, transactional(3))
    assert refusal(producers, transactional(5), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.on_transactional_batch(transactional(3), guard) is None


def test_next_batch_is_in_order_whatever_came_late() -> None:
    """V3: what the last transaction had sent twice arrives once more before the next begins."""
    producers = states()
    write(producers, transactional(0), 0)
    end(producers, 1)
    late = begin(producers, transactional(0))
    assert producers.on_transactional_batch(transactional(0), late) is not None
    guard = begin(producers, transactional(1))
    assert producers.on_transactional_batch(transactional(1), guard) is None
    assert refusal(producers, transactional(2), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_newer_epoch_has_its_own_first_batch() -> None:
    """V3"""
    producers = states()
    begin(producers, transactional(0))
    guard = begin(producers, transactional(4, epoch=1))
    begin(producers, transactional(2))
    assert producers.on_transactional_batch(transactional(4, epoch=1), guard) is None


@pytest.mark.parametrize(("bumps_epoch", "is_refused"), [(True, True), (False, False)])
def test_unknown_producer_of_version_2_begins_at_0(bumps_epoch: bool, is_refused: bool) -> None:
    """V4"""
    producers = states()
    guard = begin(producers, transactional(4), bumps_epoch=bumps_epoch)
    if is_refused:
        code = refusal(producers, transactional(4), guard)
        assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    else:
        assert producers.on_transactional_batch(transactional(4), guard) is None


def test_guard_that_nobody_came_back_with_expires() -> None:
    """V5"""
    producers = states()
    guard = begin(producers, transactional(0), now_ms=100)
    producers.on_tick(100 + EXPIRATION_MS - 1)
    assert list(producers.guards) == [7]
    producers.on_tick(100 + EXPIRATION_MS)
    assert refusal(producers, transactional(0), guard) is ErrorCode.INVALID_TXN_STATE


def test_number_of_guards_is_bounded() -> None:
    producers = states(producers_max=3)
    for producer in range(9):
        begin(producers, transactional(0, producer=producer))
    assert list(producers.guards) == [6, 7, 8]


def test_repetition_is_recognised_after_the_transaction_has_ended() -> None:
    """Q4: the client did not hear that it was appended."""
    producers = states()
    write(producers, transactional(0), 5)
    end(producers, 6)
    copy = producers.on_transactional_batch(transactional(0), None)
    assert copy is not None
    assert copy.base_offset == 5


def test_fenced_writer_is_told_so_even_with_a_guard() -> None:
    """Q1"""
    producers = states()
    write(producers, transactional(0, epoch=2), 0)
    guard = begin(producers, transactional(0, epoch=1))
    code = refusal(producers, transactional(0, epoch=1), guard)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_coordinators_batches_need_a_transaction_and_no_sequence() -> None:
    producers = states()
    batch = transactional(0)
    with pytest.raises(RequestRefused):
        producers.on_coordinator_batch(PRODUCER, 0, None)
    producers.on_coordinator_batch(PRODUCER, 0, begin(producers, batch))
    for offset in range(3):
        producers.on_appended(batch, base_offset=Offset(offset), timestamp_ms=0)
        producers.on_coordinator_batch(PRODUCER, 0, None)


def test_coordinators_batch_of_a_fenced_producer_is_refused() -> None:
    """Q1"""
    producers = states()
    end(producers, 0, epoch=3)
    batch = transactional(0, epoch=2)
    with pytest.raises(RequestRefused) as refused:
        producers.on_coordinator_batch(PRODUCER, 2, begin(producers, batch))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
