"""Disks that the lab fills: small ones that are its own, and no others (S9, B3)."""

import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.lab.small_disks import (
    NoSmallDisk,
    fill,
    is_full,
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
    folder = tmp_path / "broker-1" / "logs"
    mount(folder, size_mib=5)
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


def test_logs_that_were_there_before_are_on_it(tmp_path: Path, disk: Path) -> None:
    folder = tmp_path / "other"
    (folder / "topic-0").mkdir(parents=True)
    (folder / "topic-0" / "log").write_bytes(b"before")
    mount(folder, size_mib=8)
    try:
        assert is_small_disk(folder)
        assert (folder / "topic-0" / "log").read_bytes() == b"before"
        (folder / "topic-0" / "log").write_bytes(b"after")
    finally:
        release(folder)
    assert (folder / "topic-0" / "log").read_bytes() == b"after"
    assert [path.name for path in tmp_path.iterdir() if path not in {folder, disk.parent}] == []


def test_logs_that_do_not_fit_are_left_where_they_are(tmp_path: Path, disk: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "log").write_bytes(bytes(1024 * 1024))
    with pytest.raises(NoSmallDisk, match=r"is too small for .*: it takes 6 MiB"):
        mount(folder, size_mib=5)
    assert not is_small_disk(folder)
    assert (folder / "log").stat().st_size == 1024 * 1024


def test_disk_that_was_not_filled_in_time_is_taken_back(disk: Path) -> None:
    """Whoever mounted it was killed before all logs were on it."""
    before = disk.with_name("logs.before")
    before.mkdir()
    (before / "log").write_bytes(b"all of it")
    (disk / "log").write_bytes(b"all")
    release(disk)
    assert not is_small_disk(disk)
    assert (disk / "log").read_bytes() == b"all of it"
    assert [path.name for path in disk.parent.iterdir()] == ["logs"]


@pytest.mark.parametrize("is_mounted", [True, False])
def test_release_that_was_begun_is_finished(disk: Path, is_mounted: bool) -> None:
    """Whoever released it was killed when the copy was complete."""
    (disk / "log").write_bytes(b"on the disk")
    if not is_mounted:
        release(disk)
        (disk / "log").unlink()
    kept = disk.with_name("logs.kept")
    kept.mkdir()
    (kept / "log").write_bytes(b"kept")
    release(disk)
    assert (disk / "log").read_bytes() == b"kept"
    assert [path.name for path in disk.parent.iterdir()] == ["logs"]


def test_copy_that_is_not_complete_does_not_count(disk: Path) -> None:
    (disk / "log").write_bytes(b"on the disk")
    draft = disk.with_name("logs.draft")
    draft.mkdir()
    (draft / "other").write_bytes(b"half")
    release(disk)
    assert [path.name for path in disk.iterdir()] == ["log"]
    assert [path.name for path in disk.parent.iterdir()] == ["logs"]


def test_disk_that_somebody_else_mounted_is_not_touched(tmp_path: Path, disk: Path) -> None:
    theirs = tmp_path / "their disk"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "theirs", theirs], check=True)
    try:
        assert not is_small_disk(theirs)
        with pytest.raises(NoSmallDisk, match="is not on a small disk of its own"):
            fill(theirs)
        release(theirs)
        assert theirs.is_mount()
    finally:
        subprocess.run(["umount", theirs], check=True)


def test_disk_below_a_folder_with_blanks_in_its_name_is_known(tmp_path: Path, disk: Path) -> None:
    folder = tmp_path / "my data" / "logs"
    mount(folder, size_mib=5)
    try:
        assert is_small_disk(folder)
        assert not is_full(folder)
        fill(folder)
        assert is_full(folder)
    finally:
        release(folder)
