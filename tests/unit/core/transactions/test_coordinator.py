"""D3: the transaction coordinator's rules, one story each (T1 to T9 of its docstring)."""

from dataclasses import replace

import pytest

from tests.unit.core.transactions.asked import LIMITS, TIMEOUT_MS, AskedShard, claim, partitions
from tidelog.base.errors import ErrorCode
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.core.coordinators import Token
from tidelog.core.transactions.answers import DescribeAnswer, ProducerAnswer
from tidelog.core.transactions.initializing import Claim
from tidelog.core.transactions.listing import TransactionFilter, pattern_of
from tidelog.records.transactions import (
    EPOCH_MAX,
    TransactionForgotten,
    TransactionMetadata,
    TransactionState,
)

ID = "orders"
LAST_EPOCH = ProducerEpoch(EPOCH_MAX - 1)


@pytest.fixture
def asked() -> AskedShard:
    return AskedShard()


def begun(asked: AskedShard, *numbers: int, transactional_id: str = ID, version: int = 2) -> Claim:
    """A producer with a transaction that reaches to these partitions."""
    producer = asked.require(transactional_id)
    assert _only(asked.add(transactional_id, producer, partitions(*numbers), version=version)) == 0
    return producer


def next_of(producer: Claim) -> Claim:
    return claim(producer.producer_id, producer.producer_epoch + 1)


def _only(codes: dict[TopicPartition, ErrorCode]) -> ErrorCode:
    (code,) = set(codes.values())
    return code


# -- T1: epochs fence ------------------------------------------------------------------------------


def test_new_instance_fences_the_old_one(asked: AskedShard) -> None:
    old = asked.require(ID)
    new = asked.require(ID)
    assert new == next_of(old)
    fenced = ErrorCode.PRODUCER_FENCED
    assert _only(asked.add(ID, old, partitions(0))) is fenced
    assert _only(asked.verify(ID, old, partitions(0))) is fenced
    assert asked.end(ID, old, is_commit=False).code is fenced
    assert asked.end(ID, old, is_commit=False, version=0).code is fenced
    assert asked.init(ID, old).code is fenced
    assert _only(asked.add(ID, new, partitions(0))) is ErrorCode.NONE


def test_fenced_producer_changes_nothing(asked: AskedShard) -> None:
    old = begun(asked, 0)
    asked.init(ID)
    asked.answer_markers()
    asked.require(ID)
    before = list(asked.log)
    asked.end(ID, old, is_commit=True)
    asked.add(ID, old, partitions(1))
    assert asked.log == before


def test_id_of_somebody_else_is_no_id(asked: AskedShard) -> None:
    begun(asked, 0)
    stranger = asked.require("another")
    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert _only(asked.add(ID, stranger, partitions(0))) is code
    assert asked.end(ID, stranger, is_commit=True).code is code
    assert asked.init(ID, stranger).code is ErrorCode.PRODUCER_FENCED


# -- T2: one outcome -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_everybody_waits_while_markers_are_written(asked: AskedShard, is_commit: bool) -> None:
    producer = begun(asked, 0)
    asked.end(ID, producer, is_commit=is_commit)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert asked.init(ID).code is concurrent
    assert asked.init(ID, next_of(producer)).code is concurrent
    assert _only(asked.add(ID, next_of(producer), partitions(1))) is concurrent
    assert _only(asked.verify(ID, next_of(producer), partitions(0))) is concurrent
    assert asked.end(ID, producer, is_commit=is_commit).code is concurrent
    assert asked.end(ID, producer, is_commit=not is_commit).code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("gives_up", [True, False])
@pytest.mark.parametrize("is_commit", [True, False])
def test_producer_that_ends_its_next_transaction_early_is_not_fenced(
    asked: AskedShard, is_commit: bool, gives_up: bool
) -> None:
    producer = begun(asked, 0)
    asked.end(ID, producer, is_commit=is_commit)
    early = asked.end(ID, next_of(producer), is_commit=not gives_up)
    assert early.code is ErrorCode.CONCURRENT_TRANSACTIONS
    later = claim(producer.producer_id, producer.producer_epoch + 2)
    assert asked.end(ID, later, is_commit=False).code is ErrorCode.PRODUCER_FENCED
    asked.answer_markers()
    assert asked.end(ID, next_of(producer), is_commit=False).code is ErrorCode.NONE


