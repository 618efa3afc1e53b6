"""`tidelog broker` reads exactly what is right and leaves the rest to typer."""

from pathlib import Path

import pytest

from tidelog.cli import serve
from tidelog.cli.serve import BrokerArguments, parse

CONFIG = Path("server.properties")


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        (["--config", "server.properties"], BrokerArguments(CONFIG, ())),
        (["--config=server.properties"], BrokerArguments(CONFIG, ())),
        (["--set", "a=b"], BrokerArguments(None, ("a=b",))),
        (["--set=a=b=c"], BrokerArguments(None, ("a=b=c",))),
        (
            ["--set", "a=1", "--config", "server.properties", "--set=b=2"],
            BrokerArguments(CONFIG, ("a=1", "b=2")),
        ),
    ],
)
def test_right_arguments_are_read(arguments: list[str], parsed: BrokerArguments) -> None:
    assert parse(arguments) == parsed


@pytest.mark.parametrize(
    "arguments",
    [[], ["--config"], ["--set"], ["--help"], ["--confg", "x"], ["x"], ["--set", "a=1", "x"]],
)
def test_anything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert parse(arguments) is None


@pytest.mark.parametrize(
    ("content", "assignment", "complaint"),
    [
        ("log.segment.bytes=1x\n", "log.dirs=d", "log.segment.bytes is '1x'"),
        ("", "log.segment.bytes=1x", "log.segment.bytes is '1x'"),
        ("log.segment.bytes=1048576\n", "nonsense", "'nonsense' is not of the form"),
        ("", "tidelog.nope=1", "tidelog.nope is not a setting"),
    ],
)
def test_wrong_setting_is_one_sentence_that_names_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    assignment: str,
    complaint: str,
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(content, encoding="utf-8")
    assert serve.run(BrokerArguments(config, (assignment,))) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"tidelog broker: {complaint}")
    assert printed.err.count("\n") == 1


def test_absent_properties_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.run(BrokerArguments(tmp_path / "nope.properties", ())) == 2
    assert "nope.properties" in capsys.readouterr().err
