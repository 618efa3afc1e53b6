"""Input becomes records, byte for byte (O1)."""

import errno
import io
import os
from collections.abc import Iterable, Sequence

import pytest

from tidelog.base.errors import ConfigError
from tidelog.cli.record_source import (
    NamedInput,
    RecordTemplate,
    generated_records,
    records_from_json,
    records_from_lines,
)
from tidelog.client.outgoing_record import OutgoingRecord

PLAIN = RecordTemplate(key=None, key_separator=None, headers=())


def lines(data: bytes) -> list[NamedInput]:
    return [NamedInput("file", io.BytesIO(data))]


def all_of(groups: Iterable[Sequence[OutgoingRecord]]) -> list[OutgoingRecord]:
    return [record for group in groups for record in group]


class Piped(io.BytesIO):
    """A pipe: a read brings what was written meanwhile."""

    def __init__(self, *writes: bytes | OSError) -> None:
        super().__init__()
        self.writes = list(writes)

    def read1(self, size: int | None = -1, /) -> bytes:
        written = self.writes.pop(0) if self.writes else b""
        if isinstance(written, OSError):
            raise written
        return written


def values(groups: Iterable[Sequence[OutgoingRecord]]) -> list[list[bytes | None]]:
    return [[record.value for record in group] for group in groups]


def test_records_that_came_together_are_together_and_wait_for_no_others() -> None:
    pipe = Piped(b"a\nb\nc", b"d\n", b"e", b"f", b"\n\n", b"g")
    groups = records_from_lines([NamedInput("pipe", pipe)], PLAIN)
    assert [record.value for record in next(groups)] == [b"a", b"b"]
    assert len(pipe.writes) == 5
    assert values(groups) == [[b"cd"], [b"ef", b""], [b"g"]]


def test_records_before_a_line_that_is_none_are_there() -> None:
    template = RecordTemplate(key=None, key_separator=b":", headers=())
    pipe = Piped(b"a:1\n", b"b:2\nc:3\nd\ne:5\n")
    groups = records_from_lines([NamedInput("pipe", pipe)], template)
    assert [len(next(groups)), len(next(groups))] == [1, 2]
    with pytest.raises(ConfigError, match=r"^line 4 of pipe has no key separator ':'$"):
        next(groups)


@pytest.mark.parametrize(
    ("size_bytes", "together"), [(100, [500, 100]), (40_000, [1] * 600), (16_384, [4] * 150)]
)
def test_generated_records_are_together_within_bounds(size_bytes: int, together: list[int]) -> None:
    groups = generated_records(600, size_bytes=size_bytes, template=PLAIN)
    assert [len(group) for group in groups] == together


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\n\xff\x00\n", [b"a\r", b"\xff\x00"]),
    ],
)
def test_every_line_is_a_value_less_its_end(data: bytes, expected: list[bytes]) -> None:
    assert [record.value for record in all_of(records_from_lines(lines(data), PLAIN))] == expected


def test_key_and_headers_of_the_command_line_go_with_every_record() -> None:
    template = RecordTemplate(key=b"k", key_separator=None, headers=(("h", b"1"),))
    records = all_of(records_from_lines(lines(b"a\nb\n"), template))
    assert {record.key for record in records} == {b"k"}
    assert {record.headers for record in records} == {(("h", b"1"),)}


def test_first_separator_parts_key_and_value() -> None:
    template = RecordTemplate(key=None, key_separator=b"::", headers=())
    records = all_of(records_from_lines(lines(b"k::v::w\n::v\n"), template))
    assert [(record.key, record.value) for record in records] == [(b"k", b"v::w"), (b"", b"v")]


def test_line_without_separator_is_refused_by_number() -> None:
    template = RecordTemplate(key=None, key_separator=b":", headers=())
    with pytest.raises(ConfigError, match=r"^line 2 of file has no key separator ':'$"):
        list(records_from_lines(lines(b"k:v\nkv\n"), template))


def test_input_that_cannot_be_read_is_named() -> None:
    failing = Piped(b"a\nb", OSError(errno.EIO, os.strerror(errno.EIO)))
    groups = records_from_lines([NamedInput("file", failing)], PLAIN)
    assert [record.value for record in next(groups)] == [b"a"]
    with pytest.raises(ConfigError, match=r"^file cannot be read: Input/output error$"):
        next(groups)


def test_json_keeps_key_timestamp_and_headers() -> None:
    data = b'{"key": "k", "value": "v", "timestamp": 5, "headers": [{"name": "a", "value": "1"}]}\n'
    template = RecordTemplate(key=None, key_separator=None, headers=(("b", b"2"),))
    [record] = all_of(records_from_json(lines(data + b"\n"), template))
    assert record == (b"k", b"v", (("a", b"1"), ("b", b"2")), 5)


def test_key_of_the_command_line_replaces_the_one_in_json() -> None:
    template = RecordTemplate(key=b"mine", key_separator=None, headers=())
    [record] = all_of(records_from_json(lines(b'{"key": "k", "value": "v"}\n'), template))
    assert record.key == b"mine"


def test_generated_records_are_numbered_and_of_the_size_asked_for() -> None:
    records = all_of(generated_records(12, size_bytes=4, template=PLAIN))
    assert len(records) == 12
    assert records[0].value == b"0..."
    assert records[11].value == b"11.."
