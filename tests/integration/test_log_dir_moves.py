"""Replicas move between log dirs under load and through kill -9, and nothing is lost (P1, S6)."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import pytest
from confluent_kafka import Producer
from kio.index import load_request_schema
from kio.static.protocol import Payload

from tests.support.broker_process import BrokerProcess
from tests.support.clients import read_partition
from tests.support.command_line import objects, tidelog
from tests.support.kio_codec import Values, build
from tests.support.message_client import MessageClient
from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.wire.api import SUPPORTED, ApiKey

VALUE_BYTES = 2_000
WAIT_S = 60.0
IN_FLIGHT_MAX = 5_000
SETTINGS = {
    "log.segment.bytes": "1048576",
    # So slow that a broker can be killed in the middle.
    "replica.alter.log.dirs.io.max.bytes.per.second": "4000000",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    cluster = ThreeBrokers(tmp_path_factory.mktemp("log-dirs"), SETTINGS)
    for broker in cluster.brokers.values():
        broker.settings["log.dirs"] = ",".join(str(path) for path in log_dirs(broker))
    with cluster:
        yield cluster


def log_dirs(broker: BrokerProcess) -> tuple[Path, Path]:
    return broker.data_folder, broker.data_folder.with_name("other")


class Load:
    """Somebody who produces with acks=all until told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self._topic = topic
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            value = b"%010d" % number + bytes(VALUE_BYTES)
            self._producer.produce(
                self._topic, value, partition=0, on_delivery=self._on_delivery(number)
            )
            number += 1
            self._producer.poll(0.001)
            while number - len(self.acknowledged) > IN_FLIGHT_MAX and not self._is_over.is_set():
                self._producer.poll(0.1)

    def _on_delivery(self, number: int) -> Callable[[object, object], None]:
        def done(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged.append(number)

        return done

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count, within_s=WAIT_S, what="records")

    def stop(self) -> list[int]:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        return self.acknowledged


def alter(broker: BrokerProcess, topic: str, path: Path) -> str:
    api_key = ApiKey.ALTER_REPLICA_LOG_DIRS
    values: Values = {
        "dirs": [{"path": str(path), "topics": [{"name": topic, "partitions": (0,)}]}]
    }
    with MessageClient("127.0.0.1", broker.port) as client:
        message_class = load_request_schema(api_key, SUPPORTED[api_key].highest)
        answer = cast(Any, client.ask(cast(Payload, build(message_class, values))))
    return str(answer.results[0].partitions[0].error_code.name)


def places(broker: BrokerProcess, topic: str) -> tuple[Path, Path]:
    """The log dir that a replica is in, and the other one."""
    here, there = log_dirs(broker)
    return (here, there) if (here / f"{topic}-0").is_dir() else (there, here)


def is_being_copied(there: Path, topic: str) -> bool:
    """With something in it already."""
    return any(path.stat().st_size for path in there.glob(f"{topic}-0.*-future/*.log"))


@pytest.mark.parametrize("victim", [1, 2])
def test_a_leader_or_follower_killed_in_the_middle_of_a_move_has_everything(
    cluster: ThreeBrokers, victim: int
) -> None:
    topic = f"killed-{victim}"
    cluster.create(topic, (1, 2))
    with Load(cluster.bootstrap, topic) as load:
        load.wait_for(4_000)
        ways = {number: places(cluster.brokers[number], topic) for number in (1, 2)}
        for number, (_, there) in ways.items():
            assert alter(cluster.brokers[number], topic, there) == "none"
        killed = cluster.brokers[victim]
        wait_until(lambda: is_being_copied(ways[victim][1], topic), within_s=WAIT_S, what="a copy")
        killed.kill()
        load.wait_for(len(load.acknowledged) + 500)
        killed.start()
        for way in ways.values():
            wait_until(partial(has_moved, *way, topic), within_s=WAIT_S, what=f"{way}")
        load.wait_for(len(load.acknowledged) + 100)
        acknowledged = load.stop()
    cluster.wait_in_sync(topic, 0, (1, 2))
    stored = numbers(cluster, topic)
    assert stored == sorted(set(stored))
    assert set(acknowledged) <= set(stored)
    wait_until(
        lambda: contents(ways[1][1], topic) == contents(ways[2][1], topic),
        within_s=WAIT_S,
        what="leader and follower hold the same",
    )


def numbers(cluster: ThreeBrokers, topic: str) -> list[int]:
    """Of all records in the topic."""
    values = [one.value for one in read_partition(cluster.bootstrap, topic, 0)]
    return [int(value[:10]) for value in values if value is not None]


def has_moved(here: Path, there: Path, topic: str) -> bool:
    return (there / f"{topic}-0").is_dir() and not (here / f"{topic}-0").exists()


def contents(log_dir: Path, topic: str) -> bytes:
    paths = sorted((log_dir / f"{topic}-0").glob("*.log"))
    return b"".join(path.read_bytes() for path in paths)


def test_a_move_at_full_speed_under_load_keeps_every_record(cluster: ThreeBrokers) -> None:
    """Back and forth, while the topic is written; a restart in order finds it all at once."""
    topic = "hurried"
    cluster.create(topic, (3, 1))
    broker = cluster.brokers[3]
    with Load(cluster.bootstrap, topic) as load:
        load.wait_for(500)
        for _ in range(3):
            here, there = places(broker, topic)
            assert alter(broker, topic, there) == "none"
            moved = partial(has_moved, here, there, topic)
            wait_until(moved, within_s=WAIT_S, what="the replica moves")
            load.wait_for(len(load.acknowledged) + 200)
        acknowledged = load.stop()
    broker.stop()
    broker.start()
    cluster.wait_in_sync(topic, 0, (3, 1))
    stored = numbers(cluster, topic)
    assert stored == sorted(set(stored))
    assert set(acknowledged) <= set(stored)


def test_a_replica_is_moved_on_the_command_line(cluster: ThreeBrokers) -> None:
    topic = "typed"
    cluster.create(topic, (2,))
    here, there = places(cluster.brokers[2], topic)
    chosen = ("--bootstrap", cluster.bootstrap)
    refused = tidelog("log-dirs", "move", topic, "0", "--broker", "2", "--to", "/no", *chosen)
    assert refused.returncode == 1
    assert b"tidelog log-dirs move: /no is not in log.dirs of broker 2;" in refused.stderr
    elsewhere = tidelog("log-dirs", "move", topic, "0", "--broker", "1", "--to", "/no", *chosen)
    assert (elsewhere.returncode, b"broker 1" in elsewhere.stderr) == (1, True)
    done = tidelog("log-dirs", "move", topic, "0", "--broker", "2", "--to", str(there), *chosen)
    assert (done.returncode, done.stderr) == (0, b"")
    wait_until(partial(has_moved, here, there, topic), within_s=WAIT_S, what="the replica moves")
    listed = tidelog("log-dirs", "list", topic, "--json", *chosen)
    (replica,) = objects(listed.stdout)
    assert (replica["broker"], replica["log_dir"]) == (2, str(there))
    assert replica["future"] is False
