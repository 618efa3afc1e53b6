"""Kafka's own command line tools do with the broker what they do with Kafka (G1, P1)."""

import json
import re
from pathlib import Path
from typing import TypedDict

import pytest

from tests.compatibility.kafka_peer import Broker
from tests.support.clients import FIRST_TIMESTAMP_MS, NewRecord, create_topic, send
from tests.support.kafka_tools import KafkaTools
from tests.support.server_process import wait_until
from tests.support.subject import ASKED, BROKER_COUNT

TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class ReplicaOnDisk(TypedDict):
    """One entry of what LogDirsCommand prints as JSON."""

    partition: str
    size: int
    offsetLag: int
    isFuture: bool


class LogDir(TypedDict):
    logDir: str
    error: str | None
    partitions: list[ReplicaOnDisk]


class TestTopicCommand:
    def test_created_topic_is_described_as_asked_for(self, tools: KafkaTools) -> None:
        tools.topics(
            *("--create", "--topic", "described", "--partitions", "3"),
            *("--replication-factor", str(BROKER_COUNT), "--config", "retention.ms=100000"),
        )
        summary, *partitions = tools.topics("--describe", "--topic", "described").splitlines()
        assert re.search(r"TopicId: [A-Za-z0-9_-]{22}\t", summary)
        assert "PartitionCount: 3" in summary
        assert f"ReplicationFactor: {BROKER_COUNT}" in summary
        assert "retention.ms=100000" in summary
        assert len(partitions) == 3
        for number, line in enumerate(partitions):
            described = _fields(line)
            assert (described["Topic"], described["Partition"]) == ("described", str(number))
            replicas = described["Replicas"].split(",")
            assert sorted(replicas) == [str(1 + n) for n in range(BROKER_COUNT)]
            assert described["Leader"] == replicas[0]
            assert sorted(described["Isr"].split(",")) == sorted(replicas)

    def test_list_names_every_topic(self, tools: KafkaTools) -> None:
        for name in ("listed-1", "listed-2"):
            tools.topics("--create", "--topic", name)
        assert {"listed-1", "listed-2"} <= set(tools.topics("--list").split())

    def test_name_in_use_is_refused(self, tools: KafkaTools) -> None:
        tools.topics("--create", "--topic", "twice")
        result = tools.attempt(TOPIC_COMMAND, "--create", "--topic", "twice")
        assert result.exit_code == 1
        assert "Topic 'twice' already exists" in str(result)

    def test_name_in_use_is_fine_if_not_exists_was_said(self, tools: KafkaTools) -> None:
        for _attempt in range(2):
            tools.topics("--create", "--topic", "once", "--if-not-exists")

    @pytest.mark.parametrize(
        ("arguments", "named"),
        [
            (("--replication-factor", str(BROKER_COUNT + 1)), "replication factor"),
            (("--config", "retention.ms=soon"), "retention.ms"),
            (("--config", "no.such.setting=1"), "no.such.setting"),
            (("--replica-assignment", "7"), "broker 7"),
        ],
    )
    def test_impossible_topic_is_refused_naming_what_is_wrong(
        self, tools: KafkaTools, arguments: tuple[str, str], named: str
    ) -> None:
        result = tools.attempt(TOPIC_COMMAND, "--create", "--topic", "impossible", *arguments)
        assert result.exit_code == 1
        assert named in result.stdout
        assert "impossible" not in tools.topics("--list").split()

    def test_partitions_are_added(self, tools: KafkaTools) -> None:
        tools.topics("--create", "--topic", "growing", "--partitions", "1")
        tools.topics("--alter", "--topic", "growing", "--partitions", "4")
        assert "PartitionCount: 4" in tools.topics("--describe", "--topic", "growing")

    def test_partitions_are_never_taken_away(self, tools: KafkaTools) -> None:
        tools.topics("--create", "--topic", "shrinking", "--partitions", "2")
        result = tools.attempt(
            TOPIC_COMMAND, "--alter", "--topic", "shrinking", "--partitions", "1"
        )
        assert result.exit_code == 1
        assert "has 2 partition(s)" in result.stdout

    def test_deleted_topic_is_gone(self, tools: KafkaTools) -> None:
        tools.topics("--create", "--topic", "deleted")
        tools.topics("--delete", "--topic", "deleted")
        assert "deleted" not in tools.topics("--list").split()

    def test_unknown_topic_is_reported(self, tools: KafkaTools) -> None:
        result = tools.attempt(TOPIC_COMMAND, "--describe", "--topic", "nowhere")
        assert result.exit_code == 1
        assert "Topic 'nowhere' does not exist as expected" in str(result)

    def test_healthy_topic_has_no_partition_without_leader_or_replica(
        self, tools: KafkaTools
    ) -> None:
        tools.topics("--create", "--topic", "healthy")
        for filter_option in ("--under-replicated-partitions", "--unavailable-partitions"):
            described = tools.topics("--describe", "--topic", "healthy", filter_option)
            assert described.strip() == ""


