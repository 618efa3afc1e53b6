"""D6: `tidelog find` says where a record with an id is, whoever leads its partition."""

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.support.clients import CLIENT_TIMEOUT_S
from tests.support.command_line import tidelog
from tests.support.identified import DEDUP, send_ids
from tests.support.three_brokers import ThreeBrokers

SETTINGS = {"enable.idempotence": False}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("find")) as running:
        admin = running.admin()
        leaders = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
        topics = [
            NewTopic("t", num_partitions=3, replica_assignment=leaders, config=DEDUP),
            NewTopic("plain", num_partitions=1, replica_assignment=[[1]]),
        ]
        for created in admin.create_topics(topics).values():
            created.result(CLIENT_TIMEOUT_S)
        running.wait_whole("t")
        for partition in range(3):
            ids = [f"id-{partition}-{number}" for number in range(10)]
            send_ids(running.bootstrap, "t", ids, settings=SETTINGS, partition=partition)
        yield running


def test_record_is_found_in_the_partition_that_has_it(brokers: ThreeBrokers) -> None:
    for partition in range(3):
        found = tidelog(
            "find", "t", f"id-{partition}-7", "--json", "--bootstrap", brokers.bootstrap
        )
        assert (found.returncode, found.stderr) == (0, b"")
        record = json.loads(found.stdout)
        assert (record["partition"], record["offset"]) == (partition, 7)
        assert record["value"] == f"id-{partition}-7"


def test_record_is_shown_for_people(brokers: ThreeBrokers) -> None:
    found = tidelog("find", "t", "id-1-3", "--bootstrap", brokers.bootstrap)
    shown = dict(line.split(None, 1) for line in found.stdout.decode().splitlines())
    assert (found.returncode, shown["partition"], shown["offset"]) == (0, "1", "3")
    assert shown["value"] == "id-1-3"


def test_hexadecimal_digits_are_an_id_as_well(brokers: ThreeBrokers) -> None:
    digits = b"id-2-0".hex()
    found = tidelog("find", "t", digits, "--hex", "--bootstrap", brokers.bootstrap)
    assert found.returncode == 0
    wrong = tidelog("find", "t", "xyz", "--hex", "--bootstrap", brokers.bootstrap)
    assert wrong.returncode == 2


@pytest.mark.parametrize("how", [(), ("--hex",)])
def test_nothing_is_no_id(brokers: ThreeBrokers, how: tuple[str, ...]) -> None:
    wrong = tidelog("find", "t", "", *how, "--bootstrap", brokers.bootstrap)
    assert wrong.returncode == 2
    assert "ID is empty" in wrong.stderr.decode()


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("t", "no record of t has the id nope"),
        ("plain", "the records of plain have no ids"),
        ("missing", "there is no topic missing"),
    ],
)
def test_what_is_not_there_is_exit_code_one(
    brokers: ThreeBrokers, topic: str, message: str
) -> None:
    found = tidelog("find", topic, "nope", "--bootstrap", brokers.bootstrap)
    assert (found.returncode, found.stdout) == (1, b"")
    assert message in found.stderr.decode()


def test_record_is_found_at_a_new_leader(brokers: ThreeBrokers) -> None:
    leader = brokers.leader("t", 0)
    leader.kill()
    try:
        brokers.leader("t", 0)
        found = tidelog("find", "t", "id-0-4", "--json", "--bootstrap", brokers.bootstrap)
        assert json.loads(found.stdout)["offset"] == 4
    finally:
        leader.start()
        brokers.wait_whole("t")
