"""Tests that import pyspark, where it is not installed: each file of them is one skipped test.

A conftest has them so by importing `pytest_pycollect_makemodule`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.pipeline.registration import ExtraMissing, require_extra


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """None leaves the file to pytest."""
    try:
        require_extra()
    except ExtraMissing as missing:
        module = _NotImported.from_parent(parent, path=module_path)
        module.reason = str(missing)
        return module
    return None


class _NotImported(pytest.Module):
    reason = ""

    def collect(self) -> Iterator[pytest.Item]:
        def skip() -> None:
            pytest.skip(self.reason)

        yield pytest.Function.from_parent(self, name="test_all", callobj=skip)
