"""A field of a record is the same for a producer and for Spark, whatever the record is like."""

import json
from typing import TYPE_CHECKING, Final

import pytest

from tidelog.client.outgoing_record import OutgoingRecord
from tidelog.client.record_fields import field_finder
from tidelog.pipeline.record_fields import (
    HeaderField,
    JsonField,
    KeyField,
    RecordField,
    as_bytes,
    as_number,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
SMILE: Final = "\N{GRINNING FACE}".encode()


def _with_id(text: bytes) -> bytes:
    return b'{"id":%b}' % text


# A JSON text, and what is found of it as an id.
NUMBERS: Final = {
    b"0": b"0",
    b"-0": b"0",
    b"-0.0": b"0",
    b"0.00": b"0",
    b"12": b"12",
    b"-12": b"-12",
    b"100": b"100",
    b"100.0": b"100",
    b"1.5": b"1.5",
    b"1.50": b"1.5",
    b"-0.050": b"-0.05",
    b"9223372036854775807": b"9223372036854775807",
    b"9223372036854775808": b"9223372036854775808",
    b"-9223372036854775809": b"-9223372036854775809",
    b"9" * 38: b"9" * 38,
    b"9" * 39: None,
    b"-" + b"9" * 38: b"-" + b"9" * 38,
    b"1" + b"0" * 38: None,
    b"1." + b"0" * 37: b"1",
    b"1." + b"0" * 38: None,
    b"0." + b"0" * 37 + b"1": b"0." + b"0" * 37 + b"1",
    b"0." + b"0" * 38 + b"1": None,
    b"0.1234567890123456789": b"0.1234567890123456789",
    b"1e3": None,
    b"1E-2": None,
    b"1E400": None,
    b"1" * 999: None,
    b"1" * 1_200: None,
    b"0." + b"1" * 1_200: None,
    b"01": None,
    b"+1": None,
    b".5": None,
    b"1.": None,
    b"NaN": None,
    b"-Infinity": None,
}
TEXTS: Final = {
    b'"x"': b"x",
    b'""': b"",
    b'"12"': b"12",
    b'"1.50"': b"1.50",
    b'"1e3"': b"1e3",
    b'"{}"': b"{}",
    b'"null"': b"null",
    b'"\\u00e4\\n\\"\\/"': b'\xc3\xa4\n"/',
    b'"\xc3\xa4"': b"\xc3\xa4",
    b'"\\ud83d\\ude00"': SMILE,
    b'"' + SMILE + b'"': SMILE,
    b'"\\ud800"': None,
    b'"\\udc00x"': None,
    b'"\\ude00\\ud83d"': None,
    b'"a\\u0000b"': b"a\0b",
    b'"a\0b"': None,
    b'"a\nb"': None,
    b'"\\x"': None,
    b'"\xff"': None,
    b'"\xed\xa0\x80"': None,
    b"'x'": None,
}
OTHERS: Final = {
    b"true": b"true",
    b"false": b"false",
    b"null": None,
    b"True": None,
    b"{}": None,
    b'{"b":1}': None,
    b"[]": None,
    b"[1]": None,
    b"": None,
}
VALUES: Final[dict[bytes | None, bytes | None]] = {
    **{_with_id(text): found for text, found in (NUMBERS | TEXTS | OTHERS).items()},
    None: None,
    b"": None,
    b" ": None,
    b'  \t\r\n{"id" : 9 }  ': b"9",
    b'{"\\u0069d":5}': b"5",
    b'{"a":{"id":7},"id":8}': b"8",
    b'{"ID":7}': None,
    b'{"id":1,"id":2}': None,
    b'{"id":null,"id":2}': None,
    b'{"x":{"a":1,"a":2},"id":1}': None,
    b'{"x":"\\ud800","id":1}': None,
    b'{"\\ud800":2,"id":1}': None,
    b'{"x":"\xff","id":1}': None,
    b'{"x":NaN,"id":1}': None,
    b'{"x":' + b"1" * 1_200 + b',"id":1}': None,
    b'{"x":' + b"[" * 2_000 + b"]" * 2_000 + b',"id":1}': None,
    b'{"id":1} x': b"1",
    b'{"id":1} {"id":2}': b"1",
    b'{"id":1},{"id":2}': b"1",
    b'{"id":1': None,
    b'{"id":1,}': None,
    b"{id:1}": None,
    b'// x\n{"id":1}': None,
    b'\xef\xbb\xbf{"id":1}': None,
    '{"id":1}'.encode("utf-16"): None,
    b"[1]": None,
    b'[{"id":1}]': None,
    b'"id"': None,
    b"7": None,
}
DEEP: Final = json.dumps(
    {"a b": 1, " c": 2, "d.e": 3, "f": [10, {"g": "h"}], "0": 5, "i]j": 6, "k\\l": 7, 'm"n': 8}
    | {"o-p": 9, "\N{LATIN SMALL LETTER A WITH DIAERESIS}": 10, "$": 11}
).encode()
PATHS: Final = {
    "$['a b']": b"1",
    "$[' c']": b"2",
    "$['d.e']": b"3",
    "$.d.e": None,
    "$.f": None,
    "$.f[0]": b"10",
    "$['f'][1]['g']": b"h",
    "$.f[1].g": b"h",
    "$.f[2]": None,
    "$.f[999999999]": None,
    "$.f.g": None,
    "$.f[0].g": None,
    "$[0]": None,
    "$.0": b"5",
    "$['i]j']": b"6",
    "$['k\\l']": b"7",
    "$['m\"n']": b"8",
    "$.o-p": b"9",
    "$.\N{LATIN SMALL LETTER A WITH DIAERESIS}": b"10",
    "$.$": b"11",
}


def _in_spark(
    spark: "SparkSession", records: list[OutgoingRecord], fields: list[RecordField]
) -> list[list[bytes | None]]:
    rows = spark.createDataFrame([record[:3] for record in records], ROWS).select(
        *map(as_bytes, fields)
    )
    return [[None if each is None else bytes(each) for each in row] for row in rows.collect()]


def _in_python(
    records: list[OutgoingRecord], fields: list[RecordField]
) -> list[list[bytes | None]]:
    finders = [field_finder(field) for field in fields]
    return [[find(record) for find in finders] for record in records]


def test_json_means_the_same_to_producers_and_to_spark(spark: "SparkSession") -> None:
    records = [OutgoingRecord(None, value, (), None) for value in VALUES]
    fields: list[RecordField] = [JsonField("$.id")]
    found = dict(zip(VALUES, (row[0] for row in _in_spark(spark, records, fields)), strict=True))
    assert found == VALUES
    assert _in_python(records, fields) == [[found] for found in VALUES.values()]


def test_path_leads_producers_and_spark_to_the_same(spark: "SparkSession") -> None:
    records = [OutgoingRecord(None, DEEP, (), None)]
    fields: list[RecordField] = [JsonField(path) for path in PATHS]
    (found,) = _in_spark(spark, records, fields)
    assert dict(zip(PATHS, found, strict=True)) == PATHS
    assert _in_python(records, fields) == [found]


def test_keys_and_headers_are_the_same_for_producers_and_for_spark(spark: "SparkSession") -> None:
    records = [
        OutgoingRecord(b"k", None, [("guid", b"1"), ("guid", b"2")], None),
        OutgoingRecord(b"\xff\0", b"", [("guid", b"1"), ("guid", None)], None),
        OutgoingRecord(b"", b"", [("guid", b"\xff"), ("GUID", b"2"), ("", b"3")], None),
        OutgoingRecord(None, b"", [], None),
    ]
    fields: list[RecordField] = [KeyField(), HeaderField("guid"), HeaderField("")]
    found = _in_spark(spark, records, fields)
    assert found == _in_python(records, fields)
    assert [row[1] for row in found] == [b"2", None, b"\xff", None]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"1.50", 1.5),
        (b"1e3", 1000.0),
        (b"9" * 39, 1e39),
        (b'"2.5"', 2.5),
        (b'"x"', None),
        (b"true", None),
        (b"[1]", None),
        (b"null", None),
    ],
)
def test_number_may_be_longer_than_an_id(
    spark: "SparkSession", text: bytes, number: float | None
) -> None:
    rows = spark.createDataFrame([(None, _with_id(text), [])], ROWS)
    assert rows.select(as_number(JsonField("$.id"))).collect() == [(number,)]
