"""Tests of compiled shortcuts: skipped where there is a reason for having none, else failing."""

import os
import shutil

import pytest

from tidelog.broker.shortcuts import is_compiled

only_compiled = pytest.mark.skipif(
    not is_compiled() and (shutil.which("cc") is None or "TIDELOG_PURE_PYTHON" in os.environ),
    reason="there is no C compiler here, or nothing was to be compiled",
)
