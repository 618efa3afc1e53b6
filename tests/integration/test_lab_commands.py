"""`tidelog up --network --small-disks`, and the commands of the lab on such a cluster (B3).

One cluster for all of them: every test leaves it whole, or waits until it is.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients import numbered_records, send
from tests.support.command_line import Cluster, environment, objects, tidelog
from tests.support.server_process import wait_until
from tidelog.cli import app
from tidelog.client.admin import Admin
from tidelog.client.bootstrap import Address
from tidelog.client.errors import ClientError
from tidelog.client.membership import ask_membership
from tidelog.lab.cluster_look import ProcessState, look_at
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.local_cluster import LocalCluster
from tidelog.lab.network.errors import NoNetwork
from tidelog.lab.network.network import LabNetwork
from tidelog.lab.network.parties import CLIENTS, broker_party
from tidelog.lab.replica_files import first_difference
from tidelog.lab.small_disks import is_small_disk, why_no_small_disks

DISK_MIB = 32
SETTINGS = ("--set", "replica.lag.time.max.ms=1000")
TOPIC = "orders"
WELL_WITHIN_S = 30.0
HAS_DISKS = why_no_small_disks() is None

Lab = Callable[..., dict[str, Any]]


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


@pytest.fixture(scope="module")
def folder(cluster: Cluster) -> ClusterFolder:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3, replication_factor=3, configs={})
    folder = ClusterFolder(cluster.data)
    wait_until_well(folder)
    return folder


@pytest.fixture
def lab(folder: ClusterFolder, capsys: pytest.CaptureFixture[str]) -> Iterator[Lab]:
    """Types a command, which has to succeed; what it says, as JSON. Waits for a whole cluster."""

    def run(*words: str) -> dict[str, Any]:
        code = app.run(["lab", *words, "--data", str(folder.root), "--json"])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, ""), words
        [said] = objects(printed.out.encode())
        return said

    yield run
    wait_until_well(folder)


@pytest.fixture
def refuse(folder: ClusterFolder, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Types a command that has to be refused; the one sentence it says."""

    def run(*words: str, data: Path = folder.root, exit_code: int = 1) -> str:
        code = app.run(["lab", *words, "--data", str(data)])
        printed = capsys.readouterr()
        assert (code, printed.out) == (exit_code, ""), words
        assert printed.err.count("\n") == 1
        return printed.err.removeprefix(f"tidelog lab {words[0]}: ").rstrip("\n")

    return run


def find(folder: ClusterFolder) -> LocalCluster:
    return LocalCluster.find(folder, lambda: False)


def wait_until_well(folder: ClusterFolder) -> None:
    wait_until(
        lambda: look_at(find(folder)).is_well, within_s=WELL_WITHIN_S, what="all is well again"
    )


def restart(folder: ClusterFolder, *words: str) -> None:
    """As a child: it is the parent of what it starts, and leaves it behind."""
    done = tidelog("lab", "restart", *words, "--data", str(folder.root))
    assert (done.returncode, done.stderr) == (0, b"")


def state_of(folder: ClusterFolder, broker_id: int) -> ProcessState:
    states = {broker.id: broker.state for broker in look_at(find(folder)).brokers}
    return states[broker_id]


def leader(folder: ClusterFolder, partition: int) -> int | None:
    return look_at(find(folder)).partitions[TOPIC, partition].leader


def is_reachable(cluster: Cluster, broker_id: int) -> bool:
    """Whether a client gets an answer from the broker, by the port it advertises."""
    [broker] = [each for each in cluster.announced["brokers"] if each["id"] == broker_id]
    try:
        ask_membership(Address(broker["host"], broker["port"]), timeout_s=0.5)
    except ClientError:
        return False
    return True


def test_leader_is_killed_and_all_that_are_down_are_restarted(
    lab: Lab, folder: ClusterFolder, refuse: Callable[..., str]
) -> None:
    victim = leader(folder, 1)
    assert victim is not None
    said = lab("kill", "leader", "of", f"{TOPIC}:1")
    assert said == {
        "deed": "kill",
        "undone": False,
        "target": f"leader of {TOPIC}-1",
        "brokers": [victim],
    }
    assert state_of(folder, victim) is ProcessState.DOWN
    assert refuse("kill", str(victim)) == f"broker {victim} is not running"
    assert lab("kill", "leader", "of", f"{TOPIC}:1")["brokers"] != [victim], "the next one"
    restart(folder)
    assert state_of(folder, victim) is ProcessState.UP


