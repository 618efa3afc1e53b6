"""D3: the coordinator answers, and writes, what a real Kafka 4.3 did when it was asked the same.

The answers were recorded by tests/compatibility/golden/record_transactions.py.
"""

from dataclasses import replace
from itertools import zip_longest

import pytest

from tests.support.golden import RecordedTransactions, kafka_transactions
from tests.support.transaction_steps import (
    LAST_EPOCH,
    NOBODY,
    STEPS,
    TOPIC,
    Add,
    End,
    Init,
    Settle,
    Step,
    UseUp,
)
from tests.unit.core.transactions.asked import LIMITS, AskedShard, claim
from tidelog.base.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.core.transactions.answers import ProducerAnswer
from tidelog.core.transactions.initializing import Claim
from tidelog.records.transactions import TransactionMetadata, TransactionRecord
from tidelog.wire.transaction_records import decode_transaction_record, encode_transaction_record


class Imitation:
    """Our coordinator, which is asked what Kafka was asked."""

    def __init__(self) -> None:
        self.asked = AskedShard(limits=replace(LIMITS, abort_interval_ms=100))
        self.names: dict[int, str] = {}

    def take(self, step: Step) -> list[object] | None:
        match step:
            case Init():
                has = None if step.producer == NOBODY else self._claim(step)
                answer = self.asked.init(step.transactional_id, has, timeout_ms=step.timeout_ms)
                return self._producer(answer)
            case End():
                answer = self.asked.end(
                    step.transactional_id,
                    self._claim(step),
                    is_commit=step.is_commit,
                    version=step.version,
                )
                return self._producer(answer)
            case Add():
                return self._add(step)
            case Settle():
                self.asked.answer_markers()
                if self.asked.state(step.transactional_id).state.title == "Ongoing":
                    self.asked.tick_when_due()
                    self.asked.answer_markers()
            case UseUp():
                self._use_up(step)
        return None

    def _use_up(self, step: UseUp) -> None:
        """The first epochs and the last; those between are all the same."""
        for epoch in (step.epoch, step.epoch + 1, LAST_EPOCH - 1):
            if epoch == LAST_EPOCH - 1:
                known = self.asked.state(step.transactional_id)
                self.asked.shard.replay(replace(known, producer_epoch=ProducerEpoch(epoch)))
            abort = End(step.transactional_id, step.producer, epoch, is_commit=False)
            assert self.take(abort) == [0, step.producer, epoch + 1]

    def _add(self, step: Add) -> list[object]:
        producer = self._claim(step)
        named = tuple(TopicPartition(TOPIC, partition) for partition in step.partitions)
        if step.is_verification:
            codes = self.asked.verify(step.transactional_id, producer, named)
        else:
            codes = self.asked.add(step.transactional_id, producer, named, version=step.version)
        return [int(code) for code in codes.values()]

    def _claim(self, step: Init | End | Add) -> Claim:
        known = (producer_id for producer_id, name in self.names.items() if name == step.producer)
        return claim(next(known, -1), step.epoch)

    def _producer(self, answer: ProducerAnswer) -> list[object]:
        name = NOBODY
        if answer.producer_id != NO_PRODUCER_ID:
            name = self.names.setdefault(answer.producer_id, f"p{len(self.names)}")
        return [int(answer.code), name, answer.producer_epoch]


@pytest.fixture(scope="module")
def recorded() -> RecordedTransactions:
    return kafka_transactions()


@pytest.fixture(scope="module")
def imitation(recorded: RecordedTransactions) -> Imitation:
    """Fails at the first step that ends differently."""
    imitation = Imitation()
    for number, (step, answer) in enumerate(zip(STEPS, recorded.answers, strict=True)):
        assert imitation.take(step) == answer, f"step {number}: {step}"
    return imitation


def test_every_request_is_answered_as_by_kafka(imitation: Imitation) -> None:
    assert len(imitation.names) == 10


def test_records_say_what_those_of_kafka_say(
    imitation: Imitation, recorded: RecordedTransactions
) -> None:
    ours = [_unstamped(record, imitation.names) for record in imitation.asked.log if _shown(record)]
    theirs = []
    for key, value in recorded.records:
        record = decode_transaction_record(key, value)
        assert record is not None
        theirs.append(_unstamped(record, recorded.names))
    for number, (our, their) in enumerate(zip_longest(ours, theirs)):
        assert our == their, f"record {number}"


def test_records_of_kafka_are_written_as_they_were_read(recorded: RecordedTransactions) -> None:
    for key, value in recorded.records:
        record = decode_transaction_record(key, value)
        assert record is not None
        our_key, our_value = encode_transaction_record(record)
        assert our_key == key
        assert isinstance(record, TransactionMetadata)
        if len(record.partitions) < 2:
            assert our_value == value
        else:  # Kafka's are in no order.
            assert our_value is not None
            assert value is not None
            assert sorted(our_value) == sorted(value)
            assert decode_transaction_record(our_key, our_value) == record


def _shown(record: TransactionRecord) -> bool:
    """Not one of the thousands that use epochs up."""
    assert isinstance(record, TransactionMetadata)
    return record.transactional_id != "spent" or not 1 < record.producer_epoch < LAST_EPOCH


def _unstamped(record: TransactionRecord, names: dict[int, str]) -> TransactionMetadata:
    """Without the time of day, and with ids that are counted from 0."""
    assert isinstance(record, TransactionMetadata)

    def counted(producer_id: ProducerId) -> ProducerId:
        return producer_id if producer_id == -1 else ProducerId(int(names[producer_id][1:]))

    return replace(
        record,
        producer_id=counted(record.producer_id),
        previous_producer_id=counted(record.previous_producer_id),
        next_producer_id=counted(record.next_producer_id),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        start_ms=min(record.start_ms, 0),
        last_update_ms=0,
    )
