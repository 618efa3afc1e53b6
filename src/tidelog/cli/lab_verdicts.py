"""What commands of the lab show while records go through, and of what came out."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.cli.output import is_terminal, print_line, print_table

if TYPE_CHECKING:
    from tidelog.lab.exactly_once_verdict import TransformVerdict

_PROBLEMS_SHOWN_MAX: Final = 20
_COLUMNS: Final = ("expected", "found", "lost", "repeated", "reordered", "unexpected")


@contextmanager
def records_progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """Call it with what is being done, and how many records are through."""
    if not is_terminal(sys.stderr):
        yield lambda _doing, _through: None
        return

    from rich import progress  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,} of {task.total:,} records"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.description}"),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("", total=total)
        yield lambda doing, through: drawn.update(task, description=doing, completed=through)


def show_verdicts(verdicts: "Sequence[TransformVerdict]", problems: Sequence[str]) -> None:
    """A table of partitions, and what is wrong with them."""
    print_table(
        ["PARTITION", *map(str.upper, _COLUMNS)],
        [
            [verdict.partition, *(getattr(verdict, column) for column in _COLUMNS)]
            for verdict in verdicts
        ],
    )
    print_line()
    found = [
        *problems,
        *(
            f"partition {verdict.partition}: {example}"
            for verdict in verdicts
            for example in verdict.examples
        ),
    ]
    for problem in found[:_PROBLEMS_SHOWN_MAX]:
        print_line(f"  {problem}")
    if len(found) > _PROBLEMS_SHOWN_MAX:
        print_line(f"  and {len(found) - _PROBLEMS_SHOWN_MAX} more")
    if found:
        print_line()
