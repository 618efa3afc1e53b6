"""A reader sees what every consumer sees: no marks, nothing aborted, nothing damaged (X1, X6)."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.visible_batches import UnreadableBatch, VisibleBatches
from tidelog.records.batch import Codec, iter_headers, write_checksum
from tidelog.records.control import ControlType, TransactionEnd, encode_transaction_end
from tidelog.records.record import (
    UNCOMPRESSED_BYTES_MAX,
    Record,
    assemble,
    decode_payload,
    encode_batch,
    encode_plain_batch,
)

COMMITTED = VisibleBatches(is_committed_only=True)
UNCOMMITTED = VisibleBatches(is_committed_only=False)

NOW_MS = 1_700_000_000_000


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def batch_at(
    offset: int, *, count: int = 1, producer_id: int = -1, codec: Codec = Codec.NONE
) -> bytes:
    """In a transaction if it has a producer."""
    records = [
        Record(offset + number, NOW_MS, None, b"%d" % (offset + number), ())
        for number in range(count)
    ]
    return bytes(
        encode_batch(
            records,
            leader_epoch=0,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
            is_control=False,
        )
    )


def marker_at(offset: int, producer_id: int, control_type: ControlType) -> bytes:
    key, value = encode_transaction_end(TransactionEnd(control_type, 0))
    return bytes(
        encode_batch(
            [Record(offset, NOW_MS, key, value, ())],
            leader_epoch=0,
            codec=Codec.NONE,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
        )
    )


def seen(visible: VisibleBatches, log: bytes, aborted: Sequence[Aborted] = ()) -> list[int]:
    """Offsets of what a reader gets, the values being what was written there."""
    offsets = []
    for header, payload in visible.of(log, aborted):
        for record in decode_payload(header, payload):
            assert record.value == b"%d" % record.offset
            offsets.append(record.offset)
    return offsets


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_codec_are_seen(codec: Codec) -> None:
    log = batch_at(0, count=3, codec=codec) + batch_at(3, count=2, codec=codec)
    assert seen(UNCOMMITTED, log) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("visible", [COMMITTED, UNCOMMITTED])
def test_control_batches_are_left_out(visible: VisibleBatches) -> None:
    log = batch_at(0, producer_id=7) + marker_at(1, 7, ControlType.COMMIT) + batch_at(2)
    assert seen(visible, log) == [0, 2]


def test_batches_that_compaction_emptied_are_left_out() -> None:
    header = next(header for _, header in iter_headers(batch_at(5, producer_id=7)))
    empty = assemble(header._replace(record_count=0), b"")
    assert seen(UNCOMMITTED, bytes(empty) + batch_at(6)) == [6]


ABORTED_LOG = (
    batch_at(0, producer_id=7)
    + batch_at(1, producer_id=8)
    + batch_at(2)
    + marker_at(3, 7, ControlType.ABORT)
    + batch_at(4, producer_id=7)
    + marker_at(5, 8, ControlType.COMMIT)
    + marker_at(6, 7, ControlType.COMMIT)
)


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    assert seen(COMMITTED, ABORTED_LOG, [Aborted(7, 0)]) == [1, 2, 4]


def test_who_reads_uncommitted_sees_what_was_aborted() -> None:
    assert seen(UNCOMMITTED, ABORTED_LOG, [Aborted(7, 0)]) == [0, 1, 2, 4]


def test_a_transaction_that_began_earlier_is_hidden_from_the_start() -> None:
    log = batch_at(10, producer_id=7) + marker_at(11, 7, ControlType.ABORT)
    assert seen(COMMITTED, log + batch_at(12, producer_id=7), [Aborted(7, 3)]) == [12]


def test_what_a_producer_wrote_before_it_is_seen() -> None:
    log = batch_at(0, producer_id=7) + marker_at(1, 7, ControlType.COMMIT)
    log += batch_at(2, producer_id=7) + marker_at(3, 7, ControlType.ABORT)
    assert seen(COMMITTED, log, [Aborted(7, 2)]) == [0]


def test_a_marker_of_a_transaction_that_nobody_named_is_refused() -> None:
    """Its records were taken for committed: the list is not that of these batches."""
    with pytest.raises(UnreadableBatch, match="offset 3 cannot be read: it aborts a transaction"):
        seen(COMMITTED, ABORTED_LOG)


def test_a_marker_of_a_transaction_without_records_here_is_nothing() -> None:
    log = batch_at(0, producer_id=7) + marker_at(1, 7, ControlType.COMMIT)
    log += marker_at(2, 7, ControlType.ABORT) + batch_at(3)
    assert seen(COMMITTED, log) == [0, 3]


def test_each_piece_can_be_read_without_those_before_it() -> None:
    """Fetch and `.txnindex` name for each piece all transactions with records in it."""
    for cut in (0, *(position for position, _ in iter_headers(ABORTED_LOG))):
        head, tail = ABORTED_LOG[:cut], ABORTED_LOG[cut:]
        tail_offset = next((header.base_offset for _, header in iter_headers(tail)), 7)
        of_tail = [Aborted(7, 0)] if tail_offset <= 3 else []
        assert seen(COMMITTED, head, [Aborted(7, 0)]) + seen(COMMITTED, tail, of_tail) == [1, 2, 4]


@given(
    st.lists(
        st.tuples(st.integers(-1, 2), st.sampled_from(["write", "abort", "commit"])), max_size=30
    )
)
def test_committed_is_what_no_abort_followed(steps: list[tuple[int, str]]) -> None:
    log = b""
    aborted: list[Aborted] = []
    visible: list[int] = []
    open_offsets: dict[int, list[int]] = {}
    for offset, (producer_id, step) in enumerate(steps):
        if step == "write" or producer_id < 0:
            log += batch_at(offset, producer_id=producer_id)
            open_offsets.setdefault(producer_id, []).append(offset)
            continue
        log += marker_at(offset, producer_id, ControlType[step.upper()])
        ended = open_offsets.pop(producer_id, [])
        if step == "commit":
            visible += ended
        elif ended:
            aborted.append(Aborted(producer_id, ended[0]))
    for offsets in open_offsets.values():  # Readers are kept from these by the end of their range.
        visible += offsets
    assert seen(COMMITTED, log, aborted) == sorted(visible)


def test_a_batch_of_another_checksum_is_named_by_its_offset() -> None:
    damaged = bytearray(batch_at(0) + batch_at(1) + batch_at(2))
    damaged[2 * len(batch_at(0)) - 1] ^= 1
    with pytest.raises(UnreadableBatch, match="offset 1 cannot be read: its checksum") as caught:
        seen(UNCOMMITTED, bytes(damaged))
    assert (caught.value.offset, caught.value.position) == (1, len(batch_at(0)))


def test_a_damaged_batch_is_not_overlooked_because_it_was_aborted() -> None:
    damaged = bytearray(batch_at(0, producer_id=7))
    damaged[-1] ^= 1
    with pytest.raises(UnreadableBatch, match="offset 0"):
        seen(COMMITTED, bytes(damaged), [Aborted(7, 0)])


def test_bytes_that_are_no_batch_are_named_by_the_end_of_the_one_before() -> None:
    with pytest.raises(UnreadableBatch, match="offset 2 cannot be read: a batch header needs 61"):
        seen(UNCOMMITTED, batch_at(0, count=2) + b"\0" * 60)


def test_a_first_batch_of_an_old_format_is_named_by_the_offset_it_states() -> None:
    old = bytearray(batch_at(42))
    old[16] = 1
    with pytest.raises(UnreadableBatch, match="offset 42 cannot be read: batch has magic 1"):
        seen(UNCOMMITTED, bytes(old))


def test_a_batch_that_is_cut_off_is_refused() -> None:
    with pytest.raises(UnreadableBatch, match="offset 0 cannot be read: it has 69 bytes, 68 are"):
        seen(UNCOMMITTED, batch_at(0)[:-1])


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_refused(data: bytes) -> None:
    try:
        found = seen(UNCOMMITTED, data)
    except UnreadableBatch:
        return
    assert not found


def test_a_payload_that_is_damaged_under_a_right_checksum_is_named_by_its_offset() -> None:
    batch = bytearray(batch_at(3, count=9, codec=Codec.ZSTD))
    batch[-8:] = bytes(8)
    write_checksum(batch, 0, len(batch))
    with pytest.raises(UnreadableBatch, match="offset 3 cannot be read: compressed records are"):
        seen(UNCOMMITTED, bytes(batch))


def test_a_batch_that_grows_beyond_all_bounds_is_refused() -> None:
    bomb = encode_plain_batch(
        [Record(3, NOW_MS, None, bytes(UNCOMPRESSED_BYTES_MAX + 1), ())], Codec.ZSTD
    )
    with pytest.raises(UnreadableBatch, match="offset 3 cannot be read: records take more than"):
        seen(UNCOMMITTED, bytes(bomb))
