"""The data folder of a local cluster: what lies where.

DIR/
  cluster.json            who runs; written by whoever started the brokers
  cluster.lock            held while a cluster is being started
  coordination.db         the embedded coordinator of all brokers
  broker-1/
    server.properties     the settings it was started with
    broker.pid
    broker.log            its stdout and stderr; broker.log.1 is the one before
    logs/                 its log.dirs
"""

import os
from dataclasses import dataclass
from pathlib import Path


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

    def pid_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "broker.pid"

    def output_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "broker.log"

    def log_dir(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "logs"
