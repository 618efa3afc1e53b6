"""`tidelog produce`: send lines, files, JSON or generated records, and say what became of them.

Exit 0 only if the cluster acknowledged every record (with --acks 0 nobody acknowledges, so all that
were handed over count). Ctrl-C stops reading, waits for what was sent, and exits 130.
"""

import re
import sys
from contextlib import ExitStack
from enum import StrEnum
from io import BufferedIOBase
from pathlib import Path
from typing import Annotated, Final

import typer

from tidelog.base.errors import ConfigError
from tidelog.cli.completion import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import complain, print_json, print_line, size_text
from tidelog.cli.progress import progress_of
from tidelog.cli.record_source import (
    NamedInput,
    RecordTemplate,
    generated_records,
    records_from_json,
    records_from_lines,
)
from tidelog.cli.reliability import require_reliable_topic
from tidelog.cli.sending import Outcome, Pacer, send_all
from tidelog.client.errors import ClientError
from tidelog.client.noted_records import NotedRecords
from tidelog.client.producer import ANY_PARTITION, ProducerConfig, RecordProducer
from tidelog.client.record_fields import DEFAULT_ID_FIELD, parse_field

# librdkafka sends nothing larger.
RECORD_BYTES_MAX: Final = 1_000_000_000

_TOPIC_WITHIN_S: Final = 2.0
_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/s)?", re.ASCII)


class Acks(StrEnum):
    """Who has to have a record before it counts as sent: nobody, the leader, all of the isr."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"
    MINUS_ONE = "-1"


class Compression(StrEnum):
    """What batches are packed with."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Profile(StrEnum):
    """Settings that go together, under one name (D4)."""

    RELIABLE = "reliable"


class InputFormat(StrEnum):
    """What a line of input is: a value, or a record as `consume --json` prints it."""

    LINES = "lines"
    JSON = "json"


def register(app: typer.Typer) -> None:
    app.command("produce", rich_help_panel=Panel.RECORDS)(run)


