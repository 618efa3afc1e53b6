"""How the brokers of a local cluster are started: tidelog's on either coordinator, or Kafka's.

An engine prepares brokers and starts what they need beside them, such as a ZooKeeper ensemble.
What is done to a broker once it runs does not depend on its engine (`local_cluster.py`).
"""

from collections.abc import Mapping
from typing import Final, Protocol

from tidelog.lab.cluster import prepare_broker, start_brokers, start_cluster
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.kafka import KafkaInstallation, KafkaPorts, prepare_kafka
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.plan import FIRST_BROKER_ID, SQLITE, ZOOKEEPER, ClusterPlan
from tidelog.lab.ports import choose_ports
from tidelog.lab.proxied import ProxiedPorts, server_routes
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
    def tells_controller(self) -> bool:
        """Whether its brokers say in Metadata who controls them."""

    @property
    def ensemble(self) -> ZooKeeperEnsemble | None:
        """The ZooKeeper servers that its brokers use, if they do."""

    @property
    def network(self) -> LabNetwork | None:
        """Between its brokers, their clients and their coordinator, if it can be cut."""

    @property
    def bootstrap(self) -> str | None:
        """Where clients find the brokers, if not where those listen."""

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        """Start brokers 1..N; return once they know each other. After a failure call `stop`."""

    def add(self, broker_id: int, *, patience: Patience) -> None:
        """Start one more, with the settings of the others."""

    def stop(self) -> None:
        """Stop what runs beside the brokers, which have ended."""


class TidelogEngine:
    """Brokers of this installation; `coordination` is `sqlite`, or `zookeeper` with an ensemble."""

    tells_controller = True

    def __init__(self, folder: ClusterFolder, coordination: str, *, has_network: bool) -> None:
        self.name = "tidelog" if coordination == SQLITE else "tidelog on ZooKeeper"
        self.ensemble = (
            ZooKeeperEnsemble(
                folder.root / _ENSEMBLE_FOLDER, server_count=_ENSEMBLE_SERVERS, port=0
            )
            if coordination == ZOOKEEPER
            else None
        )
        self.network: LabNetwork | None = None
        self.bootstrap: str | None = None
        self._folder = folder
        self._has_network = has_network
        self._plan: ClusterPlan | None = None

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        broker_ids = range(FIRST_BROKER_ID, FIRST_BROKER_ID + broker_count)
        if self.ensemble is not None:
            self.ensemble.start(
                ready_within_s=patience.ready_within_s, is_cancelled=patience.is_cancelled
            )
        hosts = "" if self.ensemble is None else self.ensemble.hosts
        ports = ProxiedPorts({}, {})
        if self._has_network:
            ports = ProxiedPorts.choose(broker_ids)
            routes = ports.routes()
            if self.ensemble is not None:
                to_servers, hosts = server_routes(hosts, self.ensemble.server_ids)
                routes += to_servers
            self.network = LabNetwork.start(self._folder, routes, is_tied=True)
            self.bootstrap = ports.bootstrap()
        self._plan = ClusterPlan(
            broker_count=broker_count,
            host=HOST,
            port=0,
            coordination=f"{ZOOKEEPER}:{hosts}/{_OF_ENSEMBLE}" if hosts else SQLITE,
            settings=settings,
            listening_ports=ports.listening,
            advertised_ports=ports.advertised,
        )
        start_cluster(self._folder, self._plan, patience)

    def add(self, broker_id: int, *, patience: Patience) -> None:
        plan, folder = self._plan, self._folder
        assert plan is not None, "started"
        (port,) = choose_ports(HOST, first_port=0, count=1)
        start_brokers(folder, lambda: [prepare_broker(folder, plan, broker_id, port)], patience)

    def stop(self) -> None:
        if self.network is not None:
            self.network.stop()
        if self.ensemble is not None:
            self.ensemble.stop()


class KafkaEngine:
    """Apache Kafka, each node a broker and a controller at once."""

    name = "kafka"
    tells_controller = False
    ensemble = None

    def __init__(
        self, folder: ClusterFolder, installation: KafkaInstallation, *, has_network: bool
    ) -> None:
        self.network: LabNetwork | None = None
        self.bootstrap: str | None = None
        self._folder = folder
        self._installation = installation
        self._has_network = has_network

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        node_ids = range(FIRST_BROKER_ID, FIRST_BROKER_ID + broker_count)
        brokers, controllers = ProxiedPorts.choose(node_ids), ProxiedPorts.choose(node_ids)
        if self._has_network:
            routes = [*brokers.routes(), *controllers.routes()]
            self.network = LabNetwork.start(self._folder, routes, is_tied=True)
            self.bootstrap = brokers.bootstrap()
        ports = {
            node_id: KafkaPorts(
                broker=brokers.listening[node_id],
                controller=controllers.listening[node_id],
                advertised_broker=self._told(brokers)[node_id],
                advertised_controller=self._told(controllers)[node_id],
            )
            for node_id in node_ids
        }
        start_brokers(
            self._folder,
            lambda: prepare_kafka(self._folder, self._installation, ports, settings),
            patience,
        )

    def _told(self, ports: ProxiedPorts) -> Mapping[int, int]:
        return ports.advertised if self._has_network else ports.listening

    def add(self, broker_id: int, *, patience: Patience) -> None:
        raise LabError(
            f"broker {broker_id} was not added: the voters of Kafka's controllers are fixed here"
        )

    def stop(self) -> None:
        if self.network is not None:
            self.network.stop()
