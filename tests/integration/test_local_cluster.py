"""Clusters and brokers started, watched and stopped from the command line (O1, G3).

Every command runs as a child with its own stdin, stdout and stderr, and is judged by what it prints
where, by its exit code, and by the processes it leaves behind.
"""

import json
import os
import signal
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
ONE_BROKER = ("--brokers", "1")
THROTTLED = "follower.replication.throttled.replicas"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, none of which a test may end."""
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.down()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers that a test may do anything to."""
    started = Cluster(tmp_path)
    yield started
    started.down()


def status_of(cluster: Cluster) -> dict[str, Any]:
    [status] = objects(cluster.local("status", "--json").stdout)
    return status


def alive(cluster: Cluster) -> list[int]:
    return [broker["id"] for broker in status_of(cluster)["brokers"] if broker["alive"]]


def is_healthy(cluster: Cluster) -> bool:
    return cluster.local("status").returncode == 0


def leader_of(cluster: Cluster, topic: str) -> int:
    done = cluster.run("topics", "describe", topic, "--json")
    leader: int = json.loads(done.stdout)["partitions"][0]["leader"]
    return leader


def test_detached_cluster_is_ready_when_the_command_returns(cluster: Cluster) -> None:
    """Three brokers by default, each of which knows all of them."""
    brokers = cluster.announced["brokers"]
    assert [broker["id"] for broker in brokers] == [1, 2, 3]
    assert len({broker["pid"] for broker in brokers}) == 3
    assert cluster.bootstrap == ",".join(f"127.0.0.1:{broker['port']}" for broker in brokers)
    for broker in brokers:
        address = f"127.0.0.1:{broker['port']}"
        [shown] = objects(tidelog("cluster", "--json", "--bootstrap", address).stdout)
        assert [each["id"] for each in shown["brokers"]] == [1, 2, 3]


def test_new_topic_is_on_all_three_brokers(cluster: Cluster) -> None:
    cluster.ok("topics", "create", "replicated")
    [described] = objects(cluster.ok("topics", "describe", "replicated", "--json"))
    assert sorted(described["partitions"][0]["isr"]) == [1, 2, 3]


def test_status_shows_every_broker(cluster: Cluster) -> None:
    done = cluster.local("status", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    [status] = objects(done.stdout)
    for announced, broker in zip(cluster.announced["brokers"], status["brokers"], strict=True):
        assert announced.items() <= broker.items()
        assert broker["alive"]
        assert broker["uptime_s"] > 0
        assert broker["controller"] == (broker["id"] == status["controller"])
        assert broker["in_cluster"]
        assert broker["leads"] <= broker["replicas"]
    assert status["controller"] in {1, 2, 3}
    assert status["cluster_id"]
    assert (status["under_replicated"], status["offline"]) == (0, 0)
    assert status["topics"] <= status["partitions"]


def test_status_for_people_says_the_same(cluster: Cluster) -> None:
    done = cluster.local("status")
    assert done.returncode == 0
    for broker in cluster.announced["brokers"]:
        assert str(broker["pid"]).encode() in done.stdout


def test_second_cluster_in_the_same_folder_is_refused(cluster: Cluster) -> None:
    done = cluster.local("up", "--detach", "--port", "0")
    assert done.returncode == 2
    assert b"--data" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("index", [0, 2])
def test_port_in_use_is_refused_by_name(cluster: Cluster, tmp_path: Path, index: int) -> None:
    """Whichever of the three it is, nothing is left running."""
    port = cluster.announced["brokers"][index]["port"]
    first_port = port - index
    done = tidelog("up", "--port", str(first_port), "--data", str(tmp_path))
    assert done.returncode == 2
    assert f"{first_port} to {first_port + 2}".encode() in done.stderr
    assert b"--port" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "cluster.json").exists()


def test_nothing_runs_in_an_empty_folder(tmp_path: Path) -> None:
    for command in (["status"], ["down"], ["kill", "1"], ["stop", "1"], ["restart", "1"]):
        done = tidelog(*command, "--data", str(tmp_path / "none"))
        assert done.returncode == 1
        assert str(tmp_path / "none").encode() in done.stderr
        assert done.stderr.count(b"\n") == 1
        assert not (tmp_path / "none").exists()


