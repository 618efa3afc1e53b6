"""D5 with real clients and real disks: kill -9 between two copies, and nothing is there twice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.clients import CLIENT_TIMEOUT_S, Settings, create_topic
from tests.support.identified import DEDUP, HEADER, send_ids, stored_ids
from tests.support.ports import free_port
from tests.support.three_brokers import ThreeBrokers
from tests.support.topics import new_topic

ALONE = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
}
PLAIN: Settings = {"enable.idempotence": False, "acks": 1}
IDEMPOTENT: Settings = {"enable.idempotence": True}
PRODUCERS = pytest.mark.parametrize("settings", [PLAIN, IDEMPOTENT], ids=["plain", "idempotent"])
CODECS = pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests that leave it running."""
    with BrokerProcess(tmp_path_factory.mktemp("broker"), ALONE) as running:
        yield running


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return new_topic(broker.bootstrap, config=DEDUP)


@PRODUCERS
@CODECS
def test_what_is_sent_again_is_stored_once(
    broker: BrokerProcess, topic: str, settings: Settings, codec: str
) -> None:
    settings = {**settings, "compression.type": codec, "linger.ms": 50}
    ids = [f"id-{number}-{'x' * 50}" for number in range(2_000)]
    first = send_ids(broker.bootstrap, topic, ids, settings=settings)
    again = send_ids(broker.bootstrap, topic, ids, settings=settings)
    more = send_ids(broker.bootstrap, topic, ["new"], settings=settings)
    assert first == [*range(2_000)]
    assert set(again) <= set(first)
    found = stored_ids(broker.bootstrap, topic)
    assert [one for _, one in found] == [*ids, "new"]
    assert found[-1][0] == more[0]


@PRODUCERS
def test_one_at_a_time_is_told_where_the_first_copy_is(
    broker: BrokerProcess, topic: str, settings: Settings
) -> None:
    one_by_one: Settings = {**settings, "batch.num.messages": 1}
    ids = ["a", "b", "c"]
    told = send_ids(broker.bootstrap, topic, [*ids, "b", "a", "d"], settings=one_by_one)
    assert told[:5] == [0, 1, 2, 1, 0]
    assert [one for _, one in stored_ids(broker.bootstrap, topic)] == ["a", "b", "c", "d"]


@PRODUCERS
def test_new_records_among_old_ones_are_where_the_client_believes(
    broker: BrokerProcess, topic: str, settings: Settings
) -> None:
    send_ids(broker.bootstrap, topic, ["a", "b"], settings=settings)
    mixed = ["c", "a", "d", "b", "e"]
    told = send_ids(broker.bootstrap, topic, mixed, settings={**settings, "linger.ms": 200})
    found = {one: offset for offset, one in stored_ids(broker.bootstrap, topic)}
    assert sorted(found) == ["a", "b", "c", "d", "e"]
    assert {one: told[mixed.index(one)] for one in "cde"} == {one: found[one] for one in "cde"}


def test_killed_broker_knows_its_ids_when_it_is_back(start_broker: StartBroker) -> None:
    broker = start_broker({})
    config = {**DEDUP, "segment.bytes": "1048576"}
    create_topic(broker.bootstrap, "t", partition_count=1, config=config)
    ids = [f"{number:06d}-{'x' * 1_000}" for number in range(2_500)]
    send_ids(broker.bootstrap, "t", ids, settings=IDEMPOTENT)
    folder = broker.data_folder / "t-0"
    assert len([*folder.glob("*.log")]) > 2
    broker.kill()
    broker.start()
    send_ids(broker.bootstrap, "t", ids, settings=PLAIN)
    send_ids(broker.bootstrap, "t", ids, settings=IDEMPOTENT)
    assert [one for _, one in stored_ids(broker.bootstrap, "t")] == ids
    assert [*folder.glob("*.ids")]


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path) as running:
        yield running


@PRODUCERS
def test_leader_is_killed_between_two_copies(brokers: ThreeBrokers, settings: Settings) -> None:
    admin = brokers.admin()
    new = NewTopic("t", replica_assignment=[[1, 2, 3]], num_partitions=1, config=DEDUP)
    admin.create_topics([new])["t"].result(CLIENT_TIMEOUT_S)
    durable: Settings = {**settings, "acks": "all"}
    ids: list[str] = []
    for generation in range(2):
        ids += [f"id-{generation}-{number}" for number in range(500)]
        brokers.wait_whole("t")
        send_ids(brokers.bootstrap, "t", ids, settings=durable)
        leader = brokers.leader("t")
        leader.kill()
        send_ids(brokers.bootstrap, "t", ids, settings=durable)
        send_ids(brokers.bootstrap, "t", reversed(ids), settings=durable)
        leader.start()
    assert sorted(one for _, one in stored_ids(brokers.bootstrap, "t")) == sorted(ids)


# -- transactions ----------------------------------------------------------------------------------


def transactional(broker: BrokerProcess, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(CLIENT_TIMEOUT_S)
    return producer


def begin_with(producer: Producer, topic: str, *ids: str) -> None:
    """An open transaction whose records the broker has."""
    producer.begin_transaction()
    for one in ids:
        producer.produce(topic, one.encode(), partition=0, headers=[(HEADER, one.encode())])
    assert producer.flush(CLIENT_TIMEOUT_S) == 0


@pytest.mark.parametrize("is_committed", [True, False], ids=["commit", "abort"])
def test_id_in_an_open_transaction_is_decided_by_its_end(
    broker: BrokerProcess, topic: str, is_committed: bool
) -> None:
    """The second producer is made to try again until it is known whether its record is new."""
    first = transactional(broker, f"{topic}-first")
    begin_with(first, topic, "a")
    with ThreadPoolExecutor(1) as aside:
        second = aside.submit(send_ids, broker.bootstrap, topic, ["a", "b"], settings=IDEMPOTENT)
        with pytest.raises(TimeoutError):
            second.result(1.0)  # Nobody knows yet.
        if is_committed:
            first.commit_transaction(CLIENT_TIMEOUT_S)
        else:
            first.abort_transaction(CLIENT_TIMEOUT_S)
        second.result(CLIENT_TIMEOUT_S)
    assert [one for _, one in stored_ids(broker.bootstrap, topic)] == ["a", "b"]


def test_transaction_of_nothing_but_duplicates_is_committed(
    broker: BrokerProcess, topic: str
) -> None:
    send_ids(broker.bootstrap, topic, ["a", "b"], settings=IDEMPOTENT)
    producer = transactional(broker, f"{topic}-again")
    for _ in range(2):
        begin_with(producer, topic, "a", "b")
        producer.commit_transaction(CLIENT_TIMEOUT_S)
    begin_with(producer, topic, "c")
    producer.commit_transaction(CLIENT_TIMEOUT_S)
    assert [one for _, one in stored_ids(broker.bootstrap, topic)] == ["a", "b", "c"]


def test_drops_are_a_metric(start_broker: StartBroker) -> None:
    port = free_port()
    broker = start_broker({**ALONE, "tidelog.metrics.port": str(port)})
    topic = new_topic(broker.bootstrap, config=DEDUP)
    for _ in range(2):
        send_ids(broker.bootstrap, topic, ["a", "b", "c"], settings=PLAIN)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CLIENT_TIMEOUT_S) as answer:
        told = text_string_to_metric_families(answer.read().decode())
    samples = {one.name: one for family in told for one in family.samples}
    drops = samples["tidelog_deduplication_dropped_records_total"]
    assert (drops.labels, drops.value) == ({"topic": topic, "partition": "0"}, 3)
    assert samples["tidelog_deduplication_remembered_ids"].value == 3
