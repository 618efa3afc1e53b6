"""Processes that somebody else may have started, and that must not be mistaken for others.

A process id is used again sooner or later. A process is therefore known by its id *and* by when it
started; nothing is signalled whose start differs from what was written down.
"""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process and no other, ever. `start_mark` means something on this machine only."""

    pid: int
    start_mark: str


def identify(pid: int) -> ProcessIdentity | None:
    """Who has this id now; None if nobody has, or only a corpse that was not buried."""
    mark = _mark_from_proc(pid) if _PROC.joinpath("self", "stat").exists() else _mark_from_ps(pid)
    return None if mark is None else ProcessIdentity(pid, mark)


def is_running(process: ProcessIdentity) -> bool:
    return identify(process.pid) == process


def is_paused(process: ProcessIdentity) -> bool:
    """Whether it was stopped by a signal, and waits to be continued."""
    if not is_running(process):
        return False
    try:
        stat = _PROC.joinpath(str(process.pid), "stat").read_text()
    except OSError:
        return _state_from_ps(process.pid).startswith("T")
    return stat.rpartition(")")[2].split()[0] == "T"


def send_signal(process: ProcessIdentity, signal_number: int) -> bool:
    """Signal the process; False if it is gone, whoever has its id now."""
    if not is_running(process):
        return False
    try:
        os.kill(process.pid, signal_number)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(process: ProcessIdentity, *, timeout_s: float) -> bool:
    """Whether the process ended within `timeout_s`. It need not be a child of ours."""
    give_up_at = time.monotonic() + timeout_s
    while is_running(process):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True


def _mark_from_proc(pid: int) -> str | None:
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_text()
        boot_id = _PROC.joinpath("sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The name in parentheses may hold anything, so fields are counted from its end.
    fields = stat.rpartition(")")[2].split()
    state, thread_count, start_ticks = fields[0], int(fields[17]), fields[19]
    # A corpse whose other threads are still dying holds its ports and locks like the living.
    has_ended = state in {"Z", "X"} and thread_count <= 1
    return None if has_ended else f"{boot_id}/{start_ticks}"


def _mark_from_ps(pid: int) -> str | None:
    """On systems without /proc. The second is as exact as it gets there."""
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else " ".join(started.split())


def _state_from_ps(pid: int) -> str:
    asked = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()
