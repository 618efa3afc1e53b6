"""The three promises of delivery, each kept by its recipe when the consumer is killed (D1).

A recipe reads twenty records and is killed (SIGKILL) in the middle: after it has processed a record
and before it commits it, or after it has committed a record and before it processes one. It is
started again and reads to the end. Then it is counted what was lost and what was repeated.

              killed between              at most once    at least once    exactly once
              committing and processing   1 lost          -                -
              processing and committing   -               1 repeated       -
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.clients import CLIENT_TIMEOUT_S
from tests.support.ports import free_port
from tests.support.three_brokers import ThreeBrokers
from tests.support.topics import unused_name
from tidelog.client import Producer

RECORD_COUNT = 20
KILLED_AT = 10
RUN_TIMEOUT_S = 90
IDLE_S = "8"
ROOT = Path(__file__).parents[2]
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    lost: int
    repeated: int


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ThreeBrokers(tmp_path_factory.mktemp("delivery"), SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of one partition with twenty records: a record's number is its place."""
    name = f"delivery-{unused_name()}"
    with Producer(bootstrap, producer_type="async") as producer:
        for number in range(RECORD_COUNT):
            producer.send(name, f"record {number}".encode(), key=b"the same")
    return name


def run_recipe(recipe: str, killed_after: str, *arguments: str) -> int:
    """Run a recipe until it ends or is killed; its exit code."""
    number = "-" if killed_after == "-" else str(KILLED_AT)
    command = [sys.executable, "-m", "tests.integration.delivery_victim"]
    done = subprocess.run(
        [*command, recipe, killed_after, number, *arguments, "--idle-s", IDLE_S],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr.decode()
    return done.returncode


def run_killed_and_again(recipe: str, killed_after: str, *arguments: str) -> None:
    assert run_recipe(recipe, killed_after, *arguments) == -signal.SIGKILL
    assert run_recipe(recipe, "-", *arguments) == 0


def verdict(values: Sequence[bytes | None], prefix: str) -> Verdict:
    seen = Counter(values)
    expected = [f"{prefix} {number}".encode() for number in range(RECORD_COUNT)]
    assert seen.keys() <= set(expected)
    return Verdict(
        lost=sum(seen[value] == 0 for value in expected),
        repeated=sum(count - 1 for count in seen.values()),
    )


@pytest.mark.parametrize(
    ("recipe", "killed_after", "expected"),
    [
        ("at_most_once", "commit", Verdict(lost=1, repeated=0)),
        ("at_most_once", "process", Verdict(lost=0, repeated=0)),
        ("at_least_once", "process", Verdict(lost=0, repeated=1)),
        ("at_least_once", "commit", Verdict(lost=0, repeated=0)),
    ],
)
def test_recipe_keeps_its_promise(
    bootstrap: str, topic: str, tmp_path: Path, recipe: str, killed_after: str, expected: Verdict
) -> None:
    output = tmp_path / "output.txt"
    group = f"{topic}-group"
    run_killed_and_again(
        *(recipe, killed_after, topic, str(output)),
        *("--bootstrap", bootstrap, "--group", group),
    )
    assert verdict(output.read_bytes().splitlines(), "record") == expected


@pytest.mark.parametrize("killed_after", ["process", "commit"])
def test_exactly_once_is_neither_lost_nor_repeated(
    bootstrap: str, topic: str, killed_after: str
) -> None:
    output = f"{topic}-output"
    run_killed_and_again(
        *("exactly_once", killed_after, topic, output),
        *("--bootstrap", bootstrap, "--group", f"{topic}-group"),
    )
    assert verdict(committed(bootstrap, output), "RECORD") == Verdict(lost=0, repeated=0)


def test_exactly_once_leaves_a_record_that_deletes_its_key_what_it_is(bootstrap: str) -> None:
    topic = f"delivery-{unused_name()}"
    with Producer(bootstrap) as producer:
        producer.send(topic, None, key=b"gone")
    target = (topic, f"{topic}-output", "--bootstrap", bootstrap, "--group", f"{topic}-group")
    assert run_recipe("exactly_once", "-", *target) == 0
    assert committed(bootstrap, f"{topic}-output") == [None]


def committed(bootstrap: str, topic: str) -> list[bytes | None]:
    """Everything in the topic's one partition that was committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    try:
        while (message := consumer.poll(CLIENT_TIMEOUT_S)) is not None:
            if message.error() is not None:
                return values
            value = message.value()
            assert isinstance(value, bytes | None)
            values.append(value)
    finally:
        consumer.close()
    raise TimeoutError("the end of the topic was not reached")


def test_recipes_fail_when_nobody_answers(tmp_path: Path) -> None:
    """They would otherwise end as if they had read everything."""
    nobody = f"127.0.0.1:{free_port()}"
    running = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "delivery" / recipe), "t", output],
            env={**os.environ, "TIDELOG_BOOTSTRAP": nobody},
            stderr=subprocess.PIPE,
        )
        for recipe, output in (
            ("at_most_once.py", str(tmp_path / "most")),
            ("at_least_once.py", str(tmp_path / "least")),
            ("exactly_once.py", "output"),
        )
    ]
    for process in running:
        _, complaint = process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == 1
        assert b"KafkaException" in complaint
