"""Clusters and brokers started, watched and stopped from the command line (O1, G3).

Every command runs as a child with its own stdin, stdout and stderr, and is judged by what it prints
where, by its exit code, and by the processes it leaves behind.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import COMMAND_TIMEOUT_S, Cluster, environment, objects, tidelog
from tests.support.server_process import wait_until
from tidelog.lab.launch import GUARD, MALLOC_SETTINGS

READY_LINE = b"listening on"
HEAVY_MODULES = ("typer", "rich", "confluent_kafka", "kio")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.down()


def test_detached_cluster_is_ready_when_the_command_returns(cluster: Cluster) -> None:
    [broker] = cluster.announced["brokers"]
    assert cluster.bootstrap == f"127.0.0.1:{broker['port']}"
    socket.create_connection(("127.0.0.1", broker["port"]), timeout=5).close()


def test_status_shows_every_broker(cluster: Cluster) -> None:
    done = tidelog("status", "--json", "--data", str(cluster.data))
    assert (done.returncode, done.stderr) == (0, b"")
    [status] = objects(done.stdout)
    [broker] = status["brokers"]
    assert broker["uptime_s"] > 0
    assert broker == {
        **cluster.announced["brokers"][0],
        "controller": True,
        "alive": True,
        "uptime_s": broker["uptime_s"],
    }
    assert status["controller"] == 1
    assert status["cluster_id"]
    assert status["topics"] <= status["partitions"]


def test_status_for_people_says_the_same(cluster: Cluster) -> None:
    done = tidelog("status", "--data", str(cluster.data))
    assert done.returncode == 0
    assert str(cluster.announced["brokers"][0]["pid"]).encode() in done.stdout


def test_second_cluster_in_the_same_folder_is_refused(cluster: Cluster) -> None:
    done = tidelog("up", "--detach", "--port", "0", "--data", str(cluster.data))
    assert done.returncode == 2
    assert b"--data" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_port_in_use_is_refused_by_name(cluster: Cluster, tmp_path: Path) -> None:
    port = cluster.announced["brokers"][0]["port"]
    done = tidelog("up", "--port", str(port), "--data", str(tmp_path))
    assert done.returncode == 2
    assert b"--port" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_nothing_runs_in_an_empty_folder(tmp_path: Path) -> None:
    for command in ("status", "down"):
        done = tidelog(command, "--data", str(tmp_path))
        assert done.returncode == 1
        assert str(tmp_path).encode() in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_down_stops_the_cluster_and_up_finds_its_data_again(tmp_path: Path) -> None:
    first = Cluster(tmp_path)
    first.ok("produce", "kept", stdin=b"record\n")
    done = tidelog("down", "--json", "--data", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, b"")
    assert objects(done.stdout) == [{"stopped": [1]}]
    assert not (tmp_path / "cluster.json").exists()
    second = Cluster(tmp_path)
    try:
        assert second.ok("consume", "kept") == b"record\n"
    finally:
        second.down()


def test_broker_that_was_killed_is_reported(tmp_path: Path) -> None:
    killed = Cluster(tmp_path)
    os.kill(killed.announced["brokers"][0]["pid"], signal.SIGKILL)

    def is_reported() -> bool:
        done = tidelog("status", "--json", "--data", str(tmp_path))
        [broker] = json.loads(done.stdout)["brokers"]
        return done.returncode == 1 and not broker["alive"]

    wait_until(is_reported, within_s=20, what="status says that the broker is dead")
    assert tidelog("down", "--data", str(tmp_path)).returncode == 1


def test_down_spares_a_stranger_with_the_same_process_id(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        broker = {"id": 1, "host": "127.0.0.1", "port": 1, "started_ms": 1}
        state = {"version": 1, "brokers": [{**broker, "pid": stranger.pid, "start_mark": "x/1"}]}
        (tmp_path / "cluster.json").write_text(json.dumps(state))
        assert tidelog("down", "--kill", "--data", str(tmp_path)).returncode == 1
        assert stranger.poll() is None
        stranger.kill()


class Foreground:
    """`tidelog up` with its terminal taken away: it prints to pipes."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "tidelog", "up", "--port", "0"),
                *("--data", str(data), "--set", "nonsense.setting=1"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        assert self.process.stdout is not None
        self.welcome = b""
        while b"Ctrl-C stops it" not in self.welcome:
            line = self.process.stdout.readline()
            assert line, self.process.communicate()
            self.welcome += line
        [broker] = json.loads((data / "cluster.json").read_text())["brokers"]
        self.broker_pid: int = broker["pid"]
        self.address = f"{broker['host']}:{broker['port']}"

    def end(self) -> tuple[int, bytes, bytes]:
        output, complaints = self.process.communicate(timeout=COMMAND_TIMEOUT_S)
        return self.process.returncode, output, complaints


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[Foreground]:
    started = Foreground(tmp_path)
    yield started
    started.process.kill()
    started.process.communicate()
    tidelog("down", "--kill", "--timeout", "0", "--data", str(tmp_path))


def test_welcome_names_address_folder_and_three_commands(foreground: Foreground) -> None:
    welcome = foreground.welcome.decode()
    assert foreground.address in welcome
    assert str(foreground.data) in welcome
    for command in ("topics create demo", "produce demo", "consume demo"):
        assert f"tidelog {command}" in welcome


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_foreground_cluster_stops_cleanly(foreground: Foreground, ending: signal.Signals) -> None:
    foreground.process.send_signal(ending)
    code, output, complaints = foreground.end()
    assert code == 0, complaints
    assert b"Stopped cleanly" in output
    assert not (foreground.data / "cluster.json").exists()
    assert (foreground.data / "broker-1" / "logs" / ".kafka_cleanshutdown").exists()


def test_second_ctrl_c_kills_a_broker_that_hangs(foreground: Foreground) -> None:
    os.kill(foreground.broker_pid, signal.SIGSTOP)
    foreground.process.send_signal(signal.SIGINT)
    assert foreground.process.stdout is not None
    while b"Stopping" not in (line := foreground.process.stdout.readline()):
        assert line, foreground.end()
    foreground.process.send_signal(signal.SIGINT)
    code, _output, complaints = foreground.end()
    assert code == 1
    assert b"killed" in complaints


def test_death_of_a_broker_is_said_with_its_last_lines(foreground: Foreground) -> None:
    os.kill(foreground.broker_pid, signal.SIGKILL)
    code, _output, complaints = foreground.end()
    assert code == 1
    assert b"broker 1 was killed by SIGKILL" in complaints
    assert READY_LINE in complaints


def test_broker_stopped_by_somebody_else_is_no_accident(foreground: Foreground) -> None:
    assert tidelog("down", "--data", str(foreground.data)).returncode == 0
    code, output, _complaints = foreground.end()
    assert code == 0
    assert b"stopped by somebody else" in output


def test_warnings_of_a_broker_reach_the_terminal_and_routine_does_not(
    foreground: Foreground,
) -> None:
    foreground.process.send_signal(signal.SIGINT)
    code, output, complaints = foreground.end()
    assert code == 0
    assert b"nonsense.setting" in complaints
    assert b" INFO " not in complaints
    assert READY_LINE not in output


def test_foreground_cluster_does_not_outlive_its_reader(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tidelog", "up", "--port", "0", "--data", str(data)],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as up:
        assert up.stdout is not None
        up.stdout.close()
        assert up.wait(COMMAND_TIMEOUT_S) == 0
    assert tidelog("status", "--data", str(data)).returncode == 1
    assert not (data / "cluster.json").exists()


def test_setting_that_no_broker_takes_ends_up_before_it_starts(tmp_path: Path) -> None:
    done = tidelog("up", "--data", str(tmp_path / "data"), "--set", "num.partitions=none")
    assert done.returncode == 2
    assert b"num.partitions" in done.stderr
    assert not (tmp_path / "data").exists()


def wait_for_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    while READY_LINE not in (line := process.stdout.readline()):
        assert line, process.communicate()


def broker_arguments(folder: Path) -> list[str]:
    config = folder / "server.properties"
    config.write_text(f"node.id=7\nlog.dirs={folder / 'logs'}\n")
    return ["broker", "--config", str(config), "--set", "listeners=PLAINTEXT://127.0.0.1:0"]


def as_module(_folder: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "tidelog"]


def as_script(folder: Path) -> list[str]:
    """What installing the package puts into bin/."""
    script = folder / "tidelog"
    script.write_text("import sys\nfrom tidelog.__main__ import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the environment of a process")
@pytest.mark.parametrize("command", [as_module, as_script])
def test_broker_starts_itself_again_with_malloc_settings(tmp_path: Path, command: Any) -> None:
    with subprocess.Popen(
        [*command(tmp_path), *broker_arguments(tmp_path)],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        wait_for_ready(process)
        # The same process id: it was replaced, not doubled.
        entries = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        found = dict(entry.decode().split("=", 1) for entry in entries if entry)
        process.terminate()
        assert process.wait(COMMAND_TIMEOUT_S) == 0
    assert found[GUARD] == "1"
    assert MALLOC_SETTINGS.items() <= found.items()


def test_broker_loads_nothing_of_the_command_line(tmp_path: Path) -> None:
    with (
        (tmp_path / "imports").open("wb") as imports,
        subprocess.Popen(
            [
                sys.executable,
                "-X",
                "importtime",
                "-P",
                "-m",
                "tidelog",
                *broker_arguments(tmp_path),
            ],
            stdout=subprocess.PIPE,
            stderr=imports,
            env=environment(),
        ) as process,
    ):
        wait_for_ready(process)
        process.terminate()
        process.wait(COMMAND_TIMEOUT_S)
    loaded = (tmp_path / "imports").read_text()
    names = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in loaded.splitlines()}
    assert "uvloop" in names
    assert names.isdisjoint(HEAVY_MODULES)


def test_python_without_assertions_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-P", "-m", "tidelog", "--version"],
        capture_output=True,
        check=False,
        env=environment(),
    )
    assert done.returncode == 2
    assert b"python -O" in done.stderr


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("num.partitions=0", b"num.partitions"),
        ("listeners=nonsense", b"listeners"),
        ("log.retention.ms", b"log.retention.ms"),
        ("tidelog.nonsense=1", b"tidelog.nonsense"),
    ],
)
def test_broker_names_a_wrong_setting(tmp_path: Path, setting: str, named: bytes) -> None:
    done = tidelog(*broker_arguments(tmp_path), "--set", setting)
    assert done.returncode == 2
    assert done.stdout == b""
    assert named in done.stderr
    assert done.stderr.count(b"\n") == 1