class TestProducerPerformance:
    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_arrives_whole(self, tools: KafkaTools, codec: str) -> None:
        topic = f"perf-{codec}"
        _produce(tools, topic, 2_000, f"compression.type={codec}")
        assert _end_offset(tools, topic) == 2_000
        assert len(_consume(tools, topic, "--offset", "earliest", count=2_000)) == 2_000

    @pytest.mark.parametrize("acks", ["1", "all"])
    def test_acknowledged_records_are_counted(self, tools: KafkaTools, acks: str) -> None:
        topic = f"perf-acks-{acks}"
        _produce(tools, topic, 3_000, f"acks={acks}", "enable.idempotence=false")
        assert _end_offset(tools, topic) == 3_000

    def test_acks_0_needs_no_answer(self, tools: KafkaTools) -> None:
        _produce(tools, "perf-acks-0", 1_000, "acks=0", "enable.idempotence=false")
        wait_until(
            lambda: _end_offset(tools, "perf-acks-0") == 1_000,
            within_s=30,
            what="1,000 unacknowledged records are in the log",
        )

    def test_idempotent_producer_leaves_no_duplicate(self, tools: KafkaTools) -> None:
        _produce(tools, "perf-idempotent", 3_000, "acks=all", "enable.idempotence=true")
        assert _end_offset(tools, "perf-idempotent") == 3_000

    def test_topic_is_created_on_first_use(self, tools: KafkaTools) -> None:
        """P4: `auto.create.topics.enable` is on by default."""
        _produce(tools, "perf-first-use", 10)
        assert "perf-first-use" in tools.topics("--list").split()


class TestConsoleConsumer:
    def test_partition_is_read_in_order(self, tools: KafkaTools) -> None:
        _fill_with_lines(tools, "ordered", [f"line {n}" for n in range(500)])
        assert _consume(tools, "ordered", "--offset", "earliest", count=500) == [
            f"line {n}" for n in range(500)
        ]

    def test_reading_starts_at_the_offset_asked_for(self, tools: KafkaTools) -> None:
        _fill_with_lines(tools, "from-offset", [f"line {n}" for n in range(20)])
        lines = _consume(
            *(tools, "from-offset", "--offset", "17"),
            *("--formatter-property", "print.offset=true"),
            count=3,
        )
        assert lines == ["Offset:17\tline 17", "Offset:18\tline 18", "Offset:19\tline 19"]

    def test_end_of_partition_is_waited_at(self, tools: KafkaTools) -> None:
        _fill_with_lines(tools, "ended", ["only"])
        result = tools.attempt(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--topic", "ended", "--partition", "0", "--offset", "latest"),
            *("--timeout-ms", "1000"),
        )
        assert "Processed a total of 0 messages" in result.stderr

    def test_key_and_headers_come_back(self, tools: KafkaTools) -> None:
        _create(tools, "keyed")
        tools.console_producer(
            *("--topic", "keyed"),
            *("--reader-property", "parse.key=true"),
            *("--reader-property", "parse.headers=true"),
            lines="trace:17,kind:test\tkey\tvalue\n",
        )
        properties = [f"print.{part}=true" for part in ("key", "headers", "partition")]
        lines = _consume(
            *(tools, "keyed", "--offset", "earliest"),
            *(argument for name in properties for argument in ("--formatter-property", name)),
            count=1,
        )
        assert lines == ["Partition:0\ttrace:17,kind:test\tkey\tvalue"]


