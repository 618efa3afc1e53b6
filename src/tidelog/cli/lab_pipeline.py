"""`tidelog lab pipeline`: a Spark job under kill -9, with a verdict."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.cli.interrupts import Interrupts
from tidelog.cli.lab_folder import LabFolder
from tidelog.cli.lab_session import (
    FolderOption,
    passage_as_json,
    run_lab,
    run_on_cluster,
    show_conclusion,
)
from tidelog.cli.lab_verdicts import show_verdicts
from tidelog.cli.options import JsonOption
from tidelog.cli.output import complain, duration_text, print_json, print_line
from tidelog.lab.pipeline_schedule import PlannedKill, Victim, plan_kills
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
    data: FolderOption = None,
    as_json: JsonOption = False,
) -> int:
    """Run a Spark job while it and its brokers are killed with kill -9, and count.

    Starts a cluster of its own and a streaming job that copies a topic, or archives it. The job's
    driver, its JVM and its Python workers are killed at random, and brokers too, which are away
    then while the job is killed, or are back before; a job that has ended is started again. In the
    end each record must be there once and in order. Exit 1 if it is not so.
    """
    try:
        require_extra()
    except ExtraMissing as missing:
        complain(str(missing), command="tidelog lab pipeline")
        return 2
    kills = plan_kills(seed, kill_count=count, record_count=records)

    command = f"tidelog lab pipeline --job {job} --records {records} --kills {count} --seed {seed}"

    def in_folder(folder: Path, interrupts: Interrupts) -> "PipelineOutcome":
        return _run(folder, kills, interrupts, job=job, records=records)

    def show(outcome: "PipelineOutcome", folder: LabFolder) -> None:
        if as_json:
            asked = {"command": command, "job": job, "records": records, "seed": seed}
            print_json(
                passage_as_json(outcome, happened_as="kills", figures=asked | figures(outcome))
            )
        else:
            show_outcome(outcome, command, folder)

    return run_lab("tidelog lab pipeline", data, in_folder, show)


def _run(
    folder: Path,
    kills: tuple[PlannedKill, ...],
    interrupts: Interrupts,
    *,
    job: Job,
    records: int,
) -> "PipelineOutcome":
    from tidelog.lab import pipeline_run as lab  # noqa: PLC0415 - loads clients
    from tidelog.lab.plan import SQLITE  # noqa: PLC0415

    run = lab.PipelineRun(
        kind=job.value,
        folder=folder,
        record_count=records,
        partition_count=_PARTITION_COUNT,
        broker_count=_BROKER_COUNT,
        kills=kills,
    )
    return run_on_cluster(
        folder,
        interrupts,
        lambda cluster, watcher: lab.PipelineLab(run, cluster, watcher).run(),
        broker_count=_BROKER_COUNT,
        coordination=SQLITE,
        settings=lab.SETTINGS,
        record_count=records,
    )


def show_outcome(outcome: "PipelineOutcome", command: str, folder: LabFolder) -> None:
    """For people. `command` has it happen again."""
    show_verdicts(outcome.verdicts, outcome.problems)
    jobs, brokers = _killed(outcome)
    kinds = ", ".join(f"{victim} {count}" for victim, count in jobs.items())
    found = sum(verdict.found for verdict in outcome.verdicts)
    print_line(
        f"{sum(jobs.values())} kills of the job ({kinds}), {outcome.amid_outages} of them while a "
        f"broker was away; {brokers} of brokers."
    )
    print_line(
        f"{found:,} records in {duration_text(outcome.took_s)}; the job was started "
        f"{outcome.started} times."
    )
    print_line(f"Again: {command}")
    show_conclusion(outcome, folder, good="Every record came through exactly once and in order.")


def figures(outcome: "PipelineOutcome") -> dict[str, object]:
    """What is counted over all partitions, and of kills."""
    jobs, brokers = _killed(outcome)
    verdicts = outcome.verdicts
    return {
        "started": outcome.started,
        "job_kills": jobs,
        "broker_kills": brokers,
        "job_kills_amid_outages": outcome.amid_outages,
        **{
            name: sum(getattr(verdict, name) for verdict in verdicts)
            for name in ("found", "lost", "repeated", "reordered", "unexpected")
        },
    }


def _killed(outcome: "PipelineOutcome") -> tuple[dict[Victim, int], int]:
    """How often who of the job was, and how often a broker."""
    jobs = {victim: outcome.killed[victim] for victim in Victim}
    return jobs, jobs.pop(Victim.BROKER)
