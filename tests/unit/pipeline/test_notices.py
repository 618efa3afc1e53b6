"""What is said once is said by one of an application's processes."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.pipeline import notices

TWICE = "from tidelog.pipeline.notices import warn_once\nwarn_once('less')\nwarn_once('less')\n"


def said(folder: str) -> str:
    """By a process of an application that has this folder."""
    done = subprocess.run(
        [sys.executable, "-c", TWICE],
        env={"SPARK_LOCAL_DIRS": folder, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_one_process_of_an_application_says_it_once(tmp_path: Path) -> None:
    assert [said(str(tmp_path)) for _ in range(2)] == ["tidelog: less\n", ""]


@pytest.mark.parametrize("folder", ["", "/no/such/folder"])
def test_it_is_said_where_nobody_can_know(folder: str) -> None:
    assert [said(folder) for _ in range(2)] == ["tidelog: less\n"] * 2


def test_what_happens_again_is_said_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        notices.warn("gone")
        notices.warn("gone")
    assert [each.getMessage() for each in caplog.records] == ["tidelog: gone"] * 2
