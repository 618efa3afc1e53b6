"""What the tests of several stores share: one ZooKeeper ensemble for all of them."""

from collections.abc import Iterator

import pytest

from tests.contract.ensemble import SharedEnsemble
from tests.support.zookeeper import start_servers


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedEnsemble]:
    servers = start_servers(tmp_path_factory.mktemp("zookeeper"), server_count=3)
    yield SharedEnsemble(servers)
    servers.stop()


@pytest.fixture
def whole_ensemble(ensemble: SharedEnsemble) -> SharedEnsemble:
    """The ensemble with no server missing."""
    ensemble.make_whole()
    return ensemble
