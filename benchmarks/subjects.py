"""The systems that are measured side by side, all as child processes with one interface.

tidelog      the broker of this tree
kafka        Apache Kafka with the JVM flags and the 1 GB heap of its own start script
floor        what nothing can beat: for client load librdkafka's own C broker, which keeps no
             file; for raw requests the C server in floor.c
"""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.kafka_process import SERVER_FLAGS, KafkaProcess
from tests.support.server_process import ServerProcess

TIDELOG = "tidelog"
KAFKA = "kafka"
FLOOR = "floor"
KAFKA_HEAP_MIB = 1_024
# Files of a dropped topic go at once, before the kernel has to write them to the disk.
SETTINGS = {"log.segment.delete.delay.ms": "0"}
FLOOR_SOURCE = Path(__file__).with_name("floor.c")
LISTENING = re.compile(r"^listening on (\S+:\d+)$", re.MULTILINE)

Broker = BrokerProcess | KafkaProcess


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


def new_raw_floor(folder: Path, mode: str, file: Path, answer_size_bytes: int) -> FloorProcess:
    """For raw requests: `mode` is write or read, see floor.c."""
    program = compile_floor(folder)
    return FloorProcess(folder, [str(program), mode, str(file), str(answer_size_bytes)])


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
