"""What is handed to librdkafka of the columns of a row."""

import pyarrow as pa

from tidelog.pipeline.task_producer import timestamps_ms


def test_a_timestamp_of_1970_is_not_taken_for_none() -> None:
    given = pa.array([0, 1_000, None, -5_000, 1_763_370_000_000_000], pa.timestamp("us", tz="UTC"))
    assert timestamps_ms(given, 5) == [1, 1, 0, -5, 1_763_370_000_000]


def test_without_a_column_it_is_the_time_of_sending() -> None:
    assert timestamps_ms(None, 2) == [0, 0]
