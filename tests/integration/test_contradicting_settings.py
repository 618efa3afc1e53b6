"""Settings that contradict each other end no broker, nor keep it from starting (P1).

Each was accepted by itself. A broker that applied both ended, and did so again at every start.
"""

from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.command_line import objects, tidelog

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