class TestConfigCommand:
    def test_topic_setting_is_changed_and_taken_back(self, tools: KafkaTools) -> None:
        _create(tools, "configured")
        entity = ("--entity-type", "topics", "--entity-name", "configured")
        tools.configs("--alter", *entity, "--add-config", "max.message.bytes=12345")
        described = tools.configs("--describe", *entity)
        assert (
            "max.message.bytes=12345 sensitive=false synonyms="
            "{DYNAMIC_TOPIC_CONFIG:max.message.bytes=12345, "
            "DEFAULT_CONFIG:message.max.bytes=1048588}" in described
        )
        tools.configs("--alter", *entity, "--delete-config", "max.message.bytes")
        assert "max.message.bytes" not in tools.configs("--describe", *entity)

    def test_group_setting_is_changed_and_taken_back(self, tools: KafkaTools) -> None:
        entity = ("--entity-type", "groups", "--entity-name", "configured")
        tools.configs("--alter", *entity, "--add-config", "consumer.session.timeout.ms=50000")
        assert (
            "consumer.session.timeout.ms=50000 sensitive=false synonyms="
            "{DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, "
            "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000}"
            in tools.configs("--describe", *entity)
        )
        assert "configured" in tools.configs("--describe", "--entity-type", "groups")
        tools.configs("--alter", *entity, "--delete-config", "consumer.session.timeout.ms")
        assert "consumer.session.timeout.ms" not in tools.configs("--describe", *entity)

    def test_level_of_a_logger_is_changed_and_changed_back(self, tools: KafkaTools) -> None:
        entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
        for level in ("DEBUG", "INFO"):
            tools.configs("--alter", *entity, "--add-config", f"root={level}")
            assert f"root={level} sensitive=false" in tools.configs("--describe", *entity)

    @pytest.mark.parametrize(
        "setting", ["max.message.bytes=abc", "cleanup.policy=sometimes", "no.such.setting=1"]
    )
    def test_wrong_setting_is_refused_by_name(self, tools: KafkaTools, setting: str) -> None:
        topic = f"misconfigured-{setting.split('=', maxsplit=1)[0]}"
        _create(tools, topic)
        entity = ("--entity-type", "topics", "--entity-name", topic)
        result = tools.attempt(CONFIG_COMMAND, "--alter", *entity, "--add-config", setting)
        assert result.exit_code == 1
        assert "InvalidConfigurationException" in str(result)
        assert setting.split("=", maxsplit=1)[0] in str(result)

    def test_topic_defaults_are_kafkas(self, tools: KafkaTools) -> None:
        """G5, as recorded from Kafka 4.3.0; tiered storage is the one part that may be absent."""
        _create(tools, "defaults")
        described = tools.configs(
            "--describe", "--all", "--entity-type", "topics", "--entity-name", "defaults"
        )
        ours = _settings(described)
        kafkas = _settings((Path(__file__).parent / "golden/topic_configs.txt").read_text("utf-8"))
        tiered = {name for name in kafkas if name.startswith(("remote.", "local."))}
        assert {name: ours[name] for name in kafkas.keys() & ours.keys()} == {
            name: kafkas[name] for name in kafkas.keys() & ours.keys()
        }
        assert kafkas.keys() - ours.keys() <= tiered

    def test_broker_setting_is_changed_while_it_runs(self, tools: KafkaTools) -> None:
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        tools.configs("--alter", *entity, "--add-config", "log.retention.ms=7654321")
        assert (
            "log.retention.ms=7654321 sensitive=false synonyms="
            "{DYNAMIC_BROKER_CONFIG:log.retention.ms=7654321"
        ) in tools.configs("--describe", *entity)
        tools.configs("--alter", *entity, "--delete-config", "log.retention.ms")
        assert "log.retention.ms=7654321" not in tools.configs("--describe", *entity)

    def test_default_of_all_brokers_reaches_the_topics(self, tools: KafkaTools) -> None:
        _create(tools, "inheriting")
        entity = ("--entity-type", "brokers", "--entity-default")
        tools.configs("--alter", *entity, "--add-config", "log.segment.bytes=5242880")
        try:
            described = tools.configs(
                *("--describe", "--all", "--entity-type", "topics"),
                *("--entity-name", "inheriting"),
            )
            assert _settings(described)["segment.bytes"] == "5242880"
        finally:
            tools.configs("--alter", *entity, "--delete-config", "log.segment.bytes")

    @pytest.mark.parametrize("entity", ["topics", "brokers", "client-metrics"])
    def test_settings_of_everything_of_a_kind_are_described(
        self, tools: KafkaTools, entity: str
    ) -> None:
        """KIP-1142: without a name the tool asks first what there is."""
        described = tools.configs("--describe", "--entity-type", entity)
        assert ("Dynamic configs for broker 1" in described) == (entity == "brokers")

    def test_setting_fixed_at_start_is_refused(self, tools: KafkaTools) -> None:
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        result = tools.attempt(CONFIG_COMMAND, "--alter", *entity, "--add-config", "node.id=9")
        assert result.exit_code == 1
        assert "node.id" in str(result)


