"""A topic has the columns that it has, whatever `schema(...)` a user gives (X1)."""

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.rows import schema
from tidelog.pipeline.source import TidelogDataSource, TopicReader

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}


def columns(*, has_headers: bool) -> StructType:
    """As Spark hands them on that has asked for the schema, or was given it with its own words."""
    given = from_arrow_schema(schema(has_headers=has_headers))
    assert isinstance(given, StructType)
    return given


@pytest.mark.parametrize("has_headers", [False, True])
def test_columns_of_ones_own_are_refused(has_headers: bool) -> None:
    source = TidelogDataSource({**OPTIONS, "includeheaders": str(has_headers).lower()})
    assert isinstance(source.reader(columns(has_headers=has_headers)), TopicReader)
    source.streamReader(columns(has_headers=has_headers)).getDefaultReadLimit()
    for others in (StructType(), columns(has_headers=not has_headers)):
        with pytest.raises(OptionError, match=r"leave out schema\(\.\.\.\)"):
            source.reader(others)
        stream = source.streamReader(others)
        with pytest.raises(OptionError, match=r"leave out schema\(\.\.\.\)"):
            stream.initialOffset()
