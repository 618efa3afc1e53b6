"""Nothing of a test's cluster is left behind by a test process that was killed.

Whoever starts clusters has one guardian, a process that knows of their folders. When its starter is
gone, in whichever way, it kills the brokers that run in them and removes the folders.

It is not the kernel's `PR_SET_PDEATHSIG`, which counts the thread that started a broker as its
parent, is unknown to macOS, and leaves the files.
"""

import atexit
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

FORGET: Final = "-"
WATCH: Final = "+"
_END_WITHIN_S: Final = 10.0


class Guardian:
    """The process, for the process that started it; a fork of that one needs its own."""

    def __init__(self) -> None:
        self._starter = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tidelog.testing.guard_process", str(self._starter)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # A Ctrl-C at the terminal is for the tests, which need it until they have ended.
            start_new_session=True,
        )
        atexit.register(self._let_go)

    @property
    def is_ours(self) -> bool:
        return self._starter == os.getpid()

    def tell(self, word: str, folder: Path) -> None:
        with suppress(BrokenPipeError):  # Somebody killed it: there is nobody to tell.
            self._input.write(os.fsencode(f"{word}{folder}\n"))
            self._input.flush()

    def _let_go(self) -> None:
        """At the end of the process: what is left it ends, and then itself."""
        if not self.is_ours:
            return
        with suppress(BrokenPipeError):
            self._input.close()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin


_guardians: Final[list[Guardian]] = []


def watch_folder(folder: Path) -> None:
    """Have the cluster in `folder` ended, and the folder removed, when this process has ended."""
    _guardian().tell(WATCH, folder)


def forget_folder(folder: Path) -> None:
    """The cluster has been ended; what is in its folder is somebody's."""
    _guardian().tell(FORGET, folder)


def _guardian() -> Guardian:
    if not _guardians or not _guardians[-1].is_ours:
        _guardians.append(Guardian())
    return _guardians[-1]
