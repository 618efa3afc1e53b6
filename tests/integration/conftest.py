"""Broker processes for tests about the process itself: its command line, folders and output.

Others have the fixtures of `tidelog.testing`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

StartBroker = Callable[[Mapping[str, str]], BrokerProcess]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker with the given settings; it is killed when the test ends."""
    with ExitStack() as running:

        def start(settings: Mapping[str, str]) -> BrokerProcess:
            broker = BrokerProcess(tmp_path / f"broker-{len(started)}", settings)
            started.append(broker)
            running.enter_context(broker)
            return broker

        started: list[BrokerProcess] = []
        yield start
