"""What a person may point at in a record, and what is found there."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.client.outgoing_record import OutgoingRecord
from tidelog.client.record_fields import (
    HeaderField,
    JsonField,
    KeyField,
    RecordField,
    field_finder,
    parse_field,
)

HEADERS = [("guid", b"1"), ("other", b"2"), ("guid", b"3"), ("none", None)]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("key", KeyField()),
        ("header:guid", HeaderField("guid")),
        ("header:a:b", HeaderField("a:b")),
        ("json:$.id", JsonField("$.id")),
        ("json:$.order.line_id", JsonField("$.order.line_id")),
        ("json:$.items[0].id", JsonField("$.items[0].id")),
        ("json:$['order id']", JsonField("$['order id']")),
    ],
)
def test_field_is_read_and_shown_in_the_same_words(text: str, field: RecordField) -> None:
    assert parse_field("--id", text) == field
    assert str(field) == text


@pytest.mark.parametrize("text", ["", "guid", "header", "header:", "key:", "key:a", "value"])
def test_what_is_no_field_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--id is .* must be key, header:NAME or json:\$.PATH$"):
        parse_field("--id", text)


PATHLESS = [
    "",
    "id",
    "$",
    "$..id",
    "$.a[*]",
    "$.a[-1]",
    "$.a[1234567890]",
    "$['']",
    "$. a",
    "$.a b",
]


@pytest.mark.parametrize("path", PATHLESS)
def test_what_is_no_path_is_refused_by_its_option(path: str) -> None:
    with pytest.raises(ConfigError, match=r"^--id is .* a path in JSON is such as json:"):
        parse_field("--id", f"json:{path}")
    with pytest.raises(ConfigError, match="is no path in JSON"):
        JsonField(path)


def test_path_has_names_and_indexes() -> None:
    field = JsonField("$.items[12]['order id'].0.h-i")
    assert field.steps == ("items", 12, "order id", "0", "h-i")


@pytest.mark.parametrize(
    ("field", "found"),
    [
        (KeyField(), b"k"),
        (HeaderField("guid"), b"3"),
        (HeaderField("none"), None),
        (HeaderField("missing"), None),
        (JsonField("$.id"), b"x"),
        (JsonField("$.order.id"), b"12"),
        (JsonField("$.order"), None),
        (JsonField("$.missing.id"), None),
        (JsonField("$.flag"), b"true"),
        (JsonField("$.list[1]"), b"2.5"),
        (JsonField("$.list[2]"), None),
        (JsonField("$.list.id"), None),
        (JsonField("$.order[0]"), None),
    ],
)
def test_field_is_found_where_it_says(field: RecordField, found: bytes | None) -> None:
    value = b'{"id": "x", "order": {"id": 12}, "flag": true, "list": [1, 2.50]}'
    assert field_finder(field)(OutgoingRecord(b"k", value, HEADERS, None)) == found


@pytest.mark.parametrize("value", [None, b"", b"{", b"[1]", b'"id"', b"\xff", b"[" * 100_000])
def test_value_that_is_no_json_object_has_no_named_field(value: bytes | None) -> None:
    assert field_finder(JsonField("$.id"))(OutgoingRecord(b"k", value, (), None)) is None
