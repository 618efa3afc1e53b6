"""The programs in `examples/pipeline` do what their first lines say."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.clients import NewRecord, read_committed
from tests.support.replicated_topics import ReplicatedTopics
from tests.support.spark_job import QUICK_JAVA, without_java_notes

EXAMPLES = Path(__file__).parents[3] / "examples" / "pipeline"
TIMEOUT_S = 300
AT_MS = 1_700_000_000_000


def run(topics: ReplicatedTopics, name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, **QUICK_JAVA, "TIDELOG_BOOTSTRAP": topics.bootstrap},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, without_java_notes(done.stderr)) == (0, "")
    return done.stdout


@pytest.fixture
def topic(topics: ReplicatedTopics) -> str:
    name = topics.create(partition_count=2)
    for partition in range(2):
        sent = [
            NewRecord(b"%d" % number, b"value %d" % number, AT_MS + number * 1_000, ())
            for number in range(100)
        ]
        topics.send(name, sent, partition=partition)
    return name


def test_records_are_counted_by_minute(topics: ReplicatedTopics, topic: str) -> None:
    printed = run(topics, "count_by_minute.py", topic)
    counts = [int(line.split("|")[2]) for line in printed.splitlines() if line.startswith("|20")]
    assert sum(counts) == 200
    assert len(counts) >= 2


def test_a_topic_is_copied_in_upper_case(
    topics: ReplicatedTopics, topic: str, tmp_path: Path
) -> None:
    target = topics.create()
    printed = run(topics, "stream_to_topic.py", topic, target, str(tmp_path / "checkpoint"))
    assert printed == "200 records\n"
    found = Counter(record.value for record in read_committed(topics.bootstrap, target, 0))
    assert found == Counter({b"VALUE %d" % number: 2 for number in range(100)})
