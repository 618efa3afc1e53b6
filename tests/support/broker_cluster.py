"""Several brokers of one cluster as child processes, tidelog or Apache Kafka.

Each may be stopped, killed and started again by itself; what somebody wants to know of the cluster
is asked of the brokers that run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, Self, TypeVar

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import PartitionMetadata, TopicMetadata
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import KafkaProcess
from tests.support.server_process import wait_until

METADATA_TIMEOUT_S = 5.0
WAIT_TIMEOUT_S = 60.0

Process = TypeVar("Process", bound=BrokerProcess | KafkaProcess)


class BrokerCluster(Generic[Process]):
    """Started together, killed together on the way out."""

    def __init__(self, folder: Path, brokers: dict[int, Process]) -> None:
        self.folder = folder
        self.brokers = brokers

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def pids(self) -> list[int]:
        return [broker.pid for broker in self.brokers.values()]

    @property
    def is_running(self) -> bool:
        return any(broker.is_running for broker in self.brokers.values())

    def launch(self) -> list[Process]:
        """Start those that do not run and return them at once."""
        starting = [broker for broker in self.brokers.values() if not broker.is_running]
        for broker in starting:
            broker.launch()
        return starting

    def start(self) -> None:
        """Start those that do not run; return when all are ready."""
        for broker in self.launch():
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

    def create(
        self, topic: str, *replicas: Sequence[int], config: Mapping[str, str] | None = None
    ) -> None:
        """A topic whose partitions have these replicas."""
        placed = [list(one) for one in replicas]
        new = NewTopic(topic, len(replicas), replica_assignment=placed, config=dict(config or {}))
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

    def topic(self, topic: str) -> TopicMetadata:
        return self.admin().list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic]

    def partition(self, topic: str, partition: int = 0) -> PartitionMetadata:
        return self.topic(topic).partitions[partition]

    def leader(self, topic: str, partition: int = 0) -> Process:
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

    def wait_whole(self, topic: str) -> None:
        """Return when every replica of every partition is in sync."""

        def look() -> bool:
            try:
                partitions = self.topic(topic).partitions.values()
            except KafkaException:
                return False
            return bool(partitions) and all(
                each.leader >= 0 and len(each.isrs) == len(each.replicas) for each in partitions
            )

        wait_until(look, within_s=WAIT_TIMEOUT_S, what=f"all replicas of {topic} are in sync")

    def elect_preferred(self, topic: str, partition_count: int) -> None:
        """Let the first replica of each partition lead."""
        partitions = [TopicPartition(topic, n) for n in range(partition_count)]
        admin = self.admin()
        elected = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(WAIT_TIMEOUT_S)
        failed = [error for error in elected.values() if error is not None]
        assert not failed, failed[0]

    def folder_of(self, node_id: int, topic: str, partition: int = 0) -> Path:
        return self.brokers[node_id].data_folder / f"{topic}-{partition}"

    def log_text(self) -> str:
        return "\n".join(broker.log_text() for broker in self.brokers.values())

    def _runs(self, node_id: int) -> bool:
        return node_id in self.brokers and self.brokers[node_id].is_running