def test_down_stops_the_cluster_and_up_finds_its_data_again(tmp_path: Path) -> None:
    first = Cluster(tmp_path)
    first.ok("produce", "kept", stdin=b"record\n")
    done = first.local("down", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert objects(done.stdout) == [{"stopped": [1, 2, 3]}]
    assert not (tmp_path / "cluster.json").exists()
    for broker_id in (1, 2, 3):
        assert (tmp_path / f"broker-{broker_id}" / "logs" / ".kafka_cleanshutdown").exists()
    second = Cluster(tmp_path)
    try:
        assert second.ok("consume", "kept") == b"record\n"
    finally:
        second.down()


def test_broker_that_is_alone_does_not_wait_for_others_to_take_over(tmp_path: Path) -> None:
    alone = Cluster(tmp_path, *ONE_BROKER)
    alone.ok("topics", "create", "demo")
    alone.down()
    assert "nobody else can take" not in (tmp_path / "broker-1" / "broker.log").read_text()


def test_killed_leader_is_succeeded_and_comes_back(mortal: Cluster) -> None:
    """The first ten minutes: kill -9 the leader, go on, start it again."""
    mortal.ok("topics", "create", "demo")
    mortal.ok("produce", "demo", stdin=b"before\n")
    leader = leader_of(mortal, "demo")
    killed = mortal.local("kill", str(leader), "--json")
    assert objects(killed.stdout) == [{"killed": [leader]}]
    done = mortal.local("status", "--json")
    assert done.returncode == 1
    assert leader not in [
        each["id"] for each in objects(done.stdout)[0]["brokers"] if each["alive"]
    ]

    mortal.ok("produce", "demo", stdin=b"after\n")
    described = mortal.run("topics", "describe", "demo", "--json")
    assert described.returncode == 1
    [partition] = objects(described.stdout)[0]["partitions"]
    assert partition["leader"] != leader
    assert leader not in partition["isr"]
    assert partition["state"] == "under-replicated"
    assert mortal.ok("consume", "demo") == b"before\nafter\n"

    again = mortal.local("restart", str(leader), "--json")
    assert (again.returncode, again.stderr) == (0, b"")
    [broker] = objects(again.stdout)
    before = mortal.announced["brokers"][leader - 1]
    assert (broker["id"], broker["port"]) == (leader, before["port"])
    assert broker["pid"] != before["pid"]
    assert alive(mortal) == [1, 2, 3]
    wait_until(lambda: is_healthy(mortal), within_s=20, what="all replicas are in sync again")


def test_brokers_are_stopped_killed_and_restarted_one_by_one(mortal: Cluster) -> None:
    assert objects(mortal.local("stop", "1", "--json").stdout) == [{"stopped": [1]}]
    assert alive(mortal) == [2, 3]
    for command in (["stop", "1"], ["kill", "3", "1"], ["restart", "4"]):
        done = mortal.local(*command)
        assert done.returncode == 1
        assert done.stderr.count(b"\n") == 1
    assert alive(mortal) == [2, 3]
    assert mortal.local("kill", "2", "3").returncode == 0
    assert alive(mortal) == []
    assert mortal.local("down").returncode == 1
    assert mortal.local("restart", "1").returncode == 1, "nothing is known any more"


def test_broker_that_runs_is_stopped_before_it_is_restarted(mortal: Cluster) -> None:
    done = mortal.local("restart", "1", "2", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [broker["id"] for broker in objects(done.stdout)] == [1, 2]
    log = (mortal.data / "broker-1" / "broker.log").read_text()
    assert "last stop was not clean" not in log


@pytest.fixture
def lagging(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers, of which the first is down and cannot catch up when it is back (KIP-73)."""
    slow = ("replica.fetch.max.bytes=4096", "follower.replication.throttled.rate=1")
    started = Cluster(tmp_path, *(word for setting in slow for word in ("--set", setting)))
    started.ok("topics", "create", "demo", "--partitions", "1", "--config", f"{THROTTLED}=0:1")
    assert started.local("stop", "1").returncode == 0
    started.bootstrap = started.bootstrap.partition(",")[2]
    for _ in range(2):  # One batch each: the first is more than it takes before it is held back.
        started.ok("produce", "demo", stdin=b"\n".join([b"." * 1_000] * 10))
    yield started
    started.down()


def pid_of(cluster: Cluster, number: int) -> int:
    pid: int = status_of(cluster)["brokers"][number - 1]["pid"]
    return pid


def test_restart_takes_nobody_down_before_the_one_before_is_in_sync(lagging: Cluster) -> None:
    pid = pid_of(lagging, 2)
    done = lagging.local("restart", "1", "2", "--wait-timeout", "1")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1:] == [b"Waiting for 1 partition to be in sync again."]
    assert b"demo-0 lacks broker 1 after 1 s" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert (alive(lagging), pid_of(lagging, 2)) == ([1, 2, 3], pid)
    assert lagging.local("restart", "1", "2", "--no-wait").returncode == 0
    assert pid_of(lagging, 2) != pid
    # It lags, and nobody waits for what was not in sync anyway.
    again = lagging.local("restart", "1", "3")
    assert (again.returncode, again.stderr) == (0, b"")


def test_folder_may_get_more_brokers_and_says_what_is_missing_with_fewer(tmp_path: Path) -> None:
    Cluster(tmp_path, "--brokers", "2").down()
    grown = Cluster(tmp_path)  # Three, again by default.
    assert [broker["id"] for broker in grown.announced["brokers"]] == [1, 2, 3]
    grown.ok("topics", "create", "demo", "--partitions", "2")
    grown.down()
    done = tidelog("up", "--detach", "--port", "0", "--data", str(tmp_path), *ONE_BROKER)
    try:
        assert done.returncode == 0
        assert b"broker 2 (2) and broker 3 (2)" in done.stderr
        assert b"up --brokers 3" in done.stderr
        assert done.stderr.count(b"\n") == 1
    finally:
        grown.down()


def test_reliable_profile_says_what_producers_have_to_do(tmp_path: Path) -> None:
    """D4: the fourth part of the switch, acks=all, is theirs."""
    done = tidelog("up", "-d", "--port", "0", "--profile", "reliable", "--data", str(tmp_path))
    try:
        assert done.returncode == 0, done.stderr
        assert b"3 replicas of every topic, 2 of them in sync" in done.stdout
        assert b"acks=all" in done.stdout
        properties = (tmp_path / "broker-3" / "server.properties").read_text()
        assert "min.insync.replicas=2\n" in properties
    finally:
        tidelog("down", "--data", str(tmp_path))


def test_another_coordinator_is_refused_in_a_folder_that_has_one(tmp_path: Path) -> None:
    Cluster(tmp_path, *ONE_BROKER).down()
    done = tidelog("up", "--data", str(tmp_path), "--coordination", "zookeeper:127.0.0.1:1")
    assert done.returncode == 2
    assert b"--coordination sqlite" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_ensemble_that_nobody_reaches_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = tidelog(
        *("up", "--data", str(tmp_path), "--port", "0"),
        *("--coordination", "zookeeper:127.0.0.1:1/x"),
        *("--set", "zookeeper.connection.timeout.ms=200"),
    )
    assert done.returncode == 1
    assert b"no ZooKeeper server at 127.0.0.1:1" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (tmp_path / "cluster.json").exists()
    # It has not made the folder one of a cluster on ZooKeeper.
    Cluster(tmp_path, *ONE_BROKER).down()


def test_down_spares_a_stranger_with_the_same_process_id(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        broker = {"id": 1, "host": "127.0.0.1", "port": 1, "started_ms": 1}
        state = {"version": 1, "brokers": [{**broker, "pid": stranger.pid, "start_mark": "x/1"}]}
        (tmp_path / "cluster.json").write_text(json.dumps(state))
        assert tidelog("kill", "1", "--data", str(tmp_path)).returncode == 1
        assert tidelog("down", "--kill", "--data", str(tmp_path)).returncode == 1
        assert stranger.poll() is None
        stranger.kill()


class Foreground:
    """`tidelog up` with its terminal taken away: it prints to pipes."""

    def __init__(self, data: Path, *arguments: str) -> None:
        self.data = data
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "tidelog", "up", "--port", "0"),
                *("--data", str(data), "--set", "process.roles=broker", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        self.welcome = self.read_until(b"Ctrl-C stops it")
        brokers = json.loads((data / "cluster.json").read_text())["brokers"]
        self.pids: dict[int, int] = {broker["id"]: broker["pid"] for broker in brokers}
        self.addresses = [f"{broker['host']}:{broker['port']}" for broker in brokers]

    def read_until(self, words: bytes) -> bytes:
        """What is printed up to the line with these words."""
        assert self.process.stdout is not None
        printed = b""
        while words not in printed:
            line = self.process.stdout.readline()
            assert line, (printed, self.process.communicate())
            printed += line
        return printed

    def end(self) -> tuple[int, bytes, bytes]:
        output, complaints = self.process.communicate(timeout=COMMAND_TIMEOUT_S)
        return self.process.returncode, output, complaints

    def local(self, *arguments: str) -> int:
        return tidelog(*arguments, "--data", str(self.data)).returncode

    def clean_up(self) -> None:
        self.process.kill()
        self.process.communicate()
        tidelog("down", "--kill", "--timeout", "0", "--data", str(self.data))


@pytest.fixture
def foreground(tmp_path: Path) -> Iterator[Foreground]:
    """A cluster of one, for what does not depend on how many there are."""
    started = Foreground(tmp_path, *ONE_BROKER)
    yield started
    started.clean_up()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Foreground]:
    started = Foreground(tmp_path)
    yield started
    started.clean_up()


def test_welcome_names_addresses_folder_and_commands_to_try(three: Foreground) -> None:
    welcome = three.welcome.decode()
    assert ",".join(three.addresses) in welcome
    assert str(three.data) in welcome
    for command in ("topics create demo", "produce demo", "consume demo", "kill 2", "restart 2"):
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
    os.kill(foreground.pids[1], signal.SIGSTOP)
    foreground.process.send_signal(signal.SIGINT)
    foreground.read_until(b"Stopping")
    foreground.process.send_signal(signal.SIGINT)
    code, _output, complaints = foreground.end()
    assert code == 1
    assert b"killed" in complaints
    assert not (foreground.data / "cluster.json").exists()


def test_death_of_the_last_broker_ends_the_command(foreground: Foreground) -> None:
    os.kill(foreground.pids[1], signal.SIGKILL)
    code, _output, complaints = foreground.end()
    assert code == 1
    assert b"broker 1 was killed by SIGKILL; no broker is running any more\n" in complaints
    assert not (foreground.data / "cluster.json").exists()


def test_death_of_one_broker_is_said_and_the_others_run_on(three: Foreground) -> None:
    os.kill(three.pids[2], signal.SIGKILL)
    assert three.process.stderr is not None
    while b"SIGKILL" not in (line := three.process.stderr.readline()):
        assert line, three.end()
    assert b"broker 2 was killed by SIGKILL; 2 of 3 brokers are running" in line
    assert b"tidelog restart 2" in line
    assert three.local("restart", "2") == 0
    three.read_until(b"Broker 2 runs again")
    # One that somebody else has started is looked after like the others.
    three.process.send_signal(signal.SIGINT)
    code, output, complaints = three.end()
    assert code == 0, complaints
    assert b"Stopped cleanly" in output
    assert three.local("status") == 1
    for broker_id in three.pids:
        assert (three.data / f"broker-{broker_id}" / "logs" / ".kafka_cleanshutdown").exists()


def test_cluster_stopped_by_somebody_else_is_no_accident(three: Foreground) -> None:
    assert three.local("restart", "3") == 0
    assert three.local("down") == 0
    code, output, _complaints = three.end()
    assert code == 0
    assert b"was stopped; no broker is running any more" in output


def test_only_broker_may_be_restarted_under_its_watcher(foreground: Foreground) -> None:
    assert foreground.local("restart", "1") == 0
    foreground.read_until(b"Broker 1 runs again")
    foreground.process.send_signal(signal.SIGINT)
    code, output, _complaints = foreground.end()
    assert code == 0
    assert b"Stopped cleanly" in output


def test_brokers_are_stopped_even_if_their_folder_was_removed(foreground: Foreground) -> None:
    (foreground.data / "cluster.json").unlink()
    foreground.process.send_signal(signal.SIGINT)
    assert foreground.end()[0] == 0
    with pytest.raises(ProcessLookupError):
        os.kill(foreground.pids[1], 0)


def test_warnings_of_a_broker_reach_the_terminal_and_routine_does_not(
    foreground: Foreground,
) -> None:
    foreground.process.send_signal(signal.SIGINT)
    code, output, complaints = foreground.end()
    assert code == 0
    assert b"process.roles is a setting of Kafka's" in complaints
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
