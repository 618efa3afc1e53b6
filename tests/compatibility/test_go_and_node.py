"""Clients that share no code with librdkafka or the Java client: franz-go and kafkajs (G1, P3, D3).

Each is a small program beside this file, installed from its own registry, that produces, reads in a
group, and consumes, transforms and produces in transactions of which the first is aborted. Where
there is no Go or no Node, or where their registry does not answer, there is nothing to test.
"""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.compatibility.kafka_peer import Broker
from tests.support.clients import read_partition
from tests.support.foreign_builds import build, fetch_or_skip
from tests.support.server_process import die_with_parent, wait_until
from tests.support.topics import new_topic, unused_name

PROGRAMS = Path(__file__).parent / "clients"
RUN_TIMEOUT_S = 90
RECORD_COUNT = 300
PARTITION_COUNT = 4


class ForeignClient:
    """One of the programs, ready to be run against a broker."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._command = list(command)

    def run(self, bootstrap: str, *arguments: str) -> list[dict[str, Any]]:
        """The objects that it printed, after it has ended well."""
        done = subprocess.run(
            [*self._command, bootstrap, *arguments],
            capture_output=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return [json.loads(line) for line in done.stdout.splitlines()]

    def start(self, output: Path, bootstrap: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """For those that are killed."""
        with output.open("wb") as opened:
            return subprocess.Popen(
                [*self._command, bootstrap, *arguments],
                stdout=opened,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl, no lock is taken
            )


@pytest.fixture(scope="module", params=["go", "node"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ForeignClient:
    folder = tmp_path_factory.mktemp(request.param) / "program"
    if shutil.which(request.param) is None:
        pytest.skip(f"there is no {request.param} here")
    shutil.copytree(PROGRAMS / request.param, folder)
    if request.param == "go":
        fetch_or_skip(folder, "go", "mod", "download")
        build(folder, "go", "build", "-o", "client", ".")
        return ForeignClient("go", [str(folder / "client")])
    fetch_or_skip(folder, "npm", "ci", "--silent", "--no-audit", "--no-fund")
    return ForeignClient("node", ["node", str(folder / "main.js")])


@pytest.fixture
def filled(broker: Broker, client: ForeignClient) -> str:
    """A topic with the numbers up to RECORD_COUNT in it."""
    topic = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    produced = client.run(broker.bootstrap, "produce", topic, str(RECORD_COUNT))
    assert produced == [{"produced": RECORD_COUNT}]
    return topic


def _printed(output: Path) -> list[dict[str, Any]]:
    """The lines that are whole: a program may be in the middle of its next one."""
    whole, _, _ = output.read_bytes().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def test_group_of_one_reads_every_record_once(
    broker: Broker, client: ForeignClient, filled: str
) -> None:
    group = unused_name()
    read = client.run(broker.bootstrap, "group", filled, group, str(RECORD_COUNT))
    assert Counter(one["value"] for one in read) == Counter(map(str, range(RECORD_COUNT)))


def test_members_of_a_group_share_the_partitions(
    broker: Broker, client: ForeignClient, tmp_path: Path
) -> None:
    """P3: one partition to one member."""
    topic = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    outputs = [tmp_path / "one.txt", tmp_path / "two.txt"]
    more_than_there_are = str(10 * RECORD_COUNT)
    group = unused_name()
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                client.start(each, broker.bootstrap, "group", topic, group, more_than_there_are)
            )
            for each in outputs
        ]
        for member in members:
            stack.callback(member.kill)

        def share() -> bool:
            client.run(broker.bootstrap, "produce", topic, "40")
            return all(_printed(each) for each in outputs)

        wait_until(share, within_s=60, what="both members get records")
        before = [len(_printed(each)) for each in outputs]
        client.run(broker.bootstrap, "produce", topic, "200")
        wait_until(
            lambda: sum(len(_printed(each)) for each in outputs) >= sum(before) + 200,
            within_s=60,
            what="all of them are read",
        )
        owned = [{one["partition"] for one in _printed(each)[-20:]} for each in outputs]
        assert not owned[0] & owned[1], "a partition has two owners"


def test_transactions_are_seen_whole_or_not_at_all(
    broker: Broker, client: ForeignClient, filled: str
) -> None:
    """D3: what the aborted transaction wrote is there, and nobody who reads committed sees it."""
    target = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    (done,) = client.run(
        *(broker.bootstrap, "transform", filled, target, unused_name(), str(RECORD_COUNT))
    )
    assert done["transformed"] == RECORD_COUNT
    assert done["aborted"] > 0
    read = client.run(broker.bootstrap, "committed", target, str(RECORD_COUNT))
    expected = Counter(f"{client.name} {n}" for n in range(RECORD_COUNT))
    assert Counter(one["value"] for one in read) == expected


def test_produced_records_are_all_there(broker: Broker, filled: str) -> None:
    stored = [
        record.value
        for partition in range(PARTITION_COUNT)
        for record in read_partition(broker.bootstrap, filled, partition)
    ]
    assert Counter(stored) == Counter(str(n).encode() for n in range(RECORD_COUNT))
