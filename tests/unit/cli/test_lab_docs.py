"""docs/lab.md has every command, option, target and deed of the fault lab (B3)."""

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

import tidelog
from tidelog.cli.lab import register
from tidelog.lab.fault_kinds import Deed, Others, Role
from tidelog.lab.schedule_language import parse_schedule

PAGE = (Path(tidelog.__file__).resolve().parents[2] / "docs" / "lab.md").read_text("utf-8")
# They have their own places in docs/cli.md.
ELSEWHERE = {"exactly-once", "pipeline"}
SCHEDULE = re.compile(r"^### Schedules$.*?^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> dict[str, typer.core.TyperCommand]:
    app = typer.Typer()
    register(app)
    found = get_command(app).commands["lab"].commands  # type: ignore[attr-defined]
    return {name: each for name, each in found.items() if name not in ELSEWHERE}


def test_every_command_is_documented() -> None:
    assert len(commands()) == 16
    assert [name for name in commands() if f"`lab {name}" not in PAGE] == []


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_is_documented(name: str) -> None:
    options = [option for each in commands()[name].params for option in each.opts]
    names = [option for option in options if option.startswith("--") and option != "--help"]
    assert names
    assert [option for option in names if not re.search(rf"{option}\b(?!-)", PAGE)] == []


@pytest.mark.parametrize("kind", [Deed, Role, Others])
def test_every_word_of_schedules_is_documented(
    kind: type[Deed] | type[Role] | type[Others],
) -> None:
    assert [each for each in kind if f"`{each}`" not in PAGE] == []


def test_schedule_that_is_shown_is_one() -> None:
    shown = SCHEDULE.search(PAGE)
    assert shown is not None
    assert len(parse_schedule(shown[1])) == 5
