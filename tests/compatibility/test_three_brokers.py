"""Other people's tools and clients move leaders and replicas in a cluster of three (R11, P1)."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import KafkaAdminClient

from tests.support.clients import CLIENT_TIMEOUT_S, numbered_records, send
from tests.support.kafka_tools import KafkaTools
from tests.support.server_process import wait_until
from tests.support.topics import unused_name
from tidelog.testing import Cluster

pytestmark = pytest.mark.one_broker  # It brings its own three.

LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
PREFERRED = 0


@pytest.fixture
def tools(kafka_jars: None, tidelog_cluster: Cluster) -> KafkaTools:
    return KafkaTools(tidelog_cluster.bootstrap)


def new_topic(cluster: Cluster, *replicas: Sequence[int]) -> str:
    """A topic whose partitions are on these brokers, and in sync."""
    return cluster.create_topic(placement=replicas)


def wait_moved(cluster: Cluster, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Return when the replicas are these, in this order, and all of them are in sync."""
    wait_until(
        lambda: cluster.replicas_of(topic, partition) == tuple(replicas),
        within_s=CLIENT_TIMEOUT_S,
        what=f"{topic}-{partition} is on {replicas}",
    )
    cluster.wait_in_sync(topic)


def fill(cluster: Cluster, topic: str, record_count: int, value_size_bytes: int) -> None:
    records = numbered_records(record_count, value_size_bytes=value_size_bytes, seed=topic)
    send(cluster.bootstrap, topic, records, partition=0, settings={"acks": "all"})


def plan(folder: Path, topic: str, *targets: Sequence[int]) -> str:
    """A file for the tool that says where each partition is to be."""
    moves = [
        {"topic": topic, "partition": partition, "replicas": list(target)}
        for partition, target in enumerate(targets)
    ]
    file = folder / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    return str(file)


class TestTopicCommand:
    def test_replicas_and_in_sync_replicas_are_described(
        self, tidelog_cluster: Cluster, tools: KafkaTools
    ) -> None:
        topic = unused_name()
        tools.topics(
            *("--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3")
        )
        summary, *lines = tools.topics("--describe", "--topic", topic).splitlines()
        assert "ReplicationFactor: 3" in summary
        found = [
            re.search(r"Leader: (\d+)\tReplicas: (\S+)\tIsr: (\S+)", line) for line in lines if line
        ]
        described = [match.groups() for match in found if match is not None]
        assert sorted(leader for leader, _, _ in described) == ["1", "2", "3"]
        for leader, replicas, isr in described:
            assert replicas.startswith(leader)
            assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]

    def test_partitions_are_added_on_all_brokers(
        self, tidelog_cluster: Cluster, tools: KafkaTools
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2, 3))
        tools.topics("--alter", "--topic", topic, "--partitions", "4")
        tidelog_cluster.wait_in_sync(topic)
        assert {tidelog_cluster.leader_of(topic, number) for number in range(4)} == {1, 2, 3}
        for number in range(4):
            assert sorted(tidelog_cluster.replicas_of(topic, number)) == [1, 2, 3]

    def test_partitions_without_enough_replicas_in_sync_are_found(
        self, tidelog_cluster: Cluster, tools: KafkaTools
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2, 3))
        found = tools.topics("--describe", "--under-replicated-partitions", "--topic", topic)
        assert found.strip() == ""


class TestLeaderElectionCommand:
    def test_the_preferred_replica_leads_again(
        self, tidelog_cluster: Cluster, tools: KafkaTools
    ) -> None:
        topic = led_by_another(tidelog_cluster)
        said = tools.leader_election(
            *("--election-type", "preferred", "--topic", topic, "--partition", "0")
        )
        assert "Successfully completed leader election" in said
        assert tidelog_cluster.leader_of(topic) == 2

    def test_an_election_that_is_not_needed_is_no_failure(
        self, tidelog_cluster: Cluster, tools: KafkaTools
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2, 3))
        said = tools.leader_election(
            *("--election-type", "preferred", "--topic", topic, "--partition", "0")
        )
        assert "Valid replica already elected" in said

    def test_a_partition_that_there_is_not_is_refused(self, tools: KafkaTools) -> None:
        result = tools.attempt(
            *(LEADER_ELECTION, "--election-type", "preferred"),
            *("--topic", "no-such-topic", "--partition", "0"),
        )
        assert result.exit_code == 1
        assert "UnknownTopicOrPartitionException" in str(result)


def led_by_another(cluster: Cluster) -> str:
    """A topic that prefers broker 2 and is led by broker 1."""
    topic = new_topic(cluster, (1, 2, 3))
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.alter_partition_reassignments({KafkaPythonPartition(topic, 0): [2, 1, 3]})
    finally:
        admin.close()
    wait_moved(cluster, topic, 0, (2, 1, 3))
    assert cluster.leader_of(topic) == 1
    return topic


