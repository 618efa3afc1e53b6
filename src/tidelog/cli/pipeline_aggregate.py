"""`tidelog pipeline aggregate`: counts, sums and percentiles of a topic in windows of time."""

from typing import Annotated

import typer

from tidelog.base.errors import ConfigError
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
    duration_ms,
    exit_code,
    print_outcome,
    require_other_topic,
    running,
    spark_duration,
)
from tidelog.client.record_fields import JsonField, parse_field
from tidelog.pipeline.aggregation import Aggregation, Mode, Output


def run(
    source: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A topic, or a folder.")],
    *,
    checkpoint: CheckpointOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = "local[*]",
    is_once: OnceOption = False,
    output: Annotated[Output, typer.Option("--to", help="What the target is.")] = Output.TOPIC,
    mode: Annotated[
        Mode,
        typer.Option(
            help="A row whenever it has changed, or once, when its window is over for good."
        ),
    ] = Mode.APPEND,
    window: Annotated[str, typer.Option(metavar="TIME", help="How long a window is.")] = "1m",
    slide: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How far apart windows begin.",
            show_default="one begins where the last ends",
        ),
    ] = None,
    watermark: Annotated[str, typer.Option(metavar="TIME", help="How late records may be.")] = "1m",
    group_by: Annotated[
        str | None,
        typer.Option("--by", metavar="key|header:NAME|json:$.PATH", help="A row for each of it."),
    ] = None,
    value: Annotated[
        str | None,
        typer.Option(
            metavar="key|header:NAME|json:$.PATH",
            help="A number: its sum, average and percentiles are written too.",
        ),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="json:$.PATH",
            help="Milliseconds since 1970, or an ISO timestamp.",
            show_default="the timestamp of the record",
        ),
    ] = None,
    percentiles: Annotated[
        str, typer.Option(metavar="P,...", help="Which ones, in percent; approximate.")
    ] = "50,99",
    batch_records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Records of a micro-batch at most.")
    ] = 500_000,
    allow_loss: AllowLossOption = False,
    group: GroupOption = None,
    guarantee: GuaranteeOption = None,
    kafka: KafkaOption = [],  # noqa: B006 - typer copies it
    conf: ConfOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> int:
    """Count records in windows of time, by key or field, and measure a number in them.

    Rows are JSON in a topic, with the group as key, or Parquet. Records that are later than
    --watermark are in no row, and are counted.
    """
    if output is Output.PARQUET and mode is Mode.UPDATE:
        raise ConfigError("--mode is update, but rows of Parquet files cannot change: use append")
    if output is Output.PARQUET and guarantee is not None:
        raise ConfigError(
            "--guarantee is of what is written to a topic: leave it out with --to parquet, whose "
            "rows are written exactly once"
        )
    if output is Output.TOPIC:
        require_other_topic(source, target)
    job = Job(
        name="aggregate",
        bootstrap=bootstrap,
        master=master,
        kafka=kafka,
        conf=conf,
        is_json=as_json,
    )
    wanted = _aggregation(
        window=window,
        slide=slide,
        watermark=watermark,
        group_by=group_by,
        value=value,
        event_time=event_time,
        percentiles=percentiles,
    )
    with running(job) as run:
        from tidelog.pipeline.aggregate import aggregate_topic  # noqa: PLC0415 - loads pyspark

        outcome = aggregate_topic(
            run.spark,
            source=source,
            target=target,
            kafka=job.sink_options(guarantee),
            wanted=wanted,
            terms=run.terms(checkpoint, is_once=is_once),
            output=output,
            mode=mode,
            batch_records=batch_records,
            group=group,
            allows_loss=allow_loss,
        )
    print_outcome(job, outcome, {})
    return exit_code(outcome, is_once=is_once)


def _aggregation(
    *,
    window: str,
    slide: str | None,
    watermark: str,
    group_by: str | None,
    value: str | None,
    event_time: str | None,
    percentiles: str,
) -> Aggregation:
    moment = None if event_time is None else parse_field("--time", event_time)
    if moment is not None and not isinstance(moment, JsonField):
        raise ConfigError(f"--time is {event_time!r} but must be json:$.PATH")
    if duration_ms("--window", window) == 0:
        raise ConfigError(f"--window is {window!r} but must be more than nothing")
    if slide and not 0 < duration_ms("--slide", slide) <= duration_ms("--window", window):
        raise ConfigError(
            f"--slide is {slide!r} but must be more than nothing, and no more than --window, "
            f"{window!r}"
        )
    return Aggregation(
        window=spark_duration("--window", window),
        slide=None if slide is None else spark_duration("--slide", slide),
        watermark=spark_duration("--watermark", watermark),
        group_by=None if group_by is None else parse_field("--by", group_by),
        measured=None if value is None else parse_field("--value", value),
        event_time=moment,
        percentiles=_percentiles(percentiles),
    )


def _percentiles(text: str) -> list[float]:
    try:
        found = [float(each) for each in text.split(",") if each.strip()]
    except ValueError:
        found = [-1.0]
    if not all(0 <= each <= 100 for each in found):
        raise ConfigError(f"--percentiles is {text!r} but must be numbers such as 50,99")
    # As columns are named: 99.99999 and 100 would both be approx_p100.
    names = [f"{each:g}" for each in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"--percentiles is {text!r}, which has one of them twice")
    return found
