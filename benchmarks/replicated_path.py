"""The raw replicated request: Produce with acks=all to three replicas, one at a time.

One record of 100 B shows how long a record takes, and what is left of T4 to the servers. A batch of
a thousand records of 1 KB shows how much processor time a record takes, and what is left of T3: the
client and three brokers share the machine, so that nobody can take more records than the processors
have time for.

The floor is three processes of floor.c. The first appends the frame to a file, sends it to the two
others, which append it as well, and answers when both have. It sends without being asked, checks no
sums, knows no offsets and keeps no indexes; but a record has to make the same four hops and be
written three times. The client is the same for all: a blocking socket and requests encoded
beforehand.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.clients import in_turn
from benchmarks.harness import Bench, run_script
from benchmarks.large_batches import RECORDS_IN_BATCH, large_exchanges, processor_time_us
from benchmarks.raw import (
    ACKS_ALL,
    Exchanges,
    RawConnection,
    answer_size,
    batch_of,
    measure_passes,
    now_ms,
    produce_frame,
    require_stored,
)
from benchmarks.results import Metric
from benchmarks.subjects import FLOOR, NoCompiler, new_copying_floor

QUESTION = "What does one replicated request cost, beside three minimal C servers?"
TOPIC = "replicated-path"
LEADER = 1
VALUE_SIZE_BYTES = 100
COUNT = 3_000
LARGE_COUNT = 80


@dataclass(frozen=True, slots=True)
class System:
    """Where to send to, and whose time to count."""

    bootstrap: str
    pids: Sequence[int]


def measure(bench: Bench) -> None:
    batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=now_ms())
    frame = produce_frame(TOPIC, 0, batch, acks=ACKS_ALL)
    systems = _start(bench, frame)
    with ExitStack() as opened:
        connections = {
            name: opened.enter_context(RawConnection(system.bootstrap))
            for name, system in systems.items()
        }
        frames = [frame] * bench.count(COUNT)
        p50 = bench.metric(Metric("one record, p50", "us"))
        p99 = bench.metric(Metric("one record, p99", "us"))
        small = {name: Exchanges(each, frames) for name, each in connections.items()}
        measure_passes(bench, "one record at a time", small, p50, p99)
        large_count = bench.count(LARGE_COUNT)
        large = {
            name: large_exchanges(each, TOPIC, large_count) for name, each in connections.items()
        }
        _measure_time(bench, systems, large)
    rounds = bench.warm_up_rounds + bench.rounds
    stored = (len(frames) + RECORDS_IN_BATCH * large_count) * rounds
    brokers = {name: each.bootstrap for name, each in systems.items() if name != FLOOR}
    require_stored(brokers, TOPIC, at_least=stored)


def _measure_time(
    bench: Bench, systems: dict[str, System], exchanges: dict[str, Exchanges]
) -> None:
    metric = bench.metric(Metric("1 KB records in large batches, processor time", "us/record"))
    for turn in bench.turns("large batches", list(systems)):
        turn.record(metric, processor_time_us(systems[turn.name].pids, exchanges[turn.name]))


def _start(bench: Bench, frame: bytes) -> dict[str, System]:
    systems: dict[str, System] = {}
    for name, cluster in bench.start_clusters([n for n in bench.subjects if n != FLOOR]).items():
        cluster.create(TOPIC, *in_turn(1))
        cluster.wait_whole(TOPIC)
        systems[name] = System(cluster.brokers[LEADER].bootstrap, cluster.pids)
    if bench.has(FLOOR):
        bootstraps = {name: system.bootstrap for name, system in systems.items()}
        try:
            floors = new_copying_floor(
                bench.running, bench.folder / FLOOR, answer_size(bootstraps, frame)
            )
        except NoCompiler as error:
            bench.remarks.append(str(error))
        else:
            systems[FLOOR] = System(floors[0].bootstrap, [floor.pid for floor in floors])
    return systems


if __name__ == "__main__":
    sys.exit(run_script("replicated_path", QUESTION, measure))
