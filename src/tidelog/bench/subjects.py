"""The systems that are measured side by side: clusters of four brokers with one interface.

tidelog      brokers of this installation on the embedded coordinator
kafka        Apache Kafka with the JVM flags of its own start script, broker 1 the controller
HOST:PORT    somebody else's: topics are made and dropped there, nothing else is touched
"""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tidelog.bench.errors import BenchError, Interrupted
from tidelog.bench.kafka_engine import OneControllerKafka
from tidelog.bench.measured import KAFKA, TIDELOG, Setup
from tidelog.bench.plan import BROKER_COUNT
from tidelog.bench.process_stats import cpu_seconds, resident_mib
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import Address, parse_bootstrap
from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_membership, ask_topic
from tidelog.lab.kafka import KafkaInstallation
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.plan import SQLITE

# Files of a dropped topic go at once, before the kernel has to write them to the disk.
_SETTINGS: Final = {"log.segment.delete.delay.ms": "0"}
_IN_SYNC_WITHIN_S: Final = 60.0
_ADMIN_WITHIN_S: Final = 60.0
_ANSWER_WITHIN_S: Final = 5.0
_POLL_S: Final = 0.05
_PROC: Final = Path("/proc/self/stat")


@dataclass(frozen=True, slots=True)
class Subject:
    """A cluster that runs. `cluster` is None if it is somebody else's."""

    name: str
    bootstrap: str
    cluster: LocalCluster | None
    broker_count: int
    is_cancelled: Callable[[], bool]

    @property
    def pids(self) -> list[int]:
        """Of its brokers, where the kernel says what they use."""
        if self.cluster is None or not _PROC.exists():
            return []
        return [broker.pid for broker in self.cluster.brokers]

    def cpu_s(self) -> float | None:
        """Processor time of all brokers so far."""
        return sum(map(cpu_seconds, self.pids)) if self.pids else None

    def resident_mib(self) -> float | None:
        return sum(map(resident_mib, self.pids)) if self.pids else None

    @contextmanager
    def topic(self, setup: Setup) -> Iterator[str]:
        """A new one, in sync, and gone afterwards."""
        name = f"tidelog-bench-{secrets.token_hex(4)}"
        if setup.replicas > self.broker_count:
            raise BenchError(f"{self.broker_count} brokers cannot hold {setup.replicas} replicas")
        with Admin(self.bootstrap, timeout_s=_ADMIN_WITHIN_S) as admin:
            admin.create_topic(
                name,
                partitions=setup.partitions,
                replication_factor=setup.replicas,
                configs={"min.insync.replicas": str(setup.min_insync_replicas or 1)},
            )
        try:
            self._wait_in_sync(name, setup)
            yield name
        finally:
            # What is left of it is in nobody's way.
            with suppress(ClientError), Admin(self.bootstrap, timeout_s=_ADMIN_WITHIN_S) as admin:
                admin.delete_topic(name)

    def _wait_in_sync(self, topic: str, setup: Setup) -> None:
        if self.cluster is not None:
            self.cluster.wait_in_sync(topic, setup.replicas, within_s=_IN_SYNC_WITHIN_S)
            return
        give_up_at = time.monotonic() + _IN_SYNC_WITHIN_S
        while not _is_in_sync(parse_bootstrap(self.bootstrap)[0], topic, setup):
            if self.is_cancelled():
                raise Interrupted("the topic is not in sync yet")
            if time.monotonic() >= give_up_at:
                raise BenchError(f"{topic} is not in sync after {_IN_SYNC_WITHIN_S:g} s")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Have none of its processes run; somebody else's are left alone."""
        if self.cluster is None:
            return
        if self.name == KAFKA:
            # A broker of Kafka's waits minutes for a controller that has stopped before it.
            for broker in self.cluster.brokers:
                self.cluster.kill(broker.id)
        self.cluster.stop()


class SubjectStarter(Protocol):
    """Starts one system, as often as it is needed."""

    @property
    def name(self) -> str:
        """As tables call it."""

    @property
    def is_ours_to_break(self) -> bool:
        """Whether its brokers may be killed and its files read."""

    def start(self, folder: Path, is_cancelled: Callable[[], bool]) -> Subject:
        """Four brokers that know each other, with their data in `folder`."""


class TidelogStarter:
    name = TIDELOG
    is_ours_to_break = True

    def start(self, folder: Path, is_cancelled: Callable[[], bool]) -> Subject:
        return _started(
            TIDELOG, LocalCluster.of_tidelog(folder, SQLITE, is_cancelled), is_cancelled
        )


@dataclass(frozen=True, slots=True)
class KafkaStarter:
    installation: KafkaInstallation
    name: str = KAFKA
    is_ours_to_break: bool = True

    @property
    def version(self) -> str:
        """As its jar says."""
        jars = [path.stem for path in self.installation.libs.glob("kafka_*.jar")]
        return min(jars, key=len, default="kafka of unknown version")

    def start(self, folder: Path, is_cancelled: Callable[[], bool]) -> Subject:
        cluster = LocalCluster.of_kafka(folder, self.installation, is_cancelled)
        cluster.engine = OneControllerKafka(cluster.folder, self.installation)
        return _started(KAFKA, cluster, is_cancelled)


@dataclass(frozen=True, slots=True)
class ForeignStarter:
    """A cluster that runs already; ClusterUnreachable if it does not."""

    bootstrap: str
    is_ours_to_break: bool = False

    @property
    def name(self) -> str:
        return self.bootstrap

    def start(self, folder: Path, is_cancelled: Callable[[], bool]) -> Subject:
        address = parse_bootstrap(self.bootstrap)[0]
        known = ask_membership(address, timeout_s=_ANSWER_WITHIN_S)
        return Subject(self.name, self.bootstrap, None, len(known.broker_ids), is_cancelled)


def _started(name: str, cluster: LocalCluster, is_cancelled: Callable[[], bool]) -> Subject:
    subject = Subject(name, "", cluster, BROKER_COUNT, is_cancelled)
    try:
        cluster.folder.root.mkdir(parents=True, exist_ok=True)
        cluster.start(BROKER_COUNT, _SETTINGS)
    except BaseException:
        subject.stop()
        raise
    return Subject(name, cluster.bootstrap, cluster, BROKER_COUNT, is_cancelled)


def _is_in_sync(address: Address, topic: str, setup: Setup) -> bool:
    try:
        partitions = ask_topic(address, topic, timeout_s=_ANSWER_WITHIN_S).partitions
    except ClientError:
        return False
    return len(partitions) == setup.partitions and all(
        each.leader is not None and len(each.isr) == setup.replicas for each in partitions
    )
