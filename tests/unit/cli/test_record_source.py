"""Input becomes records, byte for byte (O1)."""

import errno
import io
import os

import pytest

from tidelog.base.errors import ConfigError
from tidelog.cli.record_source import (
    NamedInput,
    RecordTemplate,
    generated_records,
    records_from_json,
    records_from_lines,
)

PLAIN = RecordTemplate(key=None, key_separator=None, headers=())


def lines(data: bytes) -> list[NamedInput]:
    return [NamedInput("file", io.BytesIO(data))]


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n\xff\x00\n", [b"a\r", b"\xff\x00"]),
    ],
)
def test_every_line_is_a_value_less_its_end(data: bytes, values: list[bytes]) -> None:
    assert [record.value for record in records_from_lines(lines(data), PLAIN)] == values


def test_key_and_headers_of_the_command_line_go_with_every_record() -> None:
    template = RecordTemplate(key=b"k", key_separator=None, headers=(("h", b"1"),))
    records = list(records_from_lines(lines(b"a\nb\n"), template))
    assert {record.key for record in records} == {b"k"}
    assert {record.headers for record in records} == {(("h", b"1"),)}


def test_first_separator_parts_key_and_value() -> None:
    template = RecordTemplate(key=None, key_separator=b"::", headers=())
    records = list(records_from_lines(lines(b"k::v::w\n::v\n"), template))
    assert [(record.key, record.value) for record in records] == [(b"k", b"v::w"), (b"", b"v")]


def test_line_without_separator_is_refused_by_number() -> None:
    template = RecordTemplate(key=None, key_separator=b":", headers=())
    with pytest.raises(ConfigError, match=r"^line 2 of file has no key separator ':'$"):
        list(records_from_lines(lines(b"k:v\nkv\n"), template))


class FailingFile(io.BytesIO):
    """A file on a disk that fails after the first line."""

    def __next__(self) -> bytes:
        if self.tell() > 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().__next__()


def test_input_that_cannot_be_read_is_named() -> None:
    records = records_from_lines([NamedInput("file", FailingFile(b"a\nb\n"))], PLAIN)
    assert next(records).value == b"a"
    with pytest.raises(ConfigError, match=r"^file cannot be read: Input/output error$"):
        next(records)


def test_json_keeps_key_timestamp_and_headers() -> None:
    data = b'{"key": "k", "value": "v", "timestamp": 5, "headers": [{"name": "a", "value": "1"}]}\n'
    template = RecordTemplate(key=None, key_separator=None, headers=(("b", b"2"),))
    [record] = records_from_json(lines(data + b"\n"), template)
    assert record == (b"k", b"v", (("a", b"1"), ("b", b"2")), 5)


def test_key_of_the_command_line_replaces_the_one_in_json() -> None:
    template = RecordTemplate(key=b"mine", key_separator=None, headers=())
    [record] = records_from_json(lines(b'{"key": "k", "value": "v"}\n'), template)
    assert record.key == b"mine"


def test_generated_records_are_numbered_and_of_the_size_asked_for() -> None:
    values = [record.value for record in generated_records(12, size_bytes=4, template=PLAIN)]
    assert values[0] == b"0..."
    assert values[11] == b"11.."
