"""Consumer groups by clients that other people wrote (G1, P3): classic protocol, any assignor.

Members share partitions, commit, come and go; who comes after them starts where they stopped.
"""

import asyncio
import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaException,
    Message,
    TopicPartition,
)
from kafka import KafkaConsumer

from tests.compatibility.kafka_peer import Broker, new_broker
from tests.support.clients import NewRecord, numbered_records, send
from tests.support.confluent import admin_client, new_consumer, only
from tests.support.kafka_tools import KafkaTools
from tests.support.kio_codec import milliseconds
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tests.support.subject import BROKER_COUNT
from tests.support.topics import new_topic, unused_name
from tidelog.wire.api import ApiKey

PARTITION_COUNT = 6
RECORD_COUNT = 120
PER_PARTITION = RECORD_COUNT // PARTITION_COUNT
GENERATIONS_MAX = 50
TIMEOUT_S = 45.0
ASSIGNED, REVOKED, LOST = "assigned", "revoked", "lost"
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
SETTINGS = {
    "offsets.topic.replication.factor": str(BROKER_COUNT),
    "offsets.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "100",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with new_broker(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def tools(kafka_jars: None, broker: Broker) -> KafkaTools:
    return KafkaTools(broker.bootstrap)


@pytest.fixture
def topic(broker: Broker) -> str:
    """Filled, with the same number of records in each partition."""
    topic = new_topic(broker.bootstrap, partition_count=PARTITION_COUNT)
    fill(broker, topic)
    return topic


def fill(broker: Broker, topic: str) -> None:
    count = RECORD_COUNT // PARTITION_COUNT
    records = numbered_records(count, value_size_bytes=20, seed=topic)
    for partition in range(PARTITION_COUNT):
        send(broker.bootstrap, topic, records, partition=partition, settings={})


class Told(NamedTuple):
    """Partitions that became a member's own, or did not stay so."""

    what: str
    partitions: frozenset[int]

    @classmethod
    def of(cls, what: str, partitions: Sequence[TopicPartition]) -> "Told":
        return cls(what, frozenset(one.partition for one in partitions))


class Members:
    """Consumers of one group, each with a thread that polls, as applications have it."""

    def __init__(self, broker: Broker, group: str, topic: str, **settings: object) -> None:
        self._bootstrap = broker.bootstrap
        self._settings = {"group.id": group, "auto.offset.reset": "earliest", **settings}
        self._topic = topic
        self._stopping: list[threading.Event] = []
        self._threads: list[threading.Thread] = []
        self._assigned: list[set[int]] = []
        self.waits_for_commits = True
        self.told: list[list[Told]] = []
        """What each was told of its partitions, in order."""
        self.read: list[tuple[int, int]] = []
        """Partition and offset of everything that any of them read."""

    def __enter__(self) -> "Members":
        return self

    def __exit__(self, *_exception: object) -> None:
        for number in range(len(self._threads)):
            self.stop(number)

    def start(self, **settings: object) -> int:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": 0,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                **self._settings,
                **settings,
            }
        )
        told: list[Told] = []
        consumer.subscribe(
            [self._topic],
            on_assign=lambda _, partitions: told.append(Told.of(ASSIGNED, partitions)),
            on_revoke=lambda _, partitions: told.append(Told.of(REVOKED, partitions)),
            on_lost=lambda _, partitions: told.append(Told.of(LOST, partitions)),
        )
        self.told.append(told)
        stopping = threading.Event()
        number = len(self._threads)
        thread = threading.Thread(target=self._poll, args=(number, consumer, stopping))
        self._assigned.append(set())
        self._stopping.append(stopping)
        self._threads.append(thread)
        thread.start()
        return number

    def _poll(self, number: int, consumer: Consumer, stopping: threading.Event) -> None:
        """Everything about a consumer is asked by its own thread."""
        while not stopping.is_set():
            message = consumer.poll(0.1)
            self._assigned[number] = {one.partition for one in consumer.assignment()}
            if message is None or message.error() is not None:
                continue
            self.read.append(_place(message))
            with suppress(KafkaException):  # A rebalance may come between; it is read again then.
                if self.waits_for_commits:
                    consumer.commit(message=message, asynchronous=False)
                else:
                    consumer.commit(message=message, asynchronous=True)
        consumer.close()

    def stop(self, number: int) -> None:
        self._stopping[number].set()
        self._threads[number].join(TIMEOUT_S)
        assert not self._threads[number].is_alive()

    def assignments(self, *numbers: int) -> list[set[int]]:
        """The partitions of each, when it last looked."""
        return [self._assigned[number] for number in numbers]

    def share_everything(self, *numbers: int) -> bool:
        """Each partition is somebody's, nobody's twice, and nobody has none."""
        assigned = self.assignments(*numbers)
        return all(assigned) and sorted(p for one in assigned for p in one) == list(
            range(PARTITION_COUNT)
        )

    def until_shared(self, *numbers: int) -> None:
        wait_until(lambda: self.share_everything(*numbers), within_s=TIMEOUT_S, what="a fair share")


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def everything() -> list[tuple[int, int]]:
    per_partition = RECORD_COUNT // PARTITION_COUNT
    return [(p, offset) for p in range(PARTITION_COUNT) for offset in range(per_partition)]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_share_the_partitions_as_they_come_and_go(
    broker: Broker, topic: str, assignor: str
) -> None:
    settings = {"partition.assignment.strategy": assignor}
    with Members(broker, unused_name(), topic, **settings) as members:
        first = members.start()
        members.until_shared(first)
        second, third = members.start(), members.start()
        members.until_shared(first, second, third)
        members.stop(second)
        members.until_shared(first, third)
        wait_until(
            lambda: set(members.read) == set(everything()), within_s=TIMEOUT_S, what="all records"
        )