class TestReassignPartitionsCommand:
    def test_a_plan_is_generated_and_carried_out(
        self, tidelog_cluster: Cluster, tools: KafkaTools, tmp_path: Path
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2), (2, 1))
        fill(tidelog_cluster, topic, 100, 100)
        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
        said = tools.reassign_partitions(
            *("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "3,2")
        )
        proposed = said.split("Proposed partition reassignment configuration")[1].strip()
        file = tmp_path / "plan.json"
        file.write_text(proposed)
        begun = tools.reassign_partitions("--execute", "--reassignment-json-file", str(file))
        assert "Successfully started partition reassignments" in begun
        for move in json.loads(proposed)["partitions"]:
            wait_moved(tidelog_cluster, topic, move["partition"], move["replicas"])
        verified = tools.reassign_partitions("--verify", "--reassignment-json-file", str(file))
        assert verified.count("is completed") == 2
        folders = [tidelog_cluster.data_folder(1) / f"{topic}-{number}" for number in range(2)]
        wait_until(
            lambda: not any(folder.exists() for folder in folders),
            within_s=CLIENT_TIMEOUT_S,
            what="the replicas that were moved are gone",
        )

    def test_a_throttled_move_takes_its_time_is_listed_and_leaves_no_setting_behind(
        self, tidelog_cluster: Cluster, tools: KafkaTools, tmp_path: Path
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2))
        fill(tidelog_cluster, topic, 3_000, 1_000)
        file = plan(tmp_path, topic, (3, 2))
        # One answer of a leader is one MiB at most, so the second one has to wait.
        tools.reassign_partitions(
            *("--execute", "--reassignment-json-file", file, "--throttle", "100000")
        )
        assert f"{topic}-0" in tools.reassign_partitions("--list")
        settings = tools.configs("--describe", "--entity-type", "topics", "--entity-name", topic)
        assert "leader.replication.throttled.replicas=0:1,0:2" in settings
        assert "follower.replication.throttled.replicas=0:3" in settings
        assert tidelog_cluster.replicas_of(topic) == (3, 2, 1)
        tools.reassign_partitions(
            *("--execute", "--additional", "--reassignment-json-file", file),
            *("--throttle", "100000000"),
        )
        wait_moved(tidelog_cluster, topic, 0, (3, 2))
        verified = tools.reassign_partitions("--verify", "--reassignment-json-file", file)
        assert "is completed" in verified
        assert "Clearing topic-level throttles" in verified
        settings = tools.configs("--describe", "--entity-type", "topics", "--entity-name", topic)
        assert "throttled" not in settings

    def test_a_move_is_taken_back(
        self, tidelog_cluster: Cluster, tools: KafkaTools, tmp_path: Path
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2))
        fill(tidelog_cluster, topic, 3_000, 1_000)
        file = plan(tmp_path, topic, (3, 2))
        tools.reassign_partitions(
            *("--execute", "--reassignment-json-file", file, "--throttle", "1000")
        )
        said = tools.reassign_partitions("--cancel", "--reassignment-json-file", file)
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in said
        assert sorted(tidelog_cluster.replicas_of(topic)) == [1, 2]
        assert f"{topic}-0" not in tools.reassign_partitions("--list")

    def test_a_broker_that_there_is_not_is_refused(
        self, tidelog_cluster: Cluster, tools: KafkaTools, tmp_path: Path
    ) -> None:
        topic = new_topic(tidelog_cluster, (1, 2))
        result = tools.attempt(
            *(REASSIGNMENT, "--execute"),
            *("--reassignment-json-file", plan(tmp_path, topic, (1, 7))),
        )
        assert result.exit_code == 1
        assert "Unknown broker id 7" in str(result)


class TestConfluentKafka:
    def test_leaders_are_elected(self, tidelog_cluster: Cluster) -> None:
        topic = led_by_another(tidelog_cluster)
        admin = AdminClient({"bootstrap.servers": tidelog_cluster.bootstrap})
        asked = [TopicPartition(topic, 0), TopicPartition(topic, 7)]
        future = admin.elect_leaders(ElectionType.PREFERRED, asked)
        answers = future.result(CLIENT_TIMEOUT_S)
        codes = {one.partition: error and error.code() for one, error in answers.items()}
        assert codes == {0: None, 7: KafkaError.UNKNOWN_TOPIC_OR_PART}
        assert tidelog_cluster.leader_of(topic) == 2

    def test_an_election_for_all_partitions_is_answered(self, tidelog_cluster: Cluster) -> None:
        topic = led_by_another(tidelog_cluster)
        admin = AdminClient({"bootstrap.servers": tidelog_cluster.bootstrap})
        future = admin.elect_leaders(ElectionType.PREFERRED, None)
        answers = future.result(CLIENT_TIMEOUT_S)
        assert TopicPartition(topic, 0) in answers
        assert tidelog_cluster.leader_of(topic) == 2


class TestKafkaPython:
    def test_replicas_are_moved_and_listed(self, tidelog_cluster: Cluster) -> None:
        topic = new_topic(tidelog_cluster, (1, 2))
        one, no_such = KafkaPythonPartition(topic, 0), KafkaPythonPartition(topic, 9)
        admin = KafkaAdminClient(bootstrap_servers=tidelog_cluster.bootstrap)
        try:
            answers = admin.alter_partition_reassignments({one: [3, 1], no_such: [1]})
            assert answers[one] is None
            assert answers[no_such] is not None
            wait_moved(tidelog_cluster, topic, 0, (3, 1))
            assert admin.list_partition_reassignments() == {}
            refused = admin.alter_partition_reassignments({one: None})
            assert "NoReassignmentInProgress" in str(refused[one])
        finally:
            admin.close()

    def test_leaders_are_elected(self, tidelog_cluster: Cluster) -> None:
        topic = led_by_another(tidelog_cluster)
        admin = KafkaAdminClient(bootstrap_servers=tidelog_cluster.bootstrap)
        try:
            admin.elect_leaders(PREFERRED, {topic: [0]})
        finally:
            admin.close()
        assert tidelog_cluster.leader_of(topic) == 2
