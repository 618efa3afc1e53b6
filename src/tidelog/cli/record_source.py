"""Where `tidelog produce` takes its records from: lines of text, lines of JSON, or a generator."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.cli.record_json import OutgoingRecord, record_from_json


class NamedInput(NamedTuple):
    """Something to read lines from, under the name a complaint calls it by."""

    name: str
    file: BinaryIO


class RecordTemplate(NamedTuple):
    """What was asked for on the command line for every record."""

    key: bytes | None
    key_separator: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def records_from_lines(
    inputs: Iterable[NamedInput], template: RecordTemplate
) -> Iterator[OutgoingRecord]:
    """A record for every line, less its end. The last one may come without an end."""
    for name, file in inputs:
        for number, line in _lines(name, file):
            key, value = _split(line.removesuffix(b"\n"), template, name, number)
            yield OutgoingRecord(key, value, template.headers, None)


def records_from_json(
    inputs: Iterable[NamedInput], template: RecordTemplate
) -> Iterator[OutgoingRecord]:
    """The records that `consume --json` wrote, under the key of the command line if it has one."""
    for name, file in inputs:
        for number, line in _lines(name, file):
            if not line.strip():
                continue
            record = record_from_json(line, f"line {number} of {name}")
            key = record.key if template.key is None else template.key
            headers = record.headers + template.headers
            yield OutgoingRecord(key, record.value, headers, record.timestamp_ms)


def generated_records(
    count: int, *, size_bytes: int, template: RecordTemplate
) -> Iterator[OutgoingRecord]:
    """Numbered records of about the same size: 0, 1, 2, ... filled up with dots."""
    for number in range(count):
        value = str(number).encode().ljust(size_bytes, b".")
        yield OutgoingRecord(template.key, value, template.headers, None)


def _lines(name: str, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    try:
        yield from enumerate(file, start=1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from error


def _split(
    line: bytes, template: RecordTemplate, name: str, number: int
) -> tuple[bytes | None, bytes]:
    if template.key_separator is None:
        return template.key, line
    key, separator, value = line.partition(template.key_separator)
    if not separator:
        shown = template.key_separator.decode(errors="replace")
        raise ConfigError(f"line {number} of {name} has no key separator '{shown}'")
    return key, value