@pytest.mark.parametrize("is_commit", [True, False])
def test_decided_transaction_has_no_other_outcome(asked: AskedShard, is_commit: bool) -> None:
    producer = begun(asked, 0, version=0)
    asked.end(ID, producer, is_commit=is_commit, version=0)
    invalid = ErrorCode.INVALID_TXN_STATE
    assert asked.end(ID, producer, is_commit=not is_commit, version=0).code is invalid
    asked.answer_markers()
    assert asked.end(ID, producer, is_commit=not is_commit, version=0).code is invalid
    assert asked.end(ID, producer, is_commit=is_commit, version=0).code is ErrorCode.NONE


def completing(asked: AskedShard) -> Claim:
    """A producer whose last transaction is being completed."""
    producer = begun(asked, 0, version=0)
    asked.end(ID, producer, is_commit=True, version=0)
    return producer


def test_next_transaction_begins_when_the_last_one_is_complete(asked: AskedShard) -> None:
    producer = completing(asked)
    token = asked.begin_waiting(ID, producer, partitions(1, 2))
    assert asked.waited(token) is None
    asked.tick(99)
    asked.answer_markers()
    assert asked.waited(token) == dict.fromkeys(partitions(1, 2), ErrorCode.NONE)
    assert asked.state(ID).state is TransactionState.ONGOING
    assert asked.state(ID).partitions == frozenset(partitions(1, 2))
    asked.tick(10)
    assert asked.waited(token) is None


def test_who_has_waited_for_long_is_told_to_come_back(asked: AskedShard) -> None:
    producer = completing(asked)
    token = asked.begin_waiting(ID, producer, partitions(1))
    assert asked.shard.next_deadline_ms == asked.now_ms + 100
    asked.tick_when_due()
    assert asked.waited(token) == {partitions(1)[0]: ErrorCode.CONCURRENT_TRANSACTIONS}
    asked.answer_markers()
    assert asked.state(ID).state is TransactionState.COMPLETE_COMMIT
    assert asked.waited(token) is None


def test_one_request_waits_and_others_come_back(asked: AskedShard) -> None:
    producer = completing(asked)
    first = asked.begin_waiting(ID, producer, partitions(1))
    second = asked.begin_waiting(ID, producer, partitions(2))
    assert asked.waited(second) == {partitions(2)[0]: ErrorCode.CONCURRENT_TRANSACTIONS}
    asked.answer_markers()
    assert asked.waited(first) == {partitions(1)[0]: ErrorCode.NONE}


def test_nobody_waits_for_what_it_may_not_have(asked: AskedShard) -> None:
    producer = completing(asked)
    token = asked.begin_waiting(ID, next_of(producer), partitions(1))
    assert asked.waited(token) == {partitions(1)[0]: ErrorCode.PRODUCER_FENCED}


# -- T3: markers -----------------------------------------------------------------------------------


def test_markers_go_to_every_partition_with_the_epoch_after(asked: AskedShard) -> None:
    producer = begun(asked, 0, 1)
    asked.add(ID, producer, partitions(2))
    answer = asked.end(ID, producer, is_commit=True)
    assert answer == ProducerAnswer(ErrorCode.NONE, *next_of(producer))
    (deed,) = asked.deeds
    assert deed.partitions == frozenset(partitions(0, 1, 2))
    assert (deed.producer_id, deed.producer_epoch) == next_of(producer)
    assert (deed.is_commit, deed.transaction_version, deed.coordinator_epoch) == (True, 2, 5)


def test_producer_of_version_0_keeps_its_epoch(asked: AskedShard) -> None:
    producer = begun(asked, 0, version=0)
    assert asked.end(ID, producer, is_commit=False, version=0) == ProducerAnswer(ErrorCode.NONE)
    (deed,) = asked.deeds
    assert (deed.producer_id, deed.producer_epoch) == producer
    assert (deed.is_commit, deed.transaction_version) == (False, 0)


