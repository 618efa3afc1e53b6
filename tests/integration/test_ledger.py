"""X5: what `tidelog produce --ledger` writes down is what the topic holds, also after a kill -9."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import COMMAND_TIMEOUT_S, Cluster, objects
from tests.support.server_process import wait_until
from tidelog.client.admin import Admin
from tidelog.client.ledger import record_checksum
from tidelog.client.record_ids import DEFAULT_ID_SOURCE


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("ledger"))
    yield started
    started.down()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^\w.-]+", ".", request.node.name)[:200]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, partitions=2, configs={})
    return name


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def _stored(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    return objects(cluster.ok("consume", topic, "--json"))


def _headers(record: dict[str, Any]) -> list[tuple[str, bytes]]:
    return [(each["name"], each["value"].encode()) for each in record["headers"]]


def test_every_record_is_where_its_ledger_says(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    cluster.ok(
        *("produce", topic, "--count", "2000", "--header", "a=1", "--ledger", str(path)),
    )
    lines = _lines(path)
    sent = {line["id"]: line for line in lines if "crc32" in line}
    told = {(line["partition"], line["offset"]): line["id"] for line in lines if "offset" in line}
    assert (len(sent), len(told)) == (2000, 2000)
    assert {line["producer"] for line in sent.values()} == {sent[next(iter(sent))]["producer"]}
    assert sorted(line["number"] for line in sent.values()) == list(range(2000))
    for record in _stored(cluster, topic):
        record_id = told.pop((record["partition"], record["offset"]))
        headers = _headers(record)
        assert dict(headers)[DEFAULT_ID_SOURCE.name].decode() == record_id
        assert sent[record_id]["crc32"] == record_checksum(
            key=None, value=record["value"].encode(), headers=headers
        )
    assert not told


def test_ids_of_the_records_themselves_are_used_if_asked_for(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    cluster.ok(
        *("produce", topic, "--ledger", str(tmp_path), "--id", "json:$.order.id"),
        stdin=b'{"order": {"id": 7}}\n{"order": {"id": "x"}}\n',
    )
    (path,) = tmp_path.iterdir()
    assert [line["id"] for line in _lines(path) if "crc32" in line] == ["7", "x"]
    assert all(record["headers"] == [] for record in _stored(cluster, topic))


def test_record_without_an_id_is_not_sent(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    refused = cluster.run(
        *("produce", topic, "--ledger", str(tmp_path), "--id", "key"), stdin=b"no key\n"
    )
    assert refused.returncode == 2
    assert b"record 0 has no id: --id key" in refused.stderr
    assert _stored(cluster, topic) == []


def test_where_ids_are_is_said_in_vain_without_a_ledger(cluster: Cluster, topic: str) -> None:
    assert "--ledger" in cluster.no("produce", topic, "--id", "key", exit_code=2)


def test_failed_records_are_written_down_as_such(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    cluster.ok("topics", "alter", topic, "--config", "max.message.bytes=1000")
    path = tmp_path / "ledger.jsonl"
    refused = cluster.run("produce", topic, "--ledger", str(path), stdin=b"x" * 2000 + b"\n")
    assert refused.returncode == 1
    assert [line.get("error") for line in _lines(path)] == [None, "MSG_SIZE_TOO_LARGE"]


def test_killed_producer_leaves_no_record_that_its_ledger_has_not_heard_of(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    producer = cluster.start("produce", topic, "--count", "10000000", "--ledger", str(path))
    try:
        wait_until(
            lambda: path.exists() and path.stat().st_size > 2_000_000,
            within_s=COMMAND_TIMEOUT_S,
            what="a ledger of some length",
        )
    finally:
        producer.send_signal(signal.SIGKILL)
        producer.communicate(timeout=COMMAND_TIMEOUT_S)
    *whole, torn = path.read_bytes().split(b"\n")
    lines = [json.loads(line) for line in whole]
    assert torn == b"" or _is_torn(torn)
    sent = {line["id"] for line in lines if "crc32" in line}
    told = {(line["partition"], line["offset"], line["id"]) for line in lines if "offset" in line}
    stored = {
        (record["partition"], record["offset"], record["headers"][0]["value"])
        for record in _stored(cluster, topic)
    }
    assert {record_id for *_, record_id in stored} <= sent
    assert told <= stored


def _is_torn(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
