"""What the tests of the pipeline share: one Spark session, three brokers, topics on them.

Starting Spark takes longer than most tests, so all of them have the same session, also where
pytest has several workers: one of them has the session. A test leaves it as it found it: streams
stopped, no temporary view. Jobs that need a session of their own, or none of ours, are processes
(`tests/support/spark_job.py`); most of those are in the folder `processes`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.replicated_topics import ReplicatedTopics
from tests.support.spark_job import CORE_COUNT, SETTINGS
from tests.support.spark_needed import pytest_pycollect_makemodule
from tests.support.three_brokers import ThreeBrokers
from tests.support.two_sources import connector_settings
from tidelog.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESSES: Final = "/processes/"

# Who reads files waits for it, five seconds by default.
WRITTEN_DOWN_SOON: Final = {"replica.high.watermark.checkpoint.interval.ms": "250"}

__all__ = ["pytest_pycollect_makemodule"]


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """Files that need the session go to one worker, all of them; those beside them, where is room.

    Instead of pytest-xdist's groups, which pytest 9.2 has no more place for in the ids of tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return file if PROCESSES in file else "session"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSession:
    return OneSession(config, log)


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
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path_factory.mktemp("three"), WRITTEN_DOWN_SOON) as running:
        yield running


@pytest.fixture(scope="session")
def topics(three_brokers: ThreeBrokers) -> ReplicatedTopics:
    return ReplicatedTopics(three_brokers)
