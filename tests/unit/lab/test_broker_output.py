"""Of what a broker prints, a person sees what matters."""

from pathlib import Path

import pytest

from tidelog.lab.broker_output import OutputTail, Ready, is_important, last_lines, parse_ready


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        ("tidelog broker 1 listening on 127.0.0.1:9092", Ready(1, "127.0.0.1", 9092)),
        ("tidelog broker 12 listening on [::1]:9092\n", Ready(12, "::1", 9092)),
        ("tidelog broker 1 listening on :9092", Ready(1, "", 9092)),
        ("tidelog broker x listening on 127.0.0.1:9092", None),
        ("2026-01-01T00:00:00.000Z INFO    node: tidelog broker 1 listening on a:1", None),
    ],
)
def test_ready_line_is_recognised(line: str, ready: Ready | None) -> None:
    assert parse_ready(line) == ready


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-01-01T00:00:00.000Z INFO    node: started", False),
        ("2026-01-01T00:00:00.000Z DEBUG   node: request", False),
        ("tidelog broker 1 listening on 127.0.0.1:9092", False),
        ("", False),
        ("2026-01-01T00:00:00.000Z WARNING storage: log recovered partition=a-0", True),
        ("2026-01-01T00:00:00.000Z ERROR   storage: log dir offline", True),
        ("Traceback (most recent call last):", True),
        ('  File "x.py", line 1', True),
    ],
)
def test_routine_is_not_shown(line: str, shown: bool) -> None:
    assert is_important(line) is shown


def test_tail_hands_out_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    tail = OutputTail(path, 4)
    assert tail.new_lines() == []
    path.write_text("old\none\ntw")
    assert tail.new_lines() == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert tail.new_lines() == ["two"]
    assert tail.new_lines() == []


def test_file_that_was_moved_aside_is_read_from_its_new_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    path.write_text("old and long\nhalf")
    tail = OutputTail(path, 0)
    assert tail.new_lines() == ["old and long"]
    path.write_text("new\n")
    assert tail.new_lines() == ["new"]


def test_last_lines_are_those_of_this_start(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    path.write_text("old\n" + "".join(f"{number}\n" for number in range(20)))
    assert last_lines(path, from_position=4)[0] == "10"
    assert last_lines(path, from_position=4)[-1] == "19"
    assert "old" not in last_lines(path, from_position=4)


def test_no_output_has_no_last_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "broker.log", from_position=0) == ()
