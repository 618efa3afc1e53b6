"""A lab from the command line: its folder, its cluster, what it says, and the exit code.

0  everything is as it should be        1  it is not, and the folder with all logs is kept
130  somebody has interrupted it
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeAlias, TypeVar

import typer

from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import LabFolder, lab_folder
from tidelog.cli.lab_verdicts import records_progress
from tidelog.cli.output import complain, print_heading
from tidelog.lab.errors import StartCancelled

if TYPE_CHECKING:
    from tidelog.lab.local_cluster import LocalCluster
    from tidelog.lab.passage import PassageOutcome, Watcher

FolderOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="An empty folder to keep everything in.",
        show_default="one that is removed if all is well",
    ),
]


class Judged(Protocol):
    """What a lab hands back."""

    @property
    def is_good(self) -> bool: ...


JudgedT = TypeVar("JudgedT", bound=Judged)
PassageOutcomeT = TypeVar("PassageOutcomeT", bound="PassageOutcome")


def run_lab(
    command: str,
    data: Path | None,
    run: Callable[[Path, Interrupts], JudgedT],
    show: Callable[[JudgedT, LabFolder], None],
) -> int:
    """`run` in the folder, `show` what came of it; the exit code."""
    with lab_folder(data) as folder, Interrupts() as interrupts:
        try:
            outcome = run(folder.path, interrupts)
        except StartCancelled:
            complain("interrupted", command=command)
            return 130
        folder.is_kept = folder.is_kept or not outcome.is_good
        show(outcome, folder)
    return 0 if outcome.is_good else 1


def run_on_cluster(
    folder: Path,
    interrupts: Interrupts,
    run: "Callable[[LocalCluster, Watcher], PassageOutcomeT]",
    *,
    broker_count: int,
    coordination: str,
    settings: Mapping[str, str],
    record_count: int,
) -> PassageOutcomeT:
    """`run` on a cluster that is started for it and stopped behind it."""
    from tidelog.lab.local_cluster import LocalCluster  # noqa: PLC0415 - loads clients
    from tidelog.lab.passage import Watcher  # noqa: PLC0415

    is_cancelled = interrupts.at_least(1)
    cluster = LocalCluster.of_tidelog(folder, coordination, is_cancelled)
    with records_progress(record_count) as on_progress:
        try:
            on_progress("starting the cluster", 0)
            cluster.start(broker_count, settings)
            outcome = run(cluster, Watcher(on_progress, is_cancelled))
        finally:
            stopped = cluster.stop()
    outcome.problems += stopped
    return outcome


def show_conclusion(outcome: Judged, folder: LabFolder, *, good: str) -> None:
    """One sentence, the last one."""
    if outcome.is_good:
        print_heading(good)
    else:
        print_heading(f"Something went wrong; {folder.path} has the logs of everybody.")


def passage_as_json(
    outcome: "PassageOutcome", *, happened_as: str, figures: Mapping[str, object]
) -> dict[str, object]:
    """`figures` are what this lab alone has."""
    return {
        "good": outcome.is_good,
        happened_as: outcome.happened,
        "took_s": round(outcome.took_s, 3),
        **figures,
        "partitions": [asdict(verdict) for verdict in outcome.verdicts],
        "problems": outcome.problems,
    }
