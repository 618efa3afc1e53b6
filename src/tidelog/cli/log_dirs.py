"""`tidelog log-dirs`: where replicas lie on their brokers, and having them lie elsewhere."""

from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import print_json, print_line, print_table, size_text
from tidelog.cli.topics import TopicArgument, TopicsArgument, described
from tidelog.client.admin import Admin
from tidelog.client.errors import RequestFailed
from tidelog.client.values import LogDirDescription, ReplicaOnDisk


def register(app: typer.Typer) -> None:
    log_dirs = typer.Typer(no_args_is_help=True, help="List and change where replicas lie.")
    log_dirs.command("list")(list_)
    log_dirs.command("move")(move)
    app.add_typer(log_dirs, name="log-dirs", rich_help_panel=Panel.CLUSTER)


def list_(
    topics: TopicsArgument = None,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """List the replicas of TOPIC, or of all topics, with the log dirs that they are in."""
    with Admin(bootstrap) as admin:
        described(admin, topics or ())
        found = [
            (log_dir, replica)
            for log_dir in admin.log_dirs()
            for replica in log_dir.replicas
            if not topics or replica.topic in topics
        ]
    found.sort(key=lambda one: (one[1].topic, one[1].partition, one[0].broker_id, one[1].is_future))
    if as_json:
        for one in found:
            print_json(_as_json(*one))
        return 0
    print_table(
        ["TOPIC", "PARTITION", "BROKER", "LOG DIR", "SIZE", "STATE"],
        [
            [
                replica.topic,
                replica.partition,
                log_dir.broker_id,
                log_dir.path,
                size_text(replica.size_bytes),
                f"copying, lacks {replica.offset_lag}" if replica.is_future else "in use",
            ]
            for log_dir, replica in found
        ],
    )
    return 0


def _as_json(log_dir: LogDirDescription, replica: ReplicaOnDisk) -> dict[str, object]:
    return {
        "topic": replica.topic,
        "partition": replica.partition,
        "broker": log_dir.broker_id,
        "log_dir": log_dir.path,
        "size_bytes": replica.size_bytes,
        "offset_lag": replica.offset_lag,
        "future": replica.is_future,
    }


def move(
    topic: TopicArgument,
    partition: Annotated[int, typer.Argument(min=0, show_default=False)],
    *,
    broker: Annotated[int, typer.Option("--broker", help="Of which broker the replica is.")],
    target: Annotated[
        str, typer.Option("--to", metavar="PATH", help="One of the broker's log.dirs.")
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Begin to move a replica to another log dir of its broker; `log-dirs list` says how far it is.

    It is written and read meanwhile. Naming the log dir that it is in ends a move.
    """
    with Admin(bootstrap) as admin:
        described(admin, [topic])
        try:
            admin.move_replica(topic, partition, broker_id=broker, log_dir=target)
        except RequestFailed as error:
            raise _worded(error, f"{topic}-{partition}", broker, target) from error
    if as_json:
        print_json({"topic": topic, "partition": partition, "broker": broker, "log_dir": target})
    else:
        print_line(f"Replica {topic}-{partition} of broker {broker} is to lie in {target}.")
    return 0


def _worded(error: RequestFailed, replica: str, broker: int, target: str) -> RequestFailed:
    """`error` with what the broker, which answers with codes alone, has to say."""
    sentences = {
        "LOG_DIR_NOT_FOUND": f"{target} is not in log.dirs of broker {broker}; "
        "tidelog cluster lists those that are",
        "REPLICA_NOT_AVAILABLE": f"broker {broker} has no replica of {replica}; if it gets one, "
        f"it will lie in {target}",
        "UNKNOWN_TOPIC_OR_PARTITION": f"there is no {replica}",
        "KAFKA_STORAGE_ERROR": f"a log dir of broker {broker} is offline",
    }
    sentence = sentences.get(error.code_name)
    return error if sentence is None else RequestFailed(error.code_name, sentence)
