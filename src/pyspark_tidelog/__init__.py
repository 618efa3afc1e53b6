"""How Spark finds the format `tidelog` by itself: it looks for packages called `pyspark_*`.

It does so when a job first names a format that it does not know, and imports all of them. So
nothing here may fail, whatever is missing: a job that has never heard of tidelog would fail too.
"""

from pyspark_tidelog.default_source import DefaultSource

__all__ = ["DefaultSource"]
