"""Tests whose jobs are processes of their own: they run beside those that share the session."""

from typing import NoReturn

import pytest


@pytest.fixture
def spark() -> NoReturn:
    """A worker that ran one of these tests would start a second session."""
    pytest.fail("tests of this folder do without the shared session; others are one folder up")
