"""Programs of other languages, made ready to run by the tools of their language.

What such a tool starts outlives it when it is killed, and keeps its output open: whoever waits for
the end of that waits for ever. So a tool has a process group of its own, which ends as a whole.
"""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

FETCH_TIMEOUT_S = 120
FETCH_ATTEMPTS = 2
BUILD_TIMEOUT_S = 480


def fetch_or_skip(folder: Path, *command: str) -> None:
    """Have `command` bring what a program needs; the test is skipped where it does not arrive."""
    reason = ""
    for _attempt in range(FETCH_ATTEMPTS):
        try:
            done = run_whole(command, folder, timeout_s=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            reason = f"brought nothing within {FETCH_TIMEOUT_S} s"
            continue
        if done.returncode == 0:
            return
        reason = f"failed: {done.stderr.decode(errors='replace').strip()}"
    pytest.skip(f"`{' '.join(command)}` {reason}")


def build(folder: Path, *command: str) -> None:
    done = run_whole(command, folder, timeout_s=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def run_whole(
    command: Sequence[str], folder: Path, *, timeout_s: float
) -> subprocess.CompletedProcess[bytes]:
    """`subprocess.run` in `folder`; what it has started ends with it when time is up."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=timeout_s)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)
