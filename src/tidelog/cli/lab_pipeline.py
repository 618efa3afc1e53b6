"""`tidelog lab pipeline`: a Spark job under kill -9, with a verdict."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import LabFolder, lab_folder
from tidelog.cli.lab_verdicts import records_progress, show_verdicts
from tidelog.cli.options import JsonOption
from tidelog.cli.output import complain, duration_text, print_heading, print_json, print_line
from tidelog.lab.errors import StartCancelled
from tidelog.lab.pipeline_schedule import PlannedKill, plan_kills
from tidelog.pipeline.registration import ExtraMissing, require_extra

if TYPE_CHECKING:
    from tidelog.lab.pipeline_run import PipelineOutcome

_BROKER_COUNT: Final = 3
_PARTITION_COUNT: Final = 4


class Job(StrEnum):
    """What the job does."""

    COPY = "copy"
    ARCHIVE = "archive"


def run(
    *,
    job: Annotated[
        Job, typer.Option(help="Stream to another topic, or archive as Parquet.")
    ] = Job.COPY,
    records: Annotated[int, typer.Option(min=1, help="Records of the input.")] = 200_000,
    count: Annotated[
        int, typer.Option("--kills", min=0, help="How often a process of the job is killed.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="The same kills for the same seed.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="An empty folder to keep everything in.",
            show_default="one that is removed if all is well",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Run a Spark job while it and its brokers are killed with kill -9, and count.

    Starts a cluster of its own and a streaming job that copies a topic, or archives it. The job's
    driver, its JVM and its Python workers are killed at random, and brokers in between; a job that
    has ended is started again. In the end each record must be there once and in order. Exit 1 if
    it is not so.
    """
    try:
        require_extra()
    except ExtraMissing as missing:
        complain(str(missing), command="tidelog lab pipeline")
        return 2
    kills = plan_kills(seed, kill_count=count, record_count=records)
    with lab_folder(data) as folder, Interrupts() as interrupts:
        try:
            outcome = _run(folder.path, kills, interrupts, job=job, records=records)
        except StartCancelled:
            complain("interrupted", command="tidelog lab pipeline")
            return 130
        folder.is_kept = folder.is_kept or not outcome.is_good
        if as_json:
            print_json(_as_json(outcome))
        else:
            _show(outcome, seed, folder)
    return 0 if outcome.is_good else 1


def _run(
    folder: Path,
    kills: tuple[PlannedKill, ...],
    interrupts: Interrupts,
    *,
    job: Job,
    records: int,
) -> "PipelineOutcome":
    from tidelog.lab import pipeline_run as lab  # noqa: PLC0415 - loads clients
    from tidelog.lab.exactly_once import Watcher  # noqa: PLC0415
    from tidelog.lab.mortal_cluster import MortalCluster  # noqa: PLC0415
    from tidelog.lab.plan import SQLITE  # noqa: PLC0415

    is_cancelled = interrupts.at_least(1)
    cluster = MortalCluster(folder, SQLITE, is_cancelled)
    with records_progress(records) as on_progress:
        try:
            on_progress("starting the cluster", 0)
            cluster.start(_BROKER_COUNT, lab.SETTINGS)
            outcome = lab.PipelineLab(
                lab.PipelineRun(
                    kind=job.value,
                    folder=folder,
                    record_count=records,
                    partition_count=_PARTITION_COUNT,
                    broker_count=_BROKER_COUNT,
                    kills=kills,
                ),
                cluster,
                Watcher(on_progress, is_cancelled),
            ).run()
        finally:
            stopped = cluster.stop()
    outcome.problems += stopped
    return outcome


def _show(outcome: "PipelineOutcome", seed: int, folder: LabFolder) -> None:
    show_verdicts(outcome.verdicts, outcome.problems)
    found = sum(verdict.found for verdict in outcome.verdicts)
    print_line(
        f"{len(outcome.killed)} kills in {duration_text(outcome.took_s)} (seed {seed}): "
        f"{found:,} records; the job was started {outcome.started} times."
    )
    if outcome.is_good:
        print_heading("Every record came through exactly once and in order.")
    else:
        print_heading(f"Something went wrong; {folder.path} has the logs of everybody.")


def _as_json(outcome: "PipelineOutcome") -> dict[str, object]:
    return {
        "good": outcome.is_good,
        "kills": outcome.killed,
        "took_s": round(outcome.took_s, 3),
        "started": outcome.started,
        "partitions": [asdict(verdict) for verdict in outcome.verdicts],
        "problems": outcome.problems,
    }
