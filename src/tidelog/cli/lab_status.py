"""`tidelog lab status`: brokers, leaders, in-sync sets, cut links and full disks, once or live."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.brokers import cluster_folder
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.options import DataOption, JsonOption
from tidelog.cli.output import Cell, is_terminal, print_json, print_line, print_table
from tidelog.lab.errors import LabError

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from tidelog.client.values import PartitionDescription
    from tidelog.lab.cluster_look import BrokerLook, ClusterLook
    from tidelog.lab.local_cluster import LocalCluster

_INTERVAL_S: Final = 0.3
_POLL_INTERVAL_S: Final = 0.05
_INTERNAL: Final = "__"
_BROKER_COLUMNS: Final = ("BROKER", "PROCESS", "CONTROLLER", "LEADS", "IN SYNC", "DISK")
_PARTITION_COLUMNS: Final = ("PARTITION", "LEADER", "ISR", "OUT OF SYNC")
_LINK_COLUMNS: Final = ("LINK", "STATE")
_STYLES: Final = {"up": "green", "down": "red", "paused": "yellow", "none": "red", "full": "red"}
# Lines of the live view that are no partitions: headings, blanks, what is left out.
_OTHER_LINES: Final = 7
_PARTITIONS_MIN: Final = 3

Table = tuple[Sequence[str], Sequence[Sequence[Cell]]]


def register(lab: typer.Typer) -> None:
    lab.command("status", rich_help_panel="On a cluster that runs")(run)


def run(
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on showing it, until Ctrl-C.")
    ] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show brokers, leaders and in-sync replicas, cut links and full disks.

    Internal topics are shown where something is amiss. Exit 1 if anything is, and --watch is not
    given. With --watch and --json there is a line for each change.
    """
    from tidelog.lab.cluster_look import look_at  # noqa: PLC0415 - loads clients
    from tidelog.lab.local_cluster import LocalCluster  # noqa: PLC0415

    folder = cluster_folder(data)
    with Interrupts() as interrupts:
        is_over = interrupts.at_least(1)

        def find() -> "LocalCluster":
            return LocalCluster.find(folder, is_over)

        look = look_at(find())
        show = _print_json if as_json else _print_text
        if not watch:
            show(look)
            return 0 if look.is_well else 1
        if is_terminal(sys.stdout) and not as_json:
            _draw(find, is_over)
        else:
            for changed in _changes(find, is_over):
                show(changed)
                sys.stdout.flush()
    return 0


def _looks(
    find: "Callable[[], LocalCluster]", is_over: Callable[[], bool]
) -> "Iterator[ClusterLook]":
    """One after the other, until somebody has seen enough or the cluster is no more."""
    from tidelog.lab.cluster_look import look_at  # noqa: PLC0415

    while not is_over():
        try:
            yield look_at(find())
        except LabError:
            return  # It was stopped while it was looked at.
        next_at = time.monotonic() + _INTERVAL_S
        while (left_s := next_at - time.monotonic()) > 0 and not is_over():
            time.sleep(min(left_s, _POLL_INTERVAL_S))


def _changes(
    find: "Callable[[], LocalCluster]", is_over: Callable[[], bool]
) -> "Iterator[ClusterLook]":
    before: ClusterLook | None = None
    for look in _looks(find, is_over):
        if look != before:
            yield look
        before = look


# -- plain ---------------------------------------------------------------------------------------


def _print_text(look: "ClusterLook") -> None:
    for columns, rows in _tables(look, _shown_partitions(look)):
        print_table(columns, rows)
        print_line()
    if not look.has_answer:
        print_line("No broker answers.")


def _tables(
    look: "ClusterLook", partitions: "Sequence[tuple[str, PartitionDescription]]"
) -> Iterator[Table]:
    yield _BROKER_COLUMNS, [_broker_row(look, broker) for broker in look.brokers]
    if partitions:
        yield _PARTITION_COLUMNS, [_partition_row(name, each) for name, each in partitions]
    if look.links:
        yield (
            _LINK_COLUMNS,
            [
                [f"{link.a} - {link.b}", "cut" if link.is_cut else f"{link.delay_ms} ms slower"]
                for link in look.links
            ],
        )


