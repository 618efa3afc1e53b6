"""The data folder of a local cluster: what lies where.

DIR/
  cluster.json            who runs; written by whoever started the brokers
  cluster.lock            held while brokers are being started or stopped
  coordination.db         the embedded coordinator of all brokers, unless they use ZooKeeper
  broker-1/
    server.properties     the settings it was started with
    command.json          how it is started, if it is not one of ours
    broker.pid
    broker.log            its stdout and stderr; broker.log.1 is the one before
    logs/                 its log.dirs
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_BROKER_FOLDER = re.compile(r"broker-([1-9][0-9]?)")
_META_PROPERTIES = "meta.properties"
_PARTITION_FOLDER = re.compile(r".+-[0-9]+")


def default_data_folder() -> Path:
    """The folder used when none is named, the same wherever the command is typed."""
    shared = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(shared) / "tidelog"


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Names of files in the data folder `root`."""

    root: Path

    @property
    def state_file(self) -> Path:
        return self.root / "cluster.json"

    @property
    def lock_file(self) -> Path:
        return self.root / "cluster.lock"

    @property
    def coordination_file(self) -> Path:
        return self.root / "coordination.db"

    def broker_folder(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}"

    def properties_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "server.properties"

    def command_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "command.json"

    def pid_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "broker.pid"

    def output_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "broker.log"

    def log_dir(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "logs"

    def broker_ids(self) -> list[int]:
        """The brokers that were ever started here, in order."""
        if not self.root.is_dir():
            return []
        found = (_BROKER_FOLDER.fullmatch(path.name) for path in self.root.iterdir())
        return sorted(int(name[1]) for name in found if name is not None)

    def has_joined(self, broker_id: int) -> bool:
        """Whether the broker was ever part of a cluster: Kafka's file says of which."""
        return (self.log_dir(broker_id) / _META_PROPERTIES).exists()

    def replica_count(self, broker_id: int) -> int:
        """How many partitions the broker has a folder for."""
        log_dir = self.log_dir(broker_id)
        if not log_dir.is_dir():
            return 0
        return sum(_PARTITION_FOLDER.fullmatch(path.name) is not None for path in log_dir.iterdir())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from starting and stopping brokers here; waits until nobody does."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self.lock_file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