def test_cooperative_members_give_up_only_what_moves(broker: Broker, topic: str) -> None:
    with Members(broker, unused_name(), topic, **COOPERATIVE) as members:
        first = members.start()
        members.until_shared(first)
        second, third = members.start(), members.start()
        members.until_shared(first, second, third)
        (kept,) = members.assignments(first)
        given_up = [one for what, some in members.told[first] if what != ASSIGNED for one in some]
        assert len(kept) == PARTITION_COUNT // 3
        assert sorted([*given_up, *kept]) == list(range(PARTITION_COUNT)), members.told[first]
        before = [len(members.told[number]) for number in (first, third)]
        members.stop(second)
        members.until_shared(first, third)
        for number, count in zip((first, third), before, strict=True):
            assert {what for what, _ in members.told[number][count:]} == {ASSIGNED}
        wait_until(
            lambda: set(members.read) == set(everything()), within_s=TIMEOUT_S, what="all records"
        )


def test_a_cooperative_member_goes_on_with_what_it_keeps_while_others_are_waited_for(
    broker: Broker, topic: str
) -> None:
    """Another joins and does not come back for the partitions that it was promised."""
    group = unused_name()
    admin = admin_client(broker.bootstrap)

    def is_waiting() -> bool:
        state = only(admin.describe_consumer_groups([group])).state
        return state is ConsumerGroupState.PREPARING_REBALANCING

    with Members(broker, group, topic, **COOPERATIVE) as members:
        members.waits_for_commits = False  # They go the way on which the answer to a join is due.
        first = members.start()
        wait_until(
            lambda: len(members.read) == RECORD_COUNT, within_s=TIMEOUT_S, what="all records"
        )
        with coordinator_client(broker, group) as late:
            member_id = join(late, group, topic)
            wait_until(is_waiting, within_s=TIMEOUT_S, what="the group waits for the other")
            wait_until(
                lambda: len(members.assignments(first)[0]) == PARTITION_COUNT // 2,
                within_s=TIMEOUT_S,
                what="half is given up",
            )
            (kept,) = members.assignments(first)
            fill(broker, topic)
            expected = {(p, offset + PER_PARTITION) for p, offset in everything() if p in kept}
            wait_until(
                lambda: expected <= set(members.read), within_s=TIMEOUT_S, what="records go on"
            )
            assert is_waiting()
            assert len(members.read) == RECORD_COUNT + len(expected)
            leave(late, group, member_id)
        members.until_shared(first)
        everybodys = frozenset(range(PARTITION_COUNT))
        assert [told for told in members.told[first] if told.partitions] == [
            (ASSIGNED, everybodys),
            (REVOKED, everybodys - kept),
            (ASSIGNED, everybodys - kept),
        ]


