"""D2: what is remembered of a producer is a value."""

from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.records.producer import REMEMBERED_BATCHES_MAX, ProducedBatch, ProducerEntry


def test_entries_with_the_same_content_are_equal() -> None:
    def entry() -> ProducerEntry:
        batch = ProducedBatch(0, 2, Offset(10), Offset(12), 5)
        return ProducerEntry(ProducerId(1), ProducerEpoch(0), -1, 5, None, (batch,))

    assert entry() == entry()
    assert entry()._replace(producer_epoch=ProducerEpoch(1)) != entry()


def test_as_many_batches_are_remembered_as_a_producer_may_have_in_flight() -> None:
    assert REMEMBERED_BATCHES_MAX == 5
