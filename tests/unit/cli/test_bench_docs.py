"""docs/bench.md has every scenario and every option of `tidelog bench`."""

import re
from pathlib import Path

import typer
from typer.main import get_command

import tidelog
from tidelog.cli.bench import register

PAGE = Path(tidelog.__file__).resolve().parents[2] / "docs" / "bench.md"


def test_every_command_and_option_is_documented() -> None:
    app = typer.Typer()
    register(app)
    commands = get_command(app).commands["bench"].commands  # type: ignore[attr-defined]
    text = PAGE.read_text("utf-8")
    assert set(commands) == {"1", "2", "3", "4", "5", "6", "all", "peers"}
    assert [name for name in commands if f"`bench {name}" not in text] == []
    options = {name for each in commands["1"].params for name in each.opts if name != "--help"}
    assert [name for name in options if not re.search(rf"`{name}\b", text)] == []
