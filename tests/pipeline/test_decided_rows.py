"""A micro-batch that is run again has the rows that it had the first time (X2)."""

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.pipeline.decided_rows import FOLDER, decided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_as_they_were_the_first_time(spark: "SparkSession", tmp_path: Path) -> None:
    first = decided(spark.range(3), 7, str(tmp_path)).collect()
    again = decided(spark.range(5), 7, str(tmp_path)).collect()
    assert sorted(row["id"] for row in again) == sorted(row["id"] for row in first) == [0, 1, 2]


def test_rows_that_were_saved_by_half_are_decided_anew(
    spark: "SparkSession", tmp_path: Path
) -> None:
    decided(spark.range(3), 7, str(tmp_path))
    (tmp_path / FOLDER / "7" / "_SUCCESS").unlink()
    again = decided(spark.range(5), 7, str(tmp_path)).collect()
    assert sorted(row["id"] for row in again) == [0, 1, 2, 3, 4]


def test_only_the_last_is_kept(spark: "SparkSession", tmp_path: Path) -> None:
    for number in range(3):
        decided(spark.range(1), number, str(tmp_path))
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["2"]
