"""`tidelog pipeline verify`: a log judged by its ledger, or replicas by each other (X5)."""

import logging
import os
import signal
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from tidelog.cli.output import Cell, print_heading, print_json, print_line, print_table, size_text
from tidelog.cli.pipeline_running import ConfOption, Job, KafkaOption, MasterOption, running
from tidelog.cli.pipeline_tasks import tasks_shown
from tidelog.client.record_fields import DEFAULT_ID_FIELD, RecordField, parse_field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipeline.verify import Problem, ReplicasReport, VerifyReport

# All ids are shuffled once, so parts are as many as for any large job; Spark joins small ones.
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions=200"
_PARTITIONS_SHOWN_MAX: Final = 50


class Allowed(StrEnum):
    """What may be so without the verdict being bad."""

    LOST = "lost"
    ALTERED = "altered"
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    MOVED = "moved"
    UNEXPECTED = "unexpected"
    BEHIND = "behind"


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC|DIR]...",
            help="Topics to judge; with --replicas, folders to compare.",
            show_default=False,
        ),
    ] = None,
    *,
    ledgers: Annotated[
        list[str],
        typer.Option(
            "--ledger",
            metavar="PATH",
            help="What producers were told: a file, or a folder of them; may be repeated.",
        ),
    ] = [],  # noqa: B006 - typer copies it
    paths: Annotated[
        list[str],
        typer.Option(
            "--path",
            metavar="DIR",
            help="Read segments from there, and not from brokers; may be repeated.",
        ),
    ] = [],  # noqa: B006
    is_of_replicas: Annotated[
        bool,
        typer.Option("--replicas", help="Compare the replicas that are in these folders."),
    ] = False,
    id_text: Annotated[
        str,
        typer.Option(
            "--id", metavar="key|header:NAME|json:$.PATH", help="Where records have their ids."
        ),
    ] = str(DEFAULT_ID_FIELD),
    allowed: Annotated[
        list[Allowed],
        typer.Option("--allow", help="What may be so in a clean log; may be repeated."),
    ] = [],  # noqa: B006
    examples: Annotated[
        int, typer.Option(min=1, max=1_000, help="Of each problem in each partition.")
    ] = 5,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a report there as well.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = "local[*]",
    kafka: KafkaOption = [],  # noqa: B006
    conf: ConfOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> int:
    """Find records that are lost, altered, duplicated, out of order, elsewhere or unexpected.

    Ledgers of producers (tidelog produce --ledger) are compared with what topics hold, or with what
    is in folders of segments. With --replicas, the replicas in the folders of several brokers are
    compared with each other, byte by byte, as far as they are committed. Exit 0 if all is well, 1
    if it is not.
    """
    job = Job(
        name="verify",
        bootstrap=bootstrap,
        master=master,
        kafka=kafka,
        conf=[_SHUFFLE_PARTITIONS, *conf],
        is_json=as_json,
    )
    problems = frozenset(allowed)
    _require_place(html)
    if is_of_replicas:
        _require_replicas(names or [], ledgers, paths, problems)
        return _of_replicas(job, names or [], html, is_behind_allowed=Allowed.BEHIND in problems)
    id_field = parse_field("--id", id_text)
    _require_ledger(names or [], ledgers, paths, problems)
    return _of_ledger(job, names or [], ledgers, paths, id_field, problems, examples, html)


def _require_ledger(
    topics: Sequence[str],
    ledgers: Sequence[str],
    paths: Sequence[str],
    allowed: frozenset[Allowed],
) -> None:
    if not ledgers:
        raise ConfigError("say what to judge by: --ledger PATH, or --replicas and folders")
    if not topics and not paths:
        raise ConfigError("name the topics to judge, or --path, where their segments are")
    if Allowed.BEHIND in allowed:
        raise ConfigError("--allow behind is about replicas, but there is no --replicas")


