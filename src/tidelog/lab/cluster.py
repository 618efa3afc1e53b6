"""A cluster of broker processes on this machine, started.

    start ──▶ spawned, state written ──▶ all ready, all acquainted ──▶ state written again
                    │                        │
                    └── port taken, died, too slow: the others are killed, the state file goes

The state is written before a broker is ready so that one that hangs while starting can be found.
What runs is watched by `watch.py`, and stopped by anybody (`running.py`).
"""

import os
from collections.abc import Callable, Mapping, Sequence

from tidelog.config.broker import BrokerConfig
from tidelog.config.properties import read_properties
from tidelog.lab.errors import AlreadyRunning, FolderUnusable
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.plan import SQLITE, ClusterPlan
from tidelog.lab.ports import choose_ports
from tidelog.lab.running import forget_some, replace_states, running_brokers
from tidelog.lab.starting import (
    Patience,
    Place,
    StartedBroker,
    spawn,
    wait_until_acquainted,
    wait_until_ready,
)
from tidelog.lab.state import BrokerState, read_state, write_state


def start_cluster(
    folder: ClusterFolder,
    plan: ClusterPlan,
    patience: Patience,
    begin_beside: Callable[[], None],
    end_beside: Callable[[], None],
) -> tuple[StartedBroker, ...]:
    """Start every broker at once; return when each accepts clients and knows the others.

    What they need beside them is begun before the first, when it is sure that no other cluster runs
    in the folder. ConfigError for a setting no broker would take. After any failure nothing runs,
    and what was begun beside them is ended.
    """
    _require_nameable(folder)
    for broker_id in plan.broker_ids:
        BrokerConfig.load(plan.properties_of(folder, broker_id, plan.port))

    began_beside = False

    def prepare() -> list[Place]:
        nonlocal began_beside
        _require_idle(folder)
        _require_same_coordination(folder, plan)
        began_beside = True
        begin_beside()
        return [
            prepare_broker(folder, plan, broker_id, port)
            for broker_id, port in zip(plan.broker_ids, _ports(plan), strict=True)
        ]

    try:
        return start_brokers(folder, prepare, patience)
    except BaseException:
        if began_beside:
            end_beside()
        raise


def prepare_broker(folder: ClusterFolder, plan: ClusterPlan, broker_id: int, port: int) -> Place:
    """Write its properties file; a broker that was there before keeps its logs."""
    folder.log_dir(broker_id).mkdir(parents=True, exist_ok=True)
    write_properties(folder, broker_id, plan.properties_of(folder, broker_id, port))
    return Place(broker_id, plan.host, port)


def write_properties(folder: ClusterFolder, broker_id: int, properties: Mapping[str, str]) -> None:
    lines = [f"{name}={_escaped(value)}\n" for name, value in properties.items()]
    folder.properties_file(broker_id).write_text("".join(lines), encoding="utf-8")


def start_brokers(
    folder: ClusterFolder, prepare: Callable[[], Sequence[Place]], patience: Patience
) -> tuple[StartedBroker, ...]:
    """Start those that `prepare` has made ready, beside those that run; after a failure none does.

    `prepare` is called while nobody else starts or stops brokers here.
    """
    started: list[StartedBroker] = []
    try:
        with folder.locked():
            places = prepare()
            others = _others(folder, places)
            for place in places:  # Who has been started is known if the next one cannot be.
                started += [spawn(folder, place.broker_id, host=place.host, port=place.port)]
            write_state(folder.state_file, (*others, *_states(started)))
        wait_until_ready(folder, started, patience)
        wait_until_acquainted(folder, started, patience)
        with folder.locked():
            replace_states(folder, _states(started))
    except OSError as error:
        _give_up(folder, started)
        raise FolderUnusable(folder.root, error.strerror or str(error)) from error
    except BaseException:
        _give_up(folder, started)
        raise
    return tuple(started)


def _others(folder: ClusterFolder, places: Sequence[Place]) -> tuple[BrokerState, ...]:
    """Whom the state file names already; nobody of a cluster that has ended."""
    starting = {place.broker_id for place in places}
    if not running_brokers(folder):
        return ()
    return tuple(each for each in read_state(folder.state_file) if each.id not in starting)


def _states(brokers: Sequence[StartedBroker]) -> tuple[BrokerState, ...]:
    return tuple(broker.state for broker in brokers)


def _give_up(folder: ClusterFolder, brokers: Sequence[StartedBroker]) -> None:
    for broker in brokers:
        broker.child.kill()
    for broker in brokers:
        broker.child.wait()  # Nothing survives SIGKILL.
    if brokers:
        forget_some(folder, [broker.state.id for broker in brokers])


def _ports(plan: ClusterPlan) -> Sequence[int]:
    if plan.listening_ports:
        return [plan.listening_ports[broker_id] for broker_id in plan.broker_ids]
    if "listeners" in plan.settings:
        return [plan.port] * plan.broker_count  # The broker says where it is, or what is wrong.
    return choose_ports(plan.host, first_port=plan.port, count=plan.broker_count)


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