def run(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="Files to read; stdin if none.", show_default=""),
    ] = None,
    *,
    input_format: Annotated[
        InputFormat, typer.Option("--input", help="A line is a value, or a record in JSON.")
    ] = InputFormat.LINES,
    count: Annotated[
        int | None, typer.Option(min=1, help="Generate so many records instead of reading.")
    ] = None,
    size: Annotated[
        int, typer.Option(min=1, max=RECORD_BYTES_MAX, help="Bytes of a generated record.")
    ] = 100,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="At most so many records per second.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What parts key and value in a line.")
    ] = None,
    headers: Annotated[
        list[str], typer.Option("--header", metavar="NAME=VALUE", help="May be repeated.")
    ] = [],  # noqa: B006 - typer copies it
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Send there; else by key, or any."),
    ] = None,
    acks: Annotated[Acks, typer.Option(help="Who must have it before it counts.")] = Acks.ALL,
    profile: Annotated[
        Profile | None,
        typer.Option(
            help="reliable: acks=all and idempotent, to a topic with three replicas of which two "
            "must be in sync and no unclean election; exit 2 if it is another."
        ),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="How batches are packed.")
    ] = Compression.NONE,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write down what becomes of each record, for `tidelog pipeline verify`; in a "
            "folder, a file of its own.",
        ),
    ] = None,
    id_text: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="WHERE",
            help="With --ledger: where records have their ids, key, header:NAME or json:$.PATH; a "
            "header is added where it is missing.",
            show_default=str(DEFAULT_ID_FIELD),
        ),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Send records: lines of stdin or of files, or generated ones.

    Exit 0 if all were acknowledged, 1 if one was not.
    """
    if count is not None and files:
        raise ConfigError("--count generates records, so there are no files to read")
    if key is not None and key_separator is not None:
        raise ConfigError("--key and --key-separator both say what the key is")
    if key_separator == "":
        raise ConfigError("--key-separator is '' but must be what parts key and value in a line")
    template = RecordTemplate(
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else key_separator.encode(),
        headers=tuple(_parse_header(header) for header in headers),
    )
    pacer = None if rate is None else Pacer(parse_rate(rate))
    if profile is Profile.RELIABLE and acks not in {Acks.ALL, Acks.MINUS_ONE}:
        raise ConfigError(f"--profile reliable needs --acks all, but --acks is {acks}")
    config = ProducerConfig(acks=acks.value, compression_type=compression.value)
    noted = _noted_records(topic, ledger, id_text)
    producer = RecordProducer(bootstrap, topic, config, noted)
    _require_partition(producer, topic, partition)
    if profile is Profile.RELIABLE:
        require_reliable_topic(bootstrap, topic)
    with ExitStack() as stack:
        if count is not None:
            groups = generated_records(count, size_bytes=size, template=template)
        else:
            inputs = _inputs(stack, files or [])
            parse = records_from_json if input_format is InputFormat.JSON else records_from_lines
            groups = parse(inputs, template)
        progress = stack.enter_context(progress_of(topic, count))
        target = ANY_PARTITION if partition is None else partition
        outcome = send_all(producer, groups, partition=target, pacer=pacer, progress=progress)
    _report(topic, outcome, as_json=as_json)
    return _exit_code(outcome)


def parse_rate(text: str) -> float:
    """Records per second out of `1000`, `1000/s` or `0.5/s`."""
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise ConfigError(f"--rate is '{text}' but must be records per second, like 1000/s")
    return float(found[1])


def _noted_records(topic: str, ledger: Path | None, id_text: str | None) -> NotedRecords | None:
    if ledger is None:
        if id_text is not None:
            raise ConfigError("--id says where --ledger finds ids, but there is no --ledger")
        return None
    field = DEFAULT_ID_FIELD if id_text is None else parse_field("--id", id_text)
    return NotedRecords(ledger, topic=topic, id_field=field)


def _parse_header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"--header is '{text}' but must be NAME=VALUE")
    return name, value.encode()


def _require_partition(producer: RecordProducer, topic: str, partition: int | None) -> None:
    known = producer.partition_count(timeout_s=_TOPIC_WITHIN_S)
    if known == 0:
        raise ClientError(
            f"there is no topic {topic}, and auto.create.topics.enable does not create it; "
            f"tidelog topics create {topic} does"
        )
    if partition is not None and partition >= known:
        raise ClientError(f"{topic} has no partition {partition}, only 0 to {known - 1}")


def _inputs(stack: ExitStack, files: list[Path]) -> list[NamedInput]:
    """All of them open before the first is read: half of the input is not sent by mistake."""
    inputs = []
    for path in files:
        try:
            inputs.append(NamedInput(str(path), stack.enter_context(path.open("rb"))))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if inputs:
        return inputs
    assert isinstance(sys.stdin.buffer, BufferedIOBase)
    return [NamedInput("stdin", sys.stdin.buffer)]


def _report(topic: str, outcome: Outcome, *, as_json: bool) -> None:
    per_s = outcome.acknowledged / outcome.seconds
    bytes_per_s = outcome.acknowledged_bytes / outcome.seconds
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": outcome.acknowledged,
                "failed": outcome.failed,
                "bytes": outcome.acknowledged_bytes,
                "seconds": round(outcome.seconds, 3),
                "records_per_second": round(per_s, 1),
                "bytes_per_second": round(bytes_per_s, 1),
            }
        )
    else:
        count = outcome.acknowledged
        print_line(
            f"Sent {count:,} record{'' if count == 1 else 's'}"
            f" ({size_text(outcome.acknowledged_bytes)}) in {outcome.seconds:.2f} s:"
            f" {per_s:,.0f} records/s, {size_text(round(bytes_per_s))}/s"
        )
    if outcome.failed:
        complain(
            f"{outcome.failed:,} of {outcome.failed + outcome.acknowledged:,} records"
            f" were not acknowledged: {outcome.first_error}",
            command="tidelog produce",
        )
    if outcome.input_error is not None:
        complain(f"stopped reading: {outcome.input_error}", command="tidelog produce")


def _exit_code(outcome: Outcome) -> int:
    if outcome.failed:
        return 1
    if outcome.input_error is not None:
        return 2
    return 130 if outcome.was_interrupted else 0
