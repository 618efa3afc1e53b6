"""`tidelog status`: what runs in a data folder, and what the cluster says about itself."""

import time
from dataclasses import dataclass

import typer

from tidelog.cli.options import DataOption, JsonOption, Panel
from tidelog.cli.output import complain, duration_text, print_json, print_line, print_table
from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.lab.folder import ClusterFolder, default_data_folder
from tidelog.lab.state import BrokerState, read_state

_ANSWER_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What the cluster says about itself."""

    cluster_id: str
    controller_id: int | None
    topic_count: int
    partition_count: int


def register(app: typer.Typer) -> None:
    app.command("status", rich_help_panel=Panel.LOCAL)(run)


def run(data: DataOption = None, as_json: JsonOption = False) -> int:
    """Show the brokers of the local cluster.

    Exit 0 if every broker is alive and answers, 1 if not or if no cluster was started.
    """
    folder = ClusterFolder((data or default_data_folder()).expanduser().absolute())
    brokers = read_state(folder.state_file)
    # Asked once: a broker may die between two looks.
    alive = {broker.id: broker.is_alive for broker in brokers}
    answer = _ask([broker for broker in brokers if alive[broker.id]])
    if as_json:
        _print_json(folder, brokers, alive, answer)
    elif not brokers:
        complain(f"no cluster is running in {folder.root}", command="tidelog status")
    else:
        _print_text(folder, brokers, alive, answer)
    return 0 if brokers and all(alive.values()) and answer is not None else 1


def _ask(alive: list[BrokerState]) -> _Answer | None:
    if not alive:
        return None
    bootstrap = ",".join(broker.address for broker in alive)
    try:
        with Admin(bootstrap, timeout_s=_ANSWER_WITHIN_S) as admin:
            cluster = admin.describe_cluster()
            topics = admin.describe_topics(admin.topic_names())
    except ClientError as error:
        complain(f"alive, but does not answer: {error}", command="tidelog status")
        return None
    return _Answer(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topic_count=len(topics),
        partition_count=sum(len(topic.partitions) for topic in topics),
    )


def _print_json(
    folder: ClusterFolder,
    brokers: tuple[BrokerState, ...],
    alive: dict[int, bool],
    answer: _Answer | None,
) -> None:
    print_json(
        {
            "data": str(folder.root),
            "cluster_id": answer.cluster_id if answer else None,
            "controller": answer.controller_id if answer else None,
            "topics": answer.topic_count if answer else None,
            "partitions": answer.partition_count if answer else None,
            "brokers": [
                {
                    "id": broker.id,
                    "host": broker.host,
                    "port": broker.port,
                    "pid": broker.pid,
                    "controller": answer is not None and answer.controller_id == broker.id,
                    "alive": alive[broker.id],
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
        print_line(f"cluster   {answer.cluster_id}")
        print_line(f"topics    {answer.topic_count} with {answer.partition_count} partitions")
    print_line()
    print_table(
        ["BROKER", "HOST", "PORT", "PID", "CONTROLLER", "ALIVE", "UPTIME"],
        [
            [
                broker.id,
                broker.host,
                broker.port,
                broker.pid,
                "yes" if answer and answer.controller_id == broker.id else "no",
                "yes" if alive[broker.id] else "no",
                duration_text(_uptime_s(broker)) if alive[broker.id] else None,
            ]
            for broker in brokers
        ],
    )


def _uptime_s(broker: BrokerState) -> float:
    return max(0.0, time.time() - broker.started_ms / 1000)