def test_transaction_is_complete_when_the_last_partition_has_answered(asked: AskedShard) -> None:
    producer = begun(asked, 0, 1, 2)
    asked.end(ID, producer, is_commit=True)
    (deed,) = asked.deeds
    for number in (1, 0):
        asked.mark(deed, partitions(number))
        assert asked.state(ID).state is TransactionState.PREPARE_COMMIT
    asked.mark(deed, partitions(0))
    assert asked.state(ID).state is TransactionState.PREPARE_COMMIT
    asked.mark(deed, partitions(2))
    assert asked.state(ID).state is TransactionState.COMPLETE_COMMIT
    assert asked.state(ID).partitions == frozenset()


def test_abort_of_nothing_needs_no_marker(asked: AskedShard) -> None:
    producer = asked.require(ID)
    assert asked.end(ID, producer, is_commit=False).code is ErrorCode.NONE
    assert not asked.deeds
    states = [record.state for record in asked.log if isinstance(record, TransactionMetadata)]
    assert states[-2:] == [TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT]


# -- T4: whoever coordinates -----------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
def test_new_coordinator_completes_what_was_prepared(asked: AskedShard, is_commit: bool) -> None:
    producer = begun(asked, 0, 1)
    asked.end(ID, producer, is_commit=is_commit)
    (before,) = asked.deeds
    asked.mark(before, partitions(0))
    asked.load()
    (after,) = asked.deeds
    assert after == replace(before, number=after.number)
    asked.answer_markers()
    assert asked.state(ID).state.title == f"Complete{'Commit' if is_commit else 'Abort'}"
    assert _only(asked.add(ID, next_of(producer), partitions(0))) is ErrorCode.NONE


def test_new_coordinator_completes_a_prepared_transaction_without_partitions() -> None:
    asked = AskedShard()
    producer = asked.require(ID)
    asked.end(ID, producer, is_commit=False)
    asked.log.pop()
    asked.load()
    asked.answer_markers()
    assert asked.state(ID).state is TransactionState.COMPLETE_ABORT


def test_new_coordinator_goes_on_with_what_was_open(asked: AskedShard) -> None:
    producer = begun(asked, 0)
    asked.load()
    assert not asked.deeds
    assert _only(asked.verify(ID, producer, partitions(0))) is ErrorCode.NONE
    assert asked.end(ID, producer, is_commit=True).code is ErrorCode.NONE


def test_new_coordinator_answers_an_end_that_is_sent_again(asked: AskedShard) -> None:
    producer = begun(asked, 0)
    first = asked.end(ID, producer, is_commit=True)
    asked.answer_markers()
    asked.load()
    assert asked.end(ID, producer, is_commit=True) == first


# -- T5: answers about markers ---------------------------------------------------------------------


def test_answer_about_an_earlier_transaction_does_not_count(asked: AskedShard) -> None:
    producer = begun(asked, 0, version=0)
    asked.end(ID, producer, is_commit=True, version=0)
    (earlier,) = asked.deeds
    asked.answer_markers()
    assert not asked.shard.awaits_markers(ID, earlier.number)
    asked.add(ID, producer, partitions(0), version=0)
    asked.mark(earlier, partitions(0))
    assert asked.state(ID).state is TransactionState.ONGOING
    asked.end(ID, producer, is_commit=False, version=0)
    asked.mark(earlier, partitions(0))
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT


def test_answer_to_an_earlier_coordinator_does_not_count(asked: AskedShard) -> None:
    producer = begun(asked, 0)
    asked.end(ID, producer, is_commit=True)
    (earlier,) = asked.deeds
    assert asked.shard.awaits_markers(ID, earlier.number)
    asked.load()
    assert not asked.shard.awaits_markers(ID, earlier.number)
    asked.mark(earlier, partitions(0))
    assert asked.state(ID).state is TransactionState.PREPARE_COMMIT


# -- T6: time-outs and new instances ---------------------------------------------------------------


