"""`tidelog up --network --small-disks`, and the commands of the lab on such a cluster (B3).

One cluster for all of them: every test leaves it whole, or waits until it is.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Cluster, objects, tidelog
from tidelog.client.admin import Admin
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.network.errors import NoNetwork
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.small_disks import is_small_disk, why_no_small_disks

DISK_MIB = 32
SETTINGS = ("--set", "replica.lag.time.max.ms=1000")
HAS_DISKS = why_no_small_disks() is None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    disks = ("--small-disks", str(DISK_MIB)) if HAS_DISKS else ()
    started = Cluster(tmp_path_factory.mktemp("lab"), "--network", *disks, *SETTINGS)
    yield started
    started.down()


def test_clients_are_told_the_ports_of_proxies(cluster: Cluster) -> None:
    folder = ClusterFolder(cluster.data)
    proxies = {route.party: route.port for route in LabNetwork.find(folder).status().routes}
    with Admin(cluster.bootstrap) as admin:
        told = {f"broker {each.id}": each.port for each in admin.describe_cluster().brokers}
    assert told == proxies
    [status] = objects(cluster.local("status", "--json").stdout)
    assert {f"broker {each['id']}": each["port"] for each in status["brokers"]} == proxies


def test_down_ends_what_is_around_the_brokers(tmp_path: Path) -> None:
    disks = ("--small-disks", str(DISK_MIB)) if HAS_DISKS else ()
    cluster = Cluster(tmp_path, "--network", "--brokers", "1", *disks)
    folder = ClusterFolder(tmp_path)
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("kept", partitions=1, configs={})
    assert is_small_disk(folder.log_dir(1)) == HAS_DISKS
    assert cluster.local("down").returncode == 0
    with pytest.raises(NoNetwork):
        LabNetwork.find(folder)
    assert not is_small_disk(folder.log_dir(1))
    assert (folder.log_dir(1) / "kept-0").is_dir()
    # Whoever starts it next, without any of it, has what was there.
    again = Cluster(tmp_path, "--brokers", "1")
    try:
        with Admin(again.bootstrap) as admin:
            assert admin.offset_bounds("kept", [0])[0].end_offset == 0
    finally:
        again.down()


def test_settings_that_the_network_chooses_are_refused(tmp_path: Path) -> None:
    done = tidelog(
        *("up", "--network", "--brokers", "1", "--data", str(tmp_path)),
        *("--set", "advertised.listeners=PLAINTEXT://127.0.0.1:1"),
    )
    assert (done.returncode, done.stderr.decode()) == (
        2,
        "tidelog up: advertised.listeners cannot be given with --network, which chooses it\n",
    )
