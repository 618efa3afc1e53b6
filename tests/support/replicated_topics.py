"""Topics of a cluster of three, with a replica on every broker."""

from collections.abc import Iterable, Mapping

from tests.support.clients import NewRecord, send, send_aborted
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tests.support.topics import unused_name
from tidelog.client.admin import Admin
from tidelog.client.values import ClusterDefaults


class ReplicatedTopics:
    """Makes topics and fills them. Each has a name that no other of this process has."""

    def __init__(self, cluster: ThreeBrokers) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def create(self, *, partition_count: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A topic that is in sync; its partitions are led by each broker in turn.

        Tests give their records any time they like: none is old enough to be deleted.
        """
        topic = unused_name()
        replicas = [BROKER_IDS[n % 3 :] + BROKER_IDS[: n % 3] for n in range(partition_count)]
        self.cluster.create(topic, *replicas, config={"retention.ms": "-1", **(config or {})})
        self.cluster.wait_whole(topic)
        return topic

    def send(self, topic: str, records: Iterable[NewRecord], *, partition: int = 0) -> None:
        """Return once every record is on every replica that is in sync."""
        send(self.bootstrap, topic, records, partition=partition, settings={"acks": "all"})

    def send_aborted(self, topic: str, record: NewRecord, *, partition: int = 0) -> None:
        """A record of a transaction that was taken back. It is in the log all the same."""
        send_aborted(self.bootstrap, topic, record, partition=partition)

    def alter_brokers(self, settings: Mapping[str, str]) -> None:
        """For all of them, from now on."""
        with Admin(self.bootstrap) as admin:
            admin.alter_configs(ClusterDefaults(), set_values=settings, deleted=[])
