"""X5: what `tidelog produce --ledger` writes down is what the topic holds, also after a kill -9."""

import fcntl
import json
import os
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import COMMAND_TIMEOUT_S, Cluster, objects
from tests.support.server_process import wait_until
from tidelog.client.admin import Admin
from tidelog.client.ledger import record_checksum
from tidelog.client.record_fields import DEFAULT_ID_FIELD

PIPE_BYTES = 1024 * 1024


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


def _wait_for_records(cluster: Cluster, topic: str, count: int) -> None:
    wait_until(
        lambda: len(_stored(cluster, topic)) == count,
        within_s=COMMAND_TIMEOUT_S,
        what=f"{count} records in the topic",
    )


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
        assert dict(headers)[DEFAULT_ID_FIELD.name].decode() == record_id
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


@pytest.mark.parametrize("noted_bytes", [1, 300_000, 2_000_000])
def test_killed_producer_leaves_no_record_that_its_ledger_has_not_heard_of(
    cluster: Cluster, topic: str, tmp_path: Path, noted_bytes: int
) -> None:
    path = tmp_path / "ledger.jsonl"
    producer = cluster.start("produce", topic, "--count", "10000000", "--ledger", str(path))
    try:
        wait_until(
            lambda: path.exists() and path.stat().st_size >= noted_bytes,
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


def test_nothing_is_sent_that_a_ledger_has_no_room_for(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """The ledger is a pipe that nobody empties: the producer stops in the middle of a write."""
    path = tmp_path / "ledger.jsonl"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    producer = cluster.start("produce", topic, "--count", "1000000", "--ledger", str(path))
    try:
        wait_until(
            lambda: not select.select([], [reading], [], 0)[1],
            within_s=COMMAND_TIMEOUT_S,
            what="a pipe that is full",
        )
        counts = [0]

        def has_stopped() -> bool:
            counts.append(len(_stored(cluster, topic)))
            return 0 < counts[-1] == counts[-2]

        wait_until(has_stopped, within_s=COMMAND_TIMEOUT_S, what="records of what is in the pipe")
    finally:
        producer.send_signal(signal.SIGKILL)
        producer.communicate(timeout=COMMAND_TIMEOUT_S)
    *whole, _ = os.read(reading, 2 * PIPE_BYTES).split(b"\n")
    os.close(reading)
    noted = {json.loads(line)["id"] for line in whole}
    assert {record["headers"][0]["value"] for record in _stored(cluster, topic)} <= noted


def test_record_of_a_slow_pipe_waits_for_no_other(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    producer = cluster.start("produce", topic, "--ledger", str(path))
    assert producer.stdin is not None
    try:
        for count, line in enumerate((b"first\n", b"second\nhalf of"), start=1):
            producer.stdin.write(line)
            producer.stdin.flush()
            _wait_for_records(cluster, topic, count)
    finally:
        _, complaint = producer.communicate(b" the third", timeout=COMMAND_TIMEOUT_S)
    assert (producer.returncode, complaint) == (0, b"")
    values = {record["value"] for record in _stored(cluster, topic)}
    assert values == {"first", "second", "half of the third"}
    assert len(_lines(path)) == 6


def test_record_waits_for_its_turn_and_not_for_others(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    producer = cluster.start(
        *("produce", topic, "--count", "1000", "--rate", "0.1/s", "--ledger", str(path))
    )
    try:
        _wait_for_records(cluster, topic, 1)
        assert 0 < len([line for line in _lines(path) if "crc32" in line]) < 10
    finally:
        producer.send_signal(signal.SIGKILL)
        producer.communicate(timeout=COMMAND_TIMEOUT_S)


def _is_torn(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
