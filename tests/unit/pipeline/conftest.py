"""Most of these import pyarrow or pyspark."""

from tests.support.spark_needed import pytest_pycollect_makemodule

__all__ = ["pytest_pycollect_makemodule"]
