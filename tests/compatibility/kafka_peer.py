"""Fixtures: the broker under test, a real Kafka beside it, and Kafka's command line tools.

Tests ask for `broker` and never for tidelog by name. `TIDELOG_SUBJECT=tidelog3` puts a cluster of
three in its place, and `TIDELOG_SUBJECT=kafka` a real Kafka, which is how a test is shown to be
right about Kafka before it is used to judge tidelog. Tests that are about one broker's files, or
compare one broker's answers, are marked `one_broker` and not run on three.

Without Kafka's jars, tests that need them are skipped and say why.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import KafkaProcess
from tests.support.kafka_tools import KafkaTools
from tests.support.subject import SUBJECT
from tests.support.three_brokers import ThreeBrokers
from tidelog.lab.peers import why_kafka_is_unavailable

Broker = BrokerProcess | KafkaProcess | ThreeBrokers
StartBroker = Callable[[Path, Mapping[str, str]], Broker]
StartKafka = Callable[[Path, Mapping[str, str]], KafkaProcess]
# As a Kafka under test has it: the first member of a group does not wait for a second one.
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}
THREE_REPLICAS = {"default.replication.factor": "3", **NO_DELAY}
# What a broker by itself needs to have replicas of the coordinators' topics.
ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    **NO_DELAY,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One running broker for all tests of a module; each uses topics of its own."""
    with new_broker(tmp_path_factory.mktemp("broker"), {}) as running:
        yield running


@pytest.fixture
def start_broker() -> Iterator[StartBroker]:
    """For tests that stop, kill or configure their broker: start one in the given folder."""
    with ExitStack() as running:

        def start(folder: Path, settings: Mapping[str, str]) -> Broker:
            started = new_broker(folder, settings)
            running.enter_context(started)
            return started

        yield start


@pytest.fixture
def start_kafka(kafka_jars: None) -> Iterator[StartKafka]:
    """A real Kafka, whatever the subject is."""
    with ExitStack() as running:
        yield lambda folder, settings: running.enter_context(KafkaProcess(folder, settings))


@pytest.fixture(scope="module")
def tools(kafka_jars: None, broker: Broker) -> KafkaTools:
    return KafkaTools(broker.bootstrap)


@pytest.fixture(scope="session")
def kafka_jars() -> None:
    reason = why_kafka_is_unavailable()
    if reason is not None:
        pytest.skip(reason)


def new_broker(folder: Path, settings: Mapping[str, str]) -> Broker:
    if SUBJECT == "kafka":
        return KafkaProcess(folder, settings)
    if SUBJECT == "tidelog3":
        return ThreeBrokers(folder, {**THREE_REPLICAS, **settings})
    return BrokerProcess(folder, {**ONE_REPLICA, **settings})
