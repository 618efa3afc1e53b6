"""Brokers that reach each other through the lab's network, and what they do when it is cut (B3).

Each broker advertises the port of its proxy, so clients and the other brokers all come through it;
its own port is asked by the test only, to see what it thinks while it is cut off.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.support.ports import free_port
from tests.support.server_process import wait_until
from tests.support.three_brokers import BROKER_IDS, WAIT_TIMEOUT_S, ThreeBrokers
from tidelog.client.bootstrap import Address
from tidelog.client.membership import ask_topic
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import CLIENTS, broker_party
from tidelog.lab.network.routes import LISTEN_HOST, Route
from tidelog.lab.processes import identify
from tidelog.lab.state import BrokerState, write_state

TOPIC: Final = "through"
SETTINGS: Final = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "200"}
ANSWER_WITHIN_S: Final = 5.0


class NetworkedBrokers:
    """Three brokers and the network between them."""

    def __init__(self, folder: Path, held: ExitStack) -> None:
        self.brokers = ThreeBrokers(folder, SETTINGS)
        self.ports = {number: free_port() for number in BROKER_IDS}
        self.network = held.enter_context(
            LabNetwork.start(ClusterFolder(folder), self._routes(), is_tied=True)
        )
        held.callback(self.brokers.kill)
        for number, port in self.ports.items():
            self.brokers.brokers[number].settings["advertised.listeners"] = (
                f"PLAINTEXT://{LISTEN_HOST}:{port}"
            )
        launched = self.brokers.launch()
        write_state(ClusterFolder(folder).state_file, self._states())
        for broker in launched:
            broker.wait_ready()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LISTEN_HOST}:{port}" for port in self.ports.values())

    def isr(self, number: int) -> list[int]:
        """The replicas in sync as that broker sees it, asked at its own port."""
        address = Address(LISTEN_HOST, self.brokers.brokers[number].port)
        view = ask_topic(address, TOPIC, timeout_s=ANSWER_WITHIN_S)
        return sorted(view.partitions[0].isr) if view.partitions else []

    def wait_isr(self, number: int, expected: list[int]) -> None:
        wait_until(
            lambda: self.isr(number) == expected,
            within_s=WAIT_TIMEOUT_S,
            what=f"broker {number} says that {expected} are in sync",
        )

    def _routes(self) -> list[Route]:
        return [
            Route(
                port=port,
                target_host=LISTEN_HOST,
                target_port=self.brokers.brokers[number].port,
                party=broker_party(number),
            )
            for number, port in self.ports.items()
        ]

    def _states(self) -> tuple[BrokerState, ...]:
        states = []
        for number, broker in self.brokers.brokers.items():
            process = identify(broker.pid)
            assert process is not None
            states.append(
                BrokerState(
                    id=number,
                    host=LISTEN_HOST,
                    port=self.ports[number],
                    pid=broker.pid,
                    start_mark=process.start_mark,
                    started_ms=0,
                )
            )
        return tuple(states)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NetworkedBrokers]:
    with ExitStack() as held:
        yield NetworkedBrokers(tmp_path, held)


class Sender:
    """A producer that knows of the brokers what their network tells, and waits for all of them."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0}
        )
        self.acknowledged: list[int] = []

    def send(self, number: int) -> None:
        """Return when the record was acknowledged."""

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            assert error is None, error
            self.acknowledged.append(number)

        self._producer.produce(TOPIC, b"%d" % number, on_delivery=on_delivery)
        assert self._producer.flush(WAIT_TIMEOUT_S) == 0


def test_leader_cut_from_its_followers_goes_on_alone_until_it_is_healed(
    cluster: NetworkedBrokers,
) -> None:
    # Who leads is also the controller, so that it can make the set smaller by itself.
    leader = cluster.brokers.controller_id()
    others = [number for number in BROKER_IDS if number != leader]
    cluster.brokers.create(TOPIC, [leader, *others])
    cluster.wait_isr(leader, list(BROKER_IDS))
    sender = Sender(cluster.bootstrap)
    sender.send(1)

    cluster.network.cut_between([broker_party(leader)], [broker_party(one) for one in others])
    sender.send(2)
    cluster.wait_isr(leader, [leader])
    sender.send(3)

    cluster.network.heal_all()
    cluster.wait_isr(leader, list(BROKER_IDS))
    sender.send(4)
    assert sender.acknowledged == [1, 2, 3, 4]

    carried = {(pair.caller, pair.target) for pair in cluster.network.status().pairs}
    assert {(broker_party(one), broker_party(leader)) for one in others} <= carried
    assert (CLIENTS, broker_party(leader)) in carried


def test_broker_cut_from_its_clients_is_still_in_sync(cluster: NetworkedBrokers) -> None:
    leader, *others = BROKER_IDS
    cluster.brokers.create(TOPIC, [leader, *others])
    cluster.wait_isr(leader, list(BROKER_IDS))
    sender = Sender(cluster.bootstrap)
    sender.send(1)
    follower = broker_party(others[0])
    cluster.network.cut(CLIENTS, follower)
    sender.send(2)  # Acknowledged by all, the one that clients cannot reach included.
    cluster.wait_isr(leader, list(BROKER_IDS))
