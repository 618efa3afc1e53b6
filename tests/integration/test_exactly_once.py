"""`tidelog lab exactly-once`: transactions under faults, and the verdict (D3, B3).

A few faults of several kinds; a hundred thousand records and thirty faults are for whoever has some
minutes.
"""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.command_line import environment, objects, tidelog
from tests.support.server_process import wait_until
from tidelog.lab.folder import ClusterFolder
from tidelog.lab.input_feed import InputFeed, value_of
from tidelog.lab.passage import OUTPUT
from tidelog.lab.state import read_state
from tidelog.lab.transformer import PREFIX
from tidelog.testing import Broker

RUN_TIMEOUT_S = 400
ANSWER_WITHIN_S = 10.0
# Seeds whose first faults hit the applications, both coordinators and leaders, with a long pause.
RUNS = [("classic", 116702), ("consumer", 116702)]


@pytest.mark.parametrize(("protocol", "seed"), RUNS)
def test_every_record_comes_through_once_and_in_order(
    protocol: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "tidelog", "lab", "exactly-once", "--json"),
            *("--records", "12000", "--faults", "7", "--seed", str(seed)),
            *("--protocol", protocol, "--data", str(tmp_path / "data")),
        ],
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
        env=environment(),
    )
    (outcome,) = objects(done.stdout)
    assert (done.returncode, outcome["problems"], done.stderr) == (0, [], b""), outcome
    assert outcome["good"]
    assert sum(each["found"] for each in outcome["partitions"]) == 12_000
    assert len(outcome["faults"]) == 7
    with capsys.disabled():
        print(f"\nexactly once, {protocol}: {outcome['took_s']:.0f} s")  # noqa: T201


def test_damage_to_the_output_is_the_verdict(tmp_path: Path) -> None:
    """One record is written once more than it was read, another is taken away behind its back.

    The one that is written belongs to a transaction, so that the lab waits until all is done.
    """
    data = tmp_path / "data"
    with subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "tidelog", "lab", "exactly-once", "--json"),
            *("--records", "4000", "--faults", "0", "--partitions", "3", "--data", str(data)),
        ],
        stdout=subprocess.PIPE,
        env=environment(),
    ) as running:
        bootstrap = _bootstrap(data)
        vandal = _begin_to_write_again(bootstrap, partition=0, number=0)
        _take_away(bootstrap, 1, offset=_first_committed(bootstrap, 1))
        vandal.commit_transaction(RUN_TIMEOUT_S)
        stdout, _ = running.communicate(timeout=RUN_TIMEOUT_S)
    (outcome,) = objects(stdout)
    assert (running.returncode, outcome["good"], outcome["problems"]) == (1, False, [])
    doubled, cut, whole = outcome["partitions"]
    assert (doubled["lost"], doubled["repeated"], doubled["unexpected"]) == (0, 1, 0)
    assert (cut["lost"], cut["repeated"], cut["unexpected"]) == (1, 0, 0)
    assert (whole["lost"], whole["repeated"], whole["unexpected"]) == (0, 0, 0)


def _bootstrap(data: Path) -> str:
    """Of the lab's cluster; it may still be on its way up."""
    folder = ClusterFolder(data)
    wait_until(folder.state_file.exists, within_s=RUN_TIMEOUT_S, what="the cluster is started")
    return ",".join(broker.address for broker in read_state(folder.state_file))


def _begin_to_write_again(bootstrap: str, *, partition: int, number: int) -> Producer:
    """A record that is there, in a transaction that is open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "vandal"})
    producer.init_transactions(RUN_TIMEOUT_S)
    wait_until(
        lambda: OUTPUT in producer.list_topics(timeout=RUN_TIMEOUT_S).topics,
        within_s=RUN_TIMEOUT_S,
        what="there is an output",
    )
    producer.begin_transaction()
    producer.produce(OUTPUT, PREFIX + value_of(number), partition=partition)
    assert producer.flush(RUN_TIMEOUT_S) == 0
    return producer


def _first_committed(bootstrap: str, partition: int) -> int:
    """Not always 0: a member's first transaction may be cut short by the arrival of another."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(OUTPUT, partition, 0)])
    found: list[int] = []

    def is_found() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.offset() or 0)
        return bool(found)

    try:
        wait_until(is_found, within_s=RUN_TIMEOUT_S, what="something is committed")
    finally:
        consumer.close()
    return found[0]


def _take_away(bootstrap: str, partition: int, *, offset: int) -> None:
    wanted = TopicPartition(OUTPUT, partition, offset + 1)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_records([wanted])[wanted].result(ANSWER_WITHIN_S)


def test_who_stops_it_does_not_wait_for_brokers_that_are_dead(tidelog_broker: Broker) -> None:
    def leave_early() -> None:
        with suppress(KeyboardInterrupt), InputFeed(tidelog_broker.bootstrap, "input", 1) as feed:
            feed.send_until(10)
            tidelog_broker.kill()
            feed.send_until(20)
            raise KeyboardInterrupt

    leaving = threading.Thread(target=leave_early, daemon=True)
    leaving.start()
    leaving.join(ANSWER_WITHIN_S)
    assert not leaving.is_alive()


def test_wrong_usage_is_refused() -> None:
    done = tidelog("lab", "exactly-once", "--brokers", "2")
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
