"""The commands that docs/cli.md shows do what it says, in the order in which it shows them."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import tidelog
from tests.support.command_line import COMMAND_TIMEOUT_S, environment

ROOT = Path(tidelog.__file__).resolve().parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)


def documented_commands() -> list[str]:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    return [command for block in BLOCK.findall(text) for command in COMMAND.findall(block)]


def test_documented_commands_succeed_one_after_the_other(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "tidelog"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m tidelog "$@"\n')
    program.chmod(0o755)
    variables = environment(
        PATH=f"{program.parent}:{os.environ['PATH']}",
        TIDELOG_DATA=str(tmp_path / "data"),
        TIDELOG_BOOTSTRAP="set by up",
    )
    commands = documented_commands()
    assert commands[0].startswith("tidelog up")
    assert commands[-1] == "tidelog down"
    try:
        for command in commands:
            # The only thing a test may not do as documented: take the one port of the machine.
            typed = command.replace("tidelog up", "tidelog up --json --port 0")
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {typed}"],
                capture_output=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
                env=variables,
            )
            assert (done.returncode, done.stderr) == (0, b""), command
            if "tidelog up" in command:
                found = re.search(rb'"bootstrap": "([^"]+)"', done.stdout)
                assert found is not None
                variables["TIDELOG_BOOTSTRAP"] = found[1].decode()
    finally:
        subprocess.run(
            ["bash", "-c", "tidelog down --kill"], env=variables, capture_output=True, check=False
        )
