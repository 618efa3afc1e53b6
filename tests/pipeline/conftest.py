"""What the tests of the pipeline share: one Spark session, three brokers, topics on them.

Starting Spark takes longer than most tests, so all of them have the same session, and the suite
runs in one process. A test leaves it as it found it: streams stopped, no temporary view. Jobs that
need a session of their own, or none of ours, are processes (`tests/support/spark_job.py`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.replicated_topics import ReplicatedTopics
from tests.support.spark_job import CORE_COUNT, SETTINGS
from tests.support.spark_needed import pytest_pycollect_makemodule
from tests.support.three_brokers import ThreeBrokers, three_brokers
from tests.support.two_sources import connector_settings
from tidelog.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_pycollect_makemodule", "three_brokers"]


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """With two cores of this machine; knows `format("tidelog")`."""
    session = spark_session(
        app_name="tidelog-tests",
        master=f"local[{CORE_COUNT}]",
        settings={**SETTINGS, **connector_settings()},
    )
    try:
        yield session
    finally:
        session.stop()


@pytest.fixture(scope="session")
def topics(three_brokers: ThreeBrokers) -> ReplicatedTopics:
    return ReplicatedTopics(three_brokers)
