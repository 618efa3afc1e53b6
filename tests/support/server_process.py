"""A server as a child process: started, watched, stopped, killed and started again.

What every broker under test has in common, tidelog or Apache Kafka. Invariants:

    I1  A child never outlives the process that started it, even if that one is killed.
    I2  Everything the child writes goes to one file, which later starts append to.
    I3  A start returns only when the server is ready, and raises with the server's own words
        if it ended or the time is up.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

POLL_INTERVAL_S = 0.005
STOP_TIMEOUT_S = 60.0
LOG_TAIL_CHARACTERS = 4_000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


class ServerFailed(Exception):
    """The server ended or stayed silent; the message carries the end of its output."""


def wait_until(condition: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Return once `condition` holds; raise TimeoutError naming `what` if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s} s: {what}")
        time.sleep(POLL_INTERVAL_S)


class ServerProcess:
    """One child process at a time, always with the same command and folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._output_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and return when ready."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start and return at once, for whoever measures how long readiness takes."""
        assert not self.is_running
        self.folder.mkdir(parents=True, exist_ok=True)
        self._output_start = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
            )

    def wait_ready(self) -> None:
        try:
            wait_until(
                lambda: not self.is_running or self.is_ready(),
                within_s=self.start_timeout_s(),
                what="the server is ready",
            )
        except TimeoutError as error:
            self.kill()
            raise ServerFailed(f"{error}\n{self._log_tail()}") from error
        if not self.is_running:
            raise ServerFailed(f"ended with {self._exit_code()} before ready\n{self._log_tail()}")

    def stop(self) -> int:
        """Ask it to end with SIGTERM; return its exit code."""
        return self.end(signal.SIGTERM)

    def kill(self) -> None:
        """End it with SIGKILL: no code of the server runs after this. Ended already is fine."""
        if self.is_running:
            self.end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it with SIGSTOP: it does nothing more, and nobody it talks to is told."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on with SIGCONT; it does not know that it was paused."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_text(self) -> str:
        """All the server wrote, over all starts."""
        return self.output.read_text("utf-8", "replace") if self.output.exists() else ""

    def log_text_of_this_start(self) -> str:
        with self.output.open("rb") as output:
            output.seek(self._output_start)
            return output.read().decode("utf-8", "replace")

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return {}

    def is_ready(self) -> bool:
        raise NotImplementedError

    def start_timeout_s(self) -> float:
        return 60.0

    def end(self, number: signal.Signals) -> int:
        """Send it `number`, which ends it; return its exit code."""
        self._signal(number)
        assert self._process is not None
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ServerFailed(f"did not end on {number.name}\n{self._log_tail()}") from None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "not started"
        self._process.send_signal(number)

    def _exit_code(self) -> int | None:
        return None if self._process is None else self._process.returncode

    def _log_tail(self) -> str:
        return self.log_text_of_this_start()[-LOG_TAIL_CHARACTERS:]


def die_with_parent() -> None:
    """For a child that is about to run; its parent is the thread that started it."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
