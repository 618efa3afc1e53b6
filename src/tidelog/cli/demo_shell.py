"""Commands of tidelog, run for somebody who looks on: what is typed, then what it prints."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tidelog.base.errors import TidelogError
from tidelog.cli.output import print_line
from tidelog.cli.program import program


class DemoFailed(TidelogError):
    """A command did not do what it should have done."""


class DemoShell:
    """Runs commands with variables that were exported; what they print is seen, or returned."""

    def __init__(self) -> None:
        self._exported: dict[str, str] = {}

    def export(self, name: str, value: str) -> None:
        print_line(f"$ export {name}={shlex.quote(value)}")
        self._exported[name] = value

    def show(self, *arguments: str) -> int:
        """Run it in view; its exit code is 0 or 1, the answer to what it was asked."""
        print_command(*arguments)
        sys.stdout.flush()
        code = subprocess.run(_command(arguments), env=self._environment, check=False).returncode
        if code not in (0, 1):
            raise DemoFailed(f"{_typed(arguments)} ended with {code}")
        return code

    def ask(self, *arguments: str) -> Any:
        """Run it out of view and return its answer, which may be that something is amiss."""
        done = subprocess.run(
            [*_command(arguments), "--json"],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or not done.stdout:
            raise DemoFailed(f"{_typed(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    @contextmanager
    def beside(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """Run it in the background, to its end unless somebody is in a hurry."""
        print_line(f"$ {_typed(arguments)} &")
        sys.stdout.flush()
        process = subprocess.Popen(
            _command(arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @property
    def _environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._exported}


def print_command(*arguments: str) -> None:
    print_line(f"$ {_typed(arguments)}")


def _typed(arguments: tuple[str, ...]) -> str:
    return f"{program()} {shlex.join(arguments)}"


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-P", "-m", "tidelog", *arguments]
