"""A ledger has a line before a record is sent, whole lines, and checksums that differ."""

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.client.ledger import LedgerError, LedgerWriter, record_checksum
from tidelog.client.noted_records import NotedRecords
from tidelog.client.outgoing_record import Headers, OutgoingRecord
from tidelog.client.record_fields import HeaderField, JsonField, KeyField

DATA = st.none() | st.binary(max_size=20)
RECORDS = st.tuples(DATA, DATA, st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3))


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_record_is_in_the_file_before_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = LedgerWriter(path, producer="p")
    ledger.sent("orders", b"first", 11)
    ledger.sent("orders", b"second", 12)
    first, second = _lines(path)
    assert (first["topic"], first["id"], first["crc32"]) == ("orders", "first", 11)
    assert [first["number"], second["number"]] == [0, 1]
    ledger.close()


def test_records_that_are_sent_together_are_all_in_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = LedgerWriter(path, producer="p")
    entries = ledger.sent_together("orders", [(b"first", 11), (b"second", 12)])
    lines = _lines(path)
    assert [(line["id"], line["crc32"], line["number"]) for line in lines] == [
        ("first", 11, 0),
        ("second", 12, 1),
    ]
    ledger.acknowledged(entries[1], partition=3, offset=1207)
    ledger.close()
    assert (_lines(path)[2]["id"], _lines(path)[2]["offset"]) == ("second", 1207)


def test_acknowledgement_is_in_the_file_with_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = LedgerWriter(path, producer="p")
    entry = ledger.sent("orders", b"first", 11)
    ledger.acknowledged(entry, partition=3, offset=1207)
    assert len(_lines(path)) == 1
    ledger.sent("orders", b"second", 12)
    _, acknowledged, _ = _lines(path)
    assert (acknowledged["partition"], acknowledged["offset"]) == (3, 1207)
    ledger.close()


def test_failure_is_in_the_file_when_it_is_flushed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = LedgerWriter(path, producer="p")
    ledger.failed(ledger.sent("orders", b'"\n\xc3\xa4', 11), "_MSG_TIMED_OUT")
    ledger.flush()
    _, failed = _lines(path)
    assert (failed["id"], failed["error"]) == ('"\n\u00e4', "_MSG_TIMED_OUT")
    ledger.close()


def test_id_that_is_no_text_is_written_in_base64(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = LedgerWriter(path, producer="p")
    ledger.sent("orders", b"\xff\x00", 11)
    assert _lines(path)[0]["id_base64"] == "/wA="
    ledger.close()


def test_line_that_was_left_half_written_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"topic":"orders","id":"fir')
    ledger = LedgerWriter(path, producer="p")
    ledger.sent("orders", b"second", 12)
    torn, second = path.read_bytes().splitlines()
    assert (torn, json.loads(second)["id"]) == (b'{"topic":"orders","id":"fir', "second")
    ledger.close()


def test_ledger_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="missing/ledger"):
        LedgerWriter(tmp_path / "missing" / "ledger", producer="p")


def test_checksum_is_of_netstrings() -> None:
    found = record_checksum(key=None, value=b"hello", headers=[("a", b""), ("b", None)])
    assert found == zlib.crc32(b"-1:,5:hello,1:a,0:,1:b,-1:,")


@given(RECORDS, RECORDS)
def test_nothing_moves_between_key_value_and_headers_unseen(
    one: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    other: tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]],
) -> None:
    checksums = [
        record_checksum(key=key, value=value, headers=headers)
        for key, value, headers in (one, other)
    ]
    assert (checksums[0] == checksums[1]) == (one == other)


def _record(key: bytes | None, value: bytes, headers: Headers = ()) -> OutgoingRecord:
    return OutgoingRecord(key, value, headers, None)


def test_record_without_an_id_gets_one_in_its_header(tmp_path: Path) -> None:
    noted = NotedRecords(tmp_path, topic="orders", id_field=HeaderField("guid"))
    given: list[Headers] = [[], [("guid", b"mine")], [("other", b"1")]]
    found = noted.note([_record(None, b"v", headers) for headers in given])
    ids = [dict(headers)["guid"] for headers, _ in found]
    assert ids[1] == b"mine"
    assert len(set(ids)) == 3
    (file,) = tmp_path.iterdir()
    assert [str(line["id"]).encode() for line in _lines(file)] == ids


def test_checksum_is_of_the_record_with_its_new_header(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    noted = NotedRecords(path, topic="orders", id_field=HeaderField("guid"))
    ((headers, _),) = noted.note([_record(b"k", b"v", [("a", b"1")])])
    assert _lines(path)[0]["crc32"] == record_checksum(key=b"k", value=b"v", headers=headers)


def test_record_whose_key_should_be_its_id_needs_a_key(tmp_path: Path) -> None:
    noted = NotedRecords(tmp_path, topic="orders", id_field=KeyField())
    noted.note([_record(b"k", b"v")])
    with pytest.raises(ConfigError, match="record 1 has no id: --id key"):
        noted.note([_record(None, b"v"), _record(b"l", b"v")])


def test_records_before_one_without_an_id_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    noted = NotedRecords(path, topic="orders", id_field=JsonField("$.id"))
    values = [b'{"id":1}', b'{"id":2}', b"{}", b'{"id":4}']
    assert len(noted.note([_record(None, value) for value in values])) == 2
    assert [line["id"] for line in _lines(path)] == ["1", "2"]


def test_acknowledgement_without_an_offset_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    noted = NotedRecords(path, topic="orders", id_field=KeyField())
    ((_, entry),) = noted.note([_record(b"k", b"v")])
    noted.acknowledged(entry, partition=0, offset=-1001)
    noted.flush()
    assert len(_lines(path)) == 1
