"""The pytest plugin: which cluster a test gets, in which condition, and what is left of it (O4).

Each test writes a little project and runs pytest on it, in a process of its own, as people do. The
temporary files of a run are in a place of its own, so that what it leaves behind can be seen.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.server_process import wait_until
from tidelog.lab.processes import identify

pytest_plugins = ["pytester"]

GONE_WITHIN_S: Final = 30.0
HEAD: Final = """
import json
import os
import time
from pathlib import Path

import pytest


def note(name, **facts):
    (Path(os.environ["NOTES"]) / name).write_text(json.dumps(facts))


def wait_gone(cluster, broker_id):
    while cluster.is_running(broker_id):
        time.sleep(0.01)


def processes(cluster):
    return [cluster.pid_of(broker_id) for broker_id in cluster.broker_ids]
"""


class Project:
    """Tests of somebody else's."""

    def __init__(self, pytester: pytest.Pytester, root: Path) -> None:
        self.pytester = pytester
        self.temporary = root / "temporary"
        self._notes = root / "notes"
        self.temporary.mkdir()
        self._notes.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {"TMPDIR": str(self.temporary), "NOTES": str(self._notes)}

    def write(self, tests: str, *ini: str) -> None:
        self.pytester.makepyfile(test_it=HEAD + tests)
        self.pytester.makeini("\n".join(["[pytest]", *ini]))

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest_subprocess("-p", "no:randomly", *arguments)

    def noted(self, name: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self._notes / name).read_text())
        return facts

    def has_noted(self, name: str) -> bool:
        return (self._notes / name).exists()

    def folders(self) -> list[Path]:
        """Of clusters that run, or were left."""
        return list(self.temporary.glob("tidelog-test-*"))


