"""ZooKeeper servers for tests; they do not outlive them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.support.server_process import die_with_parent
from tidelog.lab.zookeeper import ZooKeeperEnsemble, why_unavailable

READY_WITHIN_S = 60.0


class ServersForTests(ZooKeeperEnsemble):
    """To be started and restarted on a thread that lives as long as they should."""

    def launch(self, command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
        )

    def wait(self) -> None:
        """Return once every server serves that was not killed."""
        self.wait_until_serving(within_s=READY_WITHIN_S, is_cancelled=lambda: False)


def start_servers(folder: Path, *, server_count: int) -> ServersForTests:
    """Servers that serve; skips the test where there can be none."""
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(reason)
    servers = ServersForTests(folder, server_count=server_count, port=0)
    servers.start(ready_within_s=READY_WITHIN_S, is_cancelled=lambda: False)
    return servers
