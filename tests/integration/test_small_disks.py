"""Disks that the lab fills: small ones that are its own, and no others (S9, B3)."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.lab.small_disks import (
    NoSmallDisk,
    fill,
    is_small_disk,
    make_room,
    mount,
    release,
    why_no_small_disks,
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    reason = why_no_small_disks()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path / "logs"
    mount(folder, size_mib=4)
    yield folder
    release(folder)


def test_a_full_disk_takes_no_byte_until_there_is_room(disk: Path) -> None:
    with (disk / "log").open("wb", buffering=0) as log:
        log.write(b"before")
        fill(disk)
        log.write(b"x" * 8192)  # What is left of the page that it has begun, and no more.
        with pytest.raises(OSError, match="No space left") as caught:
            log.write(b"x")
        assert caught.value.errno == errno.ENOSPC
        make_room(disk)
        log.write(b"x" * 8192)


def test_what_was_on_it_stays_when_it_is_released(disk: Path) -> None:
    (disk / "topic-0").mkdir()
    (disk / "topic-0" / "log").write_bytes(b"kept")
    fill(disk)
    release(disk)
    assert not is_small_disk(disk)
    assert [path.name for path in disk.rglob("*")] == ["topic-0", "log"]
    assert (disk / "topic-0" / "log").read_bytes() == b"kept"


def test_a_disk_that_others_use_is_never_filled(tmp_path: Path) -> None:
    with pytest.raises(NoSmallDisk, match="is not on a small disk of its own"):
        fill(tmp_path)
    assert not list(tmp_path.iterdir())
