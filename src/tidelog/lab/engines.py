"""How the brokers of a local cluster are started: tidelog's on either coordinator, or Kafka's.

An engine prepares brokers and starts what they need beside them, such as a ZooKeeper ensemble.
What is done to a broker once it runs does not depend on its engine (`local_cluster.py`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from tidelog.lab.cluster import prepare_broker, start_brokers, start_cluster
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.kafka import KafkaInstallation, KafkaPorts, prepare_kafka
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import broker_party
from tidelog.lab.network.routes import Route
from tidelog.lab.plan import FIRST_BROKER_ID, SQLITE, ZOOKEEPER, ClusterPlan
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

    @property
    def why_fixed(self) -> str | None:
        """Why no broker can be added or removed, if none can."""

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        """Start brokers 1..N; return once they know each other. After a failure call `stop`."""

    def add(self, broker_id: int, *, patience: Patience) -> None:
        """Start one more, with the settings of the others."""

    def remove(self, broker_id: int) -> None:
        """Forget one that has ended."""

    def stop(self) -> None:
        """Stop what runs beside the brokers, which have ended."""


class TidelogEngine:
    """Brokers of this installation; `coordination` is `sqlite`, or `zookeeper` with an ensemble."""

    tells_controller = True
    why_fixed = None

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
        self._ports = ProxiedPorts({}, {})
        self._folder = folder
        self._has_network = has_network
        self._plan: ClusterPlan | None = None

    @property
    def bootstrap(self) -> str | None:
        return self._ports.bootstrap() or None

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        broker_ids = range(FIRST_BROKER_ID, FIRST_BROKER_ID + broker_count)
        if self.ensemble is not None:
            self.ensemble.start(
                ready_within_s=patience.ready_within_s, is_cancelled=patience.is_cancelled
            )
        hosts = "" if self.ensemble is None else self.ensemble.hosts
        routes: list[Route] = []
        if self._has_network:
            self._ports = ProxiedPorts.choose(broker_ids, first_advertised=0)
            routes = self._ports.routes()
            if self.ensemble is not None:
                to_servers, hosts = server_routes(hosts, self.ensemble.server_ids)
                routes += to_servers
        self._plan = ClusterPlan(
            broker_count=broker_count,
            host=HOST,
            port=0,
            coordination=f"{ZOOKEEPER}:{hosts}/{_OF_ENSEMBLE}" if hosts else SQLITE,
            settings=settings,
            listening_ports=self._ports.listening,
            advertised_ports=self._ports.advertised,
        )

        def begin_network() -> None:
            if routes:
                self.network = LabNetwork.start(self._folder, routes, is_tied=True)

        start_cluster(self._folder, self._plan, patience, begin_network, self._stop_network)

    def add(self, broker_id: int, *, patience: Patience) -> None:
        plan, folder = self._plan, self._folder
        assert plan is not None, "started"
        new = ProxiedPorts.choose([broker_id], first_advertised=0)
        if self.network is not None:
            (route,) = new.routes()
            self.network.add_route(route)
            self._ports = self._ports.joined(new)
            plan = replace(plan, advertised_ports=self._ports.advertised)
        port = new.listening[broker_id]
        try:
            start_brokers(folder, lambda: [prepare_broker(folder, plan, broker_id, port)], patience)
        except BaseException:
            self.remove(broker_id)
            raise

    def remove(self, broker_id: int) -> None:
        if self.network is not None:
            self.network.remove_routes(broker_party(broker_id))
            self._ports = self._ports.without(broker_id)

    def stop(self) -> None:
        self._stop_network()
        if self.ensemble is not None:
            self.ensemble.stop()

    def _stop_network(self) -> None:
        if self.network is not None:
            self.network.stop()


class KafkaEngine:
    """Apache Kafka, each node a broker and a controller at once."""

    name = "kafka"
    tells_controller = False
    ensemble = None
    why_fixed = "the voters of Kafka's controllers are fixed here"

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
        brokers = ProxiedPorts.choose(node_ids, first_advertised=0)
        controllers = ProxiedPorts.choose(node_ids, first_advertised=0)
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
        raise LabError(f"broker {broker_id} was not added: {self.why_fixed}")

    def remove(self, broker_id: int) -> None:
        raise LabError(f"broker {broker_id} was not removed: {self.why_fixed}")

    def stop(self) -> None:
        if self.network is not None:
            self.network.stop()
