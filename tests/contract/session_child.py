"""A process that holds a session, to be killed and stopped; `session_process.py` is its program."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import tidelog
from tidelog.coordination.port import Coordinator


class SessionChild:
    """A child that holds a session at `sqlite:PATH` or `zookeeper:HOSTS`."""

    def __init__(self, where: str, session_timeout_ms: int) -> None:
        program = Path(__file__).with_name("session_process.py")
        source = Path(tidelog.__file__).parents[1]
        self._process = subprocess.Popen(
            [sys.executable, str(program), where, str(session_timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        self.session_id = int(self.answer().removeprefix("session "))

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def rest(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.read().splitlines()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


async def until_absent(session: Coordinator, node: str) -> float:
    """How many seconds pass until `node` is gone."""
    begun = time.monotonic()
    async for state in session.watch(node):
        if state is None:
            break
    return time.monotonic() - begun


def held_by(child: SessionChild, node: str) -> None:
    child.tell(f"hold {node}")
    assert child.answer() == "held"
