"""What `make test` learns of a suite while the suite is writing."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_tests.py"
PROGRESS = '{"collected": 2}\n{"outcome": "passed"}\n{"outcome": "failed"}\n'


@pytest.fixture(scope="module")
def run_tests() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("cut", range(len(PROGRESS) + 1))
def test_progress_that_is_read_within_a_line_is_understood(run_tests: ModuleType, cut: int) -> None:
    suite = run_tests.Suite("unit", SCRIPT)

    suite.learn(PROGRESS[:cut])
    suite.learn(PROGRESS[cut:])

    assert suite.collected == 2
    assert suite.outcomes == {"passed": 1, "failed": 1}


def test_time_is_counted_by_file(run_tests: ModuleType) -> None:
    suite = run_tests.Suite("unit", SCRIPT)

    for took_s in (0.25, 1.5):
        suite.learn(f'{{"file": "tests/unit/test_a.py", "took_s": {took_s}}}\n')

    assert suite.file_took_s == {"tests/unit/test_a.py": 1.75}