def test_transaction_is_aborted_when_its_time_is_up(asked: AskedShard) -> None:
    producer = begun(asked, 0)
    asked.tick(TIMEOUT_MS)
    assert asked.state(ID).state is TransactionState.ONGOING
    asked.tick(1)
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT
    (deed,) = asked.deeds
    assert not deed.is_commit
    assert deed.producer_epoch == producer.producer_epoch + 1
    asked.answer_markers()
    assert asked.end(ID, producer, is_commit=True).code is ErrorCode.INVALID_TXN_STATE
    assert _only(asked.add(ID, producer, partitions(0))) is ErrorCode.PRODUCER_FENCED


def test_timer_says_when_a_transaction_is_overdue(asked: AskedShard) -> None:
    begun(asked, 0)
    assert asked.shard.next_deadline_ms == asked.now_ms + TIMEOUT_MS + 1


def test_adding_partitions_gives_no_more_time(asked: AskedShard) -> None:
    producer = begun(asked, 0)
    asked.tick(TIMEOUT_MS - 1)
    asked.add(ID, producer, partitions(1))
    asked.tick(2)
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT


def test_ended_transaction_is_not_overdue(asked: AskedShard) -> None:
    producer = begun(asked, 0)
    asked.end(ID, producer, is_commit=True)
    asked.tick(10 * TIMEOUT_MS)
    assert asked.state(ID).state is TransactionState.PREPARE_COMMIT


def test_overdue_transactions_are_looked_for_once_in_a_while(asked: AskedShard) -> None:
    begun(asked, 0)
    asked.tick(1_000)
    begun(asked, 0, transactional_id="later")
    asked.tick(TIMEOUT_MS - 999)
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT
    assert asked.shard.next_deadline_ms == asked.now_ms + LIMITS.abort_interval_ms
    asked.tick(2_000)
    assert asked.state("later").state is TransactionState.ONGOING
    asked.tick_when_due()
    assert asked.state("later").state is TransactionState.PREPARE_ABORT


def test_time_runs_on_while_there_is_no_coordinator(asked: AskedShard) -> None:
    begun(asked, 0)
    asked.now_ms += 2 * TIMEOUT_MS
    asked.load()
    assert asked.state(ID).state is TransactionState.ONGOING
    asked.tick(LIMITS.abort_interval_ms)
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT


def test_new_instance_comes_back_when_the_old_transaction_is_aborted(asked: AskedShard) -> None:
    old = begun(asked, 0)
    assert asked.init(ID).code is ErrorCode.CONCURRENT_TRANSACTIONS
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT
    assert asked.init(ID).code is ErrorCode.CONCURRENT_TRANSACTIONS
    asked.answer_markers()
    assert asked.require(ID) == claim(old.producer_id, old.producer_epoch + 2)


# -- T7: epochs used up ----------------------------------------------------------------------------


def used_up(asked: AskedShard) -> Claim:
    producer = begun(asked, 0)
    asked.log.append(replace(asked.state(ID), producer_epoch=LAST_EPOCH))
    asked.load()
    return Claim(producer.producer_id, LAST_EPOCH)


def test_producer_goes_on_with_another_id(asked: AskedShard) -> None:
    producer = used_up(asked)
    answer = asked.end(ID, producer, is_commit=True)
    assert answer.producer_id != producer.producer_id
    assert answer.producer_epoch == 0
    (deed,) = asked.deeds
    assert (deed.producer_id, deed.producer_epoch) == (producer.producer_id, EPOCH_MAX)
    asked.load()
    asked.answer_markers()
    assert asked.end(ID, producer, is_commit=True) == answer
    after = Claim(answer.producer_id, answer.producer_epoch)
    assert _only(asked.add(ID, after, partitions(0))) is ErrorCode.NONE


