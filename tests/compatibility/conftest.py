"""Makes the fixtures of `kafka_peer` known to every test of this folder."""

import pytest

from tests.compatibility.kafka_peer import broker, kafka_jars, start_broker, start_kafka, tools
from tests.support.subject import BROKER_COUNT

__all__ = ["broker", "kafka_jars", "start_broker", "start_kafka", "tools"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take out what says nothing about a cluster, rather than skip it: nothing is missing."""
    if BROKER_COUNT > 1:
        items[:] = [item for item in items if item.get_closest_marker("one_broker") is None]
