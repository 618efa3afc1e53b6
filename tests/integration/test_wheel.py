"""A wheel built from this tree installs in an empty environment and serves from there (G3).

What this finds and nothing else does: a module left out of the wheel, a dependency that only the
developer's environment has, an entry point that leads nowhere.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import tidelog
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, numbered_records, read_partition, send

ROOT = Path(tidelog.__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 300
_BUILD = (sys.executable, "-m", "build", "--wheel", "--no-isolation")


class InstalledBroker(BrokerProcess):
    """`tidelog broker` of another environment, which must not see this tree."""

    def __init__(self, folder: Path, program: Path) -> None:
        super().__init__(folder)
        self._program = program

    def command(self) -> Sequence[str]:
        config = self.folder / "server.properties"
        config.write_text(
            f"node.id=1\nlisteners=PLAINTEXT://{self.bootstrap}\nlog.dirs={self.data_folder}\n",
            encoding="utf-8",
        )
        return [str(self._program), "broker", "--config", str(config)]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "PYTHONPATH": ""}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(*_BUILD, "--outdir", folder, ROOT)
    [built] = folder.glob("tidelog-*.whl")
    return built


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script of an environment that holds the wheel and what it asks for."""
    environment = tmp_path_factory.mktemp("empty") / "venv"
    _run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    _run(
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python),
        *("--constraint", constraints, wheel),
    )
    return environment / "bin" / "tidelog"


def test_the_wheel_holds_every_module_of_the_tree(wheel: Path) -> None:
    in_tree = {path.relative_to(ROOT / "src").as_posix() for path in _modules(ROOT / "src")}
    assert in_tree <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_the_wheel_holds_what_was_compiled(wheel: Path, program: Path) -> None:
    assert "py3-none-any" not in wheel.name
    answer = _ask(program, "from tidelog.broker.shortcuts import is_compiled; is_compiled()")
    assert answer == "True"


def test_a_wheel_without_a_compiler_is_python_alone(tmp_path: Path) -> None:
    _run(*_BUILD, "--outdir", tmp_path, ROOT, pure="1")
    [built] = tmp_path.glob("tidelog-*-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(built).namelist() if name.endswith(".so")]


def test_an_empty_environment_holds_nothing_that_only_tests_need(program: Path) -> None:
    answer = subprocess.run(
        [program.with_name("python"), "-c", "import tidelog, pytest"],
        capture_output=True,
        env=_environment(),
        text=True,
        check=False,
    )
    assert "No module named 'pytest'" in answer.stderr


def test_the_wheel_serves_a_record_in_an_empty_environment(program: Path, tmp_path: Path) -> None:
    records = numbered_records(1, value_size_bytes=100, seed="wheel")
    with InstalledBroker(tmp_path, program) as broker:
        create_topic(broker.bootstrap, "from-the-wheel", partition_count=1, config={})
        send(broker.bootstrap, "from-the-wheel", records, partition=0, settings={"acks": "all"})
        [stored] = read_partition(broker.bootstrap, "from-the-wheel", 0)
        assert (stored.key, stored.value) == (records[0].key, records[0].value)
        assert broker.stop() == 0


def _modules(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if "__pycache__" not in path.parts]


def _ask(program: Path, code: str) -> str:
    """What the installed Python says the last expression of `code` is."""
    *before, last = code.split("; ")
    done = subprocess.run(
        [program.with_name("python"), "-c", "; ".join([*before, f"print({last})"])],
        capture_output=True,
        env=_environment(),
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _run(*command: str | Path, pure: str = "") -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        env={**_environment(), "TIDELOG_PURE_PYTHON": pure},
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
