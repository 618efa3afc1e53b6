"""What every Disk does, the real one and those that tests put in its place."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.base.errors import StorageError
from tidelog.base.ports import Disk
from tidelog.sim.disk import SimulatedDisk
from tidelog.sim.world import World
from tidelog.storage.disk import RealDisk
from tidelog.storage.faulty_disk import FaultyDisk
from tidelog.storage.memory_disk import MemoryDisk

MakeDisk = Callable[[Path], Disk]


def memory_disk(folder: Path) -> Disk:
    disk = MemoryDisk(total_bytes=2**30, now_ms=1_700_000_000_000)
    disk.make_folder(folder)
    return disk


def simulated_disk(folder: Path) -> Disk:
    world = World(1, lines_max=0)
    machine = SimulatedDisk(world, "machine", total_bytes=2**30, work_min_s=0.001, work_max_s=0.01)
    disk = machine.attach(world.process("user"))
    disk.make_folder(folder)
    return disk


DISKS: dict[str, MakeDisk] = {
    "real": lambda _: RealDisk(),
    "memory": memory_disk,
    "faulty around real": lambda _: FaultyDisk(RealDisk()),
    "faulty around memory": lambda folder: FaultyDisk(memory_disk(folder)),
    "simulated": simulated_disk,
}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return DISKS[request.param](tmp_path)


def test_appended_bytes_are_read_back(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    assert file.append(b"hello ") == 6
    assert file.append(memoryview(b"world")) == 5
    assert file.append(bytearray(b"!")) == 1
    assert file.read(0, 12) == b"hello world!"
    assert file.read(6, 5) == b"world"
    assert file.size_bytes == 12


def test_read_stops_at_the_end_of_the_file(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    file.append(b"hello")
    assert file.read(3, 100) == b"lo"
    assert file.read(5, 100) == b""
    assert file.read(50, 100) == b""


def test_cached_read_is_a_read_or_none(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    file.append(b"hello")
    assert file.read_cached(1, 3) in (b"ell", None)
    assert file.read_cached(3, 100) in (b"lo", None)
    assert file.read_cached(9, 100) in (b"", None)


def test_cached_read_sees_what_another_handle_appended(disk: Disk, tmp_path: Path) -> None:
    reader = disk.open(tmp_path / "a")
    writer = disk.open_existing(tmp_path / "a")
    writer.append(b"hello")
    assert reader.read_cached(0, 5) in (b"hello", None)
    assert reader.read(0, 5) == b"hello"


def test_append_goes_to_the_end_after_a_truncation(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    file.append(b"hello world")
    file.truncate(5)
    assert file.size_bytes == 5
    file.append(b"!")
    assert file.read(0, 100) == b"hello!"


def test_opening_again_continues_at_the_end(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    file.append(b"hello")
    file.flush()
    file.close()
    again = disk.open_existing(tmp_path / "a")
    assert again.size_bytes == 5
    again.append(b"!")
    assert disk.read_file(tmp_path / "a") == b"hello!"


def test_closing_twice_is_fine(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    file.close()
    file.close()


def test_absent_file_is_created_only_by_open(disk: Disk, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with pytest.raises(StorageError, match=str(path)):
        disk.open_existing(path)
    assert not disk.exists(path)
    disk.open(path).close()
    assert disk.exists(path)
    assert disk.size_bytes(path) == 0


def test_a_folder_is_told_from_a_file(disk: Disk, tmp_path: Path) -> None:
    disk.make_folder(tmp_path / "folder")
    disk.open(tmp_path / "file").close()
    assert disk.is_folder(tmp_path / "folder")
    assert not disk.is_folder(tmp_path / "file")
    assert not disk.is_folder(tmp_path / "file" / "below")
    assert not disk.is_folder(tmp_path / "absent")


@pytest.mark.parametrize("question", ["size_bytes", "modified_ms", "read_file", "list_folder"])
def test_asking_about_an_absent_path_names_it(disk: Disk, tmp_path: Path, question: str) -> None:
    path = tmp_path / "absent"
    with pytest.raises(StorageError, match=str(path)):
        getattr(disk, question)(path)


def test_folder_lists_names_in_order(disk: Disk, tmp_path: Path) -> None:
    for name in ("b", "c", "a"):
        disk.open(tmp_path / name).close()
    disk.make_folder(tmp_path / "bb")
    assert list(disk.list_folder(tmp_path)) == ["a", "b", "bb", "c"]


def test_folder_is_made_with_its_parents_once(disk: Disk, tmp_path: Path) -> None:
    disk.make_folder(tmp_path / "x" / "y")
    disk.make_folder(tmp_path / "x" / "y")
    assert disk.list_folder(tmp_path / "x") == ["y"]


def test_rename_replaces_its_target(disk: Disk, tmp_path: Path) -> None:
    disk.replace_file(tmp_path / "a", b"new")
    disk.replace_file(tmp_path / "b", b"old")
    disk.rename(tmp_path / "a", tmp_path / "b")
    assert disk.list_folder(tmp_path) == ["b"]
    assert disk.read_file(tmp_path / "b") == b"new"


def test_rename_moves_a_folder_with_its_files(disk: Disk, tmp_path: Path) -> None:
    disk.make_folder(tmp_path / "a")
    disk.replace_file(tmp_path / "a" / "file", b"data")
    disk.rename(tmp_path / "a", tmp_path / "b")
    disk.flush_folder(tmp_path)
    assert disk.read_file(tmp_path / "b" / "file") == b"data"


def test_rename_of_an_absent_file_names_it(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=str(tmp_path / "a")):
        disk.rename(tmp_path / "a", tmp_path / "b")


def test_open_file_outlives_its_name(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(tmp_path / "a")
    file.append(b"hello")
    disk.rename(tmp_path / "a", tmp_path / "a.deleted")
    assert file.read(0, 5) == b"hello"
    disk.remove(tmp_path / "a.deleted")
    assert file.read(0, 5) == b"hello"


def test_removing_what_is_absent_is_fine(disk: Disk, tmp_path: Path) -> None:
    disk.remove(tmp_path / "a")
    disk.remove_folder(tmp_path / "b")


def test_folder_is_removed_with_its_files(disk: Disk, tmp_path: Path) -> None:
    disk.make_folder(tmp_path / "x" / "y")
    disk.replace_file(tmp_path / "x" / "y" / "file", b"data")
    disk.remove_folder(tmp_path / "x")
    assert not disk.exists(tmp_path / "x")


def test_replaced_file_holds_the_new_bytes_only(disk: Disk, tmp_path: Path) -> None:
    disk.replace_file(tmp_path / "a", b"a long first version")
    disk.replace_file(tmp_path / "a", b"short")
    assert disk.read_file(tmp_path / "a") == b"short"
    assert disk.list_folder(tmp_path) == ["a"]


def test_lock_is_held_by_one(disk: Disk, tmp_path: Path) -> None:
    lock = disk.lock(tmp_path / ".lock")
    with pytest.raises(StorageError, match=str(tmp_path / r"\.lock")):
        disk.lock(tmp_path / ".lock")
    lock.release()
    disk.lock(tmp_path / ".lock").release()


def test_free_space_is_part_of_the_whole(disk: Disk, tmp_path: Path) -> None:
    assert 0 < disk.free_bytes(tmp_path) <= disk.total_bytes(tmp_path)


def test_reader_on_a_thread_survives_that_the_file_is_let_go(disk: Disk, tmp_path: Path) -> None:
    """Descriptors are reused; a reader must never find itself in another file."""
    path = tmp_path / "a"
    disk.replace_file(path, b"a" * 100)
    other = tmp_path / "b"
    disk.replace_file(other, b"b" * 100)
    files = [disk.open_existing(path)]
    seen: set[bytes] = set()

    def read() -> None:
        for _ in range(2_000):
            file = files[0]
            seen.add(file.read(0, 1))

    reader = threading.Thread(target=read)
    reader.start()
    while reader.is_alive():
        files[0] = disk.open_existing(path)
        disk.open_existing(other).close()
    reader.join()
    assert seen == {b"a"}


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_lock_of_another_process_is_respected(tmp_path: Path, call: str) -> None:
    """Kafka's JVM takes the POSIX kind."""
    path = tmp_path / ".lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys\n"
            f"file = open({str(path)!r}, 'w')\n"
            f"fcntl.{call}(file, fcntl.LOCK_EX)\n"
            "print('held', flush=True)\n"
            "sys.stdin.read()\n",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StorageError, match=r"another process holds .*\.lock"):
            RealDisk().lock(path)
    finally:
        holder.communicate(b"")
    RealDisk().lock(path).release()
