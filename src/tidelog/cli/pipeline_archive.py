"""`tidelog pipeline archive`: a topic as Parquet files, exactly once."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from tidelog.cli.output import (
    is_terminal,
    print_heading,
    print_json,
    print_line,
    print_table,
    size_text,
)
from tidelog.cli.pipeline_running import (
    INTERRUPTED,
    AllowLossOption,
    ConfOption,
    GroupOption,
    Job,
    KafkaOption,
    MasterOption,
    OnceOption,
    Running,
    duration_ms,
    exit_code,
    print_outcome,
    running,
    size_bytes,
)

if TYPE_CHECKING:
    from tidelog.pipeline.archive import Archiver, ArchiveReport, ArchiveSettings
    from tidelog.pipeline.running import Outcome


def run(
    topic: Annotated[str, typer.Argument(help="What to archive.")],
    target: Annotated[
        str, typer.Argument(metavar="DIR", help="Where the archive is, or shall be.")
    ],
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = "local[*]",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where the manifest is kept, by which a run goes on.",
            show_default="in the archive",
        ),
    ] = None,
    is_once: OnceOption = False,
    target_size: Annotated[
        str, typer.Option(metavar="SIZE", help="How large files shall be.")
    ] = "128MB",
    max_delay: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long records may wait for a file to be worth it; none do with --once.",
        ),
    ] = "10m",
    values: Annotated[
        str | None,
        typer.Option(
            metavar="raw|json|DDL",
            help="Values as they are, or as JSON of the schema that records have or that is given "
            "('id BIGINT, name STRING'), with the bytes of those that it does not say all of.",
            show_default="as the archive has them; raw in a new one",
        ),
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Merge small files, and end.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Say whether the archive is complete, and end.")
    ] = False,
    allow_loss: AllowLossOption = False,
    group: GroupOption = None,
    kafka: KafkaOption = [],  # noqa: B006 - typer copies it
    conf: ConfOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> int:
    """Write a topic to Parquet files by date and hour, each record once.

    Files are written when there is enough for one, or when records have waited for long enough;
    with --once, of all that is there when it starts, however little. Small ones are merged later.
    What counts is what the manifest names. A run may be killed at any point; the next one goes on
    where the manifest ends. Exit 1 if --check finds anything.
    """
    if compact and check:
        raise ConfigError("--compact and --check cannot be asked for at once")
    if group is not None and (compact or check):
        raise ConfigError("--group is told how far a run is: leave it out with --check, --compact")
    job = Job(
        name="archive",
        bootstrap=bootstrap,
        master=master,
        kafka=kafka,
        conf=conf,
        is_json=as_json,
    )
    target_bytes = size_bytes("--target-size", target_size)
    delay_s = duration_ms("--max-delay", max_delay) / 1000
    if check:
        return _check(job, topic, target, checkpoint)
    with running(job) as run:
        from tidelog.pipeline.archive import (  # noqa: PLC0415 - loads pyarrow
            ArchiveSettings,
            archive_topic,
        )

        settings = ArchiveSettings(
            topic=topic,
            root=target,
            kafka=job.kafka_options,
            value_schema=_schema_wanted(values),
            manifest_root=checkpoint,
            target_bytes=target_bytes,
            max_delay_s=delay_s,
            allows_loss=allow_loss,
        )
        if compact:
            return _compact(job, run, settings)
        outcome, archiver = archive_topic(
            run.spark,
            settings,
            is_once=is_once,
            group=group,
            on_progress=run.show,
            is_stopped=run.is_stopped,
        )
    _show(job, archiver, outcome, settings)
    return exit_code(outcome, is_once=is_once)


def _check(job: Job, topic: str, target: str, checkpoint: str | None) -> int:
    with running(job) as run:
        from tidelog.pipeline.archive import (  # noqa: PLC0415 - loads pyarrow
            check_archive,
            require_archive,
        )

        require_archive(topic, target, manifest_root=checkpoint)
        with _bar(job, "checked", "files") as show:
            report = check_archive(run.spark, target, manifest_root=checkpoint, on_progress=show)
    _show_report(report, as_json=job.is_json)
    return 0 if report.is_complete else 1


def _schema_wanted(values: str | None) -> str | None:
    from tidelog.pipeline.archive.archiver import INFER  # noqa: PLC0415 - loads pyarrow

    return INFER if values == "json" else values


def _compact(job: Job, run: Running, settings: "ArchiveSettings") -> int:
    from tidelog.pipeline.archive import open_archive, require_archive  # noqa: PLC0415

    require_archive(settings.topic, settings.root, manifest_root=settings.manifest_root)
    archiver = open_archive(run.spark, settings)
    before = sum(1 for _ in archiver.manifest.files())
    small = archiver.small_chunk_count()
    with _bar(job, "merged", "chunks") as show:
        merged = archiver.compact(on_progress=show, is_stopped=run.is_stopped)
    now = sum(1 for _ in archiver.manifest.files())
    if job.is_json:
        done = {"done": True, "pipeline": "archive"}
        print_json({**done, "merged": merged, "files_before": before, "files": now})
    else:
        print_table(["CHUNKS MERGED", "FILES BEFORE", "FILES NOW"], [[merged, before, now]])
    return 0 if merged == small else INTERRUPTED


@contextmanager
def _bar(job: Job, done: str, things: str) -> Iterator[Callable[[int, int], None]]:
    """How many there are of all, for a person who waits."""
    if job.is_json or not is_terminal(sys.stderr):
        yield lambda _done, _all: None
        return
    from rich import progress  # noqa: PLC0415 - only for terminals
    from rich.console import Console  # noqa: PLC0415

    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(things),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(f"{job.name}: {done}", total=None)
        yield lambda count, of_all: drawn.update(task, completed=count, total=of_all)


def _show(job: Job, archiver: "Archiver", outcome: "Outcome", settings: "ArchiveSettings") -> None:
    manifest = archiver.manifest
    files = list(manifest.files())
    size = sum(each.size_bytes for each in files)
    if job.is_json:
        print_outcome(job, outcome, {"archive_files": len(files), "archive_bytes": size})
        return
    print_outcome(job, outcome, {})
    print_line()
    print_line(
        f"{settings.root} has {sum(each.record_count for each in files):,} records of "
        f"{manifest.info.topic} in {len(files):,} files, {size_text(size)}."
    )


def _show_report(report: "ArchiveReport", *, as_json: bool) -> None:
    if as_json:
        for each in report.partitions:
            print_json(
                {
                    "partition": each.partition,
                    "start_offset": each.start_offset,
                    "end_offset": each.end_offset,
                    "chunks": each.chunk_count,
                    "files": each.file_count,
                    "records": each.record_count,
                    "bytes": each.size_bytes,
                }
            )
        print_json(
            {
                "done": True,
                "pipeline": "archive",
                "topic": report.topic,
                "complete": report.is_complete,
                "problems": list(report.problems),
            }
        )
        return
    print_table(
        ["PARTITION", "START", "END", "CHUNKS", "FILES", "RECORDS", "SIZE"],
        [
            [
                each.partition,
                each.start_offset,
                each.end_offset,
                each.chunk_count,
                each.file_count,
                each.record_count,
                size_text(each.size_bytes),
            ]
            for each in report.partitions
        ],
    )
    print_line()
    for problem in report.problems:
        print_line(f"  {problem}")
    print_heading(
        f"The archive of {report.topic} is complete: no gap, no overlap, no file missing."
        if report.is_complete
        else f"The archive of {report.topic} is not complete."
    )
