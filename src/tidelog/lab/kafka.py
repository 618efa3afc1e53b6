"""Apache Kafka's brokers in a folder of ours, each of them a controller too (KRaft).

They are prepared here; what is done to them afterwards is what is done to any broker of a local
cluster (`running.py`). Kafka's jars are those that `peers.py` has fetched, or those of a
distribution that was unpacked somewhere.

    prepare ──▶ server.properties, command.json, a formatted log directory ──▶ `start_brokers`
"""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.base.errors import ConfigError
from tidelog.lab.cluster import write_properties
from tidelog.lab.errors import LabError
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.peers import kafka_libs, why_kafka_is_unavailable
from tidelog.lab.starting import Place, write_command

# As its own start script has them; only what it prints is left out.
SERVER_FLAGS: Final = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# A server that is ready soon and compiles little: for tests, never for what is measured.
QUICK_START_FLAGS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

_CLUSTER_ID: Final = "dGlkZWxvZy1wZWVyLTAwMQ"
_HOST: Final = "127.0.0.1"
_FORMAT_WITHIN_S: Final = 120.0


class KafkaUnavailable(LabError):
    """Kafka cannot be run here; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstallation:
    """Where Kafka's jars are, and how its JVMs are started."""

    libs: Path
    jvm_flags: Sequence[str]
    heap_mib: int

    def java(self, flags: Sequence[str], main_class: str, *arguments: str) -> list[str]:
        """The command that runs one of Kafka's programs."""
        return ["java", *flags, "-cp", f"{self.libs}/*", main_class, *arguments]

    def server(self, properties: Path) -> list[str]:
        heap = (f"-Xms{self.heap_mib}m", f"-Xmx{self.heap_mib}m")
        return self.java((*self.jvm_flags, *heap), "kafka.Kafka", str(properties))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPorts:
    """Where one node listens, and by which ports others reach it: a proxy's, or the same."""

    broker: int
    controller: int
    advertised_broker: int
    advertised_controller: int


def find_kafka(home: Path | None, *, jvm_flags: Sequence[str], heap_mib: int) -> KafkaInstallation:
    """The distribution in `home`, or what was fetched; ConfigError if `home` has none.

    KafkaUnavailable says what is missing on this machine.
    """
    if home is None:
        reason = why_kafka_is_unavailable()
        if reason is not None:
            raise KafkaUnavailable(reason)
        return KafkaInstallation(libs=kafka_libs(), jvm_flags=jvm_flags, heap_mib=heap_mib)
    if shutil.which("java") is None:
        raise KafkaUnavailable("java is not on the PATH, so Apache Kafka cannot be run")
    libs = home / "libs"
    if not any(libs.glob("kafka_*.jar")):
        raise ConfigError(f"--kafka-home is {home} but there is no libs/kafka_*.jar in it")
    return KafkaInstallation(libs=libs, jvm_flags=jvm_flags, heap_mib=heap_mib)


def prepare_kafka(
    folder: ClusterFolder,
    installation: KafkaInstallation,
    ports: Mapping[int, KafkaPorts],
    settings: Mapping[str, str],
) -> list[Place]:
    """Make every node of `ports` ready to be started; what it has written before stays."""
    for broker_id in ports:
        folder.log_dir(broker_id).mkdir(parents=True, exist_ok=True)
        write_properties(
            folder,
            broker_id,
            {
                **_combined_node(broker_id, ports),
                **_topics_of_its_own(len(ports)),
                "log.dirs": str(folder.log_dir(broker_id)),
                **settings,
            },
        )
        write_command(folder, broker_id, installation.server(folder.properties_file(broker_id)))
        _format(folder, broker_id, installation)
    return [Place(broker_id, _HOST, each.broker) for broker_id, each in ports.items()]


def _format(folder: ClusterFolder, broker_id: int, installation: KafkaInstallation) -> None:
    if folder.has_joined(broker_id):
        return
    arguments = ("format", "-t", _CLUSTER_ID, "-c", str(folder.properties_file(broker_id)))
    command = installation.java(QUICK_START_FLAGS, "kafka.tools.StorageTool", *arguments)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_FORMAT_WITHIN_S
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        raise KafkaUnavailable(f"Kafka did not format {folder.log_dir(broker_id)}: {reason}")


def _combined_node(node_id: int, ports: Mapping[int, KafkaPorts]) -> dict[str, str]:
    own = ports[node_id]
    voters = [f"{each}@{_HOST}:{its.advertised_controller}" for each, its in ports.items()]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"PLAINTEXT://{_HOST}:{own.broker},CONTROLLER://{_HOST}:{own.controller}",
        "advertised.listeners": f"PLAINTEXT://{_HOST}:{own.advertised_broker}",
        "controller.listener.names": "CONTROLLER",
    }


def _topics_of_its_own(node_count: int) -> dict[str, str]:
    """As many replicas of Kafka's own topics as there can be, up to its default of three."""
    replicas = str(min(node_count, 3))
    in_sync = str(min(node_count, 2))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
