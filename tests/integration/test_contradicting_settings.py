"""Settings that contradict each other end no broker, nor keep it from starting (P1).

Each was accepted by itself. A broker that applied both ended, and did so again at every start.
"""

from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.command_line import objects, tidelog
from tests.support.server_process import wait_until
from tests.support.three_brokers import METADATA_TIMEOUT_S, WAIT_TIMEOUT_S, ThreeBrokers

MIN, MAX = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
ASSIGNMENT = "group.consumer.assignment.interval.ms"
REFUSED = 2


def alter(broker: BrokerProcess, *arguments: str) -> tuple[int, str]:
    done = tidelog("configs", "alter", *arguments, "--bootstrap", broker.bootstrap)
    return done.returncode, done.stderr.decode()


def value_of(broker: BrokerProcess, name: str) -> str:
    done = tidelog(
        *("configs", "describe", "--broker", "1", "--all", "--json"),
        *("--bootstrap", broker.bootstrap),
    )
    assert done.returncode == 0, done.stderr
    [value] = [str(one["value"]) for one in objects(done.stdout) if one["name"] == name]
    return value


def test_a_change_that_one_broker_could_not_follow_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert alter(broker, "--broker", "1", "--set", f"{MIN}=100000") == (0, "")
        code, complaint = alter(broker, "--cluster", "--set", f"{MAX}=50000")
        assert (code, "on broker 1" in complaint) == (REFUSED, True), complaint
        broker.restart()
        assert value_of(broker, MIN) == "100000"


def test_a_setting_that_a_changed_file_contradicts_is_left_out(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert alter(broker, "--cluster", "--set", f"{ASSIGNMENT}=12000") == (0, "")
        assert value_of(broker, ASSIGNMENT) == "12000"
        broker.stop()
        broker.settings["group.consumer.max.assignment.interval.ms"] = "10000"
        broker.start()
        assert value_of(broker, ASSIGNMENT) == "1000"
        [line] = [one for one in broker.log_text_of_this_start().splitlines() if "ERROR" in one]
        assert f"setting={ASSIGNMENT} value=12000" in line
        assert alter(broker, "--cluster", "--delete", ASSIGNMENT) == (0, "")


def test_a_setting_of_a_broker_that_is_left_out_is_shown_and_can_be_deleted(tmp_path: Path) -> None:
    """It was seen in one line of the log alone, and was in nobody's list of what to delete."""
    with BrokerProcess(tmp_path) as broker:
        assert alter(broker, "--broker", "1", "--set", f"{ASSIGNMENT}=12000") == (0, "")
        broker.stop()
        broker.settings["group.consumer.max.assignment.interval.ms"] = "10000"
        broker.start()
        chosen = ("configs", "describe", "--broker", "1", "--bootstrap", broker.bootstrap)
        assert b"1000 (12000 is set, not in force)" in tidelog(*chosen).stdout
        listed = objects(tidelog(*chosen, "--json").stdout)
        [shown] = [one for one in listed if "not_in_force" in one]
        assert (shown["name"], shown["value"], shown["source"]) == (ASSIGNMENT, "1000", "broker")
        assert shown["not_in_force"] == "12000"
        assert alter(broker, "--broker", "1", "--delete", ASSIGNMENT) == (0, "")
        assert b"not in force" not in tidelog(*chosen).stdout


def knows(cluster: ThreeBrokers, broker_id: int) -> bool:
    return broker_id in cluster.admin().list_topics(timeout=METADATA_TIMEOUT_S).brokers


def test_what_is_set_for_a_broker_that_is_gone_can_be_deleted(tmp_path: Path) -> None:
    """Clients ask the broker itself, as Kafka's do; for one that is away the controller answers."""
    with ThreeBrokers(tmp_path, broker_ids=(1, 2)) as cluster:
        stays, goes = cluster.brokers.values()
        assert alter(stays, "--broker", "2", "--set", f"{MIN}=100000") == (0, "")
        goes.stop()
        wait_until(lambda: not knows(cluster, 2), within_s=WAIT_TIMEOUT_S, what="2 is gone")
        code, complaint = alter(stays, "--cluster", "--set", f"{MAX}=50000")
        assert (code, "on broker 2" in complaint) == (REFUSED, True), complaint
        assert alter(stays, "--broker", "2", "--delete", MIN) == (0, "")
        assert alter(stays, "--cluster", "--set", f"{MAX}=50000") == (0, "")
        code, complaint = alter(stays, "--broker", "9", "--set", f"{MIN}=1")
        assert (code, "there is no live broker 9" in complaint) == (REFUSED, True), complaint
