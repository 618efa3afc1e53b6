"""Folders on a real disk and on one in memory."""

from pathlib import Path

import pytest

from tests.unit.storage.log_folder import LogFolder
from tidelog.storage.disk import RealDisk
from tidelog.storage.memory_disk import MemoryDisk


@pytest.fixture
def memory_disk() -> MemoryDisk:
    return MemoryDisk(total_bytes=2**30, now_ms=1_700_000_000_000)


@pytest.fixture
def partition(memory_disk: MemoryDisk) -> LogFolder:
    """A partition's folder in memory, not there yet."""
    memory_disk.make_folder(Path("/logs"))
    return LogFolder(memory_disk, Path("/logs/orders-3"))


@pytest.fixture
def real_partition(tmp_path: Path) -> LogFolder:
    """A partition's folder on a real disk, not there yet."""
    return LogFolder(RealDisk(), tmp_path / "orders-3")
