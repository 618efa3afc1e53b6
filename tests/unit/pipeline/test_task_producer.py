"""What is handed to librdkafka of the columns of a row."""

import pyarrow as pa
import pytest

from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.task_producer import headers_of, timestamps_ms

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_a_timestamp_of_1970_is_not_taken_for_none() -> None:
    given = pa.array([0, 1_000, None, -5_000, 1_763_370_000_000_000], pa.timestamp("us", tz="UTC"))
    assert timestamps_ms(given, 5) == [1, 1, 0, -5, 1_763_370_000_000]


def test_without_a_column_it_is_the_time_of_sending() -> None:
    assert timestamps_ms(None, 2) == [0, 0]


def test_headers_are_handed_over_as_they_are() -> None:
    given = [[{"key": "a", "value": None}, {"key": "a", "value": b""}], [], None]
    column = pa.array(given, HEADERS)
    assert headers_of(column, 3) == [[("a", None), ("a", b"")], [], None]
    assert headers_of(None, 2) == [None, None]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_name_is_refused(header: dict[str, bytes | None] | None) -> None:
    """It would be written with the name "None"."""
    with pytest.raises(PipelineError, match="a row has a header without a name"):
        headers_of(pa.array([[header]], HEADERS), 1)
