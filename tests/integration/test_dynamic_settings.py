"""Settings of brokers that change while they run: for all brokers, or for one (P1).

Two brokers, each the only replica of a topic. A setting of one broker holds for what it leads and
for nothing else; a setting of all brokers holds for both; and each can be taken back.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.support.batches import transactional_batch
from tests.support.clients import NewRecord, Settings, read_partition
from tests.support.confluent import code_of, deliver
from tests.support.kio_codec import milliseconds
from tests.support.raw_client import RawClient
from tests.support.server_process import wait_until
from tests.support.three_brokers import ThreeBrokers
from tidelog.base.errors import ErrorCode
from tidelog.client.admin import Admin
from tidelog.client.values import BrokerResource, ClusterDefaults, Resource
from tidelog.config.broker import BROKER_SETTINGS
from tidelog.wire.api import ApiKey

GZIP = 1
LOG_APPEND_TIME = 2
ATTRIBUTES_AT = 21
HOUR_MS = 3_600_000
GROUP, TRANSACTION = 0, 1
GROUP_TRIES_MAX = 100
PRODUCE_THAT_ANNOUNCES = 11
"""The last version whose clients tell the coordinator of partitions by themselves (KIP-890)."""
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1"}
_names = count(1)

# Known to be dynamic, with effects that are shown elsewhere or that nobody can see from outside.
SHOWN_ELSEWHERE = {
    "background.threads": "no effect: threads are those of the log dirs",
    "compression.gzip.level": "size only; tests/unit/broker",
    "compression.lz4.level": "size only; tests/unit/broker",
    "compression.zstd.level": "size only; tests/unit/broker",
    "follower.replication.throttled.rate": "tests/simulation/test_throttle.py",
    "leader.replication.throttled.rate": "tests/simulation/test_throttle.py",
    "log.cleaner.dedupe.buffer.size": "memory only; tests/unit/storage/test_compaction.py",
    "log.cleaner.delete.retention.ms": "inherited as the others are; tests/unit/storage",
    "log.cleaner.io.buffer.load.factor": "memory only; tests/unit/storage/test_compaction.py",
    "log.cleaner.io.buffer.size": "memory only; tests/unit/storage/test_compaction.py",
    "log.cleaner.io.max.bytes.per.second": "tests/unit/broker/test_cleaning.py",
    "log.cleaner.max.compaction.lag.ms": "inherited as the others are; tests/unit/storage",
    "log.cleaner.min.compaction.lag.ms": "inherited as the others are; tests/unit/storage",
    "log.cleaner.threads": "tests/unit/broker/test_cleaning.py",
    "log.flush.interval.messages": "tests/unit/broker/test_flushing.py",
    "log.flush.interval.ms": "tests/unit/broker/test_flushing.py",
    "log.index.interval.bytes": "inherited as the others are; tests/unit/storage",
    "log.index.size.max.bytes": "inherited as the others are; tests/unit/storage",
    "log.local.retention.bytes": "no effect: there is no tiered storage",
    "log.local.retention.ms": "no effect: there is no tiered storage",
    "log.preallocate": "no effect: files grow",
    "log.roll.jitter.ms": "inherited as the others are; tests/unit/storage",
    "log.segment.delete.delay.ms": "tests/unit/broker/test_replicas.py",
    "max.connections": "as max.connections.per.ip, below",
    "max.connections.per.ip.overrides": "as max.connections.per.ip, below",
    "num.io.threads": "no effect: threads are those of the log dirs",
    "num.network.threads": "no effect: there is one event loop",
    "num.recovery.threads.per.data.dir": "no effect: threads are those of the log dirs",
    "num.replica.fetchers": "tests/unit/broker/test_replica_fetchers.py",
    "producer.id.expiration.ms": "tests/unit/broker/test_replicas.py",
    "replica.alter.log.dirs.io.max.bytes.per.second": "tests/unit/broker/test_log_dir_moves.py",
    "unclean.leader.election.enable": "tests/integration/test_document_003.py",
}


class Subject:
    """A topic on one broker, and what can be seen of how it is treated."""

    def __init__(
        self, cluster: ThreeBrokers, node_id: int, config: Mapping[str, str] | None = None
    ) -> None:
        self.topic = f"dynamic-{next(_names)}"
        self.node_id = node_id
        self.ports = {each: broker.port for each, broker in cluster.brokers.items()}
        self.folder: Path = cluster.folder_of(node_id, self.topic)
        self.bootstrap = cluster.bootstrap
        self.sent_count = 0
        cluster.create(self.topic, [node_id], config=config)

    def send(
        self, size_bytes: int = 10, *, key: bytes | None = b"key", age_ms: int = 0, acks: str = "1"
    ) -> int:
        """NO_ERROR, or the code with which a record was refused."""
        record = NewRecord(key, b"x" * size_bytes, int(time.time() * 1_000) - age_ms, ())
        settings: Settings = {"acks": acks, "retries": 0}
        try:
            deliver(self.bootstrap, self.topic, record, settings=settings)
        except KafkaException as refused:
            return code_of(refused)
        self.sent_count += 1
        return KafkaError.NO_ERROR

    def segment_count(self) -> int:
        return len(list(self.folder.glob("*.log")))

    def is_empty(self) -> bool:
        with Admin(self.bootstrap) as admin:
            bounds = admin.offset_bounds(self.topic, [0])[0]
        return 0 < bounds.start_offset == bounds.end_offset

    def client(self) -> RawClient:
        return RawClient(self.ports[self.node_id])

    def coordinator_of(self, kind: int, key: str) -> int:
        """The broker that looks after a group or a transactional id."""
        found: list[int] = []

        def look() -> bool:
            values = {"key_type": kind, "coordinator_keys": (key,)}
            with self.client() as client:
                (answer,) = client.request(ApiKey.FIND_COORDINATOR, 4, values).coordinators
            found.append(answer.node_id)
            return int(answer.error_code) == ErrorCode.NONE

        wait_until(look, within_s=20, what=f"{key} has a coordinator")
        return found[-1]

    def group(self) -> str:
        """A new group that the broker of this topic looks after."""
        names = (f"group-{next(_names)}" for _ in range(GROUP_TRIES_MAX))
        return next(name for name in names if self.coordinator_of(GROUP, name) == self.node_id)

    def join(self, group: str, member_id: str) -> int:
        """The epoch that a new member is given, which is that of the assignment."""
        values = {
            "group_id": group,
            "member_id": member_id,
            "member_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": milliseconds(60_000),
            "subscribed_topic_names": (self.topic,),
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": (),
        }
        with self.client() as client:
            answer = client.request(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)
        assert int(answer.error_code) == ErrorCode.NONE, answer
        return int(answer.member_epoch)

    def send_unannounced(self) -> int:
        """The code for a batch of a transaction that its coordinator has not heard of."""
        name = f"unannounced-{next(_names)}"
        coordinator = self.ports[self.coordinator_of(TRANSACTION, name)]
        with RawClient(coordinator) as asked, self.client() as client:
            producer = asked.init_producer_id({"transactional_id": name})
            assert int(producer.error_code) == ErrorCode.NONE, producer
            batch = transactional_batch(
                producer=producer.producer_id, epoch=producer.producer_epoch
            )
            topic = client.topic(self.topic)
            return client.produce(
                topic, batch, transactional_id=name, version=PRODUCE_THAT_ANNOUNCES
            ).code

    def last_timestamp_type(self) -> int:
        return read_partition(self.bootstrap, self.topic, 0)[-1].timestamp_type

    def last_codec(self) -> int:
        (log,) = self.folder.glob("*.log")
        return _codec_of_last_batch(log.read_bytes())


def _codec_of_last_batch(log: bytes) -> int:
    position, attributes = 0, 0
    while position < len(log):
        attributes = int.from_bytes(log[position + ATTRIBUTES_AT : position + ATTRIBUTES_AT + 2])
        position += 12 + int.from_bytes(log[position + 8 : position + 12])
    return attributes & 7


def _is_refused(code: int, **record: object) -> Callable[[Subject], bool]:
    return lambda subject: subject.send(**record) == code  # type: ignore[arg-type]


def _rolls(size_bytes: int) -> Callable[[Subject], bool]:
    def look(subject: Subject) -> bool:
        before = subject.segment_count()
        subject.send(size_bytes)
        subject.send(size_bytes)
        return subject.segment_count() > before

    return look


def _is_deleted(subject: Subject) -> bool:
    return subject.is_empty() or subject.send() != KafkaError.NO_ERROR


def _is_deleted_by_size(subject: Subject) -> bool:
    subject.send(700_000)
    with Admin(subject.bootstrap) as admin:
        return admin.offset_bounds(subject.topic, [0])[0].start_offset > 0


def _is_stamped(subject: Subject) -> bool:
    subject.send()
    return subject.last_timestamp_type() == LOG_APPEND_TIME


def _is_compressed(subject: Subject) -> bool:
    subject.send(1_000)
    return subject.last_codec() == GZIP


def _is_compacted(subject: Subject) -> bool:
    subject.send()
    subject.send()
    return len(read_partition(subject.bootstrap, subject.topic, 0)) < subject.sent_count


def _assigns_at_once(subject: Subject) -> bool:
    group = subject.group()
    return subject.join(group, "anna") < subject.join(group, "bert")


def _takes_what_was_not_announced(subject: Subject) -> bool:
    code = subject.send_unannounced()
    assert code in (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    return code == ErrorCode.NONE


class Effect(NamedTuple):
    """Settings, how one sees that they hold, and the settings of a topic on which one does."""

    values: Mapping[str, str]
    is_seen: Callable[[Subject], bool]
    topic: Mapping[str, str] = {}


EFFECTS: Mapping[str, Effect] = {
    "message.max.bytes": Effect(
        {"message.max.bytes": "500"},
        _is_refused(KafkaError.MSG_SIZE_TOO_LARGE, size_bytes=2_000),
    ),
    "compression.type": Effect({"compression.type": "gzip"}, _is_compressed),
    "log.cleanup.policy": Effect(
        {"log.cleanup.policy": "compact"},
        _is_refused(KafkaError.INVALID_RECORD, key=None),
    ),
    "log.message.timestamp.type": Effect(
        {"log.message.timestamp.type": "LogAppendTime"},
        _is_stamped,
    ),
    "log.message.timestamp.before.max.ms": Effect(
        {"log.message.timestamp.before.max.ms": "60000"},
        _is_refused(KafkaError.INVALID_TIMESTAMP, age_ms=HOUR_MS),
    ),
    "log.message.timestamp.after.max.ms": Effect(
        {"log.message.timestamp.after.max.ms": "60000"},
        _is_refused(KafkaError.INVALID_TIMESTAMP, age_ms=-HOUR_MS // 2),
    ),
    "log.roll.ms": Effect({"log.roll.ms": "1"}, _rolls(10)),
    "log.segment.bytes": Effect({"log.segment.bytes": "1048576"}, _rolls(700_000)),
    "log.retention.ms": Effect({"log.retention.ms": "1"}, _is_deleted),
    "log.retention.bytes": Effect(
        {"log.retention.bytes": "1", "log.segment.bytes": "1048576"},
        _is_deleted_by_size,
    ),
    "log.cleaner.backoff.ms": Effect(
        {"log.cleaner.backoff.ms": "50"},
        _is_compacted,
        {**COMPACTED, "min.cleanable.dirty.ratio": "0.01"},
    ),
    "log.cleaner.min.cleanable.ratio": Effect(
        {"log.cleaner.min.cleanable.ratio": "0.01", "log.cleaner.backoff.ms": "50"},
        _is_compacted,
        COMPACTED,
    ),
    "group.consumer.assignment.interval.ms": Effect(
        {"group.consumer.assignment.interval.ms": "0"}, _assigns_at_once
    ),
    "transaction.partition.verification.enable": Effect(
        {"transaction.partition.verification.enable": "false"}, _takes_what_was_not_announced
    ),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    settings = {
        "log.retention.check.interval.ms": "50",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # What is to be seen would happen by itself otherwise, sooner or later.
        "log.cleaner.backoff.ms": str(HOUR_MS),
        "log.cleaner.min.cleanable.ratio": "1.0",
        "group.consumer.assignment.interval.ms": "15000",
    }
    folder = tmp_path_factory.mktemp("dynamic")
    with ThreeBrokers(folder, settings, broker_ids=(1, 2)) as running:
        yield running


def _alter(cluster: ThreeBrokers, resource: Resource, values: Mapping[str, str]) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs(resource, set_values=values, deleted=())


def _take_back(cluster: ThreeBrokers, resource: Resource, values: Mapping[str, str]) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs(resource, set_values={}, deleted=list(values))


def _wait(effect: Callable[[Subject], bool], subject: Subject, what: str) -> None:
    wait_until(lambda: effect(subject), within_s=20, what=what)


@pytest.mark.parametrize("name", EFFECTS)
def test_setting_of_one_broker_holds_for_what_it_leads(cluster: ThreeBrokers, name: str) -> None:
    values, effect, config = EFFECTS[name]
    ours, other = Subject(cluster, 1, config), Subject(cluster, 2, config)
    assert ours.send() == KafkaError.NO_ERROR
    assert other.send() == KafkaError.NO_ERROR
    assert not effect(ours)
    _alter(cluster, BrokerResource(1), values)
    try:
        _wait(effect, ours, f"{values} hold on broker 1")
        assert not effect(other)
    finally:
        _take_back(cluster, BrokerResource(1), values)
    fresh = Subject(cluster, 1, config)
    wait_until(lambda: not effect(fresh), within_s=20, what=f"{name} was taken back")


@pytest.mark.parametrize("name", EFFECTS)
def test_setting_of_all_brokers_holds_on_each(cluster: ThreeBrokers, name: str) -> None:
    values, effect, config = EFFECTS[name]
    subjects = [Subject(cluster, 1, config), Subject(cluster, 2, config)]
    for subject in subjects:
        assert subject.send() == KafkaError.NO_ERROR
    _alter(cluster, ClusterDefaults(), values)
    try:
        for subject in subjects:
            _wait(effect, subject, f"{values} hold on every broker")
    finally:
        _take_back(cluster, ClusterDefaults(), values)


def test_members_of_the_in_sync_set_that_are_needed_change_at_once(cluster: ThreeBrokers) -> None:
    topic = "both"
    cluster.create(topic, [1, 2])
    ours = Subject(cluster, 1)
    ours.topic = topic
    cluster.brokers[2].kill()
    try:
        wait_until(
            lambda: ours.send(acks="all") == KafkaError.NO_ERROR,
            within_s=40,
            what="one in-sync replica is enough",
        )
        with Admin(cluster.brokers[1].bootstrap) as admin:
            admin.alter_configs(
                BrokerResource(1), set_values={"min.insync.replicas": "2"}, deleted=()
            )
        wait_until(
            lambda: ours.send(acks="all") == KafkaError.NOT_ENOUGH_REPLICAS,
            within_s=20,
            what="two are needed",
        )
    finally:
        cluster.brokers[2].start()
        _take_back(cluster, BrokerResource(1), {"min.insync.replicas": ""})


def test_number_of_connections_is_limited_at_once(cluster: ThreeBrokers) -> None:
    def is_refused(node_id: int) -> bool:
        with socket.create_connection(("127.0.0.1", cluster.brokers[node_id].port)) as knock:
            knock.settimeout(0.2)
            try:
                return knock.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionResetError:
                return True

    limit = {"max.connections.per.ip": "1"}
    with Admin(cluster.bootstrap) as admin:  # Its own connections are there already.
        admin.alter_configs(BrokerResource(1), set_values=limit, deleted=())
        wait_until(lambda: is_refused(1), within_s=20, what="a second connection is refused")
        assert not is_refused(2)
        admin.alter_configs(BrokerResource(1), set_values={}, deleted=list(limit))
        wait_until(lambda: not is_refused(1), within_s=20, what="the limit was taken back")


def test_connections_that_come_too_fast_wait_at_once(cluster: ThreeBrokers) -> None:
    def connected_within_s(node_id: int, count: int) -> float:
        began = time.monotonic()
        for _ in range(count):
            with RawClient(cluster.brokers[node_id].port) as client:
                client.metadata({"name": "none", "topic_id": None})
        return time.monotonic() - began

    limit = {"max.connection.creation.rate": "5"}
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs(BrokerResource(1), set_values=limit, deleted=())
        wait_until(lambda: connected_within_s(1, 10) > 1.0, within_s=20, what="ten take a second")
        assert connected_within_s(2, 10) < 1.0
        admin.alter_configs(BrokerResource(1), set_values={}, deleted=list(limit))
        wait_until(lambda: connected_within_s(1, 10) < 1.0, within_s=20, what="it is taken back")


def test_setting_of_one_broker_goes_before_that_of_all(cluster: ThreeBrokers) -> None:
    effect = EFFECTS["message.max.bytes"].is_seen
    ours, other = Subject(cluster, 1), Subject(cluster, 2)
    _alter(cluster, ClusterDefaults(), {"message.max.bytes": "500"})
    _alter(cluster, BrokerResource(1), {"message.max.bytes": "5000"})
    try:
        _wait(effect, other, "broker 2 has the setting of all")
        wait_until(lambda: not effect(ours), within_s=20, what="broker 1 has its own")
    finally:
        _take_back(cluster, BrokerResource(1), {"message.max.bytes": ""})
        _take_back(cluster, ClusterDefaults(), {"message.max.bytes": ""})


def test_settings_made_while_it_ran_outlive_a_restart(cluster: ThreeBrokers) -> None:
    values, effect, _ = EFFECTS["message.max.bytes"]
    ours = Subject(cluster, 1)
    _alter(cluster, BrokerResource(1), values)
    try:
        cluster.brokers[1].kill()
        cluster.brokers[1].start()
        _wait(effect, ours, "the setting is there after a restart")
    finally:
        _take_back(cluster, BrokerResource(1), values)


def test_every_dynamic_setting_is_shown_to_have_its_effect() -> None:
    """Whoever makes a setting dynamic says where it is shown to be."""
    shown = {*EFFECTS, *SHOWN_ELSEWHERE, "min.insync.replicas", "max.connections.per.ip"}
    shown.add("max.connection.creation.rate")
    unknown = [
        name
        for name, setting in BROKER_SETTINGS.items()
        if setting.is_dynamic and name not in shown
    ]
    assert unknown == []
