"""`tidelog topics`: create, list, describe, alter and delete topics."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.completion import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import print_heading, print_json, print_line, print_table
from tidelog.client.admin import BROKER_DEFAULT, Admin
from tidelog.client.errors import RequestFailed
from tidelog.client.values import (
    OffsetBounds,
    PartitionState,
    TopicDescription,
    TopicResource,
)
from tidelog.config.properties import parse_assignment

# What librdkafka takes; no broker has room for more.
PARTITIONS_MAX = 100_000
REPLICAS_MAX = 10_000

TopicArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)
]
TopicsArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", autocompletion=complete_topic, show_default=False),
]
ConfigsOption: TypeAlias = Annotated[
    list[str],
    typer.Option("--config", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
]


def register(app: typer.Typer) -> None:
    topics = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter, delete topics.")
    topics.command("create")(create)
    topics.command("list")(list_)
    topics.command("describe")(describe)
    topics.command("alter")(alter)
    topics.command("delete")(delete)
    app.add_typer(topics, name="topics", rich_help_panel=Panel.CLUSTER)


def create(
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            max=PARTITIONS_MAX,
            show_default="num.partitions of the broker",
        ),
    ] = BROKER_DEFAULT,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor",
            "-r",
            max=REPLICAS_MAX,
            show_default="default.replication.factor of the broker",
        ),
    ] = BROKER_DEFAULT,
    configs: ConfigsOption = [],  # noqa: B006 - typer copies it
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Fine if there is one of that name already.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Create a topic. Exit 1 if it exists already."""
    chosen = dict(map(parse_assignment, configs))
    with Admin(bootstrap) as admin:
        was_created = _create(
            admin,
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=chosen,
            if_not_exists=if_not_exists,
        )
        (created,) = admin.describe_topics([topic])
    if as_json:
        print_json({**_summary(created), "created": was_created})
    elif was_created:
        print_line(f"Created topic {topic} with {_shape(created)}.")
    else:
        print_line(f"Topic {topic} is there already, with {_shape(created)}.")
    return 0


