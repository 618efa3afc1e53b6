"""A progress line on stderr, for a person at a terminal and for nobody else."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.cli.output import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

_UPDATE_INTERVAL_S: Final = 0.1


class Counts(Protocol):
    """What is shown: records handed over, and those of them that arrived."""

    sent: int

    @property
    def acknowledged(self) -> int: ...


class Progress:
    """Shows nothing. Used where no person looks."""

    def update(self, counts: Counts) -> None:
        """Called whenever records were handed over."""

    def finish(self, counts: Counts) -> None:
        """Called when the last record is acknowledged."""


class DrawnProgress(Progress):
    """A bar that moves a few times per second."""

    def __init__(self, drawn: "RichProgress", task: "TaskID") -> None:
        self._drawn = drawn
        self._task = task
        self._started = time.monotonic()
        self._next_update_at = 0.0

    def update(self, counts: Counts) -> None:
        if time.monotonic() >= self._next_update_at:
            self.finish(counts)
            self._next_update_at = time.monotonic() + _UPDATE_INTERVAL_S

    def finish(self, counts: Counts) -> None:
        per_s = counts.acknowledged / max(time.monotonic() - self._started, 0.001)
        self._drawn.update(self._task, completed=counts.acknowledged, per_s=per_s)


@contextmanager
def progress_of(title: str, total: int | None) -> Iterator[Progress]:
    """A bar if stderr is a terminal and stdin is not: who types lines wants to see them."""
    is_typing = total is None and is_terminal(sys.stdin)
    if not is_terminal(sys.stderr) or is_typing:
        yield Progress()
        return

    from rich import progress  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,} records"),
        progress.TextColumn("{task.fields[per_s]:,.0f}/s"),
        progress.TimeRemainingColumn() if total else progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        yield DrawnProgress(drawn, drawn.add_task(title, total=total, per_s=0.0))
