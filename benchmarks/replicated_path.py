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
ACKS_ALL = -1


def measure(bench: Bench) -> None:
    batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=now_ms())
    frame = produce_frame(TOPIC, 0, batch, acks=ACKS_ALL)
    bootstraps = _start(bench, frame)
    with ExitStack() as opened:
        frames = [frame] * bench.count(COUNT)
        systems = {
            name: Exchanges(opened.enter_context(RawConnection(bootstrap)), frames)
            for name, bootstrap in bootstraps.items()
        }
        p50 = bench.metric(Metric("one record, p50", "us"))
        p99 = bench.metric(Metric("one record, p99", "us"))
        measure_passes(bench, "one record at a time", systems, p50, p99)
    brokers = {name: each for name, each in bootstraps.items() if name != FLOOR}
    rounds = bench.warm_up_rounds + bench.rounds
    require_stored(brokers, TOPIC, at_least=bench.count(COUNT) * rounds)


def _start(bench: Bench, frame: bytes) -> dict[str, str]:
    systems: dict[str, str] = {}
    for name, cluster in bench.start_clusters([n for n in bench.subjects if n != FLOOR]).items():
        cluster.create(TOPIC, *in_turn(1))
        cluster.wait_whole(TOPIC)
        systems[name] = cluster.brokers[LEADER].bootstrap
    if bench.has(FLOOR):
        try:
            floor = new_copying_floor(
                bench.running, bench.folder / FLOOR, answer_size(systems, frame)
            )
        except NoCompiler as error:
            bench.remarks.append(str(error))
        else:
            systems[FLOOR] = floor.bootstrap
    return systems


if __name__ == "__main__":
    sys.exit(run_script("replicated_path", QUESTION, measure))