@pytest.fixture(scope="module")
def topic_of_offsets(tools: KafkaTools) -> None:
    """Ten records in the first of two partitions, a second apart."""
    _create(tools, "offsets", partition_count=2)
    records = [
        NewRecord(key=None, value=b"x", timestamp_ms=FIRST_TIMESTAMP_MS + n * 1_000, headers=())
        for n in range(10)
    ]
    send(tools.bootstrap, "offsets", records, partition=0, settings={})


class TestGetOffsetShell:
    @pytest.mark.parametrize(
        ("time", "expected"),
        [
            ("latest", ["offsets:0:10", "offsets:1:0"]),
            ("earliest", ["offsets:0:0", "offsets:1:0"]),
            ("earliest-local", ["offsets:0:0", "offsets:1:0"]),
            ("max-timestamp", ["offsets:0:9"]),
            ("0", ["offsets:0:0"]),
            (str(FIRST_TIMESTAMP_MS + 4_001), ["offsets:0:5"]),
            (str(FIRST_TIMESTAMP_MS + 9_001), []),
        ],
    )
    @pytest.mark.usefixtures("topic_of_offsets")
    def test_offsets_are_found_by_time(
        self, tools: KafkaTools, time: str, expected: list[str]
    ) -> None:
        assert tools.get_offsets("--topic", "offsets", "--time", time).split() == expected

    def test_partitions_are_selected_by_range(self, tools: KafkaTools) -> None:
        _create(tools, "ranged", partition_count=4)
        offsets = tools.get_offsets("--topic-partitions", "ranged:1-3")
        assert offsets.split() == ["ranged:1:0", "ranged:2:0"]


class TestDeleteRecordsCommand:
    def test_log_starts_where_it_was_cut(self, tools: KafkaTools, tmp_path: Path) -> None:
        _fill_with_lines(tools, "cut", [f"line {n}" for n in range(10)])
        assert "partition: cut-0\tlow_watermark: 4" in _delete_records(tools, tmp_path, "cut", 4)
        assert tools.get_offsets("--topic", "cut", "--time", "earliest").split() == ["cut:0:4"]
        lines = _consume(tools, "cut", "--offset", "earliest", count=6)
        assert lines == [f"line {n}" for n in range(4, 10)]

    def test_minus_one_means_everything(self, tools: KafkaTools, tmp_path: Path) -> None:
        _fill_with_lines(tools, "emptied", [f"line {n}" for n in range(10)])
        assert "low_watermark: 10" in _delete_records(tools, tmp_path, "emptied", -1)
        assert tools.get_offsets("--topic", "emptied", "--time", "earliest").split() == [
            "emptied:0:10"
        ]

    def test_offset_beyond_the_end_is_refused(self, tools: KafkaTools, tmp_path: Path) -> None:
        _fill_with_lines(tools, "uncut", ["only"])
        assert "OffsetOutOfRangeException" in _delete_records(tools, tmp_path, "uncut", 5_000)


class TestLogDirsCommand:
    def test_sizes_are_those_of_the_files(self, tools: KafkaTools, broker: Broker) -> None:
        _create(tools, "sized", partition_count=2)
        _produce(tools, "sized", 1_000)
        (log_dir,) = _log_dirs(tools, "--topic-list", "sized", "--broker-list", str(ASKED))
        assert log_dir["logDir"] == str(broker.data_folder)
        assert log_dir["error"] is None
        assert {entry["partition"]: entry["size"] for entry in log_dir["partitions"]} == {
            f"sized-{n}": _log_bytes(broker.data_folder / f"sized-{n}") for n in range(2)
        }
        assert all(entry["offsetLag"] == 0 for entry in log_dir["partitions"])
        assert not any(entry["isFuture"] for entry in log_dir["partitions"])


