"""What the tests of several stores share: one ZooKeeper ensemble for all of them."""

from collections.abc import Iterator

import pytest

from tests.contract.ensemble import READY_WITHIN_S, SharedEnsemble
from tidelog.lab.zookeeper import ZooKeeperEnsemble, why_unavailable


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedEnsemble]:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(reason)
    servers = ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), server_count=3, port=0)
    servers.start(ready_within_s=READY_WITHIN_S, is_cancelled=lambda: False)
    yield SharedEnsemble(servers)
    servers.stop()
