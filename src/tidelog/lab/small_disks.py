"""A disk of its own for each broker's logs, small enough to be filled (S9, B3).

    mount ──▶ tmpfs at broker-N/logs ──▶ fill, make room, fill ... ──▶ release: plain files again

Only a disk that nobody else uses is ever filled: one that was mounted for it, and is small. That
takes root; without it there are no such disks, and whoever asks for a full one is told so.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tidelog.lab.errors import LabError

_BALLAST: Final = "tidelog-lab.ballast"
_SIZE_MAX_BYTES: Final = 2 * 1024**3
_KEPT_SUFFIX: Final = ".kept"


class NoSmallDisk(LabError):
    """The logs lie on a disk that others use too."""


def why_no_small_disks() -> str | None:
    """One sentence that says what is missing, or None if disks can be mounted here."""
    if shutil.which("mount") is None or not Path("/proc/mounts").exists():
        return "a disk that can be filled is a tmpfs, which only Linux has"
    if os.geteuid() != 0:
        return "a disk that can be filled has to be mounted, which takes root"
    return None


def mount(log_dir: Path, *, size_mib: int) -> None:
    """Have an empty disk there; NoSmallDisk says why there is none."""
    reason = why_no_small_disks()
    if reason is not None:
        raise NoSmallDisk(reason)
    log_dir.mkdir(parents=True, exist_ok=True)
    options = f"size={size_mib}m"
    _run("mount", "-t", "tmpfs", "-o", options, "tidelog-lab", str(log_dir))


def is_small_disk(log_dir: Path) -> bool:
    """Whether it is one that may be filled."""
    if not os.path.ismount(log_dir):
        return False
    disk = os.statvfs(log_dir)
    return disk.f_blocks * disk.f_frsize <= _SIZE_MAX_BYTES


def fill(log_dir: Path) -> None:
    """Leave no room for another byte."""
    if not is_small_disk(log_dir):
        raise NoSmallDisk(
            f"{log_dir} is not on a small disk of its own, so it is not filled: start the cluster "
            "with disks that can be (tidelog up --small-disks, as root)"
        )
    disk = os.statvfs(log_dir)
    with (log_dir / _BALLAST).open("wb") as ballast:
        # Not `posix_fallocate` of all at once: brokers write meanwhile, and would make it fail.
        _write_until_full(ballast.fileno(), disk.f_frsize)


def make_room(log_dir: Path) -> None:
    """Undo `fill`; nothing if it is not full."""
    (log_dir / _BALLAST).unlink(missing_ok=True)


def release(log_dir: Path) -> None:
    """Unmount it, and leave what was on it in its place; nothing if it is no such disk."""
    if not is_small_disk(log_dir):
        return
    make_room(log_dir)
    kept = log_dir.with_name(log_dir.name + _KEPT_SUFFIX)
    shutil.copytree(log_dir, kept)
    _run("umount", "--lazy", str(log_dir))
    log_dir.rmdir()
    kept.rename(log_dir)


def _write_until_full(descriptor: int, block_bytes: int) -> None:
    for size_bytes in (256 * block_bytes, block_bytes):
        block = bytes(size_bytes)
        try:
            while os.write(descriptor, block) == size_bytes:
                continue
        except OSError:  # No room for this much. For less, perhaps.
            continue


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoSmallDisk(f"{' '.join(command)}: {done.stderr.strip()}")
