"""A wheel built from this tree installs in an empty environment and serves from there (G3, X1).

What this finds and nothing else does: a module left out of the wheel, a dependency that only the
developer's environment has, an entry point that leads nowhere, a command in the README that does
not do what the README says.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import tidelog
from tests.support.broker_process import BrokerProcess
from tests.support.clients import create_topic, numbered_records, read_partition, send
from tests.support.spark_job import QUICK_JAVA, without_java_notes
from tidelog.pipeline.java import find_java, java_home, package_folder

ROOT = Path(tidelog.__file__).resolve().parents[2]
INSTALL_TIMEOUT_S = 300
# In a session that knows of tidelog only what Spark finds by itself.
UNREGISTERED_JOB = """\
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
reader = spark.read.format("tidelog").option("kafka.bootstrap.servers", sys.argv[1])
print(reader.option("subscribe", sys.argv[2]).load().count())
"""
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
    environment = _empty_environment(tmp_path_factory.mktemp("empty") / "venv")
    _run(*_installation(environment), wheel)
    return environment / "bin" / "tidelog"


@pytest.fixture(scope="module")
def second_minute(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["SecondMinute"]:
    """What the README says of Spark, done: installed, a cluster that is up, a job that ended."""
    folder = tmp_path_factory.mktemp("second-minute")
    commands = SecondMinute(_empty_environment(folder / "venv"), folder)
    try:
        commands.run(wheel)
        yield commands
    finally:
        commands.down()


class SecondMinute:
    """The commands of the section "Spark over a topic", as they are typed in this folder.

    All that is changed: what is installed is the wheel, by uv, and the cluster has ports of its own
    and its folder here.
    """

    def __init__(self, environment: Path, folder: Path) -> None:
        self.environment = environment
        self._variables = {
            **_environment(),
            **QUICK_JAVA,
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
            "TIDELOG_DATA": str(folder / "data"),
        }
        section = (ROOT / "README.md").read_text("utf-8").partition("\n## Spark over a topic\n")[2]
        block = section.partition("```\n")[2].partition("```")[0]
        self.commands = [line.removeprefix("$ ") for line in block.splitlines()]
        self.bootstrap = ""
        self.printed = ""

    def run(self, wheel: Path) -> None:
        """Raise AssertionError unless they are the three that are described here."""
        install, up, job = self.commands
        [extra] = re.findall(r"^pip install '\.\[(\w+)\]'$", install)
        _install_with_spark(self.environment, f"{wheel}[{extra}]")
        announced = self.output_of(*shlex.split(up), "--port", "0", "--json")
        self.bootstrap = json.loads(announced)["bootstrap"]
        self._variables["TIDELOG_BOOTSTRAP"] = self.bootstrap
        self.printed = self.output_of(*shlex.split(job))

    def output_of(self, *command: str) -> str:
        done = self._done(*command)
        assert (done.returncode, without_java_notes(done.stderr)) == (0, ""), command
        return done.stdout

    def unregistered_job(self, topic: str) -> str:
        """Spark's own words are on its standard error."""
        self._variables["JAVA_HOME"] = str(java_home(find_java()))
        done = self._done("python", "-c", UNREGISTERED_JOB, self.bootstrap, topic)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def down(self) -> None:
        self._done("tidelog", "down", "--kill")

    def _done(self, *command: str) -> subprocess.CompletedProcess[str]:
        program = self.environment / "bin" / command[0]
        return subprocess.run(
            [program, *command[1:]],
            cwd=ROOT,
            env=self._variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )


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


@pytest.mark.skipif(package_folder("pyspark") is None, reason="Spark is not installed here")
def test_the_readmes_second_minute_is_three_commands(second_minute: SecondMinute) -> None:
    """X1. Nothing of it sees this tree but the program that is run."""
    orders = re.findall(r"^\| *\d+\| *(\d+)\| *\d+\|$", second_minute.printed, re.MULTILINE)
    assert sum(map(int, orders)) == 100_000
    where = second_minute.output_of("python", "-c", "import tidelog; print(tidelog.__file__)")
    assert Path(where).is_relative_to(second_minute.environment)


@pytest.mark.skipif(package_folder("pyspark") is None, reason="Spark is not installed here")
def test_spark_finds_the_format_where_the_wheel_is_installed(second_minute: SecondMinute) -> None:
    topic = shlex.split(second_minute.commands[-1])[-1]
    assert second_minute.unregistered_job(topic) == "100000\n"


def _empty_environment(folder: Path) -> Path:
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder


def _installation(environment: Path) -> list[str | Path]:
    """The command, less what is to be installed."""
    return [
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet"),
        *("--python", environment / "bin" / "python", "--constraint", ROOT / "constraints.txt"),
    ]


def _install_with_spark(environment: Path, wheel: str) -> None:
    """From uv's cache if all of it is there, which takes no time: Spark alone is 450 MB."""
    cached = subprocess.run(
        [*_installation(environment), "--offline", wheel],
        capture_output=True,
        env=_environment(),
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if cached.returncode != 0:
        _run(*_installation(environment), wheel)


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
