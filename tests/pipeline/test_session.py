"""A session starts with what is on the machine, and says in words what is wrong."""

import os
import sys
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.support.ports import free_port
from tests.support.spark_job import CORE_COUNT
from tidelog.pipeline.session import LOG_VARIABLE, SessionFailed, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEFORE = dict(os.environ)


def test_the_environment_is_left_as_it_was(spark: "SparkSession") -> None:
    names = ("JAVA_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")
    assert [os.environ.get(name) for name in names] == [BEFORE.get(name) for name in names]


def test_workers_run_the_drivers_python(spark: "SparkSession") -> None:
    numbers = spark.sparkContext.parallelize([1], 1)
    assert numbers.map(lambda _: __import__("sys").executable).collect() == [sys.executable]


def test_workers_import_the_pyspark_that_is_installed(spark: "SparkSession") -> None:
    """Not Spark's archive of it, which each of them would compile."""
    numbers = spark.sparkContext.parallelize([1], 1)
    assert numbers.map(lambda _: __import__("pyspark").__file__).collect() == [pyspark.__file__]


def test_a_local_session_listens_on_this_machine_only(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_what_the_user_sets_wins(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(CORE_COUNT)


def test_the_format_is_known(spark: "SparkSession") -> None:
    columns = spark.read.format("tidelog").load().columns
    assert columns[:3] == ["key", "value", "topic"]


def test_the_format_is_found_without_being_registered(spark: "SparkSession") -> None:
    columns = spark.newSession().read.format("tidelog").load().columns
    assert columns[:3] == ["key", "value", "topic"]


def test_a_session_that_runs_is_used_again(spark: "SparkSession") -> None:
    before = spark.conf.getAll
    again = spark_session(app_name="again", master=f"local[{CORE_COUNT}]")
    assert again.sparkContext is spark.sparkContext
    assert again.conf.getAll == before


def test_a_second_master_in_a_process_is_refused(spark: "SparkSession") -> None:
    with pytest.raises(SessionFailed, match=r"the master local\[2\] runs in this process"):
        spark_session(app_name="second", master="local[1]")


def test_a_master_that_is_not_there_is_said_at_once() -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(SessionFailed, match=f"nobody listens at {master}"):
        spark_session(app_name="alone", master=master)


@pytest.mark.parametrize("master", ["spark://host", "spark://:7077", "spark://host:port"])
def test_an_address_of_a_master_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(SessionFailed, match="is not spark://host:port"):
        spark_session(app_name="mistyped", master=master)


@pytest.mark.parametrize("master", ["", "here", "http://host:7077", "sc://host"])
def test_a_master_that_spark_does_not_know_is_refused(master: str) -> None:
    with pytest.raises(SessionFailed, match="is none of Spark's"):
        spark_session(app_name="mistyped", master=master)


def test_a_log_level_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_VARIABLE, "loud")
    with pytest.raises(SessionFailed, match=f"{LOG_VARIABLE} is 'loud' and must be one of OFF"):
        spark_session(app_name="mistyped")
