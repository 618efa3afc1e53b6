"""Three tidelog brokers as child processes on one coordinator, the embedded one unless said.

Brokers have the ids 1, 2 and 3, unless a test has others in mind. Each may be stopped, killed and
started again by itself; what a test wants to know of the cluster it asks the brokers that run.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.server_process import wait_until

BROKER_IDS = (1, 2, 3)
METADATA_TIMEOUT_S = 5.0
WAIT_TIMEOUT_S = 60.0


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ThreeBrokers"]:
    """One cluster for all tests that leave it as they found it; each uses topics of its own."""
    with ThreeBrokers(tmp_path_factory.mktemp("three"), {}) as running:
        yield running


class ThreeBrokers:
    """Started together, killed together on the way out."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        broker_ids: Sequence[int] = BROKER_IDS,
        coordination: str | None = None,
    ) -> None:
        self.folder = folder
        self.brokers = {
            node_id: BrokerProcess(
                folder / f"broker-{node_id}",
                {
                    "node.id": str(node_id),
                    "tidelog.coordination": coordination or f"sqlite:{folder / 'coordination.db'}",
                    **(settings or {}),
                },
            )
            for node_id in broker_ids
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def port(self) -> int:
        """Of one of them."""
        return self.brokers[1].port

    @property
    def data_folder(self) -> Path:
        """Of the same one."""
        return self.brokers[1].data_folder

    @property
    def is_running(self) -> bool:
        return any(broker.is_running for broker in self.brokers.values())

    def start(self) -> None:
        """Start those that do not run; return when all are ready."""
        starting = [broker for broker in self.brokers.values() if not broker.is_running]
        for broker in starting:
            broker.launch()
        for broker in starting:
            broker.wait_ready()

    def stop(self) -> None:
        """One after the other, as in a rolling stop."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.stop()

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    # -- what the cluster says -------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """A new client every time: an old one remembers brokers that are gone."""
        running = [one.bootstrap for one in self.brokers.values() if one.is_running]
        return AdminClient({"bootstrap.servers": ",".join(running), "log_level": 0})

    def create(self, topic: str, *replicas: Sequence[int]) -> None:
        """A topic whose partitions have these replicas."""
        new = NewTopic(topic, len(replicas), replica_assignment=[list(one) for one in replicas])
        admin = self.admin()  # Its futures die with it.
        admin.create_topics([new])[topic].result(WAIT_TIMEOUT_S)

    def controller_id(self) -> int:
        """Who is controller; waits until somebody is."""
        found: list[int] = []

        def look() -> bool:
            try:
                metadata = self.admin().list_topics(timeout=METADATA_TIMEOUT_S)
            except KafkaException:
                return False
            if not self._runs(metadata.controller_id):
                return False
            found.append(metadata.controller_id)
            return True

        wait_until(look, within_s=WAIT_TIMEOUT_S, what="there is a controller")
        return found[0]

    def partition(self, topic: str, partition: int = 0) -> PartitionMetadata:
        metadata = self.admin().list_topics(topic, timeout=METADATA_TIMEOUT_S)
        return metadata.topics[topic].partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> BrokerProcess:
        """The process of the leader; waits until there is one and it runs."""
        found: list[int] = []

        def look() -> bool:
            leader = self.partition(topic, partition).leader
            found.append(leader)
            return self._runs(leader)

        wait_until(look, within_s=WAIT_TIMEOUT_S, what=f"{topic}-{partition} has a leader")
        return self.brokers[found[-1]]

    def wait_in_sync(self, topic: str, partition: int, replicas: tuple[int, ...]) -> None:
        """Return when the replicas are these, in this order, and all of them are in sync."""

        def look() -> bool:
            state = self.partition(topic, partition)
            return tuple(state.replicas) == replicas and sorted(state.isrs) == sorted(replicas)

        wait_until(
            look, within_s=WAIT_TIMEOUT_S, what=f"{topic}-{partition} is on {replicas}, in sync"
        )

    def folder_of(self, node_id: int, topic: str, partition: int = 0) -> Path:
        return self.brokers[node_id].data_folder / f"{topic}-{partition}"

    def log_text(self) -> str:
        return "\n".join(broker.log_text() for broker in self.brokers.values())

    def _runs(self, node_id: int) -> bool:
        return node_id in self.brokers and self.brokers[node_id].is_running
