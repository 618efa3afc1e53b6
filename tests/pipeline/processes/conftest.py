"""Tests that need no session, or start their own as a process: beside those that share one."""

from typing import NoReturn

import pytest


@pytest.fixture
def spark() -> NoReturn:
    """A worker that ran one of these tests would start a second session."""
    pytest.fail("tests of this folder do without the shared session; others are one folder up")
