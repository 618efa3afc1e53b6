"""Apache Kafka's brokers with one controller among them, which outlives those that are killed.

The document kills two and three of four brokers; who coordinated them, ZooKeeper, was not touched.
Were each of four nodes a controller too, two that die would take the majority of controllers with
them, and no leader would ever move. So broker 1 is the only controller, and never dies here.
"""

from collections.abc import Mapping
from typing import Final

from tidelog.lab.cluster import start_brokers
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.kafka import KafkaInstallation, KafkaPorts, prepare_kafka
from tidelog.lab.plan import FIRST_BROKER_ID
from tidelog.lab.ports import choose_ports
from tidelog.lab.starting import Patience, Place

CONTROLLER_ID: Final = FIRST_BROKER_ID
_HOST: Final = "127.0.0.1"


class OneControllerKafka:
    """An engine of the lab (`lab/engines.py`)."""

    name = "kafka"
    tells_controller = False
    ensemble = None
    network = None
    bootstrap = None
    why_fixed = "a benchmark has the brokers it has"

    def __init__(self, folder: ClusterFolder, installation: KafkaInstallation) -> None:
        self._folder = folder
        self._installation = installation

    def start(self, *, broker_count: int, settings: Mapping[str, str], patience: Patience) -> None:
        controller, *brokers = choose_ports(_HOST, first_port=0, count=1 + broker_count)
        replicated = {**_topics_of_its_own(broker_count), **settings}

        def prepare() -> list[Place]:
            return [
                place
                for broker_id, port in enumerate(brokers, FIRST_BROKER_ID)
                for place in self._prepare(broker_id, port, controller, replicated)
            ]

        start_brokers(self._folder, prepare, patience)

    def _prepare(
        self, broker_id: int, port: int, controller: int, settings: Mapping[str, str]
    ) -> list[Place]:
        ports = KafkaPorts(
            broker=port,
            controller=controller,
            advertised_broker=port,
            advertised_controller=controller,
        )
        role = {
            "controller.quorum.voters": f"{CONTROLLER_ID}@{_HOST}:{controller}",
            **({} if broker_id == CONTROLLER_ID else _broker_only(port)),
        }
        return prepare_kafka(
            self._folder, self._installation, {broker_id: ports}, {**role, **settings}
        )

    def add(self, broker_id: int, *, patience: Patience) -> None:
        raise LabError(f"broker {broker_id} was not added: {self.why_fixed}")

    def remove(self, broker_id: int) -> None:
        raise LabError(f"broker {broker_id} was not removed: {self.why_fixed}")

    def stop(self) -> None:
        """Nothing else runs."""


def _broker_only(port: int) -> dict[str, str]:
    return {"process.roles": "broker", "listeners": f"PLAINTEXT://{_HOST}:{port}"}


def _topics_of_its_own(broker_count: int) -> dict[str, str]:
    replicas = str(min(broker_count, 3))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(min(broker_count, 2)),
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": str(min(broker_count, 2)),
    }
