"""`tidelog sim`: whole clusters in virtual time, each from one seed, with faults and checkers.

Seeds run in processes of their own, because some of what Python does depends on a number that can
only be given when an interpreter starts: with it, the same seed does the same, always.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.options import JsonOption, Panel
from tidelog.cli.output import is_terminal, print_json, print_line
from tidelog.sim.guests import Guest

if TYPE_CHECKING:
    from tidelog.sim.simulation import RunPlan, RunResult

HASH_SEED: Final = "PYTHONHASHSEED"
HISTORY_LINES_SHOWN: Final = 80

Advance = Callable[[int], None]
"""One more seed is done; so many have failed by now."""


def register(app: typer.Typer) -> None:
    app.command("sim", rich_help_panel=Panel.LOCAL)(run)


def run(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 10,
    first: Annotated[int, typer.Option("--from", min=0, help="The first seed.")] = 1,
    brokers: Annotated[int, typer.Option(min=1, max=9, help="Brokers in each cluster.")] = 3,
    minutes: Annotated[
        float, typer.Option(min=0.05, max=600, help="Simulated minutes of faults for each seed.")
    ] = 1.0,
    guests: Annotated[
        list[Guest] | None,
        typer.Option("--with", help="Who else uses the cluster; may be given more than once."),
    ] = None,
    aims_at_coordinators: Annotated[
        bool,
        typer.Option(
            "--aim-at-coordinators",
            help="Aim faults at coordinators of groups and transactions, too.",
        ),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, max=64, help="Seeds run at once.", show_default="cores")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write histories of failed seeds.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Run clusters under faults in a simulator, and check what they promise.

    Every seed is a cluster of its own: the brokers are the real ones, network, disks, clocks and
    coordinator are simulated. A seed that fails prints what happened and fails in the same way when
    it is run again. Exit 1 if one does.
    """
    from tidelog.sim.simulation import RunPlan  # noqa: PLC0415

    plans = [
        RunPlan(
            seed=seed,
            broker_count=brokers,
            duration_s=60 * minutes,
            guests=frozenset(guests or ()),
            aims_at_coordinators=aims_at_coordinators,
        )
        for seed in range(first, first + seeds)
    ]
    started = time.monotonic()
    failed: list[RunResult] = []
    totals = _Totals()
    with _progress(len(plans)) as advance:
        for result in _results(plans, jobs or os.cpu_count() or 1):
            totals.add(result)
            if result.failure is not None:
                failed.append(result)
                _show_failure(result, plans[0], history, as_json=as_json)
            elif as_json:
                print_json(_as_json(result))
            advance(len(failed))
    if not as_json:
        _summarise(totals, failed, minutes, time.monotonic() - started)
    return 1 if failed else 0


class _Totals:
    def __init__(self) -> None:
        self.seeds = 0
        self.sent = 0
        self.acknowledged = 0
        self.consumed = 0
        self.faults = 0
        self.excused = 0

    def add(self, result: "RunResult") -> None:
        self.seeds += 1
        self.sent += result.sent
        self.acknowledged += result.acknowledged
        self.consumed += result.consumed
        self.faults += sum(result.faults.values())
        self.excused += result.excused


def _results(plans: "list[RunPlan]", jobs: int) -> "Iterator[RunResult]":
    before = os.environ.get(HASH_SEED)
    os.environ[HASH_SEED] = "0"
    try:
        with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
            running = [pool.submit(_simulate, plan) for plan in plans]
            try:
                for done in as_completed(running):
                    yield done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        if before is None:
            del os.environ[HASH_SEED]
        else:
            os.environ[HASH_SEED] = before


def _simulate(plan: "RunPlan") -> "RunResult":
    """In a process of its own."""
    from tidelog.sim.simulation import simulate  # noqa: PLC0415

    result = simulate(plan)
    return result if result.failure is not None else replace(result, history="")


@contextmanager
def _progress(total: int) -> Iterator[Advance]:
    if not is_terminal(sys.stderr):
        yield _nothing
        return

    from rich import progress  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.TextColumn("simulating"),
        progress.BarColumn(),
        progress.TextColumn("{task.completed:,} of {task.total:,} seeds"),
        progress.TextColumn("{task.fields[failed]} failed"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task("", total=total, failed=0)

        def advance(failed: int) -> None:
            drawn.update(task, advance=1, failed=failed)

        yield advance


def _nothing(_failed: int) -> None:
    """Nobody looks."""


def _show_failure(
    result: "RunResult", plan: "RunPlan", folder: Path | None, *, as_json: bool
) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed-{result.seed}.txt").write_text(result.history, "utf-8")
    if as_json:
        print_json(_as_json(result))
        return
    how = "with compiled shortcuts" if result.is_compiled else "all in Python"
    print_line(f"seed {result.seed} FAILED ({how}): {result.failure}")
    lines = result.history.splitlines()
    print_line(f"  the last {min(len(lines), HISTORY_LINES_SHOWN)} of {len(lines)} lines:")
    for line in lines[-HISTORY_LINES_SHOWN:]:
        print_line(f"  {line}")
    guests = "".join(f" --with {name}" for name in sorted(one.value for one in plan.guests))
    aim = " --aim-at-coordinators" if plan.aims_at_coordinators else ""
    print_line(
        f"  again: tidelog sim --seeds 1 --from {result.seed} --brokers {plan.broker_count} "
        f"--minutes {plan.duration_s / 60:g}{guests}{aim} --history DIR"
    )


def _as_json(result: "RunResult") -> dict[str, object]:
    return {
        "seed": result.seed,
        "compiled": result.is_compiled,
        "failure": result.failure,
        "digest": result.digest,
        "sent": result.sent,
        "acknowledged": result.acknowledged,
        "consumed": result.consumed,
        "faults": dict(result.faults),
        "excused": result.excused,
    }


def _summarise(totals: _Totals, failed: "list[RunResult]", minutes: float, took_s: float) -> None:
    print_line(
        f"{totals.seeds} seeds of {minutes:g} simulated min in {took_s:.1f} s "
        f"({3600 * totals.seeds / max(took_s, 0.001):,.0f} an hour): "
        f"{totals.sent:,} records sent, {totals.acknowledged:,} acknowledged, "
        f"{totals.consumed:,} consumed, {totals.faults:,} faults"
    )
    if totals.excused:
        print_line(
            f"{totals.excused} partitions excused: every in-sync disk had lost power at once"
        )
    if failed:
        print_line(f"{len(failed)} failed: seeds {', '.join(str(one.seed) for one in failed)}")
    else:
        print_line("Every promise held.")
