"""What docs/testing.md shows, and the sample project, pass as somebody else's tests would (O4)."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tidelog

ROOT = Path(tidelog.__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
SAMPLE = ROOT / "examples" / "testing"
WITHIN_S = 180


def run(command: Sequence[str], folder: Path, temporary: Path) -> str:
    """What it printed, of a run that succeeded and left nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**kept, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(temporary.glob("tidelog-test-*")) == []
    return done.stdout + done.stderr


def test_page_has_the_examples_that_people_need() -> None:
    assert {"test_broker.py", "test_failover.py", "test_with_unittest.py"} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_the_page_passes(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(EXAMPLES[name], "utf-8")
    if "unittest" in name:
        assert "Ran 1 test" in run(["unittest", Path(name).stem], tmp_path, tmp_path)
    else:
        assert "1 passed" in run(["pytest", "-p", "no:cacheprovider", name], tmp_path, tmp_path)


def test_sample_project_passes(tmp_path: Path) -> None:
    said = run(["pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"], SAMPLE, tmp_path)
    assert "4 passed" in said
    assert "rootdir: " + str(SAMPLE) in said, "its settings are its own"
