"""`tidelog lab`: faults in a cluster of its own, under load, with a verdict."""

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli import lab_exactly_once, lab_pipeline
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import LabFolder
from tidelog.cli.lab_session import FolderOption, run_lab, show_conclusion
from tidelog.cli.options import Coordination, CoordinationOption, JsonOption, Panel
from tidelog.cli.output import (
    Cell,
    duration_text,
    is_terminal,
    print_json,
    print_line,
    print_table,
)
from tidelog.lab.fault_schedule import schedule

if TYPE_CHECKING:
    from tidelog.lab.faults import FaultRun, InjectedFault, Outcome

_BROKER_COUNT_MAX: Final = 9
_PROBLEMS_SHOWN_MAX: Final = 20


def register(app: typer.Typer) -> None:
    lab = typer.Typer(no_args_is_help=True, help="Break a cluster on purpose, and see.")
    lab.command("faults")(faults)
    lab.command("exactly-once")(lab_exactly_once.run)
    lab.command("pipeline")(lab_pipeline.run)
    app.add_typer(lab, name="lab", rich_help_panel=Panel.LOCAL)


def faults(
    *,
    count: Annotated[int, typer.Option(min=1, help="How many faults.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The same faults for the same seed.")] = 1,
    coordination: CoordinationOption = Coordination.SQLITE,
    brokers: Annotated[
        int, typer.Option(min=3, max=_BROKER_COUNT_MAX, help="Brokers in the cluster.")
    ] = 3,
    partitions: Annotated[int, typer.Option(min=1, max=100, help="Partitions of its topic.")] = 6,
    at_once: Annotated[
        int, typer.Option(min=1, max=_BROKER_COUNT_MAX, help="Brokers a fault may take at once.")
    ] = 1,
    data: FolderOption = None,
    as_json: JsonOption = False,
) -> int:
    """Kill, pause and restart brokers under load, and check that nothing is lost.

    Starts a cluster of its own. Idempotent producers with acks=all and consumers use a topic of
    three replicas, of which two must be in sync, while leaders, followers, controllers and
    ZooKeeper's leader are killed with kill -9, stopped and continued, or restarted cleanly. In the
    end everything that was acknowledged must be there, once and in order, and the replicas must be
    equal byte for byte. Exit 1 if anything is not so.
    """
    from tidelog.lab.faults import SESSION_TIMEOUT_S, FaultRun  # noqa: PLC0415 - loads clients

    if at_once > brokers:
        raise ConfigError(f"--at-once is {at_once} but there are only {brokers} brokers")
    planned = schedule(
        seed,
        fault_count=count,
        partition_count=partitions,
        at_once_max=at_once,
        session_timeout_s=SESSION_TIMEOUT_S,
        has_ensemble=coordination is Coordination.ZOOKEEPER,
    )

    def in_folder(folder: Path, interrupts: Interrupts) -> "Outcome":
        run = FaultRun(
            folder=folder,
            coordination=coordination,
            broker_count=brokers,
            partition_count=partitions,
            seed=seed,
            faults=planned,
        )
        return _run(run, interrupts, as_json=as_json)

    def show(outcome: "Outcome", folder: LabFolder) -> None:
        if as_json:
            print_json(_as_json(outcome))
        else:
            _show(outcome, seed, folder)

    return run_lab("tidelog lab faults", data, in_folder, show)


def _run(run: "FaultRun", interrupts: Interrupts, *, as_json: bool) -> "Outcome":
    from tidelog.lab.faults import Watcher, run_faults  # noqa: PLC0415

    with _progress(len(run.faults)) as live:

        def on_fault(injected: "InjectedFault") -> None:
            live.on_fault(injected)
            if as_json:
                print_json(_fault_as_json(injected))
                sys.stdout.flush()

        return run_faults(run, Watcher(live.on_progress, on_fault, interrupts.at_least(1)))


