"""`python -m tidelog` starts the command line, but never without assertions."""

import subprocess
import sys


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_optimised_python_is_refused_in_one_sentence() -> None:
    refused = _run("-O", "-m", "tidelog", "--help")
    assert refused.returncode == 2
    assert refused.stderr == "tidelog does not run under python -O: its assertions are needed\n"


def test_help_is_the_command_lines() -> None:
    answered = _run("-m", "tidelog", "--help")
    assert answered.returncode == 0
    assert "broker" in answered.stdout
