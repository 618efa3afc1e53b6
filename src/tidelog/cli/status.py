"""`tidelog status`: what runs in a data folder, and what the cluster says about itself."""

import time
from dataclasses import dataclass

import typer

from tidelog.cli.brokers import cluster_folder
from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import complain, duration_text, print_json, print_line, print_table
from tidelog.cli.partitions import PartitionCounts, count_partitions
from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.client.values import ClusterDescription
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.proxied import seen_by_clients
from tidelog.lab.state import BrokerState, read_state

_ANSWER_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the cluster says about itself."""

    cluster: ClusterDescription
    counts: PartitionCounts

    def has(self, broker: BrokerState) -> bool:
        return broker.id in {each.id for each in self.cluster.brokers}

    def is_controller(self, broker: BrokerState) -> bool:
        return broker.id == self.cluster.controller_id


def register(app: typer.Typer) -> None:
    app.command("status", rich_help_panel=Panel.LOCAL)(run)


def run(data: DataOption = None, as_json: JsonOption = False) -> int:
    """Show the brokers of the local cluster, and how its partitions are.

    Exit 0 if every broker is alive and every replica in sync, 1 if not or if no cluster was
    started.
    """
    folder = cluster_folder(data)
    brokers = tuple(seen_by_clients(folder, broker) for broker in read_state(folder.state_file))
    # Asked once: a broker may die between two looks.
    alive = {broker.id: broker.is_alive for broker in brokers}
    answer = _ask([broker for broker in brokers if alive[broker.id]])
    if as_json:
        _print_json(folder, brokers, alive, answer)
    elif not brokers:
        complain(f"no cluster is running in {folder.root}", command="tidelog status")
    else:
        _print_text(folder, brokers, alive, answer)
    return 0 if brokers and all(alive.values()) and _is_healthy(brokers, answer) else 1


def _is_healthy(brokers: tuple[BrokerState, ...], answer: _Answer | None) -> bool:
    return (
        answer is not None
        and all(map(answer.has, brokers))
        and not answer.counts.under_replicated
        and not answer.counts.offline
    )


def _ask(alive: list[BrokerState]) -> _Answer | None:
    if not alive:
        return None
    bootstrap = ",".join(broker.address for broker in alive)
    try:
        with Admin(bootstrap, timeout_s=_ANSWER_WITHIN_S) as admin:
            cluster = admin.describe_cluster()
            counts = count_partitions(admin.describe_topics(admin.topic_names()))
    except ClientError as error:
        complain(f"alive, but does not answer: {error}", command="tidelog status")
        return None
    return _Answer(cluster, counts)


def _print_json(
    folder: ClusterFolder,
    brokers: tuple[BrokerState, ...],
    alive: dict[int, bool],
    answer: _Answer | None,
) -> None:
    counts = None if answer is None else answer.counts.as_json()
    names = ("topics", "partitions", "under_replicated", "offline")
    print_json(
        {
            "data": str(folder.root),
            "cluster_id": answer and answer.cluster.cluster_id,
            "controller": answer and answer.cluster.controller_id,
            **(counts or dict.fromkeys(names)),
            "brokers": [
                {
                    "id": broker.id,
                    "host": broker.host,
                    "port": broker.port,
                    "pid": broker.pid,
                    "controller": answer is not None and answer.is_controller(broker),
                    "alive": alive[broker.id],
                    "in_cluster": answer and answer.has(broker),
                    "leads": answer and answer.counts.leads[broker.id],
                    "replicas": answer and answer.counts.replicas[broker.id],
                    "uptime_s": round(_uptime_s(broker), 3) if alive[broker.id] else None,
                }
                for broker in brokers
            ],
        }
    )


def _print_text(
    folder: ClusterFolder,
    brokers: tuple[BrokerState, ...],
    alive: dict[int, bool],
    answer: _Answer | None,
) -> None:
    print_line(f"data      {folder.root}")
    if answer is not None:
        print_line(f"cluster   {answer.cluster.cluster_id}")
        print_line(f"topics    {answer.counts.sentence}")
    print_line()
    print_table(
        ["BROKER", "HOST", "PORT", "PID", "ALIVE", "CONTROLLER", "LEADS", "REPLICAS", "UPTIME"],
        [
            [
                broker.id,
                broker.host,
                broker.port,
                broker.pid,
                _alive_text(broker, alive[broker.id], answer),
                "yes" if answer and answer.is_controller(broker) else "no",
                None if answer is None else answer.counts.leads[broker.id],
                None if answer is None else answer.counts.replicas[broker.id],
                duration_text(_uptime_s(broker)) if alive[broker.id] else None,
            ]
            for broker in brokers
        ],
    )


def _alive_text(broker: BrokerState, is_alive: bool, answer: _Answer | None) -> str:
    if not is_alive:
        return "no"
    is_missing = answer is not None and not answer.has(broker)
    return "yes, but not in the cluster" if is_missing else "yes"


def _uptime_s(broker: BrokerState) -> float:
    return max(0.0, time.time() - broker.started_ms / 1000)
