"""D6: `tidelog find` says where a record with an id is, whoever leads its partition."""

import json

import pytest

from tests.support.command_line import tidelog
from tests.support.identified import DEDUP, send_ids
from tidelog.testing import Cluster

SETTINGS = {"enable.idempotence": False}
TOPIC = "find"
PLAIN = "find-plain"


@pytest.fixture(scope="session")
def brokers(tidelog_cluster: Cluster) -> Cluster:
    """With ten records in each partition of a topic that has ids, and a topic that has none."""
    leaders = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    tidelog_cluster.create_topic(TOPIC, placement=leaders, config=DEDUP)
    tidelog_cluster.create_topic(PLAIN, placement=[[1]])
    for partition in range(3):
        ids = [f"id-{partition}-{number}" for number in range(10)]
        send_ids(tidelog_cluster.bootstrap, TOPIC, ids, settings=SETTINGS, partition=partition)
    return tidelog_cluster


def test_record_is_found_in_the_partition_that_has_it(brokers: Cluster) -> None:
    for partition in range(3):
        found = tidelog(
            "find", TOPIC, f"id-{partition}-7", "--json", "--bootstrap", brokers.bootstrap
        )
        assert (found.returncode, found.stderr) == (0, b"")
        record = json.loads(found.stdout)
        assert (record["partition"], record["offset"]) == (partition, 7)
        assert record["value"] == f"id-{partition}-7"


def test_record_is_shown_for_people(brokers: Cluster) -> None:
    found = tidelog("find", TOPIC, "id-1-3", "--bootstrap", brokers.bootstrap)
    shown = dict(line.split(None, 1) for line in found.stdout.decode().splitlines())
    assert (found.returncode, shown["partition"], shown["offset"]) == (0, "1", "3")
    assert shown["value"] == "id-1-3"


def test_hexadecimal_digits_are_an_id_as_well(brokers: Cluster) -> None:
    digits = b"id-2-0".hex()
    found = tidelog("find", TOPIC, digits, "--hex", "--bootstrap", brokers.bootstrap)
    assert found.returncode == 0
    wrong = tidelog("find", TOPIC, "xyz", "--hex", "--bootstrap", brokers.bootstrap)
    assert wrong.returncode == 2


@pytest.mark.parametrize("how", [(), ("--hex",)])
def test_nothing_is_no_id(brokers: Cluster, how: tuple[str, ...]) -> None:
    wrong = tidelog("find", TOPIC, "", *how, "--bootstrap", brokers.bootstrap)
    assert wrong.returncode == 2
    assert "ID is empty" in wrong.stderr.decode()


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        (TOPIC, "no record of find has the id nope"),
        (PLAIN, "the records of find-plain have no ids"),
        ("missing", "there is no topic missing"),
    ],
)
def test_what_is_not_there_is_exit_code_one(brokers: Cluster, topic: str, message: str) -> None:
    found = tidelog("find", topic, "nope", "--bootstrap", brokers.bootstrap)
    assert (found.returncode, found.stdout) == (1, b"")
    assert message in found.stderr.decode()


def test_record_is_found_at_a_new_leader(brokers: Cluster) -> None:
    killed = brokers.leader_of(TOPIC)
    brokers.kill_broker(killed)
    assert brokers.leader_of(TOPIC) != killed
    found = tidelog("find", TOPIC, "id-0-4", "--json", "--bootstrap", brokers.bootstrap)
    assert json.loads(found.stdout)["offset"] == 4
