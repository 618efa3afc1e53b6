"""A port that one process has chosen is not chosen by another, until the first has ended (O4)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidelog.lab import port_claims

PORT = 12_345
CLAIM = f"""
import pathlib, sys
from tidelog.lab import port_claims
port_claims.SHARED_BY_ALL = pathlib.Path(sys.argv[1])
print(port_claims.claim({PORT}), port_claims.claim({PORT}), flush=True)
input()
"""


@contextmanager
def claiming(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """A process that claims the port twice, and lives until it is ended; what it was told."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_port_is_one_process_s_until_that_is_killed(tmp_path: Path) -> None:
    with claiming(tmp_path) as (first, told_first):
        with claiming(tmp_path) as (_second, told_second):
            assert (told_first, told_second) == (b"True False", b"False False")
        first.kill()
        first.wait()
        with claiming(tmp_path) as (_third, told_third):
            assert told_third == b"True False"


def test_only_the_latest_ports_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_claims, "CLAIMED_MAX", 2)
    monkeypatch.setattr(port_claims, "_claimed", type(port_claims._claimed)())
    monkeypatch.setattr(port_claims, "_files", {})
    monkeypatch.setattr(port_claims, "SHARED_BY_ALL", tmp_path)
    assert [port_claims.claim(port) for port in (PORT, PORT + 1, PORT + 2)] == [True] * 3
    with claiming(tmp_path) as (_other, told):
        assert told == b"True False"
    assert not port_claims.claim(PORT + 1)
