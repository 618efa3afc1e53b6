"""What a person sees while faults happen: brokers, leaders, in-sync sets, and the last faults."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.cli.output import is_terminal

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

    from tidelog.lab.faults import FaultRun
    from tidelog.lab.injector import BegunFault
    from tidelog.lab.observations import Moment

_FAULTS_SHOWN: Final = 6
_REFRESHES_PER_S: Final = 5


class LiveView:
    """Shows nothing. Used where no person looks."""

    def __init__(self) -> None:
        self.began_at = time.monotonic()

    def on_fault(self, begun: "BegunFault") -> None:
        """A fault happens."""

    def on_progress(self, doing: str, moment: "Moment | None") -> None:
        """Something else is going on."""


@contextmanager
def live_view(run: "FaultRun") -> Iterator[LiveView]:
    """One that is drawn if somebody looks."""
    if not is_terminal(sys.stderr):
        yield LiveView()
        return

    from rich.console import Console  # noqa: PLC0415 - only for terminals
    from rich.live import Live  # noqa: PLC0415

    drawn = _Drawn(len(run.faults))
    with Live(
        get_renderable=drawn.render,
        console=Console(stderr=True),
        refresh_per_second=_REFRESHES_PER_S,
        transient=True,
    ):
        yield drawn


class _Drawn(LiveView):
    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._doing = ""
        self._moment: Moment | None = None
        self._done = 0
        self._last: deque[str] = deque(maxlen=_FAULTS_SHOWN)

    def on_fault(self, begun: "BegunFault") -> None:
        self._done = begun.fault.number
        at_s = begun.at - self.began_at
        self._last.append(f"{at_s:7.1f} s  {begun.as_line()}")

    def on_progress(self, doing: str, moment: "Moment | None") -> None:
        self._doing = doing
        self._moment = moment

    def render(self) -> "Group":
        from rich.console import Group  # noqa: PLC0415
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        moment = self._moment
        acknowledged = 0 if moment is None else moment.acknowledged
        head = Text(
            f"{self._done} of {self._total} faults, {acknowledged:,} records acknowledged, "
            f"{time.monotonic() - self.began_at:.0f} s: {self._doing}"
        )
        bar = ProgressBar(total=self._total, completed=self._done, width=60)
        parts: list[RenderableType] = [head, bar]
        if moment is not None:
            parts += [_brokers(moment), _partitions(moment)]
        return Group(*parts, *(Text(line, style="dim") for line in self._last))


def _brokers(moment: "Moment") -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for column in ("BROKER", "PROCESS", "CONTROLLER", "LEADS", "IN SYNC"):
        table.add_column(column)
    for broker_id in moment.broker_ids:
        is_alive = broker_id in moment.alive
        table.add_row(
            str(broker_id),
            "[green]up[/]" if is_alive else "[red]down[/]",
            "yes" if broker_id == moment.controller_id else "",
            str(sum(each.leader == broker_id for each in moment.partitions)),
            str(sum(broker_id in each.isr for each in moment.partitions)),
        )
    return table


def _partitions(moment: "Moment") -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for column in ("PARTITION", "LEADER", "ISR", "OUT OF SYNC"):
        table.add_column(column)
    for each in moment.partitions:
        missing = [replica for replica in each.replicas if replica not in each.isr]
        table.add_row(
            str(each.partition),
            "[red]none[/]" if each.leader is None else str(each.leader),
            _listed(each.isr),
            f"[yellow]{_listed(missing)}[/]" if missing else "",
        )
    return table


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