def coordinator_client(broker: Broker, group: str) -> RawClient:
    with RawClient(broker.port) as client:
        asked = {"key_type": 0, "coordinator_keys": (group,)}
        (found,) = client.request(ApiKey.FIND_COORDINATOR, 6, asked).coordinators
    assert not found.error_code
    return RawClient(found.port)


def join(client: RawClient, group: str, topic: str) -> str:
    """The id of a new member of the cooperative protocol that owns nothing."""
    name = topic.encode()
    subscription = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">ii", -1, 0)
    joining = {
        "group_id": group,
        "session_timeout": milliseconds(30_000),
        "rebalance_timeout": milliseconds(60_000),
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": ({"name": "cooperative-sticky", "metadata": subscription},),
        "reason": None,
    }
    member_id = client.request(ApiKey.JOIN_GROUP, 9, joining).member_id
    joined = client.request(ApiKey.JOIN_GROUP, 9, {**joining, "member_id": member_id})
    assert not joined.error_code, joined
    return str(member_id)


def leave(client: RawClient, group: str, member_id: str) -> None:
    leaving = {"member_id": member_id, "group_instance_id": None, "reason": None}
    left = client.request(ApiKey.LEAVE_GROUP, 5, {"group_id": group, "members": (leaving,)})
    assert not left.error_code


def generation_of(broker: Broker, group: str) -> int:
    """The one in which the first member's heartbeat is welcome."""
    admin = admin_client(broker.bootstrap)  # Its futures die with it.
    (member, *_) = only(admin.describe_consumer_groups([group])).members
    with coordinator_client(broker, group) as client:
        for generation in range(1, GENERATIONS_MAX):
            beating = {
                "group_id": group,
                "generation_id": generation,
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
            }
            if not client.request(ApiKey.HEARTBEAT, 4, beating).error_code:
                return generation
    raise AssertionError(f"{group} is in no generation below {GENERATIONS_MAX}")


def test_who_comes_after_starts_where_the_others_stopped(broker: Broker, topic: str) -> None:
    group = unused_name()
    with Members(broker, group, topic) as members:
        members.start()
        wait_until(
            lambda: len(members.read) == RECORD_COUNT, within_s=TIMEOUT_S, what="all records"
        )
    fill(broker, topic)
    with Members(broker, group, topic) as members:
        members.start()
        wait_until(
            lambda: len(members.read) == RECORD_COUNT, within_s=TIMEOUT_S, what="the new ones"
        )
        assert min(offset for _, offset in members.read) == RECORD_COUNT // PARTITION_COUNT


def test_offsets_are_committed_by_themselves(broker: Broker, topic: str) -> None:
    group = unused_name()
    settings: dict[str, str | int | bool] = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 100,
    }
    with new_consumer(broker.bootstrap, settings) as consumer:
        consumer.subscribe([topic])
        read = 0
        while read < RECORD_COUNT:
            read += consumer.poll(1.0) is not None
        partitions = [TopicPartition(topic, number) for number in range(PARTITION_COUNT)]

        def is_committed() -> bool:
            consumer.poll(0)
            found = consumer.committed(partitions, TIMEOUT_S)
            return sum(max(one.offset, 0) for one in found) == RECORD_COUNT

        wait_until(is_committed, within_s=TIMEOUT_S, what="a commit of everything")


def test_a_static_member_restarts_without_a_rebalance(broker: Broker, topic: str) -> None:
    group = unused_name()
    with Members(broker, group, topic, **{"session.timeout.ms": 30_000}) as members:
        first = members.start(**{"group.instance.id": "one"})
        second = members.start(**{"group.instance.id": "two"})
        members.until_shared(first, second)
        before = members.assignments(first, second)
        told, generation = list(members.told[first]), generation_of(broker, group)
        members.stop(second)  # Static members do not say that they leave.
        third = members.start(**{"group.instance.id": "two"})
        wait_until(
            lambda: members.assignments(first, third) == before,
            within_s=TIMEOUT_S,
            what="the old place",
        )
        assert generation_of(broker, group) == generation
        assert members.told[first] == told