def _broker_row(look: "ClusterLook", broker: "BrokerLook") -> list[Cell]:
    held = [each for each in look.partitions.values() if broker.id in each.replicas]
    in_sync = sum(broker.id in each.isr for each in held)
    disk = {None: "shared", False: "has room", True: "full"}[broker.has_full_disk]
    return [
        str(broker.id),
        broker.state,
        "yes" if broker.id == look.controller_id else "",
        sum(each.leader == broker.id for each in held) if look.has_answer else None,
        f"{in_sync} of {len(held)}" if look.has_answer else None,
        disk,
    ]


def _partition_row(name: str, partition: "PartitionDescription") -> list[Cell]:
    missing = [each for each in partition.replicas if each not in partition.isr]
    return [
        name,
        "none" if partition.leader is None else str(partition.leader),
        _ids(partition.isr),
        _ids(missing),
    ]


def _shown_partitions(look: "ClusterLook") -> "list[tuple[str, PartitionDescription]]":
    """By name; of internal topics those only that lack something."""
    from tidelog.lab.cluster_look import is_lacking  # noqa: PLC0415

    return [
        (f"{topic}-{number}", each)
        for (topic, number), each in sorted(look.partitions.items())
        if not topic.startswith(_INTERNAL) or is_lacking(each)
    ]


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))


# -- JSON ----------------------------------------------------------------------------------------


def _print_json(look: "ClusterLook") -> None:
    print_json(
        {
            "well": look.is_well,
            "controller": look.controller_id,
            "brokers": [
                {
                    "id": broker.id,
                    "process": broker.state,
                    "controller": broker.id == look.controller_id,
                    "full_disk": broker.has_full_disk,
                }
                for broker in look.brokers
            ],
            "partitions": [
                {
                    "topic": topic,
                    "partition": number,
                    "leader": each.leader,
                    "replicas": each.replicas,
                    "isr": each.isr,
                }
                for (topic, number), each in sorted(look.partitions.items())
            ],
            "links": [
                {"between": [link.a, link.b], "cut": link.is_cut, "slower_ms": link.delay_ms}
                for link in look.links
            ],
        }
    )


# -- live ----------------------------------------------------------------------------------------


def _draw(find: "Callable[[], LocalCluster]", is_over: Callable[[], bool]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for terminals
    from rich.live import Live  # noqa: PLC0415

    console = Console(highlight=False, no_color=bool(os.environ.get("NO_COLOR")))
    with Live(console=console, auto_refresh=False) as live:
        for look in _looks(find, is_over):
            live.update(render(look, line_count=console.size.height), refresh=True)


def render(look: "ClusterLook", *, line_count: int) -> "Group":
    """The live view, in so many lines at most; what lacks something is shown first."""
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from tidelog.lab.cluster_look import is_lacking  # noqa: PLC0415

    room = line_count - len(look.brokers) - len(look.links) - _OTHER_LINES
    partitions = sorted(_shown_partitions(look), key=lambda each: not is_lacking(each[1]))
    shown = partitions[: max(_PARTITIONS_MIN, room)]
    parts: list[RenderableType] = []
    for columns, rows in _tables(look, shown):
        parts += [_drawn(columns, rows), Text()]
    left_out = len(partitions) - len(shown)
    if left_out:
        parts.append(Text(f"and {left_out:,} more partitions", style="dim"))
    what = "No broker answers." if not look.has_answer else "Ctrl-C ends."
    return Group(*parts, Text(what, style="dim"))


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> "RenderableType":
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, min_width=len(column), no_wrap=True)
    for row in rows:
        words = ["-" if cell is None else str(cell) for cell in row]
        styles = [
            "yellow" if column == "OUT OF SYNC" else _STYLES.get(word, "")
            for column, word in zip(columns, words, strict=True)
        ]
        table.add_row(*(Text(word, style) for word, style in zip(words, styles, strict=True)))
    return table
