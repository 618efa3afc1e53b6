"""Properties files mean what they mean to Java."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ConfigError
from tidelog.config.properties import parse_assignment, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\f1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("  a=1  ", {"a": "1  "}),
        ("# c\n! d\n \t# e\n\na=1", {"a": "1"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=x,\\\n    y", {"a": "x,y"}),
        ("a=x\\\r\n  y\r\nb=2", {"a": "xy", "b": "2"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("# a comment goes on\\\nb=2", {"b": "2"}),
        ("a=x\\", {"a": "x"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a\\ b\\:c\\=d=1", {"a b:c=d": "1"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("a=C:\\\\logs", {"a": "C:\\logs"}),
        ("a=1\ra=2", {"a": "2"}),
        ("a=x\u2028y\x0bz", {"a": "x\u2028y\x0bz"}),
        ("", {}),
    ],
)
def test_each_rule_of_javas_format(text: str, parsed: dict[str, str]) -> None:
    assert parse_properties(text) == parsed


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uxyzw", "a=\\u", "\\u00=1", "a=\\u+123"])
def test_an_unfinished_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="hexadecimal"):
        parse_properties(text)


@given(st.text())
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parsed = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(value, str) for value in parsed.values())


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])),
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])),
    )
)
def test_escaped_names_and_values_come_back(properties: dict[str, str]) -> None:
    text = "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in properties.items())
    assert parse_properties(text) == properties


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties cannot be read: No such file"):
        read_properties(tmp_path / "absent.properties")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "binary.properties"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.properties is not a text file"):
        read_properties(path)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=7\nbroker.rack=süd\n", encoding="utf-8")
    assert read_properties(path) == {"node.id": "7", "broker.rack": "süd"}


def test_an_assignment_keeps_backslashes_and_later_signs() -> None:
    assert parse_assignment("a = b\\c=d ") == ("a", "b\\c=d")


@pytest.mark.parametrize("text", ["a", "=1", "", " =1"])
def test_an_assignment_without_name_or_sign_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="name=value"):
        parse_assignment(text)