def test_a_member_that_dies_is_replaced(broker: Broker, topic: str) -> None:
    group = unused_name()
    with ExitStack() as stack, Members(broker, group, topic) as members:
        dying = stack.enter_context(
            new_consumer(
                broker.bootstrap,
                {"group.id": group, "session.timeout.ms": 6_000, "max.poll.interval.ms": 6_000},
            )
        )
        dying.subscribe([topic])
        wait_until(
            lambda: dying.poll(0.1) is None and len(dying.assignment()) == PARTITION_COUNT,
            within_s=TIMEOUT_S,
            what="everything for one",
        )
        survivor = members.start()  # The other does not poll any more.
        members.until_shared(survivor)


def test_kafka_python_consumes_in_a_group(broker: Broker, topic: str) -> None:
    group = unused_name()

    def consume(expected: int) -> list[int]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=int(TIMEOUT_S * 1000),
        )
        offsets = []
        for record in consumer:
            offsets.append(record.offset)
            if len(offsets) == expected:
                break
        consumer.commit()
        consumer.close()
        return offsets

    assert len(consume(RECORD_COUNT)) == RECORD_COUNT
    fill(broker, topic)
    assert min(consume(RECORD_COUNT)) == RECORD_COUNT // PARTITION_COUNT


def test_aiokafka_consumes_in_a_group(broker: Broker, topic: str) -> None:
    group = unused_name()

    async def consume() -> int:
        consumers = [
            AIOKafkaConsumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            for _ in range(2)
        ]
        await asyncio.gather(*(consumer.start() for consumer in consumers))
        try:
            places: set[tuple[int, int]] = set()
            async with asyncio.timeout(TIMEOUT_S):
                while len(places) < RECORD_COUNT:
                    for consumer in consumers:
                        batches = await consumer.getmany(timeout_ms=100)
                        places |= {(r.partition, r.offset) for b in batches.values() for r in b}
                        with suppress(Exception):
                            await consumer.commit()
            return len(places)
        finally:
            await asyncio.gather(*(consumer.stop() for consumer in consumers))

    assert asyncio.run(consume()) == RECORD_COUNT


def test_groups_are_administrated(broker: Broker, topic: str) -> None:
    group = unused_name()
    admin = admin_client(broker.bootstrap)
    with Members(broker, group, topic) as members:
        first, second = members.start(), members.start()
        members.until_shared(first, second)
        described = only(admin.describe_consumer_groups([group]))
        assert described.state is ConsumerGroupState.STABLE
        assert len(described.members) == 2
        assigned = [
            one for member in described.members for one in member.assignment.topic_partitions
        ]
        assert sorted(one.partition for one in assigned) == list(range(PARTITION_COUNT))
        listed = admin.list_consumer_groups().result(TIMEOUT_S)
        assert group in {one.group_id for one in listed.valid}
        assert _refused(lambda: only(admin.delete_consumer_groups([group])))
        wait_until(lambda: len(members.read) >= RECORD_COUNT, within_s=TIMEOUT_S, what="all read")
    only(admin.delete_consumer_groups([group]))
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group not in {one.group_id for one in listed.valid}


def _refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except KafkaException:
        return True
    return False


