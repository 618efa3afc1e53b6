"""What a person may point at in a record."""

import pytest

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.record_fields import (
    HeaderField,
    JsonField,
    KeyField,
    RecordField,
    parse_field,
)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("key", KeyField()),
        ("header:guid", HeaderField("guid")),
        ("header:a:b", HeaderField("a:b")),
        ("json:$.id", JsonField("$.id")),
        ("json:$.items[0].id", JsonField("$.items[0].id")),
        ("json:$['order id']", JsonField("$['order id']")),
    ],
)
def test_fields_are_understood(text: str, field: RecordField) -> None:
    assert parse_field("--id", text) == field


@pytest.mark.parametrize("text", ["", "guid", "key:x", "header:", "header", "value"])
def test_anything_else_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(OptionError, match=r"--id is .* but must be key, header:NAME or json:"):
        parse_field("--id", text)


@pytest.mark.parametrize("text", ["json:", "json:id", "json:$", "json:$..id", "json:$.a[*]"])
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"--id is .* a path in JSON is such as"):
        parse_field("--id", text)