class _Live:
    """Shows nothing. Used where no person looks."""

    def on_fault(self, injected: "InjectedFault") -> None:
        """A fault is about to happen."""

    def on_progress(self, doing: str, acknowledged: int) -> None:
        """Something else is going on."""


@contextmanager
def _progress(total: int) -> Iterator[_Live]:
    if not is_terminal(sys.stderr):
        yield _Live()
        return

    from rich import progress  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.completed} of {task.total} faults"),
        progress.TextColumn("{task.fields[acknowledged]:,} acknowledged"),
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.description}"),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("", total=total, acknowledged=0)

        class Drawn(_Live):
            def on_fault(self, injected: "InjectedFault") -> None:
                drawn.update(task, completed=injected.fault.number)

            def on_progress(self, doing: str, acknowledged: int) -> None:
                drawn.update(task, description=doing, acknowledged=acknowledged)

        yield Drawn()


def _show(outcome: "Outcome", seed: int, folder: LabFolder) -> None:
    rows: list[list[Cell]] = [
        [kind, len(gaps), _gap_text(statistics.median(gaps)), _gap_text(max(gaps))]
        for kind, gaps in sorted(outcome.gaps_by_kind().items())
    ]
    if rows:
        print_table(["FAULT", "COUNT", "MEDIAN GAP", "LONGEST GAP"], rows)
        print_line()
    if not outcome.is_good:
        _show_problems(outcome)
    print_line(
        f"{len(outcome.injected)} faults in {duration_text(outcome.took_s)} (seed {seed}): "
        f"{outcome.sent:,} records sent, {outcome.acknowledged:,} acknowledged; longest time "
        f"without an acknowledgement {_gap_text(outcome.longest_gap_s)}."
    )
    show_conclusion(
        outcome,
        folder,
        good="Nothing was lost, doubled or out of order, and the replicas are equal byte for byte.",
    )


def _show_problems(outcome: "Outcome") -> None:
    columns = ["stored", "acknowledged", "lost", "duplicated", "reordered", "unexpected", "undone"]
    print_table(
        ["PARTITION", *map(str.upper, columns), "REPLICAS"],
        [
            [
                verdict.partition,
                *(getattr(verdict, column) for column in columns),
                "equal" if verdict.difference is None else "differ",
            ]
            for verdict in outcome.verdicts
        ],
    )
    print_line()
    problems = [
        *outcome.problems,
        *(
            f"partition {verdict.partition}: {example}"
            for verdict in outcome.verdicts
            for example in (*verdict.examples, verdict.difference)
            if example is not None
        ),
    ]
    for problem in problems[:_PROBLEMS_SHOWN_MAX]:
        print_line(f"  {problem}")
    if len(problems) > _PROBLEMS_SHOWN_MAX:
        print_line(f"  and {len(problems) - _PROBLEMS_SHOWN_MAX} more")
    print_line()


def _gap_text(seconds: float) -> str:
    """Shorter ones than the workload notes down are none."""
    return f"{1_000 * seconds:,.0f} ms" if seconds else "none"


def _fault_as_json(injected: "InjectedFault") -> dict[str, object]:
    return {
        "fault": injected.fault.number,
        "kind": injected.fault.kind,
        "victims": injected.victims,
        "at_s": round(injected.at_s, 3),
        "away_s": round(injected.fault.away_s, 3),
        "waits_for_sync": injected.fault.waits_for_sync,
    }


def _as_json(outcome: "Outcome") -> dict[str, object]:
    return {
        "good": outcome.is_good,
        "faults": len(outcome.injected),
        "took_s": round(outcome.took_s, 3),
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "longest_gap_s": round(outcome.longest_gap_s, 3),
        "gaps_s": {
            kind: [round(gap_s, 3) for gap_s in gaps]
            for kind, gaps in sorted(outcome.gaps_by_kind().items())
        },
        "partitions": [asdict(verdict) for verdict in outcome.verdicts],
        "problems": outcome.problems,
    }
