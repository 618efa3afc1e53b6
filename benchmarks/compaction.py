"""S5: what a compaction costs whoever sends one record at a time meanwhile.

One broker. In each round a topic is filled with 200 MB of small records, 20,000 keys over and over,
and is then told to be compacted. Requests of one record each, acks=1, go to another topic of the
same broker over a bare socket, for as long as the compaction takes, and for two seconds before.
Client and broker share the machine's cores as the scheduler likes: what a compaction costs others
is mostly a core.
"""

import re
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.clients import stored_record_count, topic_for_a_while
from benchmarks.harness import Bench, run_script
from benchmarks.raw import RawConnection, now_ms, produce_frame
from benchmarks.results import Metric
from benchmarks.subjects import TIDELOG, Subject
from tests.support.clients import create_topic
from tidelog.client.admin import Admin
from tidelog.client.values import ClusterDefaults, TopicResource
from tidelog.records.batch import Codec
from tidelog.records.record import Record, encode_plain_batch

QUESTION = "What does a compaction cost a producer of one record at a time? (S5)"
ALONE, MEANWHILE = "alone", "meanwhile"
LOG_BYTES = 200_000_000
SEGMENT_BYTES = 100_000_000
BATCH_RECORDS = 8_000
KEY_COUNT = 20_000
VALUE = b"x" * 100
ALONE_S = 2.0
GIVE_UP_S = 120.0
SINGLE = "single"
ACKS = 1
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
PERCENTILES = (0.5, 0.9, 0.99, 1.0)


def measure(bench: Bench) -> None:
    broker = bench.start_subjects()[TIDELOG]
    create_topic(broker.bootstrap, SINGLE, partition_count=1, config={})
    with Admin(broker.bootstrap) as admin:
        soon = {"log.cleaner.backoff.ms": "20"}
        admin.alter_configs(ClusterDefaults(), set_values=soon, deleted=())
    waits = [
        bench.metric(Metric(f"one record, {_percentile_name(share)}", "ms"))
        for share in PERCENTILES
    ]
    took = bench.metric(Metric("a compaction", "s"))
    sent_count = 0
    for each in bench.passes("compactions"):
        alone_ms, meanwhile_ms, took_s = _round(bench, broker)
        sent_count += len(alone_ms) + len(meanwhile_ms)
        for share, metric in zip(PERCENTILES, waits, strict=True):
            values = {
                ALONE: _percentile(alone_ms, share),
                MEANWHILE: _percentile(meanwhile_ms, share),
            }
            each.record(metric, values)
        each.record(took, {MEANWHILE: took_s})
    assert stored_record_count(broker.bootstrap, SINGLE, partition_count=1) == sent_count


def _round(bench: Bench, broker: Subject) -> tuple[list[float], list[float], float]:
    done_before = len(_compactions_s(broker))
    topic = f"large-{done_before}"
    config = {"segment.bytes": str(SEGMENT_BYTES)}
    with (
        topic_for_a_while(broker.bootstrap, topic, partition_count=1, config=config),
        RawConnection(broker.bootstrap) as connection,
    ):
        _fill(connection, topic, bench.count(LOG_BYTES))
        frame = produce_frame(SINGLE, 0, _batch(range(1)), acks=ACKS)
        end_s = time.monotonic() + ALONE_S
        alone_ms = _waits_ms(connection, frame, lambda: time.monotonic() > end_s)
        with Admin(broker.bootstrap) as admin:
            admin.alter_configs(TopicResource(topic), set_values=COMPACTED, deleted=())
        meanwhile_ms = _waits_ms(
            connection, frame, lambda: len(_compactions_s(broker)) > done_before
        )
        return alone_ms, meanwhile_ms, _compactions_s(broker)[-1]


def _fill(connection: RawConnection, topic: str, size_bytes: int) -> None:
    """As much as asked for and a segment more, because the last one is not compacted."""
    sent_bytes, first = 0, 0
    while sent_bytes < size_bytes + SEGMENT_BYTES:
        batch = _batch(range(first, first + BATCH_RECORDS))
        connection.exchange(produce_frame(topic, 0, batch, acks=ACKS))
        sent_bytes += len(batch)
        first += BATCH_RECORDS


def _batch(numbers: range) -> bytes:
    at_ms = now_ms()
    records = [
        Record(place, at_ms, b"key-%d" % (number % KEY_COUNT), VALUE, ())
        for place, number in enumerate(numbers)
    ]
    return bytes(encode_plain_batch(records, Codec.NONE))


def _waits_ms(connection: RawConnection, frame: bytes, is_over: Callable[[], bool]) -> list[float]:
    """One request at a time until `is_over`, which is asked every hundred."""
    waits_ms: list[float] = []
    began_s = time.monotonic()
    while len(waits_ms) % 100 or not is_over():
        if time.monotonic() - began_s > GIVE_UP_S:
            raise TimeoutError("the log was not compacted")
        started_s = time.perf_counter()
        connection.exchange(frame)
        waits_ms.append((time.perf_counter() - started_s) * 1_000)
    return sorted(waits_ms)


def _compactions_s(broker: Subject) -> list[float]:
    """How long each took, by the broker's own log."""
    found = re.findall(r"log compacted .*\btook_ms=(\d+)", broker.log_text())
    return [int(took_ms) / 1_000 for took_ms in found]


def _percentile(waits_ms: Sequence[float], share: float) -> float:
    return waits_ms[min(int(len(waits_ms) * share), len(waits_ms) - 1)]


def _percentile_name(share: float) -> str:
    return "longest" if share == 1.0 else f"p{share * 100:.0f}"


if __name__ == "__main__":
    sys.exit(run_script("compaction", QUESTION, measure, subjects=(TIDELOG,)))
