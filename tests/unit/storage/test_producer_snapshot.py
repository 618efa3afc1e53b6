"""`.snapshot` files: Kafka's bytes, round trips, damage (D2, S7)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.records.batch import add_to_sequence
from tidelog.records.producer import ProducedBatch, ProducerEntry
from tidelog.storage.memory_disk import MemoryDisk
from tidelog.storage.producer_snapshot import (
    CorruptSnapshot,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)

# Written by Kafka 4.3.0: one producer, its last batch of four records at offset 1430.
KAFKAS = bytes.fromhex(
    "0001afdb2526000000010000000000000000000000000599000000000000059900000003"
    "0000018bcfe57852ffffffffffffffffffffffff"
)


@st.composite
def producers(draw: st.DrawFn) -> ProducerEntry:
    timestamp_ms = draw(st.integers(0, 2**40))
    batches = []
    sequence = draw(st.integers(0, 2**31 - 1))
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(0, 5))):
        delta = draw(st.integers(0, 100))
        last_sequence = add_to_sequence(sequence, delta)
        batches.append(
            ProducedBatch(
                sequence, last_sequence, Offset(offset), Offset(offset + delta), timestamp_ms
            )
        )
        sequence = add_to_sequence(last_sequence, 1)
        offset += delta + 1
    return ProducerEntry(
        producer_id=ProducerId(draw(st.integers(0, 2**63 - 1))),
        producer_epoch=ProducerEpoch(draw(st.integers(0, 2**15 - 1))),
        coordinator_epoch=draw(st.integers(-1, 2**31 - 1)),
        last_timestamp_ms=timestamp_ms,
        current_txn_first_offset=draw(st.none() | st.integers(0, 2**40).map(Offset)),
        batches=tuple(batches),
    )


def test_kafkas_snapshot_is_read() -> None:
    batch = ProducedBatch(1430, 1433, Offset(1430), Offset(1433), 1_700_000_004_178)
    assert decode_snapshot(KAFKAS) == (
        ProducerEntry(ProducerId(0), ProducerEpoch(0), -1, 1_700_000_004_178, None, (batch,)),
    )


def test_kafkas_snapshot_is_written() -> None:
    assert encode_snapshot(decode_snapshot(KAFKAS)) == KAFKAS


def test_snapshot_without_producers_is_ten_bytes() -> None:
    data = encode_snapshot(())
    assert len(data) == 10
    assert decode_snapshot(data) == ()


@given(st.lists(producers(), max_size=6, unique_by=lambda entry: entry.producer_id))
def test_producers_are_read_as_written(entries: list[ProducerEntry]) -> None:
    assert decode_snapshot(encode_snapshot(entries)) == tuple(entries)


@given(st.lists(producers(), max_size=3, unique_by=lambda entry: entry.producer_id), st.data())
def test_damaged_snapshot_is_refused(entries: list[ProducerEntry], data: st.DataObject) -> None:
    snapshot = bytearray(encode_snapshot(entries))
    position = data.draw(st.integers(0, len(snapshot) - 1))
    snapshot[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(snapshot))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_snapshot_or_refused(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data)


def test_snapshot_that_was_cut_off_is_refused_by_name(memory_disk: MemoryDisk) -> None:
    path = Path("/00000000000000000005.snapshot")
    write_snapshot(memory_disk, path, decode_snapshot(KAFKAS))
    for size_bytes in range(len(KAFKAS)):
        memory_disk.replace_file(path, KAFKAS[:size_bytes])
        with pytest.raises(CorruptSnapshot, match=path.name):
            read_snapshot(memory_disk, path)


def test_snapshot_replaces_what_a_crash_left(memory_disk: MemoryDisk) -> None:
    path = Path("/00000000000000000005.snapshot")
    memory_disk.replace_file(path, b"x" * 1000)
    write_snapshot(memory_disk, path, decode_snapshot(KAFKAS))
    assert memory_disk.read_file(path) == KAFKAS


def test_newer_epoch_of_a_producer_starts_with_no_batches() -> None:
    first, second = (decode_snapshot(KAFKAS)[0] for _ in range(2))
    second = second._replace(producer_epoch=ProducerEpoch(1))
    assert decode_snapshot(encode_snapshot([first, second])) == (second,)