def list_(
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the cluster's own topics.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """List topics; with --json, one object per line."""
    with Admin(bootstrap) as admin:
        topics = admin.describe_topics(admin.topic_names())
    shown = [topic for topic in topics if internal or not topic.is_internal]
    if as_json:
        for topic in shown:
            print_json(_summary(topic))
        return 0
    print_table(
        ["TOPIC", "PARTITIONS", "REPLICATION"],
        [[topic.name, len(topic.partitions), topic.replication_factor] for topic in shown],
    )
    return 0


def describe(
    topics: TopicsArgument = None,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Show leader, replicas, isr, state and offsets of every partition.

    Without a name, of all topics. A partition is in sync, under-replicated or offline; exit 0 if
    every one is in sync, 1 if any is not.
    """
    is_in_sync = True
    with Admin(bootstrap) as admin:
        for topic in described(admin, topics or admin.topic_names()):
            states = {partition.state for partition in topic.partitions}
            is_in_sync = is_in_sync and states <= {PartitionState.IN_SYNC}
            led = [p.partition for p in topic.partitions if p.leader is not None]
            bounds = admin.offset_bounds(topic.name, led)
            configs = {
                value.name: value.value
                for value in admin.configs(TopicResource(topic.name))
                if value.source == "topic"
            }
            show = _print_as_json if as_json else _print_as_text
            show(topic, bounds, configs)
    return 0 if is_in_sync else 1


def alter(
    topic: TopicArgument,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=PARTITIONS_MAX,
            help="New number of partitions, never fewer.",
        ),
    ] = None,
    configs: ConfigsOption = [],  # noqa: B006 - typer copies it
    deleted: Annotated[
        list[str],
        typer.Option("--delete-config", metavar="NAME", help="Back to the default; repeatable."),
    ] = [],  # noqa: B006 - typer copies it
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Add partitions to a topic, or change its settings."""
    set_values = dict(map(parse_assignment, configs))
    if partitions is None and not set_values and not deleted:
        raise ConfigError("nothing to change; give --partitions, --config or --delete-config")
    with Admin(bootstrap) as admin:
        described(admin, [topic])
        # Settings first: a wrong one is refused, while partitions once added stay.
        if set_values or deleted:
            admin.alter_configs(TopicResource(topic), set_values=set_values, deleted=deleted)
        if partitions is not None:
            admin.create_partitions(topic, partitions=partitions)
        (altered,) = admin.describe_topics([topic])
    if as_json:
        print_json(_summary(altered))
    else:
        print_line(f"Altered topic {topic}, now with {_shape(altered)}.")
    return 0


def delete(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", autocompletion=complete_topic, show_default=False),
    ],
    *,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Fine if there is none of that name.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Delete topics and all of their records. Exit 1 if there is none of that name."""
    with Admin(bootstrap) as admin:
        for topic in topics:
            was_deleted = _delete(admin, topic, if_exists=if_exists)
            if as_json:
                print_json({"topic": topic, "deleted": was_deleted})
            elif was_deleted:
                print_line(f"Deleted topic {topic}.")
            else:
                print_line(f"There is no topic {topic}.")
    return 0


def _create(
    admin: Admin,
    topic: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: dict[str, str],
    if_not_exists: bool,
) -> bool:
    try:
        admin.create_topic(
            topic, partitions=partitions, replication_factor=replication_factor, configs=configs
        )
    except RequestFailed as error:
        if if_not_exists and error.code_name == "TOPIC_ALREADY_EXISTS":
            return False
        raise
    return True


def _delete(admin: Admin, topic: str, *, if_exists: bool) -> bool:
    try:
        admin.delete_topic(topic)
    except RequestFailed as error:
        if not error.is_unknown_topic:
            raise
        if not if_exists:
            raise unknown_topic(topic, error) from error
        return False
    return True


def described(admin: Admin, names: Iterable[str]) -> list[TopicDescription]:
    """The topics, with a complaint that names the one that does not exist."""
    found = []
    for name in names:
        try:
            found += admin.describe_topics([name])
        except RequestFailed as error:
            raise unknown_topic(name, error) if error.is_unknown_topic else error from error
    return found


def unknown_topic(topic: str, error: RequestFailed) -> RequestFailed:
    """`error`, saying which topic it is about; brokers leave that out."""
    return RequestFailed(error.code_name, f"there is no topic {topic}")


def _shape(topic: TopicDescription) -> str:
    count = len(topic.partitions)
    return f"{count} partition{'' if count == 1 else 's'}, replication {topic.replication_factor}"


def _summary(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "internal": topic.is_internal,
    }


def _print_as_json(
    topic: TopicDescription, bounds: dict[int, OffsetBounds], configs: dict[str, str | None]
) -> None:
    partitions = [
        {
            **asdict(partition),
            "state": partition.state,
            "start_offset": bounds[partition.partition].start_offset
            if partition.partition in bounds
            else None,
            "end_offset": bounds[partition.partition].end_offset
            if partition.partition in bounds
            else None,
        }
        for partition in topic.partitions
    ]
    print_json({**_summary(topic), "configs": configs, "partitions": partitions})


def _print_as_text(
    topic: TopicDescription, bounds: dict[int, OffsetBounds], configs: dict[str, str | None]
) -> None:
    print_heading(f"{topic.name}: {_shape(topic)}, id {topic.topic_id}")
    for name, value in configs.items():
        print_line(f"  {name}={value}")
    rows = []
    for partition in topic.partitions:
        known = bounds.get(partition.partition)
        rows.append(
            [
                partition.partition,
                partition.leader,
                ",".join(map(str, partition.replicas)),
                ",".join(map(str, partition.isr)),
                partition.state,
                known.start_offset if known else None,
                known.end_offset if known else None,
            ]
        )
    print_table(["PARTITION", "LEADER", "REPLICAS", "ISR", "STATE", "START", "END"], rows)
