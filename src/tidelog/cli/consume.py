"""`tidelog consume`: print records, from anywhere to anywhere, or as a member of a consumer group.

Records of one partition come in order; between partitions there is none. Without --follow the end
is looked up before the first record is read, so a busy topic does not keep the command running.

With --group the group's commits say where to start, and what was printed is committed; so the
range cannot be chosen but for a group that has not committed anything.
"""

import select
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, BinaryIO, Final, Protocol

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.completion import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import complain
from tidelog.cli.positions import (
    AtBeginning,
    AtEnd,
    AtOffset,
    AtTimestamp,
    Position,
    offsets_of,
    parse_position,
    resolve_ranges,
)
from tidelog.cli.record_json import record_to_json
from tidelog.cli.topics import unknown_topic
from tidelog.client.admin import Admin
from tidelog.client.errors import ClientError, RequestFailed
from tidelog.client.group_reader import GroupReader
from tidelog.client.reader import FetchedRecord, OffsetRange, RangeReader
from tidelog.client.values import OffsetBounds

# How long Ctrl-C, or the end of whoever reads our output, may go unnoticed.
_POLL_S: Final = 0.25


Render = Callable[[Iterable[FetchedRecord]], bytes]


class GroupProtocol(StrEnum):
    """How members of a group agree on who reads what."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class _Reader(Protocol):
    @property
    def is_done(self) -> bool: ...

    def read(self, *, timeout_s: float) -> list[FetchedRecord]: ...


def register(app: typer.Typer) -> None:
    app.command("consume", rich_help_panel=Panel.RECORDS)(run)


def run(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)
    ],
    *,
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="POSITION", help="beginning, end, an offset, or a time (ISO or ms)."
        ),
    ] = "beginning",
    to: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="Stop before this offset or time, or at the end as it is now.",
            show_default="end; nowhere with --follow",
        ),
    ] = None,
    partitions: Annotated[
        list[int],
        typer.Option(
            "--partition", "-p", min=0, help="Only this one; may be repeated.", show_default="all"
        ),
    ] = [],  # noqa: B006 - typer copies it
    max_: Annotated[
        int | None, typer.Option("--max", "-n", min=0, help="Stop after so many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as records arrive, until Ctrl-C.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Join this consumer group: go on where it stopped, and commit what was shown.",
            show_default="none",
        ),
    ] = None,
    group_protocol: Annotated[
        GroupProtocol,
        typer.Option(help="Who assigns partitions: a member, or the coordinator (KIP-848)."),
    ] = GroupProtocol.CLASSIC,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Print the key as well, and this between the two."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Print the records of a topic, one per line.

    With --json, one object per line with partition, offset, timestamp, key, value and headers;
    bytes that are not UTF-8 are base64, marked by key_encoding, value_encoding or encoding.
    """
    start = parse_position("--from", from_)
    end = None if to is None else parse_position("--to", to)
    if follow and isinstance(end, AtEnd):
        raise ConfigError("--follow goes on after the end, so --to cannot be end")
    render = _renderer(as_json=as_json, key_separator=key_separator)
    if group is not None:
        if end is not None or partitions or not isinstance(start, AtBeginning | AtEnd):
            raise ConfigError(
                "the group decides what is read: --group does not go with --to, --partition, "
                "or a --from other than beginning or end"
            )
        reset = "earliest" if isinstance(start, AtBeginning) else "latest"
        _require_topic(bootstrap, topic)
        with GroupReader(
            bootstrap,
            topic,
            group,
            protocol=group_protocol.value,
            reset=reset,
            is_following=follow,
        ) as member:
            _show(member, render, max_, is_following=follow, on_shown=member.on_shown)
        return 0
    ranges = _ranges(bootstrap, topic, partitions, start=start, end=end, is_following=follow)
    with RangeReader(
        bootstrap,
        topic,
        ranges,
        is_following=follow,
        expected_records=max_,
        on_skipped=_say_skipped,
    ) as reader:
        _show(reader, render, max_, is_following=follow, on_shown=None)
    return 0


