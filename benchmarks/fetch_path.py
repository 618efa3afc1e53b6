"""The raw path of a Fetch: one connection, one request at a time, from the page cache.

The floor is floor.c, which answers as many bytes from a file with one `pread` and one `writev`.
"""

import sys
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.harness import Bench, run_script
from benchmarks.raw import (
    Exchanges,
    RawConnection,
    RequestFailed,
    batch_of,
    fetch_frame,
    fetched_session,
    middle,
    now_ms,
    produce_frame,
    time_in_turns,
)
from benchmarks.results import Metric
from benchmarks.subjects import FLOOR, KAFKA, TIDELOG, NoCompiler, new_broker, new_raw_floor
from tests.support.clients import create_topic

QUESTION = "What does one Fetch cost, beside a minimal C server that reads and answers?"
TOPIC = "fetch-path"
RECORDS_PER_BATCH = 60
VALUE_SIZE_BYTES = 1_024
BATCH_COUNT = 1_024
REQUEST_COUNT = 2_000


@dataclass(frozen=True, slots=True)
class Case:
    """Fetches of `batches` whole batches each."""

    name: str
    batches: int


CASES = (Case("Fetch of 64 KB", 1), Case("Fetch of 1 MB", 16))


def measure(bench: Bench) -> None:
    bench.on_one_core()
    bootstraps = _start_brokers(bench)
    for case in CASES:
        _measure_case(bench, case, bootstraps)


def _measure_case(bench: Bench, case: Case, brokers: dict[str, str]) -> None:
    metric = bench.metric(Metric(f"{case.name}, p50", "us"))
    frames = _frames(case, bench.count(REQUEST_COUNT))
    bootstraps = dict(brokers)
    if bench.has(FLOOR):
        _start_floor(bench, case, bootstraps)
    with ExitStack() as opened:
        systems = {
            name: Exchanges(opened.enter_context(RawConnection(bootstrap)), frames)
            for name, bootstrap in bootstraps.items()
        }
        for each in bench.passes(case.name):
            elapsed_us = time_in_turns(systems)
            each.record(metric, {name: middle(values) for name, values in elapsed_us.items()})


def _start_brokers(bench: Bench) -> dict[str, str]:
    bootstraps = {}
    for name in (TIDELOG, KAFKA):
        if bench.has(name):
            broker = new_broker(name, bench.folder / name, {})
            bench.running.enter_context(broker)
            create_topic(broker.bootstrap, TOPIC, partition_count=1, config={})
            _fill(broker.bootstrap)
            bootstraps[name] = broker.bootstrap
    return bootstraps


def _fill(bootstrap: str) -> None:
    batch = batch_of(RECORDS_PER_BATCH, VALUE_SIZE_BYTES, timestamp_ms=now_ms())
    frame = produce_frame(TOPIC, 0, batch, acks=1)
    with RawConnection(bootstrap) as connection:
        for _batch in range(BATCH_COUNT):
            connection.exchange(frame)
        for case in CASES:
            (probe,) = _frames(case, 1)
            answer = connection.exchange(probe)
            fetched_session(answer)
            if len(answer) < case.batches * len(batch):
                raise RequestFailed(f"{case.name}: only {len(answer)} bytes were answered")


def _frames(case: Case, count: int) -> list[bytes]:
    """Fetches that walk through the log and start over at its end."""
    batch_size_bytes = len(batch_of(RECORDS_PER_BATCH, VALUE_SIZE_BYTES, timestamp_ms=now_ms()))
    positions = range(0, BATCH_COUNT - case.batches + 1, case.batches)
    once = [
        fetch_frame(
            {TOPIC: [(0, position * RECORDS_PER_BATCH)]},
            partition_max_bytes=batch_size_bytes * case.batches,
            session_id=0,
            session_epoch=-1,
        )
        for position in positions
    ]
    return [once[n % len(once)] for n in range(count)]


def _start_floor(bench: Bench, case: Case, bootstraps: dict[str, str]) -> None:
    size_bytes = len(batch_of(RECORDS_PER_BATCH, VALUE_SIZE_BYTES, timestamp_ms=now_ms()))
    file = bench.folder / f"{case.batches}.data"
    file.write_bytes(bytes(size_bytes * case.batches))
    folder = bench.folder / f"{FLOOR}-{case.batches}"
    try:
        floor = new_raw_floor(folder, "read", file, size_bytes * case.batches)
    except NoCompiler as error:
        bench.remarks.append(str(error))
        return
    bench.running.enter_context(floor)
    bootstraps[FLOOR] = floor.bootstrap


if __name__ == "__main__":
    sys.exit(run_script("fetch_path", QUESTION, measure))
