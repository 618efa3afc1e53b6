"""The raw replicated request: Produce of one 100 B record with acks=all to a partition with three
replicas, one at a time.

The floor is three processes of floor.c. The first appends the frame to a file, sends it to the two
others, which append it as well, and answers when both have. It sends without being asked, knows no
offsets and keeps no indexes; but a record has to make the same four hops. The client is the same
for all: a blocking socket and requests encoded beforehand.

How much of T4 is left to the servers: what three of them need for a record at the least.
"""

import sys
from contextlib import ExitStack

from benchmarks.clients import in_turn
from benchmarks.harness import Bench, run_script
from benchmarks.raw import (
    Exchanges,
    RawConnection,
    batch_of,
    middle,
    now_ms,
    produce_frame,
    time_in_turns,
)
from benchmarks.results import Metric
from benchmarks.subjects import FLOOR, NoCompiler, new_copying_floor

QUESTION = "What does one replicated request cost, beside three minimal C servers?"
TOPIC = "replicated-path"
LEADER = 1
VALUE_SIZE_BYTES = 100
COUNT = 3_000
ACKS_ALL = -1


def measure(bench: Bench) -> None:
    batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=now_ms())
    frame = produce_frame(TOPIC, 0, batch, acks=ACKS_ALL)
    systems = _start(bench, frame)
    with ExitStack() as opened:
        connections = {
            name: opened.enter_context(RawConnection(bootstrap))
            for name, bootstrap in systems.items()
        }
        _time(bench, connections, frame)


def _time(bench: Bench, connections: dict[str, RawConnection], frame: bytes) -> None:
    p50 = bench.metric(Metric("one record, p50", "us"))
    p99 = bench.metric(Metric("one record, p99", "us"))
    frames = [frame] * bench.count(COUNT)
    for each in bench.passes("one record at a time"):
        elapsed_us = time_in_turns(
            {name: Exchanges(one, frames) for name, one in connections.items()}
        )
        each.record(p50, {name: middle(values) for name, values in elapsed_us.items()})
        each.record(
            p99, {name: values[len(values) * 99 // 100] for name, values in elapsed_us.items()}
        )


def _start(bench: Bench, frame: bytes) -> dict[str, str]:
    systems: dict[str, str] = {}
    for name, cluster in bench.start_clusters([n for n in bench.subjects if n != FLOOR]).items():
        cluster.create(TOPIC, *in_turn(1))
        cluster.wait_whole(TOPIC)
        systems[name] = cluster.brokers[LEADER].bootstrap
    if bench.has(FLOOR):
        try:
            floor = new_copying_floor(
                bench.running, bench.folder / FLOOR, _answer_size(systems, frame)
            )
        except NoCompiler as error:
            bench.remarks.append(str(error))
        else:
            systems[FLOOR] = floor.bootstrap
    return systems


def _answer_size(systems: dict[str, str], frame: bytes) -> int:
    """What a broker answers, so that the floor sends as much."""
    for bootstrap in systems.values():
        with RawConnection(bootstrap) as connection:
            return len(connection.exchange(frame)) - 4
    return 64


if __name__ == "__main__":
    sys.exit(run_script("replicated_path", QUESTION, measure))