def test_other_id_may_be_used_before_the_markers_are_written(asked: AskedShard) -> None:
    answer = asked.end(ID, used_up(asked), is_commit=True)
    after = Claim(answer.producer_id, answer.producer_epoch)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert _only(asked.add(ID, after, partitions(0))) is concurrent
    assert asked.init(ID, after).code is concurrent
    assert asked.end(ID, after, is_commit=False).code is concurrent
    nobody = claim(-1, 0)
    assert _only(asked.add(ID, nobody, partitions(0))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    asked.answer_markers()
    assert _only(asked.add(ID, after, partitions(0))) is ErrorCode.NONE
    assert asked.end(ID, after, is_commit=True).code is ErrorCode.NONE


def test_former_epoch_gets_no_other_id(asked: AskedShard) -> None:
    used_up(asked)
    asked.init(ID)
    asked.answer_markers()
    asked.log.append(replace(asked.state(ID), producer_epoch=LAST_EPOCH))
    asked.load()
    current = asked.state(ID)
    zombie = claim(current.producer_id, LAST_EPOCH - 1)
    assert asked.init(ID, zombie).code is ErrorCode.PRODUCER_FENCED
    other = asked.init(ID, claim(current.producer_id, LAST_EPOCH))
    assert (other.code, other.producer_epoch) == (ErrorCode.NONE, 0)
    assert other.producer_id != current.producer_id


def test_former_id_is_fenced_whatever_its_epoch(asked: AskedShard) -> None:
    """But for the last, which may not have heard of the other id."""
    producer = used_up(asked)
    answer = asked.end(ID, producer, is_commit=True)
    asked.answer_markers()
    for epoch in (0, LAST_EPOCH - 1):
        zombie = claim(producer.producer_id, epoch)
        assert asked.init(ID, zombie).code is ErrorCode.PRODUCER_FENCED
    assert asked.init(ID, producer) == answer


def test_last_epoch_is_kept_for_fencing(asked: AskedShard) -> None:
    producer = used_up(asked)
    asked.tick(TIMEOUT_MS + 1)
    (deed,) = asked.deeds
    assert deed.producer_epoch == EPOCH_MAX
    asked.answer_markers()
    assert asked.state(ID).producer_id != producer.producer_id


def test_nothing_happens_while_there_is_no_other_id(asked: AskedShard) -> None:
    producer = used_up(asked)
    asked.has_producer_ids = False
    before = list(asked.log)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert asked.end(ID, producer, is_commit=True).code is loading
    assert asked.init(ID).code is loading
    assert asked.init("another").code is loading
    asked.tick(TIMEOUT_MS + 1)
    assert asked.log == before
    asked.has_producer_ids = True
    asked.tick_when_due()
    assert asked.state(ID).state is TransactionState.PREPARE_ABORT


# -- T8: ids that nobody uses ----------------------------------------------------------------------


def test_unused_id_is_forgotten(asked: AskedShard) -> None:
    producer = asked.require(ID)
    asked.tick(LIMITS.id_expiration_ms - 1)
    assert len(asked.shard) == 1
    asked.tick(1)
    assert asked.log[-1] == TransactionForgotten(ID)
    assert len(asked.shard) == 0
    assert asked.end(ID, producer, is_commit=False).code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    asked.load()
    assert len(asked.shard) == 0


def test_expired_ids_are_looked_for_once_in_a_while(asked: AskedShard) -> None:
    asked.require(ID)
    asked.now_ms += 1_000
    asked.require("later")
    asked.tick(LIMITS.id_expiration_ms - 1_000)
    assert len(asked.shard) == 1
    assert asked.shard.next_deadline_ms == asked.now_ms + LIMITS.expiry_interval_ms
    asked.tick(1_000)
    assert len(asked.shard) == 1
    asked.tick_when_due()
    assert len(asked.shard) == 0
    assert asked.shard.next_deadline_ms is None


def test_producer_may_go_on_after_its_id_was_forgotten(asked: AskedShard) -> None:
    producer = asked.require(ID)
    asked.tick(LIMITS.id_expiration_ms)
    answer = asked.init(ID, producer)
    assert answer.code is ErrorCode.NONE
    assert answer.producer_id != producer.producer_id


def test_id_with_a_transaction_is_not_forgotten() -> None:
    asked = AskedShard(limits=replace(LIMITS, timeout_max_ms=2**31 - 1))
    producer = asked.require(ID, timeout_ms=2**31 - 1)
    asked.add(ID, producer, partitions(0))
    asked.tick(LIMITS.id_expiration_ms)
    asked.end(ID, producer, is_commit=True)
    asked.tick(LIMITS.id_expiration_ms)
    assert asked.state(ID).state is TransactionState.PREPARE_COMMIT
    asked.answer_markers()
    asked.tick(LIMITS.id_expiration_ms)
    assert len(asked.shard) == 0


# -- T9: records that fit --------------------------------------------------------------------------


def test_transaction_does_not_outgrow_its_record() -> None:
    asked = AskedShard(limits=replace(LIMITS, record_max_bytes=1_000))
    producer = begun(asked, *range(100))
    before = list(asked.log)
    too_many = partitions(*range(100, 300))
    assert _only(asked.add(ID, producer, too_many)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert asked.init("x" * 1_000).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert asked.log == before
    assert asked.end(ID, producer, is_commit=True).code is ErrorCode.NONE


def test_transaction_reaches_to_a_bounded_number_of_partitions(asked: AskedShard) -> None:
    producer = asked.require(ID)
    assert _only(asked.add(ID, producer, partitions(*range(40_000)))) is ErrorCode.NONE
    assert _only(asked.add(ID, producer, partitions(40_000))) is ErrorCode.UNKNOWN_SERVER_ERROR


# -- what operators see ----------------------------------------------------------------------------


def describe(asked: AskedShard, transactional_id: str) -> TransactionMetadata | None:
    token = Token(-1)
    answer = asked.ask(asked.shard.on_describe(transactional_id, token=token), token)
    assert isinstance(answer, DescribeAnswer)
    return answer.metadata


def names(asked: AskedShard, wanted: TransactionFilter) -> list[str]:
    token = Token(-1)
    answer = asked.ask(asked.shard.on_list(wanted, token=token, now_ms=asked.now_ms), token)
    assert isinstance(answer, tuple)
    return [listed.transactional_id for listed in answer]


def test_transaction_is_described(asked: AskedShard) -> None:
    producer = begun(asked, 0, 1)
    metadata = describe(asked, ID)
    assert metadata is not None
    assert (metadata.producer_id, metadata.producer_epoch) == producer
    assert metadata.state.title == "Ongoing"
    assert metadata.partitions == frozenset(partitions(0, 1))
    assert metadata.start_ms == asked.now_ms
    assert metadata.timeout_ms == TIMEOUT_MS
    assert describe(asked, "unknown") is None


def test_described_partitions_are_those_without_a_marker(asked: AskedShard) -> None:
    producer = begun(asked, 0, 1)
    asked.end(ID, producer, is_commit=True)
    asked.mark(asked.deeds[0], partitions(0))
    metadata = describe(asked, ID)
    assert metadata is not None
    assert metadata.partitions == frozenset(partitions(1))


def test_transactions_are_listed_by_what_is_asked_for(asked: AskedShard) -> None:
    old = begun(asked, 0, transactional_id="old")
    asked.now_ms += 1_000
    begun(asked, 0, transactional_id="new")
    asked.require("none")
    assert names(asked, TransactionFilter()) == ["old", "new", "none"]
    assert names(asked, TransactionFilter(states=frozenset({"Ongoing"}))) == ["old", "new"]
    by_producer = TransactionFilter(producer_ids=frozenset({old.producer_id, ProducerId(5)}))
    assert names(asked, by_producer) == ["old"]
    # One that has never begun has lasted for ever, as Kafka counts.
    assert names(asked, TransactionFilter(longer_than_ms=999)) == ["old", "none"]
    assert names(asked, TransactionFilter(longer_than_ms=1_000)) == ["none"]
    assert names(asked, TransactionFilter(pattern=pattern_of("n.*"))) == ["new", "none"]
    assert names(asked, TransactionFilter(pattern=pattern_of("l"))) == []


def test_unknown_state_matches_nothing(asked: AskedShard) -> None:
    begun(asked, 0)
    wanted = TransactionFilter(states=frozenset({"Open"}))
    assert wanted.unknown_states == ("Open",)
    assert names(asked, wanted) == []
