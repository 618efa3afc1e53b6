"""What is printed for people and for pipes."""

import json

import pytest

from tidelog.cli.output import (
    complain,
    duration_text,
    listed,
    print_json,
    print_table,
    size_text,
)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_572_864, "1.5 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (5 * 1024**5, "5120.0 TiB"),
    ],
)
def test_size_is_shown_in_its_unit(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3_600, "1 h 0 min"),
        (90_061, "1 d 1 h"),
    ],
)
def test_duration_is_shown_in_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("words", "text"), [([1], "1"), ([1, 2], "1 and 2"), (["a", "b", "c"], "a, b and c")]
)
def test_words_are_listed_as_in_a_sentence(words: list[object], text: str) -> None:
    assert listed(words) == text


def test_table_in_a_pipe_is_plain_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    print_table(["NAME", "SIZE"], [["a", 1], [long, None]])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SIZE"]
    assert first.split() == ["a", "1"]
    assert second.split() == [long, "-"]


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": "grün\n"})
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {"name": "grün\n"}


def test_complaint_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    complain("two\n lines", command="tidelog x")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "tidelog x: two lines\n"
