"""Where ids of records are found, and how that is said on a command line."""

import pytest

from tidelog.base.errors import ConfigError
from tidelog.client.record_ids import HeaderId, IdSource, JsonId, KeyId, find_id, parse_id_source

HEADERS = [("guid", b"1"), ("other", b"2"), ("guid", b"3"), ("none", None)]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("key", KeyId()),
        ("header:guid", HeaderId("guid")),
        ("header:a:b", HeaderId("a:b")),
        ("json:$.id", JsonId(("id",))),
        ("json:$.order.line_id", JsonId(("order", "line_id"))),
    ],
)
def test_source_is_read_and_shown_in_the_same_words(text: str, source: IdSource) -> None:
    assert parse_id_source("--id", text) == source
    assert str(source) == text


@pytest.mark.parametrize(
    "text", ["", "guid", "header", "header:", "json", "json:id", "json:$", "json:$.a[0]", "key:a"]
)
def test_what_is_no_source_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--id is .* but must be header:NAME, key or json"):
        parse_id_source("--id", text)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (KeyId(), b"k"),
        (HeaderId("guid"), b"3"),
        (HeaderId("none"), None),
        (HeaderId("missing"), None),
        (JsonId(("id",)), b"x"),
        (JsonId(("order", "id")), b"12"),
        (JsonId(("order",)), None),
        (JsonId(("missing", "id")), None),
        (JsonId(("flag",)), None),
    ],
)
def test_id_is_found_where_the_source_says(source: IdSource, found: bytes | None) -> None:
    value = b'{"id": "x", "order": {"id": 12}, "flag": true}'
    assert find_id(source, key=b"k", value=value, headers=HEADERS) == found


@pytest.mark.parametrize("value", [None, b"", b"{", b"[1]", b'"id"', b"\xff", b"[" * 100_000])
def test_value_that_is_no_json_object_has_no_id(value: bytes | None) -> None:
    assert find_id(JsonId(("id",)), key=b"k", value=value, headers=()) is None
