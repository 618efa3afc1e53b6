"""A disk of its own for each broker's logs, small enough to be filled (S9, B3).

    mount ──▶ tmpfs at broker-N/logs ──▶ fill, make room, fill ... ──▶ release: plain files again

Only a disk that nobody else uses is ever filled: one that was mounted for it, and is small. That
takes root; without it there are no such disks, and whoever asks for a full one is told so.

What lay in the folder before is copied onto the disk, and what lies on the disk is copied back, so
logs survive both. Between the two they are in memory, and a machine that goes down loses them.
Whoever mounts or releases may be killed at any point:

    logs.before   the logs, until all of them are on the disk; while it is there, it counts
    logs.draft    a copy of the disk that is not complete; it never counts
    logs.kept     a complete one; while it is there, it counts, and the disk does not

`release` finishes, or takes back, what somebody else has begun. No broker may run meanwhile.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tidelog.lab.errors import LabError

SIZE_MAX_MIB: Final = 2_048
_SOURCE: Final = "tidelog-lab"
_BALLAST: Final = "tidelog-lab.ballast"
_MOUNTS: Final = Path("/proc/self/mounts")
_STATUS: Final = Path("/proc/self/status")
_CAP_SYS_ADMIN: Final = 1 << 21
_MIB: Final = 1024 * 1024
# A file takes whole pages, and its name some bytes; and a broker has to be able to start.
_BYTES_PER_FILE: Final = 8 * 1024
_ROOM_MIN_BYTES: Final = 4 * _MIB


class NoSmallDisk(LabError):
    """The logs lie on a disk that others use too."""


def why_no_small_disks() -> str | None:
    """One sentence that says what is missing, or None if disks can be mounted here."""
    if shutil.which("mount") is None or not _MOUNTS.exists():
        return "a disk that can be filled is a tmpfs, which only Linux has"
    if os.geteuid() != 0:
        return "a disk that can be filled has to be mounted, which takes root"
    if not _may_mount():
        return "a disk that can be filled has to be mounted, which root may not do in here"
    return None


def mount(log_dir: Path, *, size_mib: int) -> None:
    """Have a disk there, with the logs that were there before; NoSmallDisk says why not."""
    reason = why_no_small_disks()
    if reason is not None:
        raise NoSmallDisk(reason)
    release(log_dir)
    log_dir.mkdir(parents=True, exist_ok=True)
    _require_room(log_dir, size_mib)
    before = _aside(log_dir, "before")
    log_dir.rename(before)
    log_dir.mkdir()
    try:
        options = f"size={size_mib}m"
        _run("mount", "-t", "tmpfs", "-o", options, _SOURCE, str(log_dir))
        shutil.copytree(before, log_dir, dirs_exist_ok=True)
    except BaseException:
        release(log_dir)
        raise
    _remove(before)


def is_small_disk(log_dir: Path) -> bool:
    """Whether it is one that was mounted here, and may be filled."""
    if not os.path.ismount(log_dir):
        return False
    place = str(log_dir.resolve())
    lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    return any((_SOURCE, place) == _source_and_place(line) for line in lines)


def is_full(log_dir: Path) -> bool:
    """Whether no byte more fits onto the disk that the logs are on."""
    return log_dir.is_dir() and os.statvfs(log_dir).f_bavail == 0


def fill(log_dir: Path) -> None:
    """Leave no room for another byte."""
    if not is_small_disk(log_dir):
        raise NoSmallDisk(
            f"{log_dir} is not on a small disk of its own, so it is not filled: start the cluster "
            "with disks that can be (tidelog up --small-disks 256, as root)"
        )
    disk = os.statvfs(log_dir)
    with (log_dir / _BALLAST).open("wb") as ballast:
        # Not `posix_fallocate` of all at once: brokers write meanwhile, and would make it fail.
        _write_until_full(ballast.fileno(), disk.f_frsize)


def make_room(log_dir: Path) -> bool:
    """Undo `fill`; False if it was not done."""
    try:
        (log_dir / _BALLAST).unlink()
    except FileNotFoundError:
        return False
    return True


def release(log_dir: Path) -> None:
    """Unmount it, and leave what was on it in its place; nothing if there is no such disk."""
    before, kept = _aside(log_dir, "before"), _aside(log_dir, "kept")
    if before.exists():
        _unmount(log_dir)
        before.rename(log_dir)
    elif not kept.exists() and is_small_disk(log_dir):
        make_room(log_dir)
        draft = _aside(log_dir, "draft")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(log_dir, draft)
        draft.rename(kept)
    if kept.exists():
        _unmount(log_dir)
        kept.rename(log_dir)
    shutil.rmtree(_aside(log_dir, "draft"), ignore_errors=True)


def _unmount(log_dir: Path) -> None:
    """Leave nothing there: what counts is elsewhere."""
    if is_small_disk(log_dir):
        # Somebody may look into it at the moment.
        _run("umount", "--lazy", str(log_dir))
    if log_dir.exists():
        log_dir.rmdir()


def _aside(log_dir: Path, suffix: str) -> Path:
    return log_dir.with_name(f"{log_dir.name}.{suffix}")


def _remove(before: Path) -> None:
    """Have the disk count from now on: what is half removed must not."""
    draft = before.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    before.rename(draft)
    shutil.rmtree(draft)


def _require_room(log_dir: Path, size_mib: int) -> None:
    files = [path for path in log_dir.rglob("*") if path.is_file()]
    needed_bytes = _ROOM_MIN_BYTES + sum(path.stat().st_size + _BYTES_PER_FILE for path in files)
    if needed_bytes > size_mib * _MIB:
        raise NoSmallDisk(
            f"a disk of {size_mib} MiB is too small for {log_dir}: it takes "
            f"{-(-needed_bytes // _MIB)} MiB"
        )


def _may_mount() -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", _STATUS.read_text("utf-8"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) & _CAP_SYS_ADMIN)


def _source_and_place(line: str) -> tuple[str, str]:
    """Of a line of the kernel's table, in which blanks of names are octal numbers."""
    source, place, *_ = line.split(" ")
    return source, re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place)


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
