"""`tidelog groups`: who reads what, how far they are, and where they go on."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.completion import complete_group
from tidelog.cli.group_reset import chosen_reset, parse_scope
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import Cell, complain, print_heading, print_json, print_line, print_table
from tidelog.cli.topics import unknown_topic
from tidelog.client.errors import RequestFailed
from tidelog.client.group_values import (
    GroupDescription,
    GroupListing,
    GroupPosition,
    PartitionKey,
)
from tidelog.client.groups import Groups
from tidelog.client.offset_reset import PlannedOffset, Reset, ToGiven

_STATES: Final = (
    "stable",
    "empty",
    "preparing rebalancing",
    "completing rebalancing",
    "assigning",
    "reconciling",
    "dead",
    "unknown",
)
_KINDS: Final = ("classic", "consumer")

GroupArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=complete_group, show_default=False)
]
GroupsArgument: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="GROUP...", autocompletion=complete_group, show_default=False)
]
ScopeOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--topic", metavar="TOPIC[:PARTITION,...]", help="Of this topic; may be repeated."
    ),
]


def register(app: typer.Typer) -> None:
    groups = typer.Typer(
        no_args_is_help=True, help="List, describe, reset and delete consumer groups."
    )
    groups.command("list")(list_)
    groups.command("describe")(describe)
    groups.command("reset")(reset)
    groups.command("delete")(delete)
    groups.command("delete-offsets")(delete_offsets)
    app.add_typer(groups, name="groups", rich_help_panel=Panel.CLUSTER)


def list_(
    *,
    state: Annotated[
        str | None, typer.Option(help="Only those in this state: stable, empty, ...")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--type", help="Only those of this type: classic or consumer.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """List groups; with --json, one object per line."""
    wanted_state = None if state is None else _one_of("--state", state, _STATES)
    wanted_kind = None if kind is None else _one_of("--type", kind, _KINDS)
    with Groups(bootstrap) as groups:
        listings = [
            group
            for group in groups.listings()
            if wanted_state in {None, group.state} and wanted_kind in {None, group.kind}
        ]
    if as_json:
        for group in listings:
            print_json(_listing(group))
        return 0
    print_table(
        ["GROUP", "TYPE", "STATE"], [[each.group_id, each.kind, each.state] for each in listings]
    )
    return 0


def _one_of(option: str, text: str, words: tuple[str, ...]) -> str:
    """The word that is meant, in whichever case, and as Kafka's tools or ours write it."""
    word = text.lower().replace("-", " ").replace("_", " ")
    if word not in words:
        raise ConfigError(f"{option} is '{text}' but must be one of {', '.join(words)}")
    return word


