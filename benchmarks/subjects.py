"""The systems that are measured side by side, all as child processes with one interface.

tidelog      the broker of this tree, or three of them on the embedded coordinator
zookeeper    three of the same on a ZooKeeper ensemble of three
kafka        Apache Kafka with the JVM flags and the 1 GB heap of its own start script; three nodes
             are brokers and controllers at once
floor        what nothing can beat: for client load librdkafka's own C broker, which keeps no
             file; for raw requests the C server in floor.c
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import SERVER_FLAGS, KafkaProcess
from tests.support.ports import free_port
from tests.support.server_process import ServerProcess
from tests.support.three_brokers import BROKER_IDS, ThreeBrokers
from tests.support.zookeeper import READY_WITHIN_S, ServersForTests

TIDELOG = "tidelog"
ZOOKEEPER = "zookeeper"
KAFKA = "kafka"
FLOOR = "floor"
KAFKA_HEAP_MIB = 1_024
# Files of a dropped topic go at once, before the kernel has to write them to the disk.
SETTINGS = {"log.segment.delete.delay.ms": "0"}
FLOOR_SOURCE = Path(__file__).with_name("floor.c")
LISTENING = re.compile(r"^listening on (\S+:\d+)$", re.MULTILINE)

# What a careful operator has (D4): three replicas, of which two must have a record.
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
ZOOKEEPER_SERVERS = 3
COPIES = 2

Broker = BrokerProcess | KafkaProcess
Cluster = BrokerCluster[BrokerProcess] | BrokerCluster[KafkaProcess]


class NoCompiler(Exception):
    """floor.c cannot be compiled on this machine."""


class FloorProcess(ServerProcess):
    """A server that says `listening on HOST:PORT` and knows nothing else of us."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        super().__init__(folder)
        self._arguments = arguments

    @property
    def bootstrap(self) -> str:
        found = LISTENING.search(self.log_text_of_this_start())
        assert found is not None, "not ready"
        return found[1]

    def command(self) -> Sequence[str]:
        return self._arguments

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONPATH": str(FLOOR_SOURCE.parent.parent)}

    def is_ready(self) -> bool:
        return LISTENING.search(self.log_text_of_this_start()) is not None


Subject = Broker | FloorProcess


def new_broker(name: str, folder: Path, settings: Mapping[str, str]) -> Broker:
    all_settings = {**SETTINGS, **settings}
    if name == TIDELOG:
        return BrokerProcess(folder, all_settings)
    assert name == KAFKA
    return KafkaProcess(folder, all_settings, jvm_flags=SERVER_FLAGS, heap_mib=KAFKA_HEAP_MIB)


def new_subject(name: str, folder: Path, settings: Mapping[str, str]) -> Subject:
    """For client load: the floor is a broker as well."""
    if name == FLOOR:
        return FloorProcess(folder, [sys.executable, "-m", "benchmarks.mock_broker"])
    return new_broker(name, folder, settings)


def new_cluster(name: str, folder: Path, settings: Mapping[str, str]) -> Cluster:
    """Three brokers that have yet to be started."""
    all_settings = {**SETTINGS, **REPLICATED, **settings}
    if name == TIDELOG:
        return ThreeBrokers(folder, all_settings)
    assert name == KAFKA
    controller_ports = {node_id: free_port() for node_id in BROKER_IDS}
    brokers = {
        node_id: KafkaProcess(
            folder / f"broker-{node_id}",
            all_settings,
            jvm_flags=SERVER_FLAGS,
            heap_mib=KAFKA_HEAP_MIB,
            node_id=node_id,
            controller_ports=controller_ports,
        )
        for node_id in BROKER_IDS
    }
    return BrokerCluster(folder, brokers)


@contextmanager
def running_cluster(name: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Cluster]:
    """Three brokers at work, and the ZooKeeper ensemble that those of `zookeeper` need."""
    if name != ZOOKEEPER:
        with new_cluster(name, folder, settings) as cluster:
            yield cluster
        return
    servers = ServersForTests(folder / "servers", server_count=ZOOKEEPER_SERVERS, port=0)
    servers.start(ready_within_s=READY_WITHIN_S, is_cancelled=lambda: False)
    try:
        on_zookeeper = {**SETTINGS, **REPLICATED, **settings}
        coordination = f"zookeeper:{servers.hosts}"
        with ThreeBrokers(folder, on_zookeeper, coordination=coordination) as cluster:
            yield cluster
    finally:
        servers.stop()


def new_raw_floor(folder: Path, mode: str, file: Path, answer_size_bytes: int) -> FloorProcess:
    """For raw requests: `mode` is write or read, see floor.c."""
    program = compile_floor(folder)
    return FloorProcess(folder, [str(program), mode, str(file), str(answer_size_bytes)])


def new_copying_floor(
    running: ExitStack, folder: Path, answer_size_bytes: int
) -> list[FloorProcess]:
    """Three raw floors, as long as `running`; the first copies what it gets to the others."""
    others = [
        running.enter_context(
            new_raw_floor(
                folder / f"copy-{n}", "write", folder / f"copy-{n}.log", answer_size_bytes
            )
        )
        for n in range(COPIES)
    ]
    ports = [floor.bootstrap.rpartition(":")[2] for floor in others]
    program = compile_floor(folder)
    arguments = [str(program), "copy", str(folder / "first.log"), str(answer_size_bytes), *ports]
    return [running.enter_context(FloorProcess(folder, arguments)), *others]


def compile_floor(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "floor"
    command = ["gcc", "-O2", "-o", str(program), str(FLOOR_SOURCE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoCompiler("gcc is not on the PATH, so there is no floor to compare with") from None
    if done.returncode != 0:
        raise NoCompiler(f"floor.c does not compile: {done.stderr}")
    return program
