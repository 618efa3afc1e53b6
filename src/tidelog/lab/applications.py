"""Transformers as processes: started, killed, paused, and started again when they give up."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidelog.lab.points import SIGNALS, Point
from tidelog.lab.transformer import GAVE_UP

_STOP_WITHIN_S: Final = 30.0
# An application without anything to do does not get to the point where it is to die.
_DIE_WITHIN_S: Final = 5.0


class Applications:
    """One process for each name. `command` are the arguments of a transformer of that name."""

    def __init__(self, folder: Path, command: Callable[[str], list[str]]) -> None:
        self._folder = folder
        self._command = command
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.given_up = 0
        """How often one has ended because it was fenced, or could not go on."""
        self.problems: list[str] = []

    @property
    def names(self) -> list[str]:
        return list(self._processes)

    def start(self, name: str) -> None:
        with self._output(name).open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "tidelog.lab.transformer", *self._command(name)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )

    def kill(self, name: str, point: Point | None) -> None:
        """At that point of its next transaction, or wherever it is."""
        process = self._processes[name]
        if point is not None:
            process.send_signal(SIGNALS[point])
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DIE_WITHIN_S)
        process.kill()
        process.wait()

    def pause(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    def replace_those_that_gave_up(self) -> None:
        """Who ended in any other way is a problem, and is replaced as well."""
        for name, process in list(self._processes.items()):
            code = process.poll()
            if code is None or code == -signal.SIGKILL:
                continue
            if code == GAVE_UP:
                self.given_up += 1
            else:
                self.problems.append(f"{name} ended with {code}: {self._last_line(name)}")
            self.start(name)

    def stop(self) -> None:
        """Let each end its transaction; who does not is killed, which is fine as well."""
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _output(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _last_line(self, name: str) -> str:
        lines = self._output(name).read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else "it said nothing"
