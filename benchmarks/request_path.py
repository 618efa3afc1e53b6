"""The raw request path: one connection, one 1 KB record in each Produce, acks=1, one at a time.

The floor is floor.c, which reads the same frame, appends it to a file and answers as many bytes as
a broker does. The client is the same for all: a blocking socket and requests encoded beforehand.

Twice: with client and server on one core, where the figure is the work of both; and with the client
on a core of its own, as most clients are, where the waking of cores comes on top.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack

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
from benchmarks.results import Metric, Target
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, NoCompiler, new_broker, new_raw_floor
from tests.support.clients import create_topic

QUESTION = "What does one request cost, beside a minimal C server that echoes and writes?"
TOPIC = "request-path"
VALUE_SIZE_BYTES = 1_024
REQUEST_COUNT = 10_000
NEAR_THE_FLOOR = Target(requirement="request path", of=TIDELOG, against=FLOOR, at_most=1.3)


def measure(bench: Bench) -> None:
    bench.on_one_core()
    frame = produce_frame(TOPIC, 0, batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=now_ms()), acks=1)
    bootstraps = _start_brokers(bench)
    if bench.has(FLOOR):
        answer_size_bytes = answer_size(bootstraps, frame)
        _start_floor(bench, bootstraps, answer_size_bytes)
    with ExitStack() as opened:
        frames = [frame] * bench.count(REQUEST_COUNT)
        systems = {
            name: Exchanges(opened.enter_context(RawConnection(bootstrap)), frames)
            for name, bootstrap in bootstraps.items()
        }
        _time(bench, systems, "on one core")
        if bench.client_apart():
            _time(bench, systems, "client on a core of its own")
    _all_are_stored(bench, bootstraps)


def _time(bench: Bench, systems: Mapping[str, Exchanges], where: str) -> None:
    p50 = bench.metric(Metric(f"Produce of 1 KB, {where}, p50", "us", (NEAR_THE_FLOOR,)))
    p99 = bench.metric(Metric(f"Produce of 1 KB, {where}, p99", "us"))
    measure_passes(bench, f"one request at a time, {where}", systems, p50, p99)


def _start_brokers(bench: Bench) -> dict[str, str]:
    bootstraps = {}
    for name in (TIDELOG, KAFKA):
        if bench.has(name):
            broker = new_broker(name, bench.folder / name, {})
            bench.running.enter_context(broker)
            create_topic(broker.bootstrap, TOPIC, partition_count=1, config={})
            bootstraps[name] = broker.bootstrap
    return bootstraps


def _start_floor(bench: Bench, bootstraps: dict[str, str], answer_size_bytes: int) -> None:
    file = bench.folder / "floor.log"
    try:
        floor = new_raw_floor(bench.folder / FLOOR, "write", file, answer_size_bytes)
    except NoCompiler as error:
        bench.remarks.append(str(error))
        return
    bench.running.enter_context(floor)
    bootstraps[FLOOR] = floor.bootstrap


def _all_are_stored(bench: Bench, bootstraps: dict[str, str]) -> None:
    placements = 1 if len(bench.cores) == 1 else 2
    rounds = (bench.warm_up_rounds + bench.rounds) * placements
    brokers = {name: each for name, each in bootstraps.items() if name != FLOOR}
    require_stored(brokers, TOPIC, at_least=bench.count(REQUEST_COUNT) * rounds)


if __name__ == "__main__":
    sys.exit(run_script("request_path", QUESTION, measure))
