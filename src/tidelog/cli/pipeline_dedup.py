"""`tidelog pipeline dedup`: a topic without its duplicates."""

from enum import StrEnum
from typing import Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from tidelog.cli.pipeline_running import (
    AllowLossOption,
    CheckpointOption,
    ConfOption,
    GroupOption,
    GuaranteeOption,
    Job,
    KafkaOption,
    MasterOption,
    OnceOption,
    exit_code,
    print_outcome,
    require_other_topic,
    running,
    spark_duration,
)
from tidelog.client.record_fields import parse_field


class Time(StrEnum):
    """By which an id is forgotten."""

    TIMESTAMP = "timestamp"
    ARRIVAL = "arrival"


def run(
    source: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The topic to write to.")],
    *,
    checkpoint: CheckpointOption,
    identity: Annotated[
        str,
        typer.Option(
            "--id", metavar="header:NAME|key|json:$.PATH", help="What is the same in duplicates."
        ),
    ],
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = "local[*]",
    is_once: OnceOption = False,
    watermark: Annotated[
        str, typer.Option(metavar="TIME", help="How far apart duplicates may be.")
    ] = "10m",
    event_time: Annotated[
        Time,
        typer.Option(
            "--time",
            help="Of what: the timestamps of records, where those that are older than that are "
            "dropped as late, or their arrival, where none is late.",
        ),
    ] = Time.TIMESTAMP,
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="Write to the same numbers; else keys decide."),
    ] = False,
    batch_records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records of a micro-batch at most.")
    ] = 200_000,
    allow_loss: AllowLossOption = False,
    group: GroupOption = None,
    guarantee: GuaranteeOption = None,
    kafka: KafkaOption = [],  # noqa: B006 - typer copies it
    conf: ConfOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> int:
    """Copy a topic without the records whose id was there before, exactly once.

    Keys, headers and timestamps are kept, and the order of each partition. Records without an id
    are kept and counted. Ids are remembered for --watermark; what is older than that is counted as
    late, and dropped.
    """
    job = Job(
        name="dedup", bootstrap=bootstrap, master=master, kafka=kafka, conf=conf, is_json=as_json
    )
    field = parse_field("--id", identity)
    apart = spark_duration("--watermark", watermark)
    require_other_topic(source, target)
    with running(job) as run:
        from tidelog.pipeline.dedup import EventTime, dedup_topic  # noqa: PLC0415 - loads pyspark

        outcome = dedup_topic(
            run.spark,
            source=source,
            target=target,
            kafka=job.sink_options(guarantee),
            field=field,
            watermark=apart,
            terms=run.terms(checkpoint, is_once=is_once),
            event_time=EventTime(event_time.value),
            keeps_partitions=keep_partitions,
            batch_records=batch_records,
            group=group,
            allows_loss=allow_loss,
        )
    counts = outcome.counts
    written = outcome.row_count - counts.get("duplicates", 0) - counts.get("late", 0)
    print_outcome(job, outcome, {"written": written})
    return exit_code(outcome, is_once=is_once)