def _show(
    reader: _Reader,
    render: Render,
    record_count_max: int | None,
    *,
    is_following: bool,
    on_shown: Callable[[Sequence[FetchedRecord]], None] | None,
) -> None:
    """`on_shown` is told of records when whoever reads our output has them."""
    output = sys.stdout.buffer
    try:
        _print_records(
            reader, render, output, record_count_max, is_following=is_following, on_shown=on_shown
        )
    except KeyboardInterrupt:
        if not is_following:
            raise


def _require_topic(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        _choose_partitions(admin, topic, [])


def _ranges(
    bootstrap: str,
    topic: str,
    partitions: list[int],
    *,
    start: Position,
    end: Position | None,
    is_following: bool,
) -> dict[int, OffsetRange]:
    with Admin(bootstrap) as admin:
        chosen = _choose_partitions(admin, topic, partitions)
        bounds = admin.offset_bounds(topic, chosen)
        for partition in chosen:
            if partition not in bounds:
                raise ClientError(f"partition {partition} of {topic} has no leader at the moment")
        starts = _offsets(admin, topic, start, bounds)
        ends = None if end is None else _offsets(admin, topic, end, bounds)
    if isinstance(start, AtOffset):
        _tell_of_moved_starts(topic, start.offset, bounds)
    return resolve_ranges(bounds, starts=starts, ends=ends, is_following=is_following)


def _choose_partitions(admin: Admin, topic: str, wanted: list[int]) -> list[int]:
    try:
        (described,) = admin.describe_topics([topic])
    except RequestFailed as error:
        raise unknown_topic(topic, error) if error.is_unknown_topic else error from error
    known = [partition.partition for partition in described.partitions]
    for partition in wanted:
        if partition not in known:
            raise ClientError(f"{topic} has no partition {partition}, only 0 to {known[-1]}")
    return sorted(set(wanted)) or known


def _offsets(
    admin: Admin, topic: str, position: Position, bounds: Mapping[int, OffsetBounds]
) -> dict[int, int]:
    at_timestamp: Mapping[int, int | None] = {}
    if isinstance(position, AtTimestamp):
        at_timestamp = admin.offsets_at(topic, bounds, timestamp_ms=position.timestamp_ms)
    return offsets_of(position, bounds, at_timestamp=at_timestamp)


def _tell_of_moved_starts(topic: str, offset: int, bounds: Mapping[int, OffsetBounds]) -> None:
    for partition, bound in bounds.items():
        if offset < bound.start_offset:
            complain(
                f"partition {partition} of {topic} starts at offset {bound.start_offset}, "
                f"so what was before that is not shown",
                command="tidelog consume",
            )


def _print_records(
    reader: _Reader,
    render: Render,
    output: BinaryIO,
    record_count_max: int | None,
    *,
    is_following: bool,
    on_shown: Callable[[Sequence[FetchedRecord]], None] | None,
) -> None:
    remaining = record_count_max
    while not reader.is_done and remaining != 0:
        records = reader.read(timeout_s=_POLL_S)
        if remaining is not None:
            records = records[:remaining]
            remaining -= len(records)
        if records:
            output.write(render(records))
        else:
            _require_reader_of(output)
        if is_following or on_shown is not None:
            output.flush()
        if on_shown is not None:
            on_shown(records)
    output.flush()


def _say_skipped(partition: int, removed: OffsetRange) -> None:
    assert removed.end_offset is not None
    complain(
        f"offsets {removed.start_offset} to {removed.end_offset - 1} of partition {partition} "
        "were removed before they could be read",
        command="tidelog consume",
    )


def _require_reader_of(output: BinaryIO) -> None:
    """End like a write would if whoever read our output is gone; an idle topic writes nothing."""
    poll = select.poll()
    poll.register(output, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


def _renderer(*, as_json: bool, key_separator: str | None) -> Render:
    if as_json:
        return _json_lines
    if key_separator is None:
        return _value_lines
    separator = key_separator.encode()
    return lambda records: b"".join(
        b"%b%b%b\n" % (record.key or b"", separator, record.value or b"") for record in records
    )


def _json_lines(records: Iterable[FetchedRecord]) -> bytes:
    return "".join(f"{record_to_json(record)}\n" for record in records).encode()


def _value_lines(records: Iterable[FetchedRecord]) -> bytes:
    return b"".join(b"%b\n" % (record.value or b"") for record in records)
