"""docs/pipeline-commands.md and docs/verify.md have every option of the commands they are about."""

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

import tidelog
from tidelog.cli.pipeline import register

DOCS = Path(tidelog.__file__).resolve().parents[2] / "docs"
SHARED = "Jobs that are there already"
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def options_of(command: str) -> list[str]:
    app = typer.Typer()
    register(app)
    pipeline = get_command(app).commands["pipeline"]  # type: ignore[attr-defined]
    parameters = pipeline.commands[command].params
    names = [name for each in parameters for name in (*each.opts, *each.secondary_opts)]
    return [name for name in names if name.startswith("--") and name != "--help"]


def documented_in(command: str) -> str:
    if command == "verify":
        return (DOCS / "verify.md").read_text("utf-8")
    text = (DOCS / "pipeline-commands.md").read_text("utf-8")
    _, *parts = _HEADING.split(text)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return sections[SHARED] + sections[command]


@pytest.mark.parametrize("command", ["dedup", "archive", "replay", "aggregate", "verify"])
def test_every_option_is_documented(command: str) -> None:
    text = documented_in(command)
    missing = [name for name in options_of(command) if not re.search(rf"{name}\b(?!-)", text)]
    assert options_of(command)
    assert missing == []