def _require_replicas(
    folders: Sequence[str],
    ledgers: Sequence[str],
    paths: Sequence[str],
    allowed: frozenset[Allowed],
) -> None:
    if ledgers:
        raise ConfigError("--replicas compares folders with each other, so --ledger has no use")
    if paths or not folders:
        raise ConfigError("--replicas is followed by the folders to compare, without --path")
    if others := allowed - {Allowed.BEHIND}:
        raise ConfigError(f"--allow {min(others)} is about a ledger; with --replicas it is behind")


def _of_ledger(
    job: Job,
    topics: Sequence[str],
    ledgers: Sequence[str],
    paths: Sequence[str],
    id_field: RecordField,
    allowed: frozenset[Allowed],
    examples: int,
    html: Path | None,
) -> int:
    with running(job) as started:
        _let_interrupts_end_it()
        from tidelog.pipeline.verify import Problem  # noqa: PLC0415 - loads pyspark
        from tidelog.pipeline.verify.html import verify_html  # noqa: PLC0415

        problems = frozenset(Problem(each.value) for each in allowed)
        with tasks_shown(job, started.spark):
            report = _verified(
                started.spark, job, topics, ledgers, paths, id_field, problems, examples
            )
    if not report.noted:
        raise ConfigError(f"--ledger {', '.join(ledgers)} has no line about what is to be judged")
    about = {
        "topics": ", ".join(topics) or "all",
        "in": ", ".join(paths) or job.bootstrap,
        "ledger": ", ".join(ledgers),
        "ids": str(id_field),
    }
    _write_html(html, lambda: verify_html(report, about=about))
    if job.is_json:
        print_json(report.to_json())
    else:
        _show(report)
    return 0 if report.is_clean else 1


def _verified(
    spark: "SparkSession",
    job: Job,
    topics: Sequence[str],
    ledgers: Sequence[str],
    paths: Sequence[str],
    id_field: RecordField,
    allowed: "frozenset[Problem]",
    examples: int,
) -> "VerifyReport":
    from tidelog.pipeline.verify import read_ledger, verify  # noqa: PLC0415 - loads pyspark
    from tidelog.pipeline.verify.log_source import folders_log, topics_log  # noqa: PLC0415

    ledger = read_ledger(spark, ledgers)
    if paths:
        log = folders_log(spark, paths, topics or None)
    else:
        log = topics_log(spark, topics, job.kafka_options)
    judged = sorted({each.topic for each in log.starts})
    # What cannot be read has no topic, and is counted.
    ledger = ledger.where(ledger["topic"].isin(judged) | ledger["topic"].isNull())
    return verify(
        ledger,
        log.rows,
        id_field=id_field,
        log_starts=log.starts,
        allowed=allowed,
        examples=examples,
    )


def _of_replicas(
    job: Job, folders: Sequence[str], html: Path | None, *, is_behind_allowed: bool
) -> int:
    with running(job) as started:
        _let_interrupts_end_it()
        from tidelog.pipeline.verify import compare_replicas  # noqa: PLC0415 - loads pyspark
        from tidelog.pipeline.verify.html import replicas_html  # noqa: PLC0415

        with tasks_shown(job, started.spark):
            report = compare_replicas(started.spark, folders, is_behind_allowed=is_behind_allowed)
    _write_html(html, lambda: replicas_html(report, about={"folders": ", ".join(folders)}))
    if job.is_json:
        print_json(report.to_json())
    else:
        _show_replicas(report)
    return 0 if report.is_clean else 1


def _let_interrupts_end_it() -> None:
    """There is no work that would have to be finished first."""
    signal.signal(signal.SIGINT, _end)


def _end(_signal_number: int, _frame: FrameType | None) -> None:
    # py4j logs, on two pages, that its conversation with Spark was interrupted.
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


