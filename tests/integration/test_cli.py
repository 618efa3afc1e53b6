"""The command line, as typed: real processes, three real brokers, real pipes (O1, P1, P4).

Every command runs as a child with its own stdin, stdout and stderr, and is judged by what it prints
where, and by its exit code.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND_TIMEOUT_S, Cluster, environment, objects, tidelog
from tests.support.server_process import wait_until
from tidelog.client.admin import Admin


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.down()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """An empty topic of one partition, named after the test."""
    name = re.sub(r"[^\w.-]+", ".", request.node.name)[:200]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(name, partitions=1, configs={})
    return name


def test_topic_is_created_listed_described_altered_and_deleted(cluster: Cluster) -> None:
    [created] = objects(
        cluster.ok(
            *("topics", "create", "life", "--partitions", "2", "--json"),
            *("--config", "retention.ms=100000"),
        )
    )
    assert created["created"]
    assert (created["topic"], created["partitions"], created["internal"]) == ("life", 2, False)
    listed = {entry["topic"]: entry for entry in objects(cluster.ok("topics", "list", "--json"))}
    assert listed["life"]["topic_id"] == created["topic_id"]

    [described] = objects(cluster.ok("topics", "describe", "life", "--json"))
    assert described["configs"] == {"retention.ms": "100000"}
    partition = described["partitions"][1]
    assert sorted(partition["replicas"]) == [1, 2, 3]
    assert partition == {
        "partition": 1,
        "leader": partition["replicas"][0],
        "replicas": partition["replicas"],
        "isr": partition["replicas"],
        "state": "in sync",
        "start_offset": 0,
        "end_offset": 0,
    }

    cluster.ok(
        *("topics", "alter", "life", "--partitions", "3"),
        *("--config", "segment.bytes=1048576", "--delete-config", "retention.ms"),
    )
    [altered] = objects(cluster.ok("topics", "describe", "life", "--json"))
    assert len(altered["partitions"]) == 3
    assert altered["configs"] == {"segment.bytes": "1048576"}

    deleted = objects(cluster.ok("topics", "delete", "life", "--json"))
    assert deleted == [{"topic": "life", "deleted": True}]
    assert "life" not in cluster.ok("topics", "list").decode().split()


def test_topic_that_exists_is_not_created_again(cluster: Cluster, topic: str) -> None:
    assert topic in cluster.no("topics", "create", topic, exit_code=1)
    again = objects(cluster.ok("topics", "create", topic, "--if-not-exists", "--json"))
    assert again[0]["created"] is False


def test_name_that_no_topic_may_have_is_named(cluster: Cluster) -> None:
    assert "'no/where' is no name for a topic" in cluster.no("produce", "no/where", exit_code=2)


def test_topic_that_does_not_exist_is_named(cluster: Cluster) -> None:
    for command in (
        ("topics", "describe", "nowhere"),
        ("topics", "alter", "nowhere", "--partitions", "2"),
        ("topics", "delete", "nowhere"),
        ("configs", "describe", "--topic", "nowhere"),
        ("consume", "nowhere"),
        ("log-dirs", "list", "nowhere"),
        ("log-dirs", "move", "nowhere", "0", "--broker", "1", "--to", "/tmp"),
    ):
        assert "there is no topic nowhere" in cluster.no(*command, exit_code=1)
    # None of these may have created it.
    assert b"nowhere" not in cluster.ok("topics", "list")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--config", "retention.ms=soon"), "retention.ms"),
        (("--config", "nonsense=1"), "nonsense"),
        (("--partitions", "0"), "0"),
        (("--partitions", "99999999999"), "--partitions"),
        (("--replication-factor", "4"), "4"),
        (("--replication-factor", "99999999999"), "--replication-factor"),
    ],
)
def test_topic_asked_for_wrongly_is_refused_by_name(
    cluster: Cluster, arguments: tuple[str, ...], named: str
) -> None:
    assert named in cluster.no("topics", "create", "wrong", *arguments, exit_code=2)


def test_partitions_are_never_taken_away(cluster: Cluster, topic: str) -> None:
    cluster.no("topics", "alter", topic, "--partitions", "1", exit_code=2)


@pytest.mark.parametrize(
    ("target", "name", "source"),
    [
        (("--topic", ""), "retention.ms", "topic"),
        (("--broker", "1"), "message.max.bytes", "broker"),
        (("--cluster",), "log.retention.ms", "cluster default"),
    ],
)
def test_setting_is_altered_described_and_deleted(
    cluster: Cluster, topic: str, target: tuple[str, ...], name: str, source: str
) -> None:
    resource = [part or topic for part in target]
    cluster.ok("configs", "alter", *resource, "--set", f"{name}=7654321")
    described = objects(cluster.ok("configs", "describe", *resource, "--json"))
    [changed] = [value for value in described if value["name"] == name]
    assert changed == {
        "name": name,
        "value": "7654321",
        "source": source,
        "read_only": False,
        "sensitive": False,
    }
    cluster.ok("configs", "alter", *resource, "--delete", name)
    described = objects(cluster.ok("configs", "describe", *resource, "--json"))
    assert name not in [value["name"] for value in described]


@pytest.mark.parametrize("target", [("--topic", ""), ("--broker", "1"), ("--cluster",)])
def test_wrong_setting_of_a_running_cluster_is_named(
    cluster: Cluster, topic: str, target: tuple[str, ...]
) -> None:
    resource = [part or topic for part in target]
    assert "nonsense" in cluster.no(
        "configs", "alter", *resource, "--set", "nonsense=1", exit_code=2
    )


@pytest.mark.parametrize(
    "target", [("--topic", ""), ("--broker", "1"), ("--group", "readers"), ("--cluster",)]
)
def test_setting_that_nobody_knows_is_not_said_to_be_deleted(
    cluster: Cluster, topic: str, target: tuple[str, ...]
) -> None:
    resource = [part or topic for part in target]
    told = cluster.no("configs", "alter", *resource, "--delete", "nonsense", exit_code=2)
    assert "nonsense is not a " in told


def test_setting_to_be_set_and_deleted_is_named(cluster: Cluster, topic: str) -> None:
    both = ("--set", "retention.ms=5", "--delete", "retention.ms")
    told = cluster.no("configs", "alter", "--topic", topic, *both, exit_code=2)
    assert "retention.ms is to be set and to be deleted" in told


def test_broker_that_does_not_exist_is_named(cluster: Cluster) -> None:
    assert "broker 8" in cluster.no("configs", "describe", "--broker", "8", exit_code=1)


def test_defaults_are_shown_on_request(cluster: Cluster, topic: str) -> None:
    few = objects(cluster.ok("configs", "describe", "--topic", topic, "--json"))
    every = objects(cluster.ok("configs", "describe", "--topic", topic, "--json", "--all"))
    assert few == []
    assert "retention.ms" in [value["name"] for value in every]


def test_cluster_shows_brokers_controller_and_log_dirs(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, stdin=b"x" * 1000)
    [shown] = objects(cluster.ok("cluster", "--json"))
    assert shown["controller"] in {1, 2, 3}
    assert [broker["id"] for broker in shown["brokers"]] == [1, 2, 3]
    assert sum(broker["leads"] for broker in shown["brokers"]) == shown["partitions"]
    assert {broker["replicas"] for broker in shown["brokers"]} == {shown["partitions"]}
    assert (shown["under_replicated"], shown["offline"]) == (0, 0)
    for broker_id, log_dir in enumerate(shown["log_dirs"], 1):
        assert log_dir["path"] == str(cluster.data / f"broker-{broker_id}" / "logs")
        assert log_dir["error"] is None
        assert log_dir["size_bytes"] > 1000
        assert 0 < log_dir["usable_bytes"] <= log_dir["total_bytes"]
        assert log_dir["path"].encode() in cluster.ok("cluster")


def test_lines_come_back_as_they_were(cluster: Cluster, topic: str) -> None:
    lines = b"first\n\nthird \xc3\xbc\nno newline at the end"
    summary = cluster.ok("produce", topic, stdin=lines)
    assert summary.startswith(b"Sent 4 records")
    assert cluster.ok("consume", topic) == lines + b"\n"


def test_no_input_is_no_record(cluster: Cluster, topic: str) -> None:
    [summary] = objects(cluster.ok("produce", topic, "--json"))
    assert (summary["records"], summary["failed"]) == (0, 0)
    assert cluster.ok("consume", topic) == b""


def test_files_are_read_in_order(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1\n2\n")
    (tmp_path / "two").write_bytes(b"3\n")
    cluster.ok("produce", topic, str(tmp_path / "one"), str(tmp_path / "two"))
    assert cluster.ok("consume", topic) == b"1\n2\n3\n"


def test_nothing_is_sent_if_a_file_is_missing(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"1\n")
    sentence = cluster.no(
        "produce", topic, str(tmp_path / "one"), str(tmp_path / "nope"), exit_code=2
    )
    assert "nope" in sentence
    assert cluster.ok("consume", topic) == b""


def test_json_has_everything_a_consumer_sees(cluster: Cluster, topic: str) -> None:
    before_ms = time.time_ns() // 1_000_000
    cluster.ok(
        *("produce", topic, "--key-separator", ":", "--header", "trace=1", "--header", "empty="),
        stdin=b"key:value\n",
    )
    [record] = objects(cluster.ok("consume", topic, "--json"))
    assert before_ms <= record.pop("timestamp") <= time.time_ns() // 1_000_000
    assert record == {
        "partition": 0,
        "offset": 0,
        "key": "key",
        "value": "value",
        "headers": [{"name": "trace", "value": "1"}, {"name": "empty", "value": ""}],
    }


def test_bytes_that_are_not_text_are_marked(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, stdin=b"\xff\xfe\n")
    [record] = objects(cluster.ok("consume", topic, "--json"))
    assert (record["value"], record["value_encoding"]) == ("//4=", "base64")
    assert cluster.ok("consume", topic) == b"\xff\xfe\n"


def test_consumed_json_can_be_produced_again(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, "--key", "k", "--header", "h=1", stdin=b"text\n\xff\n\n")
    original = cluster.ok("consume", topic, "--json")
    cluster.ok("produce", f"{topic}.copy", "--input", "json", stdin=original)
    assert cluster.ok("consume", f"{topic}.copy", "--json") == original


def test_line_that_is_no_record_ends_the_reading_by_number(cluster: Cluster, topic: str) -> None:
    sentence = cluster.no(
        "produce", topic, "--key-separator", ":", exit_code=2, stdin=b"a:1\nb\nc:3\n"
    )
    assert "line 2 of stdin" in sentence
    assert cluster.ok("consume", topic) == b"1\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "0123456789"),
        (("--from", "beginning", "--to", "end"), "0123456789"),
        (("--from", "7"), "789"),
        (("--to", "3"), "012"),
        (("--from", "3", "--to", "5"), "34"),
        (("--from", "5", "--to", "3"), ""),
        (("--from", "500"), ""),
        (("--to", "500"), "0123456789"),
        (("--from", "end"), ""),
        (("--max", "4"), "0123"),
        (("--max", "0"), ""),
        (("--from", "8", "--max", "4"), "89"),
        (("--partition", "0", "--max", "1"), "0"),
        (("--from", "@1700000000004"), "456789"),
        (("--from", "1700000000004"), "456789"),
        (("--to", "1700000000004"), "0123"),
        (("--from", "2023-11-14T22:13:20.006Z"), "6789"),
        (("--from", "2023-11-14T22:13:20.006", "--to", "2023-11-15"), "6789"),
        (("--from", "2030-01-01"), ""),
    ],
)
def test_range_is_what_was_asked_for(
    ten_records: tuple[Cluster, str], arguments: tuple[str, ...], expected: str
) -> None:
    cluster, topic = ten_records
    assert cluster.ok("consume", topic, *arguments).decode().split() == list(expected)


@pytest.fixture(scope="module")
def ten_records(cluster: Cluster) -> tuple[Cluster, str]:
    """Values 0 to 9, a millisecond apart."""
    lines = [
        json.dumps({"value": str(number), "timestamp": 1_700_000_000_000 + number})
        for number in range(10)
    ]
    cluster.ok("topics", "create", "ten", "--partitions", "1")
    cluster.ok("produce", "ten", "--input", "json", stdin="\n".join(lines).encode())
    return cluster, "ten"


def test_partition_that_does_not_exist_is_named(cluster: Cluster, topic: str) -> None:
    assert "no partition 5" in cluster.no("consume", topic, "--partition", "5", exit_code=1)
    assert "no partition 5" in cluster.no(
        "produce", topic, "--partition", "5", "--count", "1", exit_code=1
    )


def test_records_go_to_the_partition_asked_for(cluster: Cluster) -> None:
    cluster.ok("topics", "create", "aimed", "--partitions", "3")
    cluster.ok("produce", "aimed", "--partition", "2", "--count", "5")
    records = objects(cluster.ok("consume", "aimed", "--json"))
    assert [record["partition"] for record in records] == [2] * 5


def test_keys_land_where_the_java_client_puts_them(cluster: Cluster) -> None:
    cluster.ok("topics", "create", "keyed", "--partitions", "3")
    cluster.ok("produce", "keyed", "--key-separator", ":", stdin=b"a:1\nb:2\nkey:3\ntidelog:4\n")
    records = objects(cluster.ok("consume", "keyed", "--json"))
    placed = {record["key"]: record["partition"] for record in records}
    assert placed == {key: murmur2_partition(key.encode(), 3) for key in placed}


def murmur2_partition(key: bytes, partition_count: int) -> int:
    """The partition of `key` by the hash that Kafka's protocol guide names, written out."""
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(key)) & 0xFFFFFFFF
    whole = len(key) // 4 * 4
    for position in range(0, whole, 4):
        k = int.from_bytes(key[position : position + 4], "little") * m & 0xFFFFFFFF
        k = (k ^ k >> 24) * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ k
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partition_count


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
def test_generated_records_arrive_whatever_the_acks(
    cluster: Cluster, topic: str, acks: str
) -> None:
    [summary] = objects(
        cluster.ok("produce", topic, "--count", "500", "--size", "20", "--acks", acks, "--json")
    )
    assert (summary["topic"], summary["records"], summary["failed"]) == (topic, 500, 0)
    assert summary["bytes"] == 500 * 20
    assert summary["records_per_second"] > 0
    wait_until(
        lambda: len(cluster.ok("consume", topic).split()) == 500,
        within_s=20,
        what="all records are there",
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_goes_in_and_out(cluster: Cluster, topic: str, codec: str) -> None:
    cluster.ok("produce", topic, "--count", "300", "--compression", codec)
    values = cluster.ok("consume", topic).splitlines()
    assert [int(value.rstrip(b".")) for value in values] == list(range(300))


def test_rate_is_kept(cluster: Cluster, topic: str) -> None:
    [summary] = objects(cluster.ok("produce", topic, "--count", "40", "--rate", "100/s", "--json"))
    assert summary["records"] == 40
    assert summary["seconds"] >= 0.39


def test_record_that_the_broker_refuses_is_counted(cluster: Cluster, topic: str) -> None:
    cluster.ok("topics", "alter", topic, "--config", "max.message.bytes=1000")
    done = cluster.run("produce", topic, "--json", stdin=b"small\n" + b"x" * 5000 + b"\n")
    assert done.returncode == 1
    [summary] = objects(done.stdout)
    assert summary["failed"] >= 1
    assert b"not acknowledged" in done.stderr


def test_topic_is_created_on_first_use(cluster: Cluster) -> None:
    """P4: `auto.create.topics.enable` is on by default."""
    cluster.ok("produce", "first.use", stdin=b"hello\n")
    assert cluster.ok("consume", "first.use") == b"hello\n"


def test_topic_is_not_created_where_the_broker_may_not(tmp_path: Path) -> None:
    strict = Cluster(tmp_path, "--set", "auto.create.topics.enable=false", "--brokers", "1")
    try:
        sentence = strict.no("produce", "first.use", exit_code=1, stdin=b"hello\n")
        assert "auto.create.topics.enable" in sentence
        assert strict.ok("topics", "list", "--json") == b""
    finally:
        strict.down()


def test_reader_that_has_enough_ends_consume_in_silence(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, "--count", "50000")
    with cluster.start("consume", topic) as consume:
        assert consume.stdout is not None
        assert consume.stderr is not None
        assert consume.stdout.readline().startswith(b"0.")
        consume.stdout.close()
        assert consume.stderr.read() == b""
        assert consume.wait(COMMAND_TIMEOUT_S) == 0


def test_reader_that_leaves_ends_an_idle_follow(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, stdin=b"only\n")
    with cluster.start("consume", topic, "--follow") as consume:
        assert consume.stdout is not None
        assert consume.stderr is not None
        assert consume.stdout.readline() == b"only\n"
        consume.stdout.close()
        assert consume.stderr.read() == b""
        assert consume.wait(COMMAND_TIMEOUT_S) == 0


def test_follow_prints_what_arrives_until_ctrl_c(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, stdin=b"before\n")
    with cluster.start("consume", topic, "--follow") as consume:
        assert consume.stdout is not None
        assert consume.stdout.readline() == b"before\n"
        cluster.ok("produce", topic, stdin=b"after\n")
        assert consume.stdout.readline() == b"after\n"
        consume.send_signal(signal.SIGINT)
        assert consume.wait(COMMAND_TIMEOUT_S) == 0


def test_follow_waits_for_an_offset_that_is_not_there_yet(cluster: Cluster, topic: str) -> None:
    cluster.ok("produce", topic, stdin=b"0\n")
    with cluster.start("consume", topic, "--follow", "--to", "2") as consume:
        assert consume.stdout is not None
        assert consume.stdout.readline() == b"0\n"
        cluster.ok("produce", topic, stdin=b"1\n2\n")
        assert consume.stdout.read() == b"1\n"
        assert consume.wait(COMMAND_TIMEOUT_S) == 0


def test_lines_are_sent_as_they_are_typed(cluster: Cluster, topic: str) -> None:
    with cluster.start("produce", topic) as produce:
        assert produce.stdin is not None
        produce.stdin.write(b"typed\n")
        produce.stdin.flush()
        wait_until(
            lambda: cluster.ok("consume", topic) == b"typed\n",
            within_s=20,
            what="a line arrives before the input ends",
        )
        produce.stdin.close()
        assert produce.wait(COMMAND_TIMEOUT_S) == 0


def test_reliable_profile_sends_to_nothing_less(cluster: Cluster, topic: str) -> None:
    """D4: three replicas, two in sync, acks=all, or nothing is sent."""
    reliable = ("produce", topic, "--profile", "reliable")
    assert "min.insync.replicas" in cluster.no(*reliable, exit_code=2, stdin=b"x\n")
    assert "--acks is 1" in cluster.no(*reliable, "--acks", "1", exit_code=2, stdin=b"x\n")
    cluster.ok("topics", "alter", topic, "--config", "min.insync.replicas=2")
    cluster.ok(*reliable, stdin=b"x\n")
    assert cluster.ok("consume", topic) == b"x\n"


def test_interrupted_produce_says_what_was_sent(cluster: Cluster, topic: str) -> None:
    with cluster.start("produce", topic, "--json") as produce:
        assert produce.stdin is not None
        assert produce.stdout is not None
        produce.stdin.write(b"typed\n")
        produce.stdin.flush()
        wait_until(
            lambda: cluster.ok("consume", topic) == b"typed\n",
            within_s=20,
            what="a line arrives before the input ends",
        )
        produce.send_signal(signal.SIGINT)
        assert produce.wait(COMMAND_TIMEOUT_S) == 130
        assert objects(produce.stdout.read())[0]["records"] == 1


@pytest.mark.parametrize("command", [("topics", "list"), ("cluster",), ("consume", "x")])
def test_nobody_at_the_address_is_said_in_one_sentence(command: Sequence[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        done = tidelog(*command, "--bootstrap", address)
    assert done.returncode == 1
    assert address.encode() in done.stderr
    assert done.stderr.count(b"\n") == 1


def complete(words: str, position: int, extra: Mapping[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tidelog"],
        capture_output=True,
        check=True,
        env=environment(
            _TIDELOG_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(position), **extra
        ),
    )
    return done.stdout.decode().split()


def test_shell_completes_commands_options_and_topics(cluster: Cluster, topic: str) -> None:
    assert complete("tidelog con", 1, {}) == ["consume", "configs"]
    assert complete("tidelog broker --c", 2, {}) == ["--config"]
    known = {"TIDELOG_BOOTSTRAP": cluster.bootstrap}
    assert complete(f"tidelog consume {topic[:20]}", 2, known) == [topic]
