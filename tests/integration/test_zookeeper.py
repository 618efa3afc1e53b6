"""A broker whose coordinator is ZooKeeper (C1, C2)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import StartBroker
from tests.support.clients import create_topic, read_partition
from tests.support.confluent import new_producer
from tests.support.server_process import ServerFailed
from tests.support.zookeeper import ServersForTests, start_servers

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
