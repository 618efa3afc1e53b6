"""Makes `format("tidelog")` known to a Spark session (X1).

Spark also finds the format by itself, through the package `pyspark_tidelog`, when a job first asks
for a format that it does not know. On a cluster that is not enough: what is found so runs on the
executors with the driver's Python and without what was shipped to them (`shipping.py`), so
`register` is what a job on a cluster calls.

Nothing here needs pyspark or pyarrow to be imported.
"""

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.java import package_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT: Final = "tidelog"

_PACKAGES: Final = ("pyspark", "pyarrow")


class ExtraMissing(PipelineError):
    """Packages that only jobs on Spark need are not installed."""

    def __init__(self, packages: list[str]) -> None:
        missing = " and ".join(packages)
        super().__init__(
            f"{missing} {'is' if len(packages) == 1 else 'are'} not installed: "
            "\"pip install 'tidelog[pipeline]'\" brings what jobs on Spark need"
        )


def require_extra() -> None:
    """Raise ExtraMissing unless everything is installed that a driver needs."""
    missing = [name for name in _PACKAGES if package_folder(name) is None]
    if missing:
        raise ExtraMissing(missing)


def register(spark: "SparkSession") -> None:
    """Let `spark` read and write `format("tidelog")`.

    Doing it again replaces what was registered, which is right after a `ship`.
    """
    require_extra()
    from tidelog.pipeline.source import TidelogDataSource  # noqa: PLC0415 - needs the extra

    spark.dataSource.register(TidelogDataSource)
