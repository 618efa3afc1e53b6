"""How the brokers of a local cluster are started: tidelog's on either coordinator, or Kafka's.

An engine prepares brokers and starts what they need beside them, such as a ZooKeeper ensemble.
What is done to a broker once it runs does not depend on its engine (`local_cluster.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tidelog.lab.cluster import prepare_broker, start_brokers, start_cluster
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.kafka import KafkaInstallation, KafkaPorts, prepare_kafka
from tidelog.lab.plan import FIRST_BROKER_ID, SQLITE, ZOOKEEPER, ClusterPlan
from tidelog.lab.ports import choose_ports
from tidelog.lab.starting import Patience
from tidelog.lab.zookeeper import ZooKeeperEnsemble

HOST: Final = "127.0.0.1"
_ENSEMBLE_FOLDER: Final = "zookeeper"
_ENSEMBLE_SERVERS: Final = 3
_OF_ENSEMBLE: Final = "tidelog"


class Engine(Protocol):
    """Starts the brokers of one kind, in one folder."""

    @property
    def name(self) -> str:
        """As a table calls it."""

    @property
    def ensemble(self) -> ZooKeeperEnsemble | None:
        """The ZooKeeper servers that its brokers use, if they do."""

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        """Start brokers 1..N; return once they know each other. After a failure call `stop`."""

    def add(self, broker_id: int, *, patience: Patience) -> None:
        """Start one more, with the settings of the others."""

    def stop(self) -> None:
        """Stop what runs beside the brokers, which have ended."""


class TidelogEngine:
    """Brokers of this installation; `coordination` is `sqlite`, or `zookeeper` with an ensemble."""

    def __init__(self, folder: ClusterFolder, coordination: str) -> None:
        self.name = "tidelog" if coordination == SQLITE else "tidelog on ZooKeeper"
        self.ensemble = (
            ZooKeeperEnsemble(
                folder.root / _ENSEMBLE_FOLDER, server_count=_ENSEMBLE_SERVERS, port=0
            )
            if coordination == ZOOKEEPER
            else None
        )
        self._folder = folder
        self._plan: ClusterPlan | None = None

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        coordination = SQLITE
        if self.ensemble is not None:
            self.ensemble.start(
                ready_within_s=patience.ready_within_s, is_cancelled=patience.is_cancelled
            )
            coordination = f"{ZOOKEEPER}:{self.ensemble.hosts}/{_OF_ENSEMBLE}"
        self._plan = ClusterPlan(
            broker_count=broker_count,
            host=HOST,
            port=0,
            coordination=coordination,
            settings=settings,
            of_each={},
        )
        start_cluster(self._folder, self._plan, patience)

    def add(self, broker_id: int, *, patience: Patience) -> None:
        plan, folder = self._plan, self._folder
        assert plan is not None, "started"
        (port,) = choose_ports(HOST, first_port=0, count=1)
        start_brokers(folder, lambda: [prepare_broker(folder, plan, broker_id, port)], patience)

    def stop(self) -> None:
        if self.ensemble is not None:
            self.ensemble.stop()


@dataclass(slots=True)
class KafkaEngine:
    """Apache Kafka, each node a broker and a controller at once."""

    folder: ClusterFolder
    installation: KafkaInstallation
    name: str = "kafka"
    ensemble: None = None

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        node_ids = range(FIRST_BROKER_ID, FIRST_BROKER_ID + broker_count)
        chosen = choose_ports(HOST, first_port=0, count=2 * broker_count)
        pairs = zip(chosen[:broker_count], chosen[broker_count:], strict=True)
        ports = {
            node_id: KafkaPorts(
                broker=broker,
                controller=controller,
                advertised_broker=broker,
                advertised_controller=controller,
            )
            for node_id, (broker, controller) in zip(node_ids, pairs, strict=True)
        }
        start_brokers(
            self.folder,
            lambda: prepare_kafka(self.folder, self.installation, ports, settings),
            patience,
        )

    def add(self, broker_id: int, *, patience: Patience) -> None:
        raise LabError(
            f"broker {broker_id} was not added: the voters of Kafka's controllers are fixed here"
        )

    def stop(self) -> None:
        """Nothing else runs."""
