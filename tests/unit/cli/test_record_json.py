"""A record survives the way through JSON, whatever its bytes (O1)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.cli.record_json import record_from_json, record_to_json
from tidelog.client.reader import FetchedRecord

# librdkafka ends a name at its first NUL.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
DATA = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)


def fetched(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> FetchedRecord:
    return FetchedRecord(3, 7, 1_741_000_000_000, key, value, headers)


@given(key=DATA, value=DATA, headers=st.lists(st.tuples(NAMES, DATA), max_size=3))
def test_what_was_written_reads_as_the_same_bytes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = fetched(key, value, tuple(headers))
    line = record_to_json(record)
    assert "\n" not in line
    back = record_from_json(line.encode(), "here")
    assert (back.key, back.value, back.headers) == (key, value, tuple(headers))
    assert back.timestamp_ms == record.timestamp_ms


def test_text_is_written_as_it_is() -> None:
    line = record_to_json(fetched(value="grün".encode(), headers=(("trace", b"1"),)))
    assert json.loads(line) == {
        "partition": 3,
        "offset": 7,
        "timestamp": 1_741_000_000_000,
        "key": "k",
        "value": "grün",
        "headers": [{"name": "trace", "value": "1"}],
    }
    assert "grün" in line


def test_bytes_that_are_not_text_are_marked_as_base64() -> None:
    fields = json.loads(record_to_json(fetched(b"\xff", b"\xfe", (("h", b"\xfd"),))))
    assert (fields["key"], fields["key_encoding"]) == ("/w==", "base64")
    assert (fields["value"], fields["value_encoding"]) == ("/g==", "base64")
    assert fields["headers"] == [{"name": "h", "value": "/Q==", "encoding": "base64"}]


def test_absent_key_value_and_timestamp_are_null() -> None:
    record = fetched(key=None, value=None)._replace(timestamp_ms=None)
    fields = json.loads(record_to_json(record))
    assert (fields["key"], fields["value"], fields["timestamp"]) == (None, None, None)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"1",
        b"{}",
        b'{"value": 1}',
        b'{"value": "v", "key": {}}',
        b'{"value": "!", "value_encoding": "base64"}',
        b'{"value": "v", "value_encoding": "hex"}',
        b'{"value": "v", "headers": 3}',
        b'{"value": "v", "headers": [{"value": "x"}]}',
        b'{"value": "v", "headers": ["x"]}',
        b'{"value": "v", "headers": [{"name": null}]}',
        b'{"value": "v", "headers": {"name": "x"}}',
        b'{"value": "v", "headers": [{"name": "\\ud800"}]}',
        b'{"value": "v", "headers": [{"name": "a\\u0000b"}]}',
        b'{"value": "v", "timestamp": 9223372036854775808}',
        b'{"value": "v", "timestamp": "now"}',
        b'{"value": "v", "timestamp": -1}',
        b'{"value": "v", "timestamp": true}',
        b'\xff{"value": "v"}',
        b"[" * 100_000,
    ],
)
def test_line_that_is_no_record_is_refused_by_place(line: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^line 4 of x is not a record in JSON"):
        record_from_json(line, "line 4 of x")


def test_headers_that_cannot_be_read_are_null() -> None:
    line = record_to_json(fetched()._replace(headers=None))
    assert json.loads(line)["headers"] is None
    assert record_from_json(line.encode(), "here").headers == ()


def test_value_alone_is_a_record() -> None:
    record = record_from_json(b'{"value": null}', "here")
    assert record == (None, None, (), None)
