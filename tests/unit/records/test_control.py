"""D3: control records that end a transaction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptBatch
from tidelog.records.control import (
    ControlType,
    TransactionEnd,
    decode_transaction_end,
    encode_transaction_end,
)


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
