"""Replicas of a partition, compared as they lie on disk."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.batches import plain_batch
from tidelog.lab.replica_files import first_difference, stored_batches
from tidelog.records.batch import read_header, stamp
from tidelog.storage.layout import LOG, file_name

RECORDS_PER_BATCH = 3


def batch_at(base_offset: int, *, epoch: int = 0) -> bytes:
    batch = plain_batch(RECORDS_PER_BATCH)
    stamp(batch, base_offset, read_header(batch, 0).batch_length, epoch)
    return bytes(batch)


def write_log(folder: Path, segments: dict[int, Sequence[bytes]]) -> Path:
    folder.mkdir()
    for base_offset, batches in segments.items():
        (folder / file_name(base_offset, LOG)).write_bytes(b"".join(batches))
    return folder


FIRST, SECOND, THIRD = (batch_at(RECORDS_PER_BATCH * number) for number in range(3))


def test_batches_are_read_in_order_over_all_segments(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "log", {6: [THIRD], 0: [FIRST, SECOND]})
    assert [batch.data for batch in stored_batches(folder)] == [FIRST, SECOND, THIRD]
    assert [batch.header.base_offset for batch in stored_batches(folder)] == [0, 3, 6]


@pytest.mark.parametrize(
    "damaged", [SECOND[:-1], SECOND[:-1] + bytes([SECOND[-1] ^ 1]), b"\0" * 100]
)
def test_damaged_batch_ends_the_log(tmp_path: Path, damaged: bytes) -> None:
    folder = write_log(tmp_path / "log", {0: [FIRST, damaged]})
    assert [batch.data for batch in stored_batches(folder)] == [FIRST]


def test_replicas_may_roll_and_begin_at_different_places(tmp_path: Path) -> None:
    folders = {
        1: write_log(tmp_path / "1", {0: [FIRST, SECOND, THIRD]}),
        2: write_log(tmp_path / "2", {0: [FIRST], 3: [SECOND, THIRD]}),
        3: write_log(tmp_path / "3", {3: [SECOND], 6: [THIRD]}),
    }
    assert first_difference(folders) is None


def test_first_difference_is_named(tmp_path: Path) -> None:
    folders = {
        1: write_log(tmp_path / "1", {0: [FIRST, SECOND]}),
        2: write_log(tmp_path / "2", {0: [FIRST, batch_at(3, epoch=4)]}),
        3: write_log(tmp_path / "3", {0: [FIRST]}),
    }
    found = first_difference(folders)
    assert found is not None
    assert "broker 1: offsets 3 to 5, epoch 0" in found
    assert "broker 2: offsets 3 to 5, epoch 4" in found
    assert "broker 3: its log has ended" in found
