"""Who does not get all that was asked for is told on the terminal, where Spark's log is off (X2).

Brokers that have no transactions are those of a proxy (`tests/support/without_transactions.py`).
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import (
    NewRecord,
    create_topic,
    delete_records,
    read_committed,
    send,
)
from tests.support.command_line import environment
from tests.support.server_process import die_with_parent
from tests.support.spark_job import ROOT, TIMEOUT_S
from tests.support.topics import unused_name
from tests.support.without_transactions import WithoutTransactions
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.sink import offered_guarantee
from tidelog.pipeline.sink_options import sink_options

AT_MS = 1_700_000_000_000
SENT = 20
GONE = 7


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithoutTransactions]:
    with WithoutTransactions(tmp_path_factory.mktemp("old")) as running:
        yield running


class Warned:
    """A command, a stream and a batch, in one session, and what was on their standard error."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.source, *self.targets = (self._topic() for _ in range(4))
        records = [NewRecord(b"%d" % n, b"%d" % n, AT_MS, ()) for n in range(SENT)]
        send(bootstrap, self.source, records, partition=0, settings={"acks": "all"})
        delete_records(bootstrap, self.source, 0, GONE)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tests.pipeline.jobs.warned_of"),
                *(bootstrap, self.source, str(folder), *self.targets),
            ],
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            preexec_fn=die_with_parent,
        )
        assert done.returncode == 0, done.stderr
        self.said = done.stderr.splitlines()

    def _topic(self) -> str:
        name = unused_name()
        create_topic(self.bootstrap, name, partition_count=1, config={"retention.ms": "-1"})
        return name

    def about(self, what: str) -> list[str]:
        return [line for line in self.said if what in line]


@pytest.fixture(scope="module")
def warned(old: WithoutTransactions, tmp_path_factory: pytest.TempPathFactory) -> Warned:
    return Warned(old.bootstrap, tmp_path_factory.mktemp("warned"))


def test_at_least_once_is_said_once_for_all_that_is_written(warned: Warned) -> None:
    """And nothing else is said: neither by librdkafka nor by Spark."""
    assert warned.about("transactions") == [
        f"tidelog: {warned.bootstrap} has no transactions: rows are written at least once, and a "
        "task that is run again repeats some"
    ]
    assert len(warned.said) == 1 + len(warned.about("records were missed"))


def test_rows_are_written_without_transactions(warned: Warned) -> None:
    for target in warned.targets:
        values = [each.value for each in read_committed(warned.bootstrap, target, 0)]
        assert sorted(map(int, filter(None, values))) == [*range(GONE, SENT)]


def test_records_that_were_left_out_are_said_by_streams_and_batches(warned: Warned) -> None:
    """By whoever was to read them: two micro-batches of five offsets each, and a batch."""
    missed = f"tidelog: records were missed: {warned.source}-0 from"
    assert warned.about("records were missed") == [
        f"{missed} 0 to 5: offset 0 is gone, the log begins at {GONE}",
        f"{missed} 5 to 10: offset 5 is gone, the log begins at {GONE}",
        f"{missed} 0 to {SENT}: offset 0 is gone, the log begins at {GONE}",
    ]


def test_exactly_once_is_refused_where_there_are_no_transactions(old: WithoutTransactions) -> None:
    wanted = {"topic": "any", "deliveryGuarantee": "exactly-once"}
    options = sink_options(
        {"kafka.bootstrap.servers": old.bootstrap, **wanted}, {"value": "string"}
    )
    with pytest.raises(PipelineError, match=r"exactly-once, but .* has no transactions: "):
        offered_guarantee(options)
