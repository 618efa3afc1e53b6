"""Replicas move between log dirs as in Kafka: same answers, and Kafka's tools agree (G1, P1)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.compatibility.admin_pair import create_topics, message, new
from tests.compatibility.kafka_peer import Broker, new_broker
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_tools import KafkaTools
from tests.support.kio_codec import Values
from tests.support.message_client import MessageClient
from tests.support.server_process import wait_until
from tidelog.wire.api import ApiKey

pytestmark = pytest.mark.one_broker

WAIT_S = 30.0
NODE_ID = 1
HERE, THERE, NOWHERE = "data", "other", "nowhere"


@dataclass(frozen=True)
class Side:
    """One of the two brokers, with two log dirs."""

    client: MessageClient
    folder: Path

    def alter(self, name: str, topic: str, *partitions: int) -> list[tuple[int, str]]:
        """The code of each partition."""
        topics = [{"name": topic, "partitions": partitions}]
        dirs = [{"path": str(self.folder / name), "topics": topics}]
        answer = self._ask(ApiKey.ALTER_REPLICA_LOG_DIRS, {"dirs": dirs})
        return sorted(
            (one.partition_index, one.error_code.name)
            for result in answer.results
            for one in result.partitions
        )

    def places(self, topic: str) -> list[tuple[str, int, bool]]:
        """In which log dir each partition is, and whether it is only to be there."""
        answer = self._ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
        return sorted(
            (Path(result.log_dir).name, one.partition_index, one.is_future_key)
            for result in answer.results
            for described in result.topics
            if described.name == topic
            for one in described.partitions
        )

    def create(self, topic: str, partition_count: int) -> None:
        api_key, values = create_topics(new(topic, partition_count))
        self._ask(api_key, values)
        wait_until(
            lambda: len(self.places(topic)) == partition_count, within_s=WAIT_S, what="a topic"
        )

    def _ask(self, api_key: ApiKey, values: Values) -> Any:
        return cast(Any, self.client.ask(message(api_key, values)))


def settings_of(folder: Path) -> dict[str, str]:
    return {"log.dirs": f"{folder / HERE},{folder / THERE}"}


@pytest.fixture(scope="module")
def sides(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    folder = tmp_path_factory.mktemp("sides")
    ours, theirs = folder / "ours", folder / "theirs"
    with (
        new_broker(ours, settings_of(ours)) as our_broker,
        KafkaProcess(theirs, settings_of(theirs), heap_mib=256) as kafka,
        MessageClient("127.0.0.1", our_broker.port) as to_ours,
        MessageClient("127.0.0.1", kafka.port) as to_theirs,
    ):
        yield [Side(to_ours, ours), Side(to_theirs, theirs)]


def test_requests_to_move_replicas_are_answered_alike(sides: list[Side]) -> None:
    for side in sides:
        side.create("m", 2)
    requests: list[tuple[str, str, tuple[int, ...]]] = [
        (NOWHERE, "m", (0,)),
        (THERE, "unknown", (0, 1)),
        (THERE, "m", (0, 7)),
        (THERE, "x" * 240, (0,)),
        (NOWHERE, "x" * 240, (0,)),
        ("", "m", (0,)),
        (THERE, "m", (0, 1)),
        (THERE, "m", (0, 0)),
    ]
    for request in requests:
        name, topic, partitions = request
        ours, theirs = (side.alter(name, topic, *partitions) for side in sides)
        assert ours == theirs, request


def test_replicas_are_described_where_they_were_moved_to(sides: list[Side]) -> None:
    for side in sides:
        side.create("d", 2)
        for name in (THERE, HERE):
            assert side.alter(name, "d", 0, 1) == [(0, "none"), (1, "none")]
            wait_until(partial(_are_in, side, name), within_s=WAIT_S, what=f"replicas in {name}")


def _are_in(side: Side, name: str) -> bool:
    return side.places("d") == [(name, 0, False), (name, 1, False)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("two-dirs")
    with new_broker(folder, settings_of(folder)) as running:
        yield running


def place(tools: KafkaTools, topic: str) -> list[tuple[str, bool]]:
    """In which log dirs the topic's partition is, as kafka-log-dirs says."""
    printed = tools.log_dirs("--describe", "--topic-list", topic)
    described = json.loads(printed.strip().splitlines()[-1])
    return [
        (Path(log_dir["logDir"]).name, one["isFuture"])
        for broker in described["brokers"]
        for log_dir in broker["logDirs"]
        for one in log_dir["partitions"]
    ]


def test_kafkas_tool_moves_a_replica_and_says_how_far_it_is(
    tools: KafkaTools, broker: Broker, tmp_path: Path
) -> None:
    topic = "tooled"
    tools.topics("--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    produced = ["--num-records", "10000", "--record-size", "1000", "--throughput", "-1"]
    bootstrap = f"bootstrap.servers={broker.bootstrap}"
    tools.producer_performance("--topic", topic, *produced, "--producer-props", bootstrap)
    ((here, is_future),) = place(tools, topic)
    assert not is_future
    there = THERE if here == HERE else HERE
    plan = tmp_path / "plan.json"
    replica = {"topic": topic, "partition": 0, "replicas": [NODE_ID]}
    replica["log_dirs"] = [str(broker.data_folder.with_name(there))]
    plan.write_text(json.dumps({"version": 1, "partitions": [replica]}))
    chosen = ["--reassignment-json-file", str(plan)]
    slowly = ["--replica-alter-log-dirs-throttle", "300000"]
    printed = tools.reassign_partitions("--execute", *chosen, *slowly)
    assert "Successfully started moving log directory" in printed, printed
    assert sorted(place(tools, topic)) == sorted([(here, False), (there, True)])
    printed = tools.reassign_partitions("--verify", "--preserve-throttles", *chosen)
    assert f"Reassignment of replica {topic}-0-{NODE_ID} is still in progress." in printed
    faster = ["--replica-alter-log-dirs-throttle", "100000000", "--additional"]
    tools.reassign_partitions("--execute", *chosen, *faster)
    wait_until(
        lambda: place(tools, topic) == [(there, False)], within_s=WAIT_S, what="the replica moves"
    )
    printed = tools.reassign_partitions("--verify", *chosen)
    assert f"Reassignment of replica {topic}-0-{NODE_ID} completed successfully." in printed
    read = tools.console_consumer(
        "--topic", topic, "--from-beginning", "--max-messages", "10000", "--timeout-ms", "20000"
    )
    assert len(read.splitlines()) == 10000
