"""Load generators as children: started, told things, asked what they have measured.

A child is the leader of a session of its own, so that Ctrl-C at the terminal reaches the one that
measures, which ends its children, and not them. What it prints on stderr goes to a file: where it
tries again by itself, that is the only place that says so.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any, Final

from tidelog.bench.errors import Interrupted, LoadFailed
from tidelog.bench.measured import Latencies
from tidelog.bench.tasks import ConsumeTask, SendTask, Sent, Survived

_POLL_S: Final = 0.02
_ENDS_WITHIN_S: Final = 180.0
_COMPLAINT_CHARACTERS_MAX: Final = 300


class LoadProcess:
    """One child that runs; what it has said so far is in `lines`."""

    def __init__(
        self, child: "subprocess.Popen[str]", log: Path, is_cancelled: Callable[[], bool]
    ) -> None:
        self.lines: list[str] = []
        self._child = child
        self._log = log
        self._is_cancelled = is_cancelled
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def tell(self, line: str) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(f"{line}\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def wait_for(self, word: str, *, within_s: float) -> bool:
        """Whether it has said so before the time was up."""
        give_up_at = time.monotonic() + within_s
        while word not in self.lines:
            if self._child.poll() is not None:
                raise self._failure()
            if time.monotonic() >= give_up_at:
                return False
            self._rest()
        return True

    def pass_time(self, seconds: float) -> None:
        """Let the load go on."""
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            if self._child.poll() is not None:
                raise self._failure()
            self._rest()

    def answer(self) -> dict[str, Any]:
        """What it has measured; waits for its end."""
        give_up_at = time.monotonic() + _ENDS_WITHIN_S
        while self._child.poll() is None:
            if time.monotonic() >= give_up_at:
                raise LoadFailed(f"the load did not end within {_ENDS_WITHIN_S:g} s")
            self._rest()
        self._reading.join()
        if self._child.returncode != 0 or not self.lines:
            raise self._failure()
        answered: dict[str, Any] = json.loads(self.lines[-1])
        return answered

    def _rest(self) -> None:
        if self._is_cancelled():
            raise Interrupted("the load has not ended yet")
        time.sleep(_POLL_S)

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.lines.append(line.strip())

    def _failure(self) -> LoadFailed:
        said = [
            line
            for line in self._log.read_text("utf-8", "replace").splitlines()
            if line and not line.startswith("%")
        ]
        reason = said[-1][:_COMPLAINT_CHARACTERS_MAX] if said else "it said nothing"
        return LoadFailed(f"the load failed: {reason}")


class LoadStarter:
    """Starts children that keep their files in `folder`."""

    def __init__(self, folder: Path, is_cancelled: Callable[[], bool]) -> None:
        self.log = folder / "load.log"
        self.ledger = folder / "load.ledger"
        self._is_cancelled = is_cancelled

    def send(self, task: SendTask) -> Sent:
        """Send for a while; what came of it."""
        with self._running("send", task, []) as process:
            return Sent(**process.answer())

    @contextmanager
    def consuming(self, task: ConsumeTask) -> Iterator[LoadProcess]:
        with self._running("consume", task, []) as process:
            yield process

    @contextmanager
    def surviving(self, task: SendTask) -> Iterator[LoadProcess]:
        with self._running("survive", task, [str(self.ledger)]) as process:
            yield process

    @contextmanager
    def _running(
        self, name: str, task: SendTask | ConsumeTask, files: Sequence[str]
    ) -> Iterator[LoadProcess]:
        module = [sys.executable, "-P", "-m", "tidelog.bench.load"]
        # Each its own: two children may run at a time.
        log = self.log.with_name(f"{name}-{self.log.name}")
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [*module, name, json.dumps(asdict(task)), *files],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            ) as child,
        ):
            process = LoadProcess(child, log, self._is_cancelled)
            try:
                yield process
            finally:
                child.kill()

    @property
    def survivor_log(self) -> Path:
        """What the client of `surviving` has said about itself."""
        return self.log.with_name(f"survive-{self.log.name}")


def latencies_from(answer: dict[str, Any]) -> Latencies:
    return Latencies(**{**answer, "curve": tuple(answer["curve"])})


def survived_from(answer: dict[str, Any]) -> Survived:
    return Survived(**answer)
