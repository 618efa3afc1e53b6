"""Wrong usage is one sentence on stderr and exit code 2; help goes to stdout (O1)."""

import re
from pathlib import Path

import pytest

from tidelog import __version__
from tidelog.cli import app
from tidelog.cli.main import main

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["topcs"], "tidelog: no such command 'topcs'"),
        (["topics", "creat", "x"], "tidelog topics: no such command 'creat'"),
        (["topics", "create"], "tidelog topics create: missing argument 'TOPIC'"),
        (["topics", "create", "x", "--nope"], "tidelog topics create: no such option: --nope"),
        (["topics", "create", "x", "-p", "y"], "tidelog topics create: invalid value for"),
        (["topics", "create", "x", "--config", "y"], "tidelog topics create: 'y' is not of"),
        (["topics", "alter", "x"], "tidelog topics alter: nothing to change"),
        (["topics", "list", "--bootstrap", "x"], "tidelog topics list: bootstrap is 'x'"),
        (["configs", "describe"], "tidelog configs describe: say whose settings"),
        (["configs", "describe", "--topic", "a", "--cluster"], "tidelog configs describe: say"),
        (["configs", "alter", "--cluster"], "tidelog configs alter: nothing to change"),
        (["consume"], "tidelog consume: missing argument 'TOPIC'"),
        (["consume", "x", "--from", "y"], "tidelog consume: --from is 'y'"),
        (["consume", "x", "--follow", "--to", "end"], "tidelog consume: --follow goes on"),
        (["produce", "x", "--rate", "y"], "tidelog produce: --rate is 'y'"),
        (["produce", "x", "--rate", "0"], "tidelog produce: --rate is '0'"),
        (["produce", "x", "--header", "y"], "tidelog produce: --header is 'y'"),
        (["produce", "x", "--acks", "2"], "tidelog produce: invalid value for '--acks'"),
        (["produce", "x", "--key", "a", "--key-separator", ":"], "tidelog produce: --key and"),
        (["produce", "x", "file", "--count", "1"], "tidelog produce: --count generates"),
        (["produce", "x", "--key-separator", ""], "tidelog produce: --key-separator is ''"),
        (
            ["topics", "describe", "x\udcff"],
            r"tidelog topics describe: 'x\xff' is not text in UTF-8",
        ),
        (["up", "--set", "x"], "tidelog up: 'x' is not of the form"),
        (["up", "--set", "log.segment.bytes=x"], "tidelog up: log.segment.bytes is 'x'"),
        (["up", "--set", "node.id=3"], "tidelog up: node.id is given"),
        (["up", "--data", "a,b"], "tidelog up: the data folder "),
        (["up", "--data", "a\nb"], "tidelog up: the data folder "),
        (["up", "--brokers", "0"], "tidelog up: invalid value for '--brokers'"),
        (["up", "--port", "70000"], "tidelog up: invalid value for '--port'"),
        (["up", "--port", "65534"], "tidelog up: --port is 65534 but 3 brokers need"),
        (["up", "--set", "listeners=PLAINTEXT://:9092"], "tidelog up: listeners cannot be"),
        (["up", "--set", "zookeeper.connect=x"], "tidelog up: zookeeper.connect is given"),
        (["up", "--coordination", "zookeeper"], "tidelog up: --coordination is 'zookeeper'"),
        (["up", "--coordination", "etcd:x"], "tidelog up: --coordination is 'etcd:x'"),
        (["up", "--coordination", "zookeeper:a b"], "tidelog up: the ZooKeeper ensemble is 'a b'"),
        (["up", "--profile", "fast"], "tidelog up: invalid value for '--profile'"),
        (["up", "--profile", "reliable", "--brokers", "2"], "tidelog up: --brokers is 2 but"),
        (["restart"], "tidelog restart: missing argument 'BROKER...'"),
        (["kill", "x"], "tidelog kill: invalid value for 'BROKER...'"),
        (["broker"], "tidelog broker: give it a properties file"),
        (["broker", "--confg", "x"], "tidelog broker: no such option: --confg"),
    ],
)
def test_wrong_usage_is_one_sentence(
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("TIDELOG_DATA", str(tmp_path))
    assert app.run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(complaint)
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "list"],
        ["configs", "describe", "--cluster"],
        ["cluster"],
        ["consume", "x"],
        ["produce", "x", "--count", "1"],
    ],
)
def test_cluster_that_does_not_answer_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run([*arguments, "--bootstrap", NOBODY]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert NOBODY in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("name", app.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([name, "--help"]) == 0
    printed = capsys.readouterr()
    assert f"tidelog {name}" in printed.out
    assert printed.err == ""


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = re.findall(r"^│ ([\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert set(app.COMMANDS) <= set(listed)


def test_no_command_at_all_is_wrong_usage_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Usage: tidelog" in capsys.readouterr().out


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tidelog {__version__}\n"
