"""Three tidelog brokers as child processes on one coordinator, the embedded one unless said.

Brokers have the ids 1, 2 and 3, unless a test has others in mind.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.broker_cluster import METADATA_TIMEOUT_S, WAIT_TIMEOUT_S, BrokerCluster
from tests.support.broker_process import BrokerProcess

__all__ = ["BROKER_IDS", "METADATA_TIMEOUT_S", "WAIT_TIMEOUT_S", "ThreeBrokers", "three_brokers"]

BROKER_IDS = (1, 2, 3)


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ThreeBrokers"]:
    """One cluster for all tests that leave it as they found it; each uses topics of its own."""
    with ThreeBrokers(tmp_path_factory.mktemp("three"), {}) as running:
        yield running


class ThreeBrokers(BrokerCluster[BrokerProcess]):
    """Each broker has a folder of its own in the cluster's."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        broker_ids: Sequence[int] = BROKER_IDS,
        coordination: str | None = None,
    ) -> None:
        brokers = {
            node_id: BrokerProcess(
                folder / f"broker-{node_id}",
                {
                    "node.id": str(node_id),
                    "tidelog.coordination": coordination or f"sqlite:{folder / 'coordination.db'}",
                    **(settings or {}),
                },
            )
            for node_id in broker_ids
        }
        super().__init__(folder, brokers)

    @property
    def port(self) -> int:
        """Of one of them."""
        return self.brokers[1].port

    @property
    def data_folder(self) -> Path:
        """Of the same one."""
        return self.brokers[1].data_folder
