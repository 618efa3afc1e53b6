"""What stands behind `format("tidelog")`: the data source, or a sentence that says why not."""

from pyspark.sql.datasource import DataSource


def find_source() -> type[DataSource]:
    """tidelog's data source; where it cannot be imported, one that says so when it is used."""
    try:
        from tidelog.pipeline.source import TidelogDataSource  # noqa: PLC0415 - it may fail
    except Exception as error:  # noqa: BLE001 - whatever it is, other jobs must not suffer
        return unavailable_source(f"{type(error).__name__}: {error}")
    return TidelogDataSource


def unavailable_source(reason: str) -> type[DataSource]:
    """A source that can be looked up and not be used."""

    class UnavailableDataSource(DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            raise ImportError(
                f"the format 'tidelog' cannot be used with this Python ({reason}): "
                "\"pip install 'tidelog[pipeline]'\" brings what it needs"
            )

        @classmethod
        def name(cls) -> str:
            return "tidelog"

    return UnavailableDataSource


DefaultSource = find_source()
