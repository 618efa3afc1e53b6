"""A broker whose coordinator is ZooKeeper, and ensembles for people who have none (C1, C2)."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker
from tests.support.clients import create_topic, read_partition
from tests.support.command_line import Cluster, environment, objects, tidelog
from tests.support.confluent import new_producer
from tests.support.server_process import ServerFailed
from tests.support.zookeeper import ServersForTests, start_servers
from tidelog.lab.processes import identify
from tidelog.lab.zookeeper import running_servers, why_unavailable

SESSION_TIMEOUT_MS = 2_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServersForTests]:
    servers = start_servers(tmp_path / "zookeeper", server_count=1)
    yield servers
    servers.stop()


def settings(server: ServersForTests) -> dict[str, str]:
    return {
        "zookeeper.connect": f"{server.hosts}/clusters/one",
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "zookeeper.connection.timeout.ms": "30000",
    }


def produce(bootstrap: str, topic: str, value: bytes) -> None:
    with new_producer(bootstrap, {"acks": "all"}) as producer:
        producer.produce(topic, value)


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    return [record.value for record in read_partition(bootstrap, topic, 0)]


def test_a_cluster_on_zookeeper_outlives_its_broker(
    server: ServersForTests, start_broker: StartBroker
) -> None:
    broker = start_broker(settings(server))
    create_topic(broker.bootstrap, "demo", partition_count=1, config={})
    produce(broker.bootstrap, "demo", b"before")
    broker.kill()
    broker.start()  # Its former session is still there, for a while.
    produce(broker.bootstrap, "demo", b"after")
    assert values(broker.bootstrap, "demo") == [b"before", b"after"]
    assert broker.stop() == 0
    assert not list(broker.folder.rglob("*.sqlite"))


def test_a_broker_comes_back_with_its_ensemble(
    server: ServersForTests, start_broker: StartBroker
) -> None:
    broker = start_broker(settings(server))
    create_topic(broker.bootstrap, "demo", partition_count=1, config={})
    produce(broker.bootstrap, "demo", b"before")
    (server_id,) = server.server_ids
    server.kill(server_id)
    server.restart(server_id)
    server.wait()
    produce(broker.bootstrap, "demo", b"after")
    assert values(broker.bootstrap, "demo") == [b"before", b"after"]
    assert broker.stop() == 0


def test_a_broker_without_its_ensemble_says_so_and_does_not_start(
    server: ServersForTests, start_broker: StartBroker
) -> None:
    hosts = server.hosts
    server.stop()
    with pytest.raises(ServerFailed, match=rf"ended with 1 .*\n.*no ZooKeeper server at {hosts}"):
        start_broker({"zookeeper.connect": hosts, "zookeeper.connection.timeout.ms": "500"})


def test_a_local_cluster_on_zookeeper_goes_on_when_a_broker_dies(
    server: ServersForTests, tmp_path: Path
) -> None:
    cluster = Cluster(
        tmp_path / "data",
        *("--coordination", f"zookeeper:{server.hosts}/clusters/two"),
        *("--set", f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}"),
    )
    try:
        cluster.ok("produce", "demo", stdin=b"before\n")
        [described] = objects(cluster.ok("topics", "describe", "demo", "--json"))
        leader = str(described["partitions"][0]["leader"])
        assert cluster.local("kill", leader).returncode == 0
        cluster.ok("produce", "demo", stdin=b"after\n")
        assert cluster.ok("consume", "demo") == b"before\nafter\n"
        assert cluster.local("restart", leader).returncode == 0
    finally:
        cluster.down()
    assert not list((tmp_path / "data").rglob("coordination.db"))
    refused = tidelog("up", "--data", str(tmp_path / "data"))
    assert refused.returncode == 2
    assert f"--coordination zookeeper:{server.hosts}/clusters/two".encode() in refused.stderr


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(reason)
    yield tmp_path / "data"
    tidelog("zookeeper", "down", "--data", str(tmp_path / "data"))


def test_an_ensemble_is_started_found_and_stopped_by_command(data: Path) -> None:
    up = tidelog("zookeeper", "up", "-d", "--port", "0", "--json", "--data", str(data))
    assert (up.returncode, up.stderr) == (0, b"")
    [started] = objects(up.stdout)
    assert [server["id"] for server in started["servers"]] == [1, 2, 3]
    assert sum(server["leader"] for server in started["servers"]) == 1
    assert started["connect"] == ",".join(
        f"127.0.0.1:{server['port']}" for server in started["servers"]
    )

    again = tidelog("zookeeper", "up", "-d", "--port", "0", "--data", str(data))
    assert again.returncode == 2
    assert b"already" in again.stderr

    down = tidelog("zookeeper", "down", "--json", "--data", str(data))
    assert (down.returncode, down.stderr) == (0, b"")
    assert objects(down.stdout) == [{"stopped": [1, 2, 3]}]
    for server in started["servers"]:
        assert identify(server["pid"]) is None
    assert tidelog("zookeeper", "down", "--data", str(data)).returncode == 1

    grown = tidelog("zookeeper", "up", "--nodes", "5", "--port", "0", "--data", str(data))
    assert grown.returncode == 2
    assert b"an ensemble of 3, not of 5" in grown.stderr


def test_an_ensemble_in_the_foreground_ends_with_ctrl_c(data: Path) -> None:
    options = ["--nodes", "1", "--port", "0", "--data", str(data)]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tidelog", "zookeeper", "up", *options],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as command:
        assert command.stdout is not None
        assert b"ZooKeeper is up: 1 server, " in command.stdout.readline()
        [server] = running_servers(data / "zookeeper")
        command.send_signal(signal.SIGINT)
        assert b"Stopped." in command.stdout.read()
    assert command.returncode == 0
    assert not server.is_alive
    assert running_servers(data / "zookeeper") == ()


def test_a_port_in_use_is_named(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        up = tidelog("zookeeper", "up", "-d", "--port", str(port), "--data", str(data))
    assert up.returncode == 2
    assert f"port {port} of 127.0.0.1 is in use".encode() in up.stderr
