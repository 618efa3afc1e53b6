"""Which transactions hang: open in a partition, with no coordinator to end them (KIP-664)."""

from tidelog.client.group_values import PartitionKey
from tidelog.client.transaction_values import (
    HangingTransaction,
    PartitionProducer,
    TransactionDescription,
)
from tidelog.client.transactions import nobody_ends, open_since_long

HERE = PartitionKey("t", 0)
ELSEWHERE = PartitionKey("t", 1)
NOW_MS = 1_000_000


def producer(*, open_since: int | None = 5, written_ms: int = 0) -> PartitionProducer:
    return PartitionProducer(
        key=HERE,
        producer_id=7,
        producer_epoch=1,
        last_sequence=3,
        last_timestamp_ms=written_ms,
        coordinator_epoch=None,
        open_since=open_since,
    )


def described(producer_id: int, *keys: PartitionKey) -> TransactionDescription:
    return TransactionDescription(
        transactional_id="x",
        producer_id=producer_id,
        producer_epoch=1,
        state="Ongoing",
        timeout_ms=60_000,
        started_ms=0,
        coordinator_id=1,
        partitions=keys,
    )


def old(each: PartitionProducer) -> list[HangingTransaction]:
    return open_since_long([each], now_ms=NOW_MS, older_than_ms=600_000)


def test_only_what_is_open_for_long_is_looked_into() -> None:
    assert [one.age_ms for one in old(producer())] == [NOW_MS]
    assert old(producer(open_since=None)) == []
    assert old(producer(written_ms=NOW_MS - 599_999)) == []
    assert len(old(producer(written_ms=NOW_MS - 600_000))) == 1


def test_a_partition_that_a_coordinator_lists_is_cared_for() -> None:
    assert nobody_ends(old(producer()), [described(7, ELSEWHERE, HERE)]) == []


def test_a_partition_that_its_coordinator_does_not_list_hangs() -> None:
    hanging = old(producer())
    assert nobody_ends(hanging, [described(7, ELSEWHERE)]) == hanging
    assert nobody_ends(hanging, [described(8, HERE)]) == hanging
    assert nobody_ends(hanging, []) == hanging
