"""How far a benchmark is, on stderr, for a person at a terminal and for nobody else."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from tidelog.cli.output import is_terminal


class Live:
    """Shows nothing. Used where no person looks."""

    def on_step(self, doing: str) -> None:
        """A measurement is about to begin."""

    def paused(self) -> AbstractContextManager[None]:
        """Keep out of the way of what is printed meanwhile."""
        return nullcontext()


@contextmanager
def measuring_progress(total: int) -> Iterator[Live]:
    """Call `on_step` before each of `total` measurements."""
    if not is_terminal(sys.stderr):
        yield Live()
        return

    from rich import progress  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.BarColumn(bar_width=24),
        progress.TextColumn("{task.completed} of {task.total}"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}"),
    )
    drawn = progress.Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False
    )
    task = drawn.add_task("starting", total=total)

    class Drawn(Live):
        _begun = 0

        def on_step(self, doing: str) -> None:
            drawn.update(task, description=doing, completed=self._begun)
            self._begun += 1

        @contextmanager
        def paused(self) -> Iterator[None]:
            drawn.stop()
            yield
            drawn.start()

    with drawn:
        yield Drawn()
