"""Apache Kafka as child processes, each broker and controller at once (KRaft): one, or three.

The same interface as `BrokerProcess`, so that a test written for one runs on the other. The jars
come from `lab/peers.py`.
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.ports import free_port
from tests.support.server_process import ServerProcess
from tidelog.lab.peers import kafka_libs

NODE_ID = 1
CLUSTER_ID = "dGlkZWxvZy1wZWVyLTAwMQ"
# What a user waits for is the server, not its compiler: fine for tests, wrong for benchmarks.
QUICK_START_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
# Kafka's own start script uses these.
SERVER_FLAGS = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# What a node by itself needs to have replicas of its own topics.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def java_command(flags: Sequence[str], main_class: str, *arguments: str) -> list[str]:
    return ["java", *flags, "-cp", f"{kafka_libs()}/*", main_class, *arguments]


class KafkaProcess(ServerProcess):
    """One Kafka node in a folder of its own; restarts keep the ports and the data."""

    name = "kafka"

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        jvm_flags: Sequence[str] = QUICK_START_FLAGS,
        heap_mib: int = 512,
        node_id: int = NODE_ID,
        controller_ports: Mapping[int, int] | None = None,
    ) -> None:
        """`controller_ports`: of every node of the cluster, unless this is the only one."""
        super().__init__(folder)
        self.port = free_port()
        self.data_folder = folder / "data"
        self._properties = folder / "server.properties"
        self._jvm_flags = (*jvm_flags, f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m")
        self._settings = {
            **_combined_node(node_id, self.port, controller_ports or {node_id: free_port()}),
            **({} if controller_ports else ALONE),
            "log.dirs": str(self.data_folder),
            **(settings or {}),
        }
        self._probe: Consumer | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        self.format()
        super().launch()

    def format(self) -> None:
        """Prepare the data folder as KRaft demands; a folder prepared already is left alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self._settings.items()]
        self._properties.write_text("".join(lines), "utf-8")
        if (self.data_folder / "meta.properties").exists():
            return
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self._properties))
        command = java_command(QUICK_START_FLAGS, "kafka.tools.StorageTool", *arguments)
        subprocess.run(command, check=True, capture_output=True, text=True)

    def command(self) -> Sequence[str]:
        return java_command(self._jvm_flags, "kafka.Kafka", str(self._properties))

    def is_ready(self) -> bool:
        """The port answers before the node leads its partitions, so each of them is asked."""
        if self._probe is None:
            self._probe = _quiet_consumer(self.bootstrap)
        try:
            ready = _leads_every_partition(self._probe)
        except KafkaException:
            return False
        if ready:
            self._probe.close()
            self._probe = None
        return ready


def _leads_every_partition(consumer: Consumer) -> bool:
    cluster = consumer.list_topics(timeout=0.2)
    partitions = [
        TopicPartition(name, partition, 0)
        for name, topic in cluster.topics.items()
        for partition in topic.partitions
    ]
    answers = consumer.offsets_for_times(partitions, timeout=5.0) if partitions else []
    return bool(cluster.brokers) and all(answer.error is None for answer in answers)


def _combined_node(node_id: int, port: int, controller_ports: Mapping[int, int]) -> dict[str, str]:
    voters = [f"{each}@127.0.0.1:{its_port}" for each, its_port in controller_ports.items()]
    controller = f"CONTROLLER://127.0.0.1:{controller_ports[node_id]}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},{controller}",
        "controller.listener.names": "CONTROLLER",
        "group.initial.rebalance.delay.ms": "0",
    }


def _quiet_consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readiness",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