def _require_place(path: Path | None) -> None:
    """Say now what would be said when all is compared."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"--html {path} cannot be written: name a file in a folder that is there")


def _write_html(path: Path | None, page: Callable[[], str]) -> None:
    if path is None:
        return
    try:
        path.write_text(page(), "utf-8")
    except OSError as error:
        raise ConfigError(f"--html {path} cannot be written: {error.strerror}") from error


def _show(report: "VerifyReport") -> None:
    from tidelog.pipeline.verify import Problem  # noqa: PLC0415 - loads pyspark

    wrong = [each for each in report.partitions if any(each.problems.values())]
    shown = report.partitions if len(report.partitions) <= _PARTITIONS_SHOWN_MAX else wrong
    rows: list[list[Cell]] = [
        [
            each.partition.topic,
            each.partition.partition if each.partition.partition >= 0 else None,
            each.stored,
            each.acknowledged,
            *(each.count(problem) for problem in Problem),
        ]
        for each in shown[:_PARTITIONS_SHOWN_MAX]
    ]
    problems = [problem.upper() for problem in Problem]
    print_table(["TOPIC", "PARTITION", "STORED", "ACKNOWLEDGED", *problems], rows)
    if len(rows) < len(report.partitions):
        print_line(f"  {len(report.partitions) - len(rows):,} partitions are not shown")
    print_line()
    for example in report.examples:
        named = f"id {example.shown_id}: " if example.id else ""
        print_line(
            f"  {example.problem}: {example.partition} offset {example.offset}, "
            f"{named}{example.detail}"
        )
    if report.examples:
        print_line()
    _show_verdict(report)


def _show_verdict(report: "VerifyReport") -> None:
    notes = [
        (report.unacknowledged, "were sent and not acknowledged, and may be there or not"),
        (report.expired, "were acknowledged below the start of the log, and have expired"),
        (report.unreadable_lines, "lines of the ledger cannot be read"),
    ]
    for count, what in notes:
        if count:
            print_line(f"{count:,} {what}.")
    found = [f"{count:,} {problem}" for problem, count in report.counts.items() if count]
    compared = f"{report.acknowledged:,} acknowledged, {report.stored:,} stored"
    if report.is_clean:
        allowed = f" ({', '.join(found)}, which is allowed)" if found else ""
        print_heading(f"Clean: {compared}{allowed}.")
    else:
        print_heading(f"Not clean: {', '.join(found)}; {compared}.")


def _show_replicas(report: "ReplicasReport") -> None:
    columns = ["TOPIC", "PARTITION", "REPLICAS", "FROM", "TO", "SIZE"]
    columns += ["DIFFERING BATCHES", "MISSING OFFSETS", "BEHIND"]
    wrong = [each for each in report.partitions if not each.is_equal or each.behind]
    shown = report.partitions if len(report.partitions) <= _PARTITIONS_SHOWN_MAX else wrong
    rows: list[list[Cell]] = [
        [
            *each.partition,
            len(each.replicas),
            each.start_offset,
            each.end_offset,
            size_text(each.compared_bytes),
            each.differing_batches,
            each.missing_offsets,
            each.behind,
        ]
        for each in shown[:_PARTITIONS_SHOWN_MAX]
    ]
    print_table(columns, rows)
    print_line()
    for line in _differences(report):
        print_line(f"  {line}")
    if report.alone:
        print_line(f"{len(report.alone):,} partitions are there once, and were not compared.")
    size = size_text(sum(each.compared_bytes for each in report.partitions))
    count = f"{len(report.partitions):,} partitions, {size} of each replica"
    if report.is_clean:
        print_heading(f"Equal, byte for byte: {count}.")
    else:
        print_heading(f"Not equal: {len(wrong):,} of {count}.")


def _differences(report: "ReplicasReport") -> list[str]:
    lines = []
    for each in report.partitions:
        if each.first_difference is not None:
            lines.append(f"{each.partition} differs from offset {each.first_difference.offset} on")
            lines += [
                f"  {place.file or place.folder} position {place.position}: {place.what}"
                for place in each.first_difference.places
            ]
        lines += [
            f"  {gap.folder} lacks offsets {gap.start_offset} to {gap.end_offset - 1}"
            for gap in each.missing
        ]
        lines += [
            f"{each.partition}: {replica.folder} ends at {replica.end_offset}, "
            f"{replica.behind:,} committed offsets behind; "
            f"{replica.excess_bytes:,} bytes behind that are no batch"
            for replica in each.replicas
            if replica.behind
        ]
    return lines
