"""What a process has started is found, so that the lab can kill it (B3)."""

import subprocess
import sys

from tests.support.server_process import wait_until
from tidelog.lab.descendants import descendants

WAITS = "import sys; sys.stdin.read()"
STARTS_ONE_MORE = (
    f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {WAITS!r}]); sys.stdin.read()"
)


def test_processes_are_found_however_far_below() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE_MORE], stdin=subprocess.PIPE
    ) as started:
        own = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE)
        try:
            wait_until(lambda: len(descendants(started.pid)) == 1, within_s=30, what="a child")
            (child,) = descendants(started.pid)
            assert WAITS in child.command
            assert not child.is_java
            assert child.pid != own.pid
        finally:
            started.communicate()
            own.communicate()
    assert descendants(started.pid) == []
