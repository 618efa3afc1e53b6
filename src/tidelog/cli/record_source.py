"""Where `tidelog produce` takes its records from: lines of text, lines of JSON, or a generator.

Records come in groups: those that one read of the input has brought, so that none waits for input
behind it. What cannot be read as a record ends the input, behind the records before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BufferedIOBase
from typing import Final, NamedTuple

from tidelog.base.errors import ConfigError
from tidelog.cli.record_json import record_from_json
from tidelog.client.outgoing_record import OutgoingRecord

READ_BYTES_MAX: Final = 64 * 1024
GENERATED_TOGETHER_MAX: Final = 500


class NamedInput(NamedTuple):
    """Something to read lines from, under the name a complaint calls it by."""

    name: str
    file: BufferedIOBase


class RecordTemplate(NamedTuple):
    """What was asked for on the command line for every record."""

    key: bytes | None
    key_separator: bytes | None
    headers: tuple[tuple[str, bytes], ...]


Group = Sequence[OutgoingRecord]
_Parse = Callable[[bytes, str], OutgoingRecord | None]


def records_from_lines(inputs: Iterable[NamedInput], template: RecordTemplate) -> Iterator[Group]:
    """A record for every line, less its end. The last one may come without an end."""

    def parse(line: bytes, where: str) -> OutgoingRecord:
        key, value = _split(line, template, where)
        return OutgoingRecord(key, value, template.headers, None)

    return _records(inputs, parse)


def records_from_json(inputs: Iterable[NamedInput], template: RecordTemplate) -> Iterator[Group]:
    """The records that `consume --json` wrote, under the key of the command line if it has one."""

    def parse(line: bytes, where: str) -> OutgoingRecord | None:
        if not line.strip():
            return None
        record = record_from_json(line, where)
        key = record.key if template.key is None else template.key
        headers = (*record.headers, *template.headers)
        return OutgoingRecord(key, record.value, headers, record.timestamp_ms)

    return _records(inputs, parse)


def generated_records(count: int, *, size_bytes: int, template: RecordTemplate) -> Iterator[Group]:
    """Numbered records of about the same size: 0, 1, 2, ... filled up with dots."""
    together = max(1, min(GENERATED_TOGETHER_MAX, READ_BYTES_MAX // size_bytes))
    for start in range(0, count, together):
        yield [
            OutgoingRecord(
                template.key,
                str(number).encode().ljust(size_bytes, b"."),
                template.headers,
                None,
            )
            for number in range(start, min(start + together, count))
        ]


def _records(inputs: Iterable[NamedInput], parse: _Parse) -> Iterator[Group]:
    for name, file in inputs:
        first_number = 1
        for lines in _lines(name, file):
            group: list[OutgoingRecord] = []
            try:
                for number, line in enumerate(lines, start=first_number):
                    record = parse(line, f"line {number} of {name}")
                    if record is not None:
                        group.append(record)
            except ConfigError:
                yield group
                raise
            yield group
            first_number += len(lines)


def _lines(name: str, file: BufferedIOBase) -> Iterator[list[bytes]]:
    """The lines, less their ends, that each read has brought to an end."""
    begun: list[bytes] = []
    while data := _read(name, file):
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = b"".join((*begun, ended[0]))
            begun.clear()
            yield ended
        begun.append(rest)
    if last := b"".join(begun):
        yield [last]


def _read(name: str, file: BufferedIOBase) -> bytes:
    """What is there, waiting for something only; nothing at the end."""
    try:
        return file.read1(READ_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from error


def _split(line: bytes, template: RecordTemplate, where: str) -> tuple[bytes | None, bytes]:
    if template.key_separator is None:
        return template.key, line
    key, separator, value = line.partition(template.key_separator)
    if not separator:
        shown = template.key_separator.decode(errors="replace")
        raise ConfigError(f"{where} has no key separator '{shown}'")
    return key, value
