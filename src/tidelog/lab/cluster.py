"""A cluster of broker processes on this machine, started.

    start ──▶ spawned, state written ──▶ all ready, all acquainted ──▶ state written again
                    │                        │
                    └── port taken, died, too slow: the others are killed, the state file goes

The state is written before a broker is ready so that one that hangs while starting can be found.
What runs is watched by `watch.py`, and stopped by anybody (`running.py`).
"""

import os
from collections.abc import Sequence

from tidelog.config.broker import BrokerConfig
from tidelog.config.properties import read_properties
from tidelog.lab.errors import AlreadyRunning, FolderUnusable
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.plan import SQLITE, ClusterPlan
from tidelog.lab.ports import choose_ports
from tidelog.lab.running import forget_brokers, running_brokers
from tidelog.lab.starting import (
    Patience,
    StartedBroker,
    spawn,
    wait_until_acquainted,
    wait_until_ready,
)
from tidelog.lab.state import BrokerState, write_state


def start_cluster(
    folder: ClusterFolder, plan: ClusterPlan, patience: Patience
) -> tuple[StartedBroker, ...]:
    """Start every broker at once; return when each accepts clients and knows the others.

    ConfigError for a setting no broker would take. After any failure nothing runs.
    """
    _require_nameable(folder)
    for broker_id in plan.broker_ids:
        BrokerConfig.load(plan.properties_of(folder, broker_id, plan.port))
    started: list[StartedBroker] = []
    try:
        with folder.locked():
            _require_idle(folder)
            _require_same_coordination(folder, plan)
            ports = _ports(plan)
            for broker_id, port in zip(plan.broker_ids, ports, strict=True):
                _write_properties(folder, plan, broker_id, port)
                started.append(spawn(folder, broker_id, host=plan.host, port=port))
            write_state(folder.state_file, _states(started))
        wait_until_ready(folder, started, patience)
        wait_until_acquainted(folder, started, patience)
        write_state(folder.state_file, _states(started))
    except OSError as error:
        _give_up(folder, started)
        raise FolderUnusable(folder.root, error.strerror or str(error)) from error
    except BaseException:
        _give_up(folder, started)
        raise
    return tuple(started)


def _states(brokers: Sequence[StartedBroker]) -> tuple[BrokerState, ...]:
    return tuple(broker.state for broker in brokers)


def _give_up(folder: ClusterFolder, brokers: Sequence[StartedBroker]) -> None:
    for broker in brokers:
        broker.child.kill()
    for broker in brokers:
        broker.child.wait()  # Nothing survives SIGKILL.
    if brokers:
        forget_brokers(folder)


def _ports(plan: ClusterPlan) -> Sequence[int]:
    if "listeners" in plan.settings:
        return [plan.port] * plan.broker_count  # The broker says where it is, or what is wrong.
    return choose_ports(plan.host, first_port=plan.port, count=plan.broker_count)


def _write_properties(folder: ClusterFolder, plan: ClusterPlan, broker_id: int, port: int) -> None:
    folder.log_dir(broker_id).mkdir(parents=True, exist_ok=True)
    properties = plan.properties_of(folder, broker_id, port)
    lines = [f"{name}={_escaped(value)}\n" for name, value in properties.items()]
    folder.properties_file(broker_id).write_text("".join(lines), encoding="utf-8")


def _require_idle(folder: ClusterFolder) -> None:
    for broker in running_brokers(folder):
        raise AlreadyRunning(folder.root, broker.address, broker.pid)


def _require_same_coordination(folder: ClusterFolder, plan: ClusterPlan) -> None:
    """Refuse to start brokers whose topics are known to another coordinator.

    To the new one their folders would be those of a cluster to adopt, each replica on its own.
    """
    for broker_id in folder.broker_ids():
        path = folder.properties_file(broker_id)
        if not path.exists() or not folder.has_joined(broker_id):
            continue
        before = read_properties(path).get("tidelog.coordination", "")
        kind = before.partition(":")[0]
        if kind != plan.coordination.partition(":")[0]:
            # A person gives `sqlite` without its file.
            given = SQLITE if kind == SQLITE else before
            raise FolderUnusable(folder.root, f"its cluster is one with --coordination {given}")


def _require_nameable(folder: ClusterFolder) -> None:
    """Refuse a folder that `log.dirs` cannot name: it is a list, one line of text in UTF-8."""
    name = os.fsencode(folder.root)
    if b"," in name or b"\n" in name:
        raise FolderUnusable(folder.root, "its name holds a comma or the end of a line")
    try:
        name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FolderUnusable(folder.root, "its name is not text in UTF-8") from error


def _escaped(value: str) -> str:
    """A value as a properties file holds it."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped
