"""D3: control records that end a transaction."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptBatch
from tidelog.records.batch import BatchHeader, Codec, iter_headers, read_header, stamp
from tidelog.records.control import (
    ControlType,
    TransactionEnd,
    decode_transaction_end,
    encode_marker,
    encode_transaction_end,
    read_transaction_end,
)
from tidelog.records.record import Record, assemble, encode_batch

KAFKAS_FOLDER = Path(__file__).parents[1] / "storage" / "golden" / "kafka-4.3.0" / "golden-txn-0"


@given(control_type=st.sampled_from(ControlType), epoch=st.integers(-(2**31), 2**31 - 1))
def test_end_of_a_transaction_comes_back(control_type: ControlType, epoch: int) -> None:
    end = TransactionEnd(control_type, epoch)
    assert decode_transaction_end(*encode_transaction_end(end)) == end


def test_bytes_are_kafka_s() -> None:
    assert encode_transaction_end(TransactionEnd(ControlType.COMMIT, 5)) == (
        b"\x00\x00\x00\x01",
        b"\x00\x00\x00\x00\x00\x05",
    )


def test_control_record_of_another_type_is_none_of_ours() -> None:
    assert decode_transaction_end(b"\x00\x00\x00\x02", b"anything") is None


def test_fields_of_a_later_version_are_ignored() -> None:
    end = decode_transaction_end(b"\x00\x01\x00\x00more", b"\x00\x01\x00\x00\x00\x07more")
    assert end == TransactionEnd(ControlType.ABORT, 7)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x05"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00"),
    ],
)
def test_control_record_that_is_cut_off_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptBatch):
        decode_transaction_end(key, value)


def test_markers_are_kafkas_byte_for_byte() -> None:
    """D3"""
    markers = [
        (header, batch)
        for path in sorted(KAFKAS_FOLDER.glob("*.log"))
        for header, batch in _batches(path.read_bytes())
        if header.is_control
    ]
    assert len(markers) >= 4
    for header, batch in markers:
        end = read_transaction_end(batch)
        assert end is not None
        written = encode_marker(
            end,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp_ms=header.max_timestamp_ms,
        )
        stamp(written, header.base_offset, header.batch_length, header.leader_epoch)
        assert written == batch


def test_control_batch_without_its_record_ends_nothing() -> None:
    written = encode_marker(
        TransactionEnd(ControlType.ABORT, 3), producer_id=7, producer_epoch=1, timestamp_ms=5
    )
    emptied = assemble(read_header(written, 0)._replace(record_count=0), b"")
    assert read_transaction_end(written) == TransactionEnd(ControlType.ABORT, 3)
    assert read_transaction_end(emptied) is None


def test_control_batch_of_another_kind_ends_nothing() -> None:
    written = encode_batch(
        [Record(0, 0, b"\0", b"", ())],
        leader_epoch=0,
        codec=Codec.NONE,
        producer_id=7,
        producer_epoch=0,
        base_sequence=-1,
        is_transactional=True,
        is_control=True,
    )
    assert read_transaction_end(written) is None


def _batches(log: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    for position, header in iter_headers(log):
        yield header, log[position : position + header.size_bytes]
