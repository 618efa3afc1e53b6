"""`tidelog lab pipeline`: a Spark job and its brokers under kill -9, and the verdict (X2, X4, B3).

A few kills; two hundred thousand records and twenty kills are for whoever has some minutes.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.command_line import environment, objects
from tests.support.server_process import wait_until
from tests.support.spark_job import QUICK_JAVA
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.input_feed import value_of
from tidelog.lab.passage import OUTPUT
from tidelog.lab.state import read_state

RUN_TIMEOUT_S: Final = 300
ANSWER_WITHIN_S: Final = 10.0
RECORD_COUNT: Final = 2_000
ARCHIVE_SEED: Final = "489"
# The second kill finds that the first has ended the job, and has to wait for it. The third is that
# of a broker, which is away at the fourth.
COPY_SEED: Final = "2956"
COMMAND: Final = (sys.executable, "-P", "-m", "tidelog", "lab", "pipeline", "--json")


def test_every_record_of_an_archive_whose_job_is_killed_is_there_once(tmp_path: Path) -> None:
    with lab(tmp_path, "--job", "archive", "--kills", "2", "--seed", ARCHIVE_SEED) as running:
        outcome = outcome_of(running)
    assert (running.returncode, outcome["problems"]) == (0, []), outcome
    assert outcome["good"]
    assert [each["found"] for each in outcome["partitions"]] == [500, 500, 500, 500]
    assert_victims(outcome, ["JVM of the driver", "Python worker"])
    assert outcome["job_kills"] == {"driver": 0, "JVM of the driver": 1, "Python worker": 1}
    assert (outcome["found"], outcome["lost"], outcome["repeated"]) == (RECORD_COUNT, 0, 0)
    assert outcome["command"] == (
        f"tidelog lab pipeline --job archive --records {RECORD_COUNT} --kills 2 "
        f"--seed {ARCHIVE_SEED}"
    )


def test_a_copied_topic_under_kills_has_no_damage_but_what_was_planted(tmp_path: Path) -> None:
    """One record is written once more than it was read, another is taken away behind its back.

    Both after the first kill, which ends the job: the lab has to start it again before it can end.
    """
    with lab(tmp_path, "--job", "copy", "--kills", "3", "--seed", COPY_SEED) as running:
        history = tmp_path / "kills.txt"
        wait_until(history.exists, within_s=RUN_TIMEOUT_S, what="somebody was killed")
        brokers = read_state(ClusterFolder(tmp_path).state_file)
        bootstrap = ",".join(broker.address for broker in brokers)
        write_once_more(bootstrap, partition=0, number=0)
        take_first_away(bootstrap, partition=1)
        outcome = outcome_of(running)
    assert (running.returncode, outcome["good"], outcome["problems"]) == (1, False, [])
    damage = [(each["lost"], each["repeated"]) for each in outcome["partitions"]]
    assert damage == [(0, 1), (1, 0), (0, 0), (0, 0)]
    assert not any(each["unexpected"] + each["reordered"] for each in outcome["partitions"])
    assert_victims(outcome, ["driver", "Python worker", "broker", "Python worker"])
    assert outcome["started"] > 1
    assert outcome["kills"][3].count("while broker") == 1
    assert (outcome["broker_kills"], outcome["job_kills_amid_outages"]) == (1, 1)
    assert (outcome["found"], outcome["lost"], outcome["repeated"]) == (RECORD_COUNT, 1, 1)


def assert_victims(outcome: dict[str, Any], victims: list[str]) -> None:
    """Each of them was there."""
    for line, victim in zip(outcome["kills"], victims, strict=True):
        whom = "broker" if victim == "broker" else "processes ["
        assert line.startswith(f"kill -9 {victim}: {whom}")


# -- the lab as a process ------------------------------------------------------------------------


@contextmanager
def lab(data: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [*COMMAND, "--records", str(RECORD_COUNT), "--data", str(data), *arguments],
        stdout=subprocess.PIPE,
        env=environment(**QUICK_JAVA),
    ) as running:
        try:
            yield running
        finally:
            running.terminate()


def outcome_of(running: subprocess.Popen[bytes]) -> dict[str, Any]:
    stdout, _ = running.communicate(timeout=RUN_TIMEOUT_S)
    (outcome,) = objects(stdout)
    return outcome


def write_once_more(bootstrap: str, *, partition: int, number: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(OUTPUT, value_of(number), partition=partition)
    assert producer.flush(ANSWER_WITHIN_S) == 0


def take_first_away(bootstrap: str, *, partition: int) -> None:
    wanted = TopicPartition(OUTPUT, partition, 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([wanted])[wanted].result(ANSWER_WITHIN_S)
