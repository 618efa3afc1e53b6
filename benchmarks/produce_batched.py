"""T3: 1 KB records in batches, acks=1 and acks=all, into twelve partitions of one broker.

The client is the limit for a fast broker. So it is measured twice: calling `produce()` for every
record, as applications do, and `produce_batch()`, which leaves more of the machine to the broker.
Every round uses a topic of its own, counts afterwards what the broker really holds, and drops it.
"""

import sys
from functools import partial

from benchmarks.clients import run_produce, topic_for_a_while
from benchmarks.harness import Bench, Turn, run_script
from benchmarks.produce_case import PARTITION_COUNT, ProduceCase
from benchmarks.results import Target
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, Subject

QUESTION = "How many 1 KB records a second does one broker take in batches? (T3)"
RECORD_COUNT = 400_000
AT_LEAST_KAFKA = Target(requirement="T3", of=TIDELOG, against=KAFKA, at_least=1.0)


def measure(bench: Bench) -> None:
    subjects = bench.start_subjects()
    for acks in ("1", "all"):
        for in_batches in (False, True):
            case = ProduceCase.new(
                bench,
                record_count=RECORD_COUNT,
                acks=acks,
                in_batches=in_batches,
                targets=(AT_LEAST_KAFKA,),
            )
            for turn in bench.turns(case.name, list(subjects)):
                _one_turn(case, turn, subjects[turn.name])


def _one_turn(case: ProduceCase, turn: Turn, subject: Subject) -> None:
    if turn.name == FLOOR:
        result = run_produce(subject.bootstrap, case.topic(turn), case.task)
        turn.record(case.throughput, case.task.record_count / result.elapsed_s)
        return
    with_topic = partial(topic_for_a_while, subject.bootstrap, partition_count=PARTITION_COUNT)
    case.measure(turn, subject.bootstrap, [subject.pid], with_topic)


if __name__ == "__main__":
    sys.exit(run_script("produce_batched", QUESTION, measure))
