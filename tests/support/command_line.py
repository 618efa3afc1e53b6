"""The command line as children of a test: what is typed, what is printed, the exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND_TIMEOUT_S = 60


def environment(**changes: str) -> dict[str, str]:
    """What a terminal would hand to a command, less what this test run was started with."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TIDELOG_", "MALLOC_"))
    }
    return {**inherited, **changes}


def tidelog(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "tidelog", *arguments],
        input=stdin,
        capture_output=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
        env=environment(),
    )


def objects(output: bytes) -> list[dict[str, Any]]:
    """The JSON objects in `output`, one per line."""
    return [json.loads(line) for line in output.splitlines()]


class Cluster:
    """A cluster that `tidelog up --detach` started, and commands that talk to it."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        started = tidelog(
            *("up", "--detach", "--port", "0", "--json", "--data", str(data)), *arguments
        )
        assert started.returncode == 0, started.stderr
        self.announced = json.loads(started.stdout)
        self.bootstrap: str = self.announced["bootstrap"]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return tidelog(*arguments, "--bootstrap", self.bootstrap, stdin=stdin)

    def ok(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """What a command that has to succeed, in silence, printed."""
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    def no(self, *arguments: str, exit_code: int, stdin: bytes = b"") -> str:
        """The one sentence with which a command failed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == exit_code, done.stderr
        sentence = done.stderr.decode()
        assert sentence.count("\n") == 1
        assert sentence.startswith("tidelog ")
        return sentence

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "tidelog", *arguments, "--bootstrap", self.bootstrap],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )

    def local(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """A command on the folder of the cluster rather than on its brokers."""
        return tidelog(*arguments, "--data", str(self.data))

    def down(self) -> None:
        tidelog("down", "--kill", "--timeout", "20", "--data", str(self.data))