class TestConsumerGroupCommand:
    """Kafka's own tool."""

    def test_offsets_are_reset_shown_and_deleted(
        self, broker: Broker, topic: str, tools: KafkaTools
    ) -> None:
        group = unused_name()
        chosen = ("--group", group, "--topic", topic)
        tools.consumer_groups(*chosen, "--reset-offsets", "--to-earliest", "--execute")
        tools.consumer_groups(*chosen, "--reset-offsets", "--shift-by", "5", "--execute")
        lines = _rows(tools.consumer_groups("--describe", "--group", group), group)
        assert len(lines) == PARTITION_COUNT
        per_partition = RECORD_COUNT // PARTITION_COUNT
        assert {tuple(line[3:6]) for line in lines} == {
            ("5", str(per_partition), str(per_partition - 5))
        }
        assert group in tools.consumer_groups("--list")
        tools.consumer_groups("--delete-offsets", *chosen)
        assert not _rows(tools.consumer_groups("--describe", "--group", group), group)
        tools.consumer_groups("--delete", "--group", group)
        assert group not in tools.consumer_groups("--list").split()

    def test_offsets_are_reset_by_time(self, broker: Broker, tools: KafkaTools) -> None:
        topic, group = new_topic(broker.bootstrap), unused_name()
        now = datetime.now(UTC)
        ages = [timedelta(hours=5), timedelta(hours=3), timedelta(hours=3), timedelta(hours=1)]
        times_ms = [int((now - age).timestamp() * 1_000) for age in ages]
        records = [NewRecord(None, b"value", each, ()) for each in times_ms]
        send(broker.bootstrap, topic, records, partition=0, settings={})

        def reset(*how: str) -> int:
            chosen = ("--group", group, "--topic", topic, "--reset-offsets")
            (row,) = _rows(tools.consumer_groups(*chosen, *how, "--execute"), group)
            return int(row[-1])

        four_hours_ago = (now - timedelta(hours=4)).strftime("%Y-%m-%dT%H:%M:%S.000")
        assert reset("--to-datetime", four_hours_ago) == 1
        assert reset("--by-duration", "PT2H") == 3
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        (committed,) = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        consumer.close()
        assert committed.offset == 3

    def test_members_and_state_are_shown(
        self, broker: Broker, topic: str, tools: KafkaTools
    ) -> None:
        group = unused_name()
        with Members(broker, group, topic) as members:
            first, second = members.start(), members.start()
            members.until_shared(first, second)
            shown = _rows(tools.consumer_groups("--describe", "--group", group, "--members"), group)
            assert len(shown) == 2
            (state,) = _rows(
                tools.consumer_groups("--describe", "--group", group, "--state"), group
            )
            assert "Stable" in state
            assert "range" in state

    def test_what_the_coordinator_wrote_is_read(
        self, broker: Broker, topic: str, tools: KafkaTools
    ) -> None:
        group = unused_name()
        with Members(broker, group, topic, **{"client.id": "reader"}) as members:
            members.start()
            wait_until(
                lambda: len(members.read) == RECORD_COUNT, within_s=TIMEOUT_S, what="all records"
            )
        offsets = _written(tools, "Offsets", group, lambda found: len(found) >= PARTITION_COUNT)
        groups = _written(
            tools,
            "GroupMetadata",
            group,
            lambda found: bool(found) and found[-1]["value"]["data"]["members"] == [],
        )
        last = {one["key"]["data"]["partition"]: one["value"]["data"]["offset"] for one in offsets}
        assert last == dict.fromkeys(range(PARTITION_COUNT), RECORD_COUNT // PARTITION_COUNT)
        assert {one["key"]["data"]["topic"] for one in offsets} == {topic}
        clients = [
            member["clientId"] for one in groups for member in one["value"]["data"]["members"]
        ]
        assert clients == ["reader"]
        assert groups[-1]["value"]["data"]["members"] == []


def _written(
    tools: KafkaTools, kind: str, group: str, is_all: Callable[[list[Any]], bool]
) -> list[Any]:
    """What of a group is in its coordinator's log.

    The tool ends when it has been told nothing for some time, and is slow to begin on a machine
    that has other things to do: it is given more of that until it has found all there is.
    """
    found = []
    for timeout_ms in ("5000", "20000", "80000"):
        printed = tools.console_consumer(
            *("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", timeout_ms),
            "--formatter",
            f"org.apache.kafka.tools.consumer.{kind}MessageFormatter",
        )
        found = _json_of(printed, group)
        if is_all(found):
            break
    return found


def _json_of(printed: str, group: str) -> list[Any]:
    """The formatters print one object after the other, with nothing in between."""
    records = []
    while (start := printed.find("{")) >= 0:
        record, end = json.JSONDecoder().raw_decode(printed[start:])
        records.append(record)
        printed = printed[start + end :]
    return [record for record in records if record["key"]["data"]["group"] == group]


def _rows(printed: str, group: str) -> list[Sequence[str]]:
    return [line.split() for line in printed.splitlines() if line.startswith(f"{group} ")]