class TestFeatureCommand:
    def test_features_are_described_with_their_levels(self, tools: KafkaTools) -> None:
        lines = tools.features("describe").splitlines()
        levels = {
            words[1]: (words[3], words[5], words[7])
            for line in lines
            if (words := line.split())[1] in {"group.version", "transaction.version"}
        }
        assert levels == {"group.version": ("0", "1", "1"), "transaction.version": ("0", "2", "2")}

    def test_level_in_force_is_granted_and_one_that_does_not_exist_refused(
        self, tools: KafkaTools
    ) -> None:
        command = "org.apache.kafka.tools.FeatureCommand"
        granted = tools.features("upgrade", "--feature", "transaction.version=2")
        assert "transaction.version was upgraded to 2" in granted
        refused = tools.attempt(command, "upgrade", "--feature", "transaction.version=3")
        assert refused.exit_code == 1
        assert "Invalid update version 3 for feature transaction.version" in str(refused)


class TestBrokerApiVersions:
    def test_every_advertised_version_is_one_the_java_client_can_speak(
        self, tools: KafkaTools
    ) -> None:
        advertised = re.findall(r"^\t(\w+)\(\d+\): (.*?),?$", tools.api_versions(), re.MULTILINE)
        ranges = {name: text for name, text in advertised if text != "UNSUPPORTED"}
        assert {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions"} <= ranges.keys()
        assert all("[usable: " in text for text in ranges.values())


def _fields(line: str) -> dict[str, str]:
    """The fields of a partition's line; those that only Kafka's own quorum fills are left out."""
    pairs = [pair.split(":", maxsplit=1) for pair in line.strip().split("\t")]
    fields = {name.strip(): value.strip() for name, value in pairs}
    return {name: value for name, value in fields.items() if name not in {"Elr", "LastKnownElr"}}


def _produce(tools: KafkaTools, topic: str, record_count: int, *properties: str) -> None:
    tools.producer_performance(
        *("--topic", topic, "--num-records", str(record_count)),
        *("--record-size", "200", "--throughput", "-1"),
        *(("--command-property", *properties) if properties else ()),
    )


def _create(tools: KafkaTools, topic: str, *, partition_count: int = 1) -> None:
    """By a client: a tool takes a second, and only TopicCommand's own tests are about it."""
    create_topic(tools.bootstrap, topic, partition_count=partition_count, config={})


def _fill_with_lines(tools: KafkaTools, topic: str, lines: list[str]) -> None:
    _create(tools, topic)
    records = [
        NewRecord(key=None, value=line.encode(), timestamp_ms=FIRST_TIMESTAMP_MS, headers=())
        for line in lines
    ]
    send(tools.bootstrap, topic, records, partition=0, settings={})


def _consume(tools: KafkaTools, topic: str, *arguments: str, count: int) -> list[str]:
    printed = tools.console_consumer(
        *("--topic", topic, "--partition", "0", "--max-messages", str(count)),
        *("--timeout-ms", "30000", *arguments),
    )
    return printed.splitlines()


def _end_offset(tools: KafkaTools, topic: str) -> int:
    lines = tools.get_offsets("--topic", topic, "--time", "latest").split()
    return sum(int(line.rsplit(":", maxsplit=1)[1]) for line in lines)


def _delete_records(tools: KafkaTools, folder: Path, topic: str, offset: int) -> str:
    request = folder / "delete.json"
    partitions = [{"topic": topic, "partition": 0, "offset": offset}]
    request.write_text(json.dumps({"partitions": partitions, "version": 1}), "utf-8")
    return tools.delete_records("--offset-json-file", str(request))


def _log_dirs(tools: KafkaTools, *arguments: str) -> list[LogDir]:
    printed = tools.log_dirs("--describe", *arguments).splitlines()[-1]
    (broker,) = json.loads(printed)["brokers"]
    log_dirs: list[LogDir] = broker["logDirs"]
    return log_dirs


def _settings(described: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\S+?)=(.*?) sensitive=", described, re.MULTILINE))


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))