def test_some_or_all_are_paused_and_resumed(
    lab: Lab, folder: ClusterFolder, refuse: Callable[..., str]
) -> None:
    [victim] = lab("pause", "minority")["brokers"]
    assert state_of(folder, victim) is ProcessState.PAUSED
    assert refuse("pause", str(victim)) == f"broker {victim} is paused"
    assert lab("resume")["brokers"] == [victim]
    assert state_of(folder, victim) is ProcessState.UP
    assert refuse("resume", str(victim)) == f"broker {victim} is not paused"
    assert len(lab("pause", "majority")["brokers"]) == 2
    assert len(lab("pause", "all")["brokers"]) == 1, "the rest"
    assert refuse("pause", "random") == "no broker is running"
    assert refuse("pause", "controller") == "no broker is running, so nobody is controller"
    assert lab("resume")["brokers"] == [1, 2, 3]


def test_follower_is_stopped_for_a_while(folder: ClusterFolder) -> None:
    done = tidelog(
        *("lab", "stop", "follower", "of", TOPIC, "--for", "10ms"),
        *("--data", str(folder.root), "--json"),
    )
    assert done.returncode == 0
    stopped, started = objects(done.stdout)
    assert (stopped["deed"], stopped["undone"], started["undone"]) == ("stop", False, True)
    assert started["brokers"] == stopped["brokers"]
    assert state_of(folder, stopped["brokers"][0]) is ProcessState.UP
    wait_until_well(folder)


def test_broker_is_cut_off_from_clients_until_it_is_healed(
    lab: Lab, folder: ClusterFolder, cluster: Cluster
) -> None:
    [victim] = lab("partition", "random", "--from", "clients")["brokers"]
    assert not is_reachable(cluster, victim)
    [link] = look_at(find(folder)).links
    assert ({link.a, link.b}, link.is_cut) == ({broker_party(victim), CLIENTS}, True)
    other = victim % 3 + 1
    lab("partition", str(victim), "--from", str(other))
    assert len(lab("heal", str(other))["links"]) == 1
    assert len(lab("heal")["links"]) == 1
    assert is_reachable(cluster, victim)


def test_way_to_a_broker_is_slow(lab: Lab, folder: ClusterFolder) -> None:
    said = lab("slow", "controller", "--by", "30ms", "--from", "others")
    assert said["by_ms"] == 30
    links = look_at(find(folder)).links
    assert [(link.is_cut, link.delay_ms) for link in links] == [(False, 30)] * 2
    lab("heal")
    assert look_at(find(folder)).links == ()


@pytest.mark.parametrize("kind", ["group", "transaction"])
def test_session_of_a_coordinator_ends_and_another_begins(
    kind: str, lab: Lab, folder: ClusterFolder
) -> None:
    last_words = {each: len(folder.output_file(each).read_text("utf-8")) for each in (1, 2, 3)}
    said = lab("expire", kind, "coordinator", "of", "billing")
    assert said["target"] == f"{kind} coordinator of billing"
    [victim] = said["brokers"]
    wait_until(
        lambda: (
            "session lost" in folder.output_file(victim).read_text("utf-8")[last_words[victim] :]
        ),
        within_s=WELL_WITHIN_S,
        what="it finds out",
    )
    assert state_of(folder, victim) is ProcessState.UP


@pytest.mark.skipif(not HAS_DISKS, reason="a disk that can be filled takes root")
def test_disk_is_filled_and_emptied(lab: Lab, folder: ClusterFolder) -> None:
    assert lab("fill-disk", "2")["brokers"] == [2]
    full = [broker.id for broker in look_at(find(folder)).brokers if broker.has_full_disk]
    assert full == [2]
    assert lab("make-room")["brokers"] == [2]
    assert not any(broker.has_full_disk for broker in look_at(find(folder)).brokers)


