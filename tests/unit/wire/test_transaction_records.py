"""D3: the records of `__transaction_state`.

What Kafka wrote is compared in tests/unit/core/transactions/test_as_kafka.py.
"""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import kafka_transactions
from tidelog.base.errors import WireError
from tidelog.base.ids import ProducerEpoch, ProducerId, TopicPartition
from tidelog.records.transactions import (
    TransactionForgotten,
    TransactionMetadata,
    TransactionState,
)
from tidelog.wire.transaction_records import decode_transaction_record, encode_transaction_record

KEY = b"\x00\x00\x00\x02ab"
INT64 = st.integers(-(2**63), 2**63 - 1)
PRODUCER_IDS = st.integers(-1, 2**63 - 1).map(ProducerId)
STATES = st.sampled_from(
    [state for state in TransactionState if state.title not in ("Dead", "PrepareEpochFence")]
)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=5
)


@st.composite
def metadata(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(STATES)
    return TransactionMetadata(
        transactional_id=draw(st.text(max_size=20)),
        producer_id=draw(PRODUCER_IDS),
        previous_producer_id=draw(PRODUCER_IDS),
        next_producer_id=draw(PRODUCER_IDS),
        producer_epoch=ProducerEpoch(draw(st.integers(-1, 2**15 - 1))),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        state=state,
        partitions=frozenset() if state is TransactionState.EMPTY else draw(PARTITIONS),
        start_ms=draw(INT64),
        last_update_ms=draw(INT64),
        client_version=draw(st.integers(0, 2**15 - 1)),
    )


@given(record=metadata())
def test_record_is_read_as_it_was_written(record: TransactionMetadata) -> None:
    assert decode_transaction_record(*encode_transaction_record(record)) == record


def test_forgotten_id_has_no_value() -> None:
    record = TransactionForgotten("ab")
    assert encode_transaction_record(record) == (KEY, None)
    assert decode_transaction_record(KEY, None) == record


def test_value_of_an_older_broker_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 7, 3, 60_000, TransactionState.ONGOING)
        + struct.pack(">ih1sii", 1, 1, b"t", 1, 5)
        + struct.pack(">qq", 20, 10)
    )
    assert decode_transaction_record(KEY, value) == TransactionMetadata(
        transactional_id="ab",
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(3),
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        partitions=frozenset({TopicPartition("t", 5)}),
        start_ms=10,
        last_update_ms=20,
    )


def test_value_of_an_older_broker_without_partitions_is_read() -> None:
    value = struct.pack(">hqhibiqq", 0, 7, 3, 60_000, TransactionState.EMPTY, -1, 20, -1)
    record = decode_transaction_record(KEY, value)
    assert isinstance(record, TransactionMetadata)
    assert record.partitions == frozenset()


def test_tagged_field_that_is_not_known_is_passed_over() -> None:
    """Kafka adds fields this way (KIP-915)."""
    key, value = kafka_transactions().records[0]
    assert value is not None
    assert value[-11:-8] == b"\x01\x00\x08"
    extended = value[:-11] + b"\x02" + value[-10:] + b"\x63\x02\x01\x02"
    assert decode_transaction_record(key, extended) == decode_transaction_record(key, value)


@pytest.mark.parametrize(
    ("key", "value"), [(b"\x00\x01\x00\x02ab", b"\x00\x01"), (KEY, b"\x00\x02"), (KEY, b"\xff\xff")]
)
def test_record_of_another_kind_is_none_of_ours(key: bytes, value: bytes) -> None:
    assert decode_transaction_record(key, value) is None


@pytest.mark.parametrize("status", [-1, 6, 7, 8])
def test_state_that_is_never_written_is_damage(status: int) -> None:
    value = struct.pack(">hqhibiqq", 0, 7, 3, 60_000, status, -1, 20, -1)
    with pytest.raises(WireError):
        decode_transaction_record(KEY, value)


@given(data=st.data())
def test_damaged_record_is_a_record_or_a_wire_error(data: st.DataObject) -> None:
    key, value = data.draw(st.sampled_from(kafka_transactions().records))
    assert value is not None
    damaged = bytearray(key + value)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(len(key), len(damaged)))
    with suppress(WireError):
        decode_transaction_record(bytes(damaged[: len(key)]), bytes(damaged[len(key) : cut]))