def describe(
    names: GroupsArgument,
    *,
    members: Annotated[
        bool, typer.Option("--members", help="The members rather than the offsets.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Show how far groups are, and who is in them. Exit 1 if one does not exist."""
    with Groups(bootstrap) as groups:
        for name in names:
            group = groups.require(name)
            positions = groups.positions(group)
            if as_json:
                print_json(_as_json(group, positions))
                continue
            print_heading(_headline(group, positions))
            if members:
                _print_members(group)
            elif positions:
                _print_positions(group, positions)
    return 0


def reset(
    name: GroupArgument,
    *,
    topics: ScopeOption = [],  # noqa: B006 - typer copies it
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Of every topic that it has offsets of.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="This offset.")] = None,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="The first record there is.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="After the last record there is.")
    ] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is now.")] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The first record since, as in 2026-03-01T12:00:00Z."),
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(metavar="PnDTnHnMnS", help="The first record so long ago.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="So many records on, or back if negative.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines of topic,partition,offset.")
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute/--dry-run", help="Do it, or only show what would be done."),
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Change where a group without members goes on. Without --execute, only show it.

    Exit 1 if the group has members. With --json, one object per partition.
    """
    wanted = chosen_reset(
        to_offset=to_offset,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_current=to_current,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
    )
    scope = _scope(wanted, topics, all_topics=all_topics)
    with Groups(bootstrap) as groups:
        _require_inactive(groups, name)
        keys = _partitions(groups, name, wanted, scope)
        plan = groups.plan(name, wanted, keys)
        _require_led(keys, plan)
        if execute:
            groups.set_offsets(name, {each.key: each.after for each in plan})
    _print_plan(name, plan, is_done=execute, as_json=as_json)
    return 0


def delete(
    names: GroupsArgument,
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Delete groups without members, with their offsets. Exit 1 if one was not deleted."""
    failed = False
    with Groups(bootstrap) as groups:
        for name in names:
            try:
                groups.delete(name)
            except RequestFailed as error:
                complain(_worded(error, name), command="tidelog groups delete")
                failed = True
                continue
            if as_json:
                print_json({"group": name, "deleted": True})
            else:
                print_line(f"Deleted group {name}.")
    return 1 if failed else 0


def delete_offsets(
    name: GroupArgument,
    *,
    topics: ScopeOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Forget a group's offsets of topics that none of its members subscribes to."""
    with Groups(bootstrap) as groups:
        groups.require(name)
        committed = groups.committed(name)
        keys = [key for key in committed if _is_meant(key, parse_scope(topics))]
        if not keys:
            raise ConfigError(f"group {name} has no offsets there")
        try:
            groups.delete_offsets(name, keys)
        except RequestFailed as error:
            raise RequestFailed(error.code_name, _worded(error, name)) from error
    if as_json:
        for key in sorted(keys):
            print_json({"topic": key.topic, "partition": key.partition, "deleted": True})
    else:
        print_line(f"Deleted {len(keys)} offset{'' if len(keys) == 1 else 's'} of group {name}.")
    return 0


# -- reset ---------------------------------------------------------------------------------------


def _scope(
    wanted: Reset, topics: Sequence[str], *, all_topics: bool
) -> Mapping[str, list[int] | None] | None:
    """Topics and partitions that were named; None for all that the group has offsets of."""
    if isinstance(wanted, ToGiven):
        if topics or all_topics:
            raise ConfigError("--from-file names the partitions, so there is nothing to add")
        return None
    if bool(topics) == all_topics:
        raise ConfigError("say whose offsets: --topic TOPIC, or --all-topics")
    return None if all_topics else parse_scope(topics)


def _require_inactive(groups: Groups, name: str) -> None:
    (group,) = groups.describe([name])
    if group.is_active:
        raise RequestFailed(
            "NON_EMPTY_GROUP",
            f"group {name} is {group.state} with {_counted(len(group.members), 'member')}; "
            "its offsets can change when the last one has left",
        )


def _partitions(
    groups: Groups,
    name: str,
    wanted: Reset,
    scope: Mapping[str, list[int] | None] | None,
) -> list[PartitionKey]:
    if isinstance(wanted, ToGiven):
        return sorted(wanted.offsets)
    if scope is None:
        committed = sorted(groups.committed(name))
        if not committed:
            raise RequestFailed("GROUP_ID_NOT_FOUND", f"group {name} has no offsets")
        return committed
    keys = []
    for topic, numbers in scope.items():
        known = _partition_count(groups, topic)
        chosen = range(known) if numbers is None else numbers
        for number in chosen:
            if number >= known:
                raise ConfigError(f"{topic} has partitions 0 to {known - 1}, and not {number}")
            keys.append(PartitionKey(topic, number))
    return keys


def _partition_count(groups: Groups, topic: str) -> int:
    try:
        (described,) = groups.admin.describe_topics([topic])
    except RequestFailed as error:
        raise unknown_topic(topic, error) if error.is_unknown_topic else error from error
    return len(described.partitions)


def _require_led(keys: Iterable[PartitionKey], plan: Sequence[PlannedOffset]) -> None:
    missing = sorted(set(keys) - {each.key for each in plan})
    if missing:
        raise RequestFailed(
            "LEADER_NOT_AVAILABLE", f"{missing[0]} is not there or has no leader; nothing was done"
        )


def _print_plan(name: str, plan: Sequence[PlannedOffset], *, is_done: bool, as_json: bool) -> None:
    if as_json:
        for each in plan:
            print_json(
                {
                    "group": name,
                    "topic": each.key.topic,
                    "partition": each.key.partition,
                    "before": each.before,
                    "after": each.after,
                    "done": is_done,
                }
            )
        return
    print_table(
        ["TOPIC", "PARTITION", "BEFORE", "AFTER", ""],
        [
            [each.key.topic, each.key.partition, each.before, each.after, _remark(each)]
            for each in plan
        ],
    )
    if not is_done:
        print_line("Nothing was changed; --execute does it.")


def _remark(each: PlannedOffset) -> str:
    return "" if each.after == each.asked_for else f"{each.asked_for} is outside the log"


def _is_meant(key: PartitionKey, scope: Mapping[str, list[int] | None]) -> bool:
    if key.topic not in scope:
        return False
    numbers = scope[key.topic]
    return numbers is None or key.partition in numbers


# -- how it is shown -----------------------------------------------------------------------------


def _worded(error: RequestFailed, name: str) -> str:
    match error.code_name:
        case "GROUP_ID_NOT_FOUND":
            return f"there is no group {name}"
        case "NON_EMPTY_GROUP":
            return f"group {name} has members; stop them first"
        case "GROUP_SUBSCRIBED_TO_TOPIC":
            return f"members of group {name} subscribe to that topic; stop them first"
        case _:
            return str(error)


def _listing(group: GroupListing) -> dict[str, object]:
    return {"group": group.group_id, "type": group.kind, "state": group.state}


def _headline(group: GroupDescription, positions: Sequence[GroupPosition]) -> str:
    if group.is_dead:
        return f"group {group.group_id}: offsets only, lag {_total_lag(positions):,}"
    facts = [group.state, group.kind, group.assignor]
    words = ", ".join(fact for fact in facts if fact)
    where = "" if group.coordinator_id is None else f", coordinator {group.coordinator_id}"
    members = _counted(len(group.members), "member")
    return f"group {group.group_id}: {words}{where}; {members}, lag {_total_lag(positions):,}"


def _total_lag(positions: Sequence[GroupPosition]) -> int:
    return sum(position.lag or 0 for position in positions)


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _print_positions(group: GroupDescription, positions: Sequence[GroupPosition]) -> None:
    owners = group.owners
    rows: list[list[Cell]] = []
    for each in positions:
        owner = owners.get(each.key)
        rows.append(
            [
                each.key.topic,
                each.key.partition,
                each.committed,
                each.end_offset,
                each.lag,
                None if owner is None else owner.client_id,
                None if owner is None else owner.host,
            ]
        )
    print_table(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST"], rows)


def _print_members(group: GroupDescription) -> None:
    print_table(
        ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"],
        [
            [
                member.member_id,
                member.instance_id,
                member.client_id,
                member.host,
                ", ".join(map(str, member.partitions)) or None,
            ]
            for member in group.members
        ],
    )


def _as_json(group: GroupDescription, positions: Sequence[GroupPosition]) -> dict[str, object]:
    owners = group.owners
    return {
        "group": group.group_id,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator_id,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host,
                "partitions": [[each.topic, each.partition] for each in member.partitions],
            }
            for member in group.members
        ],
        "lag": _total_lag(positions),
        "offsets": [
            {
                "topic": each.key.topic,
                "partition": each.key.partition,
                "committed": each.committed,
                "end_offset": each.end_offset,
                "lag": each.lag,
                "member": owners[each.key].member_id if each.key in owners else None,
            }
            for each in positions
        ],
    }