@pytest.fixture
def project(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(pytester, tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)
    return made


def is_gone(pid: int) -> bool:
    return identify(pid) is None


def processes_in(folder: Path) -> list[int]:
    """Those whose command names a file in the folder: brokers, and the network between them."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if os.fsencode(folder) in command.read_bytes():
                found.append(int(command.parent.name))
    return found


TWO_TESTS: Final = """
def test_a(tidelog_cluster):
    note("a", pids=processes(tidelog_cluster), folder=str(tidelog_cluster.folder))

def test_b(tidelog_cluster):
    note("b", pids=processes(tidelog_cluster), folder=str(tidelog_cluster.folder))
"""


def test_tests_of_a_session_share_a_cluster_that_leaves_nothing(project: Project) -> None:
    project.write(TWO_TESTS)
    project.run().assert_outcomes(passed=2)
    assert project.noted("a") == project.noted("b")
    assert len(project.noted("a")["pids"]) == 3
    assert all(is_gone(pid) for pid in project.noted("a")["pids"])
    assert project.folders() == []


@pytest.mark.parametrize("how", ["ini", "option"])
def test_function_scope_is_a_cluster_for_each_test(project: Project, how: str) -> None:
    project.write(
        TWO_TESTS, "tidelog_brokers = 1", *(["tidelog_scope = function"] if how == "ini" else [])
    )
    options = ["--tidelog-scope", "function"] if how == "option" else []
    project.run(*options).assert_outcomes(passed=2)
    first, second = project.noted("a"), project.noted("b")
    assert len(first["pids"]) == 1
    assert first["folder"] != second["folder"]
    assert set(first["pids"]).isdisjoint(second["pids"])


def test_scope_that_does_not_exist_is_refused(project: Project) -> None:
    project.write(TWO_TESTS, "tidelog_scope = sometimes")
    result = project.run()
    result.stdout.fnmatch_lines(["*tidelog_scope*'sometimes' but must be one of session*"])
    assert result.ret != 0


def test_workers_of_xdist_have_clusters_of_their_own(project: Project) -> None:
    project.write(
        """
@pytest.mark.parametrize("number", range(4))
def test_round_trip(tidelog_broker, tidelog_topic, worker_id, number):
    tidelog_broker.send(tidelog_topic, str(number))
    tidelog_broker.kill()
    tidelog_broker.restart()
    assert [each.value for each in tidelog_broker.records(tidelog_topic)] == [str(number).encode()]
    note(worker_id, pids=processes(tidelog_broker), address=tidelog_broker.bootstrap)
"""
    )
    project.run("-n", "2").assert_outcomes(passed=4)
    first, second = project.noted("gw0"), project.noted("gw1")
    assert first["address"] != second["address"]
    assert project.folders() == []
    assert all(is_gone(pid) for pid in (*first["pids"], *second["pids"]))


HARMS: Final = {
    "kill": "tidelog_cluster.kill_broker(1); tidelog_cluster.kill_broker(2)",
    "stop": "tidelog_cluster.stop_broker(2)",
    "pause": "tidelog_cluster.pause_broker(3)",
    "cut": "tidelog_cluster.partition_network(1)",
    "signal": "os.kill(tidelog_cluster.pid_of(2), 9); wait_gone(tidelog_cluster, 2)",
}


@pytest.mark.parametrize("harm", HARMS)
def test_next_test_finds_its_cluster_whole(project: Project, harm: str) -> None:
    project.write(
        f"""
def test_a(tidelog_cluster):
    tidelog_cluster.create_topic("t", partitions=3)
    {HARMS[harm]}
    assert {harm == "cut"} == all(map(tidelog_cluster.is_running, (1, 2, 3)))

def test_b(tidelog_cluster):
    assert all(map(tidelog_cluster.is_running, (1, 2, 3)))
    assert [sorted(tidelog_cluster.isr_of("t", number)) for number in range(3)] == [[1, 2, 3]] * 3
    for number in range(3):
        tidelog_cluster.send("t", "x", partition=number)
""",
        "tidelog_network = true",
    )
    project.run().assert_outcomes(passed=2)


def test_mark_and_ini_file_say_what_the_cluster_is(project: Project) -> None:
    project.write(
        """
def partitions(running):
    running.send("made-by-itself", "x")
    return len(running.end_offsets("made-by-itself"))

def test_plain(tidelog_cluster):
    note("plain", brokers=len(tidelog_cluster.broker_ids), partitions=partitions(tidelog_cluster))

@pytest.mark.tidelog(brokers=1, settings={"num.partitions": 4})
def test_marked(tidelog_cluster):
    note("marked", brokers=len(tidelog_cluster.broker_ids), partitions=partitions(tidelog_cluster))

@pytest.mark.tidelog(settings={"num.partitions": 4})
def test_broker(tidelog_broker):
    note("broker", brokers=len(tidelog_broker.broker_ids), partitions=partitions(tidelog_broker))
""",
        "tidelog_brokers = 2",
        "tidelog_settings =",
        "    num.partitions=3",
    )
    result = project.run("-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*::test_marked PASSED*"])
    assert project.noted("plain") == {"brokers": 2, "partitions": 3}
    assert project.noted("marked") == {"brokers": 1, "partitions": 4}
    assert project.noted("broker") == {"brokers": 1, "partitions": 4}


def test_mark_that_says_something_else_is_refused(project: Project) -> None:
    project.write(
        """
@pytest.mark.tidelog(broker=1)
def test_marked(tidelog_cluster):
    pass
"""
    )
    result = project.run()
    result.stdout.fnmatch_lines(["*the mark tidelog takes brokers, network, settings by name*"])
    assert result.ret != 0


def test_fixtures_of_a_session_may_use_the_cluster(project: Project) -> None:
    project.write(
        """
@pytest.fixture(scope="session")
def orders(tidelog_broker):
    return tidelog_broker.create_topic("orders")

def test_a(orders, tidelog_broker, tidelog_topic):
    assert {orders, tidelog_topic} <= set(tidelog_broker.topics())
    note("a", topic=tidelog_topic)

def test_b(tidelog_broker, tidelog_topic):
    note("b", topic=tidelog_topic, topics=tidelog_broker.topics())
"""
    )
    project.run().assert_outcomes(passed=2)
    assert project.noted("a")["topic"] not in project.noted("b")["topics"]
    assert project.noted("b")["topic"] in project.noted("b")["topics"]


def test_failure_shows_what_brokers_said_meanwhile(project: Project) -> None:
    project.write(
        """
import tidelog.testing

def test_a(tidelog_cluster, tidelog_topic):
    tidelog_cluster.kill_broker(2)
    tidelog_cluster.leader_of(tidelog_topic)

def test_b(tidelog_cluster):
    tidelog_cluster.create_topic("seen-by-brokers", placement=[[2, 1]])
    tidelog_cluster.kill_broker(2)
    while "seen-by-brokers" not in tidelog_cluster.log_of(1):
        time.sleep(0.01)
    tidelog_cluster.pause_broker(3)
    assert 1 == 2

def test_c():
    with tidelog.testing.broker() as mine:
        assert 3 == 4

def test_d():
    assert 5 == 6
"""
    )
    result = project.run("-n", "1")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*assert 1 == 2*",
            "*tidelog brokers*",
            "broker 1, running",
            "*partition=seen-by-brokers-0*",
            "broker 2, down",
            "broker 3, paused",
        ]
    )
    result.stdout.fnmatch_lines(
        ["*assert 3 == 4*", "*tidelog brokers*", "broker 1, running", "tidelog broker 1 listening*"]
    )
    printed = result.stdout.str()
    of_test_c = printed[printed.index("assert 3 == 4") : printed.index("assert 5 == 6")]
    assert "broker 2" not in of_test_c, "that cluster is not test_c's"
    assert "last stop was not clean" not in printed, "that was before test_b"
    assert "tidelog brokers" not in printed[printed.index("assert 5 == 6") :]


@pytest.mark.parametrize("how", ["ini", "option"])
def test_data_of_a_failed_test_is_kept_for_who_asks(project: Project, how: str) -> None:
    project.write(
        """
def test_a(tidelog_broker):
    tidelog_broker.send(tidelog_broker.create_topic("kept"), "x")
    assert 1 == 2
""",
        *(["tidelog_keep_data = true"] if how == "ini" else []),
    )
    result = project.run(*(["--tidelog-keep-data"] if how == "option" else []))
    (folder,) = project.folders()
    result.stdout.fnmatch_lines([f"left in {folder}"])
    assert b"x" in next(folder.glob("broker-1/logs/kept-0/*.log")).read_bytes()


def test_data_of_a_failed_test_is_removed_by_default(project: Project) -> None:
    project.write("\ndef test_a(tidelog_broker):\n    assert 1 == 2\n")
    project.run().assert_outcomes(failed=1)
    assert project.folders() == []


def test_brokers_of_a_killed_test_run_end_and_leave_nothing(project: Project) -> None:
    project.write(
        """
def test_a(tidelog_cluster):
    tidelog_cluster.pause_broker(3)
    note("a", pids=processes(tidelog_cluster))
    time.sleep(600)
""",
        "tidelog_network = true",
    )
    running = project.pytester.popen(
        [sys.executable, "-m", "pytest"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: project.has_noted("a"), within_s=GONE_WITHIN_S, what="a cluster runs")
        assert len(processes_in(project.temporary)) > 3, "brokers and a network"
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    pids = project.noted("a")["pids"]
    assert len(pids) == 3
    wait_until(
        lambda: all(map(is_gone, pids)), within_s=GONE_WITHIN_S, what="brokers end with their test"
    )
    wait_until(lambda: not project.folders(), within_s=GONE_WITHIN_S, what="their data is removed")
    wait_until(
        lambda: not processes_in(project.temporary), within_s=GONE_WITHIN_S, what="nothing runs"
    )


HEAVY: Final = """
import sys

def test_a():
    heavy = {"confluent_kafka", "kio", "tidelog.lab", "tidelog.client", "tidelog.testing.running"}
    assert "tidelog.testing.plugin" in sys.modules
    assert heavy.isdisjoint(sys.modules)
"""


def test_who_does_not_use_it_loads_nothing_of_it(project: Project) -> None:
    project.write(HEAVY)
    project.run("-p", "no:pytester").assert_outcomes(passed=1)
