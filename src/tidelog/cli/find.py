"""`tidelog find`: look a record up by its id, as the seeds' "find a message by its GUID" (D6)."""

import sys
from typing import Annotated

import typer

from tidelog.cli.completion import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, Panel
from tidelog.cli.output import complain, iso_time, print_line
from tidelog.cli.record_json import record_to_json
from tidelog.cli.topics import unknown_topic
from tidelog.client.admin import Admin
from tidelog.client.errors import RequestFailed
from tidelog.client.finder import Finder
from tidelog.client.reader import FetchedRecord


def register(app: typer.Typer) -> None:
    app.command("find", rich_help_panel=Panel.RECORDS)(run)


def run(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)
    ],
    record_id: Annotated[str, typer.Argument(metavar="ID", show_default=False)],
    *,
    is_hexadecimal: Annotated[
        bool, typer.Option("--hex", help="The id is given as hexadecimal digits.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> int:
    """Print partition, offset and content of the records with an id. Exit 1 if there is none.

    For topics with tidelog.dedup.header. With --json, one object per line as consume has them.
    """
    wanted = _parse_hexadecimal(record_id) if is_hexadecimal else record_id.encode()
    if not wanted:
        raise typer.BadParameter("ID is empty: records without an id are not looked up")
    with Admin(bootstrap) as admin:
        try:
            found = Finder(bootstrap, admin).find(topic, wanted)
        except RequestFailed as error:
            raise unknown_topic(topic, error) if error.is_unknown_topic else error from error
    if not found:
        complain(f"no record of {topic} has the id {record_id}", command="tidelog find")
        return 1
    for record in found:
        if as_json:
            sys.stdout.write(record_to_json(record) + "\n")
        else:
            _print_record(record)
    return 0


def _parse_hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise typer.BadParameter("ID is not hexadecimal digits") from None


def _print_record(record: FetchedRecord) -> None:
    time = "-" if record.timestamp_ms is None else iso_time(record.timestamp_ms)
    facts = [
        ("partition", str(record.partition)),
        ("offset", str(record.offset)),
        ("time", time),
        ("key", _text(record.key)),
        *((f"header {name}", _text(value)) for name, value in record.headers or ()),
        ("value", _text(record.value)),
    ]
    width = max(len(fact) for fact, _ in facts)
    for fact, value in facts:
        print_line(f"{fact:<{width}}  {value}")


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "backslashreplace")