@pytest.mark.parametrize("deed", ["tear", "corrupt"])
def test_damaged_log_is_mended_from_the_others(
    deed: str, lab: Lab, folder: ClusterFolder, cluster: Cluster
) -> None:
    """S6. What one broker loses as in a power cut, the others have."""
    for number in range(3):
        records = numbered_records(20, value_size_bytes=100, seed=deed)
        send(cluster.bootstrap, TOPIC, records, partition=number, settings={"acks": "all"})
    with Admin(cluster.bootstrap) as admin:
        before = admin.offset_bounds(TOPIC, range(3))
    said = lab(deed, "follower", "of", f"{TOPIC}:2")
    assert said["logs"] > 0
    restart(folder)
    wait_until_well(folder)
    with Admin(cluster.bootstrap) as admin:
        assert admin.offset_bounds(TOPIC, range(3)) == before
    assert (
        first_difference({each: folder.log_dir(each) / f"{TOPIC}-2" for each in (1, 2, 3)}) is None
    )


def test_status_says_whether_all_is_well(lab: Lab, folder: ClusterFolder) -> None:
    said = lab("status")
    assert said["well"]
    assert [broker["process"] for broker in said["brokers"]] == ["up"] * 3
    topics = {(each["topic"], each["partition"]): each for each in said["partitions"]}
    assert sorted(topics[TOPIC, 0]["isr"]) == [1, 2, 3]
    lab("pause", "3")
    try:
        text = tidelog("lab", "status", "--data", str(folder.root))
        assert text.returncode == 1
        assert re.search(rb"^3 +paused", text.stdout, re.MULTILINE)
    finally:
        lab("resume")


def test_watch_shows_what_changes_until_it_is_interrupted(lab: Lab, folder: ClusterFolder) -> None:
    command = ["lab", "status", "--watch", "--json", "--data", str(folder.root)]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tidelog", *command], stdout=subprocess.PIPE, env=environment()
    ) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["well"]
        lab("pause", "1")
        changed = json.loads(watching.stdout.readline())
        assert changed["brokers"][0]["process"] == "paused"
        lab("resume")
        watching.send_signal(signal.SIGINT)
    assert watching.returncode == 0


def test_what_cannot_be_done_is_said_in_one_sentence(
    refuse: Callable[..., str], tmp_path: Path
) -> None:
    assert refuse("kill", "9").startswith("there is no broker 9 in ")
    assert refuse("kill", "leader", "of", "nothing") == "there is no topic nothing"
    assert refuse("kill", "leader", f"{TOPIC}:3") == f"{TOPIC} has 3 partitions, 0 to 2"
    assert refuse("partition", "1", "--from", "1") == "broker 1 cannot be cut off from itself"
    assert refuse("partition", "1", "--from", "zookeeper").endswith("no zookeeper")
    assert "is nobody" in refuse("pause", "boss", exit_code=2)
    assert "must be others, clients" in refuse("partition", "1", "--from", "you", exit_code=2)
    assert "--by" in refuse("slow", "1", "--by", "much", exit_code=2)
    assert "--for" in refuse("pause", "1", "--for", "ever", exit_code=2)
    for words in (["kill", "1"], ["heal"], ["status"], ["restart"]):
        assert refuse(*words, data=tmp_path) == f"no cluster was started in {tmp_path}"


def test_what_the_cluster_was_not_started_for_is_said(
    refuse: Callable[..., str], tmp_path: Path
) -> None:
    plain = Cluster(tmp_path, "--brokers", "1")
    try:
        for words in (["partition", "1"], ["slow", "1", "--by", "1s"], ["heal"]):
            assert "'tidelog up --network' starts one that has" in refuse(*words, data=tmp_path)
        assert "tidelog up --small-disks" in refuse("fill-disk", "1", data=tmp_path)
        with Admin(plain.bootstrap) as admin:
            admin.create_topic("alone", partitions=1, configs={})
        follower = refuse("kill", "follower", "of", "alone", data=tmp_path)
        assert follower == "alone-0 has one replica, so nobody follows"
    finally:
        plain.down()
