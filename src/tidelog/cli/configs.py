"""`tidelog configs`: settings of topics, of groups, of a broker, its loggers, and all brokers."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.completion import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import print_heading, print_json, print_line, print_table
from tidelog.cli.topics import unknown_topic
from tidelog.client.admin import Admin
from tidelog.client.errors import RequestFailed
from tidelog.client.values import (
    BrokerResource,
    ClusterDefaults,
    ConfigValue,
    GroupResource,
    LoggerResource,
    Resource,
    TopicResource,
)
from tidelog.config.properties import parse_assignment

TopicOption: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Settings of a topic.", autocompletion=complete_topic),
]
BrokerOption: TypeAlias = Annotated[
    int | None, typer.Option(metavar="ID", help="Settings of one broker.")
]
GroupOption: TypeAlias = Annotated[
    str | None, typer.Option(metavar="ID", help="Settings of a consumer group.")
]
LoggersOption: TypeAlias = Annotated[
    int | None,
    typer.Option("--loggers", metavar="ID", help="Levels of a broker's loggers, until it stops."),
]
ClusterOption: TypeAlias = Annotated[
    bool, typer.Option("--cluster", help="Settings of all brokers that have none of their own.")
]


@dataclass(frozen=True, slots=True)
class _Target:
    """What the settings belong to, and its name for people."""

    resource: Resource
    name: str


def register(app: typer.Typer) -> None:
    configs = typer.Typer(no_args_is_help=True, help="Show and change settings while brokers run.")
    configs.command("describe")(describe)
    configs.command("alter")(alter)
    app.add_typer(configs, name="configs", rich_help_panel=Panel.CLUSTER)


def describe(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    loggers: LoggersOption = None,
    cluster: ClusterOption = False,
    show_all: Annotated[bool, typer.Option("--all", help="Also what is at its default.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Show settings and where each comes from; with --json, one object per line."""
    target = _target(topic, broker, group, loggers, cluster=cluster)
    with Admin(bootstrap) as admin:
        values = _configs(admin, target)
    shown = [value for value in values if show_all or not value.is_default]
    if as_json:
        for value in shown:
            print_json(_as_json(value))
        return 0
    print_heading(_headline(target, shown=len(shown), known=len(values)))
    if shown:
        print_table(
            ["NAME", "VALUE", "SOURCE", "DYNAMIC"],
            [
                [value.name, _shown(value), value.source, "no" if value.is_read_only else "yes"]
                for value in shown
            ],
        )
    return 0


def alter(
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    loggers: LoggersOption = None,
    cluster: ClusterOption = False,
    assignments: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="Set it; may be repeated.")
    ] = [],  # noqa: B006 - typer copies it
    deleted: Annotated[
        list[str],
        typer.Option("--delete", metavar="NAME", help="Back to the default; may be repeated."),
    ] = [],  # noqa: B006 - typer copies it
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Change settings, all of them or none. Exit 2 if a setting or its value is wrong."""
    target = _target(topic, broker, group, loggers, cluster=cluster)
    set_values = dict(map(parse_assignment, assignments))
    if not set_values and not deleted:
        raise ConfigError("nothing to change; give --set or --delete")
    with Admin(bootstrap) as admin:
        try:
            admin.alter_configs(target.resource, set_values=set_values, deleted=deleted)
        except RequestFailed as error:
            raise _worded(error, target) from error
    if as_json:
        print_json({"set": set_values, "deleted": deleted})
        return 0
    changes = [*(f"set {name}" for name in set_values), *(f"deleted {name}" for name in deleted)]
    print_line(f"Altered {target.name}: {', '.join(changes)}.")
    return 0


def _target(
    topic: str | None, broker: int | None, group: str | None, loggers: int | None, *, cluster: bool
) -> _Target:
    chosen: list[_Target] = []
    if topic is not None:
        chosen.append(_Target(TopicResource(topic), f"topic {topic}"))
    if broker is not None:
        chosen.append(_Target(BrokerResource(broker), f"broker {broker}"))
    if group is not None:
        chosen.append(_Target(GroupResource(group), f"group {group}"))
    if loggers is not None:
        chosen.append(_Target(LoggerResource(loggers), f"loggers of broker {loggers}"))
    if cluster:
        chosen.append(_Target(ClusterDefaults(), "all brokers"))
    if len(chosen) != 1:
        raise ConfigError(
            "say whose settings: one of --topic NAME, --group ID, --broker ID, --loggers ID, "
            "--cluster"
        )
    return chosen[0]


def _configs(admin: Admin, target: _Target) -> tuple[ConfigValue, ...]:
    try:
        return admin.configs(target.resource)
    except RequestFailed as error:
        raise _worded(error, target) from error


def _worded(error: RequestFailed, target: _Target) -> RequestFailed:
    if isinstance(target.resource, TopicResource) and error.is_unknown_topic:
        return unknown_topic(target.resource.name, error)
    return error


def _headline(target: _Target, *, shown: int, known: int) -> str:
    if isinstance(target.resource, ClusterDefaults):
        return f"{target.name}: {shown or 'no'} setting{'' if shown == 1 else 's'}"
    if shown == known:
        return f"{target.name}: {known} settings"
    return f"{target.name}: {shown or 'none'} of {known} settings not at default; --all shows all"


def _shown(value: ConfigValue) -> str | None:
    if value.is_sensitive:
        return "(hidden)"
    if value.not_in_force is not None:
        return f"{value.value} ({value.not_in_force} is set, not in force)"
    return value.value


def _as_json(value: ConfigValue) -> dict[str, object]:
    described: dict[str, object] = {
        "name": value.name,
        "value": value.value,
        "source": value.source,
        "read_only": value.is_read_only,
        "sensitive": value.is_sensitive,
    }
    if value.not_in_force is not None:
        described["not_in_force"] = value.not_in_force
    return described
