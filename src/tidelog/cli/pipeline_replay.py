"""`tidelog pipeline replay`: an archive back to a topic."""

from datetime import datetime
from typing import Annotated

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from tidelog.cli.pipeline_running import (
    CheckpointOption,
    ConfOption,
    GuaranteeOption,
    Job,
    KafkaOption,
    MasterOption,
    exit_code,
    print_outcome,
    rate_per_s,
    running,
)


def run(
    source: Annotated[str, typer.Argument(metavar="DIR", help="The archive.")],
    target: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    *,
    checkpoint: CheckpointOption,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = "local[*]",
    is_once: Annotated[
        bool,
        typer.Option("--once/--follow", help="End with the archive, or wait for more of it."),
    ] = True,
    manifest: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where its manifest is (--checkpoint of archive).",
            show_default="in the archive",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="N/s", help="Records in a second.", show_default="as fast as can be"),
    ] = None,
    from_offset: Annotated[int | None, typer.Option(min=0, help="The first to take.")] = None,
    to_offset: Annotated[int | None, typer.Option(min=0, help="The first not to take.")] = None,
    from_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="ISO, or milliseconds since 1970.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="The same; the first not to take.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only this one; may be repeated."),
    ] = None,
    by_key: Annotated[
        bool,
        typer.Option("--by-key", help="Let keys decide on partitions, not their old numbers."),
    ] = False,
    guarantee: GuaranteeOption = None,
    kafka: KafkaOption = [],  # noqa: B006 - typer copies it
    conf: ConfOption = [],  # noqa: B006
    as_json: JsonOption = False,
) -> int:
    """Write an archive to a topic: in order of each partition, exactly once.

    Keys, headers, timestamps and partition numbers are kept. Run again with the same checkpoint,
    it goes on where it was, and what was archived since comes too.
    """
    job = Job(
        name="replay", bootstrap=bootstrap, master=master, kafka=kafka, conf=conf, is_json=as_json
    )
    start_ms = None if from_time is None else _time_ms("--from-time", from_time)
    end_ms = None if to_time is None else _time_ms("--to-time", to_time)
    _require_order("offset", from_offset, to_offset)
    _require_order("time", start_ms, end_ms)
    per_s = None if rate is None else rate_per_s("--rate", rate)
    with running(job) as run:
        from tidelog.pipeline.replay import Replay, replay_archive  # noqa: PLC0415 - loads pyspark

        wanted = Replay(
            root=source,
            manifest_root=manifest,
            partitions=tuple(partition) if partition else None,
            start_offset=from_offset,
            end_offset=to_offset,
            start_ms=start_ms,
            end_ms=end_ms,
            rate_per_s=per_s,
        )

        outcome = replay_archive(
            run.spark,
            wanted,
            target=target,
            kafka=job.sink_options(guarantee),
            terms=run.terms(checkpoint, is_once=is_once),
            keeps_partitions=not by_key,
        )
    print_outcome(job, outcome, {})
    return exit_code(outcome, is_once=is_once)


def _require_order(what: str, start: int | None, end: int | None) -> None:
    if start is not None and end is not None and start >= end:
        raise ConfigError(f"--to-{what} is not behind --from-{what}: nothing is in between")


def _time_ms(option: str, text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} is {text!r} but must be a time such as 2026-11-17T09:00:00Z"
        ) from None
    if moment.tzinfo is None:
        raise ConfigError(f"{option} is {text!r} without a time zone: add Z for UTC")
    return int(moment.timestamp() * 1000)
