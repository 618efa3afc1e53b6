"""Consumers with `group.protocol=consumer` (KIP-848) read what there is, once, in one group (P3).

librdkafka and the Java client, by themselves and beside members of the classic protocol. Heartbeats
are quicker than a broker's own settings have them, so that nobody has to wait for five seconds.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compatibility.kafka_peer import Broker, new_broker
from tests.support.confluent import admin_client, new_producer
from tests.support.dump_log_segments import DUMP_LOG_SEGMENTS
from tests.support.kafka_tools import KafkaTools, run_tool
from tests.support.topics import new_topic, unused_name
from tidelog.core.coordinators import partition_of

QUICK = {
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
}
PARTITION_COUNT = 4
RECORD_COUNT = 40
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("quick"), QUICK) as running:
        yield running


class Members:
    """Consumers of one group, and what they have read together."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.group = unused_name()
        self._running: list[Consumer] = []
        self.values: Counter[bytes] = Counter()

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_exception: object) -> None:
        for consumer in self._running:
            consumer.close()

    def add(self, *topics: str, **settings: str) -> Consumer:
        """Of the consumer protocol, unless said."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        consumer.subscribe([*topics] or [self._topic])
        self._running.append(consumer)
        return consumer

    def close(self, consumer: Consumer) -> None:
        consumer.close()
        self._running.remove(consumer)

    def poll_until(self, is_there: Callable[[], bool], what: str) -> None:
        end_s = time.monotonic() + WITHIN_S
        while not is_there():
            assert time.monotonic() < end_s, f"{what}: {self.shares}, {self.values}"
            for consumer in self._running:
                message = consumer.poll(0.02)
                if message is not None and message.error() is None:
                    value = message.value()
                    assert value is not None
                    self.values[value] += 1

    @property
    def shares(self) -> list[set[int]]:
        return [{one.partition for one in consumer.assignment()} for consumer in self._running]

    def poll_until_shared(self, *sizes: int) -> None:
        """Everything has one owner, and members have so many partitions each."""

        def is_shared() -> bool:
            shares = self.shares
            numbers = sorted(number for share in shares for number in share)
            return numbers == [*range(PARTITION_COUNT)] and sorted(map(len, shares)) == [*sizes]

        self.poll_until(is_shared, f"shares of {sizes}")

    def poll_until_read(self, values: set[bytes]) -> None:
        self.poll_until(lambda: self.values.keys() >= values, "all records")


@pytest.fixture
def topic(quick: Broker) -> str:
    return new_topic(quick.bootstrap, partition_count=PARTITION_COUNT)


@pytest.fixture
def members(quick: Broker, topic: str) -> Iterator[Members]:
    with Members(quick.bootstrap, topic) as running:
        yield running


def produce(broker: Broker, topic: str, prefix: str = "") -> set[bytes]:
    values = [f"{prefix}{number}".encode() for number in range(RECORD_COUNT)]
    with new_producer(broker.bootstrap, {"acks": "all"}) as producer:
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % PARTITION_COUNT)
    return set(values)


def test_members_share_a_topic_and_read_each_record_once(
    quick: Broker, topic: str, members: Members
) -> None:
    members.add()
    members.poll_until_shared(4)
    members.add()
    members.poll_until_shared(2, 2)
    values = produce(quick, topic)
    members.poll_until_read(values)
    assert set(members.values.values()) == {1}


def test_who_leaves_has_committed_and_the_others_go_on(
    quick: Broker, topic: str, members: Members
) -> None:
    first, second = members.add(), members.add()
    members.poll_until_shared(2, 2)
    members.poll_until_read(produce(quick, topic, "a"))
    members.close(first)
    members.poll_until_shared(4)
    members.poll_until_read(produce(quick, topic, "b"))
    assert set(members.values.values()) == {1}, "nothing is read again"
    members.close(second)
    again = members.add()
    members.poll_until_shared(4)
    partitions = [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]
    committed = again.committed(partitions, timeout=WITHIN_S)
    assert [one.offset for one in committed] == [20] * PARTITION_COUNT


def test_a_static_member_comes_back_to_what_it_had(members: Members) -> None:
    first = members.add(group_instance_id="one")
    members.add(group_instance_id="two")
    members.poll_until_shared(2, 2)
    had = {one.partition for one in first.assignment()}
    members.close(first)
    back = members.add(group_instance_id="one")
    members.poll_until_shared(2, 2)
    assert {one.partition for one in back.assignment()} == had


def test_a_member_may_subscribe_by_expression(quick: Broker, topic: str, members: Members) -> None:
    members.add(f"^{topic}$")
    members.poll_until_shared(4)


def test_a_member_may_choose_its_assignor(members: Members) -> None:
    for _ in range(2):
        members.add(group_remote_assignor="range")
    members.poll_until_shared(2, 2)
    assert sorted(map(sorted, members.shares)) == [[0, 1], [2, 3]]


def test_a_group_is_upgraded_and_downgraded_member_by_member(
    quick: Broker, topic: str, members: Members
) -> None:
    """As an application is restarted with the other protocol, and then back again."""
    classic = {"group_protocol": "classic", "session_timeout_ms": "6000"}
    values = produce(quick, topic, "classic")
    old = [members.add(**classic), members.add(**classic)]
    members.poll_until_shared(2, 2)
    new = [members.add()]
    members.poll_until_shared(1, 1, 2)
    values |= produce(quick, topic, "mixed")
    members.close(old[0])
    new.append(members.add())
    members.poll_until_shared(1, 1, 2)
    members.close(old[1])
    members.poll_until_shared(2, 2)
    values |= produce(quick, topic, "consumer")
    members.poll_until_read(values)
    members.add(**classic)
    members.poll_until_shared(1, 1, 2)
    for consumer in new:
        members.close(consumer)
    members.poll_until_shared(4)
    values |= produce(quick, topic, "back")
    members.poll_until_read(values)


def test_the_java_client_reads_everything(kafka_jars: None, quick: Broker, topic: str) -> None:
    values = produce(quick, topic)
    tools, group = KafkaTools(quick.bootstrap), unused_name()
    read = tools.console_consumer(
        *("--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(RECORD_COUNT), "--timeout-ms", "60000"),
        *("--command-property", "group.protocol=consumer"),
    )
    assert {line.encode() for line in read.split()} == values
    offsets = tools.consumer_groups("--describe", "--group", group, "--offsets")
    rows = [line.split() for line in offsets.splitlines() if topic in line]
    assert [(row[2], row[3], row[5]) for row in sorted(rows)] == [
        (str(number), "10", "0") for number in range(PARTITION_COUNT)
    ]


def test_kafkas_tools_describe_a_group_and_its_members(
    kafka_jars: None, quick: Broker, members: Members
) -> None:
    members.add()
    members.add()
    members.poll_until_shared(2, 2)
    tools = KafkaTools(quick.bootstrap)
    state = tools.consumer_groups("--describe", "--group", members.group, "--state").split()
    assert "Stable" in state
    assert "uniform" in state
    listed = tools.consumer_groups("--list", "--type").splitlines()
    assert [members.group, "Consumer"] in [line.split() for line in listed]
    shown = tools.consumer_groups("--describe", "--group", members.group, "--members", "--verbose")
    rows = [line.split() for line in shown.splitlines() if line.startswith(members.group)]
    assert len(rows) == 2


def test_other_administrators_see_the_group_too(quick: Broker, members: Members) -> None:
    members.add()
    members.poll_until_shared(4)
    admin = admin_client(quick.bootstrap)
    described = admin.describe_consumer_groups([members.group])
    group = described[members.group].result(WITHIN_S)
    assert group.state.name == "STABLE"
    assert group.type.name == "CONSUMER"
    (member,) = group.members
    assert len(member.assignment.topic_partitions) == PARTITION_COUNT


@pytest.mark.one_broker
def test_what_the_coordinator_writes_is_read_by_kafka(
    quick: Broker, topic: str, members: Members, kafka_jars: None
) -> None:
    consumer = members.add(topic)
    members.poll_until_shared(PARTITION_COUNT)
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    members.close(consumer)
    number = partition_of(members.group, 50)
    (file,) = (quick.data_folder / f"__consumer_offsets-{number}").glob("*.log")
    dump = run_tool(
        DUMP_LOG_SEGMENTS, "--offsets-decoder", "--print-data-log", "--files", str(file)
    )
    assert dump.exit_code == 0, dump
    told = [line for line in dump.stdout.splitlines() if members.group in line]
    # By Kafka's numbers: a commit, the group, its member, both targets, and what the member has.
    types = {int(each) for line in told for each in re.findall(r'key: \{"type":"(\d+)"', line)}
    assert types == {1, 3, 5, 6, 7, 8}, dump
    assert f'"subscribedTopicNames":["{topic}"]' in "".join(told)
    # What it has does not outlive the member.
    for kind in ("5", "7", "8"):
        last = [line for line in told if f'key: {{"type":"{kind}"' in line][-1]
        assert last.endswith("payload: <DELETE>"), last
