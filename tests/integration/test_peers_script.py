"""`lab/peers.py` fetches all or nothing, and says plainly what it lacks."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.lab import peers
from tidelog.lab.peers import KAFKA, PEERS, Peer

SCRIPT = Path(peers.__file__)
COPY_TWO_JARS = """#!/bin/sh
for argument in "$@"; do
  case "$argument" in -DoutputDirectory=*) folder="${argument#*=}" ;; esac
done
mkdir -p "$folder"
echo one > "$folder/one.jar"
echo "[INFO] Copying one.jar to $folder/one.jar"
echo three > "$folder/two.jar"
"""
FAIL_HALF_WAY = COPY_TWO_JARS + 'echo "[ERROR] the registry is away"\nexit 1\n'
NOTHING = "#!/bin/sh\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only folder on the PATH: holds what a test puts there."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    (folder / "mkdir").symlink_to("/bin/mkdir")
    return folder


def test_jars_are_fetched_once(programs: Path, tmp_path: Path) -> None:
    _install(programs, mvn=COPY_TWO_JARS, java=NOTHING)
    first = _run(programs, tmp_path)
    assert first.returncode == 0
    for peer in PEERS:
        found = sorted(path.name for path in _libs(tmp_path, peer).iterdir())
        assert found == ["one.jar", "two.jar"]
    _install(programs, mvn=FAIL_HALF_WAY, java=NOTHING)
    assert _run(programs, tmp_path).returncode == 0


def test_failed_fetch_leaves_nothing_behind(programs: Path, tmp_path: Path) -> None:
    _install(programs, mvn=FAIL_HALF_WAY, java=NOTHING)
    result = _run(programs, tmp_path)
    assert result.returncode == 1
    assert "the registry is away" in result.stdout
    assert list((tmp_path / "peers").iterdir()) == []


def test_damaged_cache_is_fetched_again(programs: Path, tmp_path: Path) -> None:
    _install(programs, mvn=COPY_TWO_JARS, java=NOTHING)
    _run(programs, tmp_path)
    (_libs(tmp_path) / "two.jar").write_text("thr", "utf-8")
    assert _run(programs, tmp_path).returncode == 0
    assert (_libs(tmp_path) / "two.jar").read_text("utf-8") == "three\n"


def test_missing_program_is_named(programs: Path, tmp_path: Path) -> None:
    _install(programs, java=NOTHING)
    result = _run(programs, tmp_path)
    assert result.returncode == 3
    assert "mvn not found on the PATH" in result.stdout


def test_caller_may_go_on_without(programs: Path, tmp_path: Path) -> None:
    assert _run(programs, tmp_path, "--optional").returncode == 0


def _install(folder: Path, **scripts: str) -> None:
    for name, text in scripts.items():
        path = folder / name
        path.write_text(text, "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _run(programs: Path, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", str(SCRIPT), *options],
        env={"PATH": str(programs), "TIDELOG_PEERS": str(tmp_path / "peers")},
        capture_output=True,
        text=True,
        check=False,
    )


def _libs(tmp_path: Path, peer: Peer = KAFKA) -> Path:
    return tmp_path / "peers" / peer.folder.name / "libs"
