"""T8: the cost of a request does not grow with what else the broker holds.

Two brokers of one kind run side by side, alike but for one thing, and answer the raw client in
turns: with 1 partition and with 2,000, with 1 segment and with 1,000, with 10 idle connections and
with 1,000. It is asked of tidelog alone; `--subjects kafka` shows how Kafka does.
"""

import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Bench, run_script
from benchmarks.raw import (
    Exchanges,
    RawConnection,
    api_versions_frame,
    batch_of,
    fetch_frame,
    fetched_session,
    middle,
    produce_frame,
    time_in_turns,
)
from benchmarks.results import Metric, Target
from benchmarks.subjects import FLOOR, new_broker
from tests.support.clients import create_topic

QUESTION = "Does the cost of a request grow with partitions, segments or connections? (T8)"
SMALL = "small"
GROWN = "grown"
PARTITIONS_GROWN = 2_000
SEGMENTS_GROWN = 1_000
CONNECTIONS_SMALL = 10
CONNECTIONS_GROWN = 1_000
REQUEST_COUNT = 4_000
RECORDS_HELD = 1_000
VALUE_SIZE_BYTES = 1_024
FETCH_BYTES = 2_048
OPEN_FILES_NEEDED = 65_536
# Old enough that batches, a second apart, never reach the present.
FIRST_TIMESTAMP_MS = 1_700_000_000_000
TOPIC = "flat"
CROWD = "crowd"
SEGMENTED = "segmented"
SEGMENT_MS_NEVER = "604800000000"

FLAT = Target(requirement="T8", of=GROWN, against=SMALL, at_most=1.2)


def measure(bench: Bench) -> None:
    bench.on_one_core()
    _allow_many_files()
    subject = next(name for name in bench.subjects if name != FLOOR)
    bench.remarks.append(f"small and grown are two states of {subject}")
    _partitions(bench, subject)
    _segments(bench, subject)
    _connections(bench, subject)


def _partitions(bench: Bench, subject: str) -> None:
    produce = bench.metric(Metric("Produce, 1 or 2,000 partitions", "us", (FLAT,)))
    fetch = bench.metric(Metric("Fetch, 1 or 2,000 partitions", "us", (FLAT,)))
    session = bench.metric(Metric("Fetch in a session of 1 or 2,000 partitions", "us", (FLAT,)))
    with _pair_of_brokers(bench, subject, "partitions") as pair:
        create_topic(pair.grown, CROWD, partition_count=PARTITIONS_GROWN, config={})
        with pair.connected() as (small, grown):
            for each in bench.passes("partitions"):
                frames = _produce_frames(bench, TOPIC)
                each.record(produce, _pair_us(small, grown, frames, frames))
                frames = _fetch_frames(bench, TOPIC)
                each.record(fetch, _pair_us(small, grown, frames, frames))
                alone = _session_frames(bench, small, crowd=0)
                crowded = _session_frames(bench, grown, crowd=PARTITIONS_GROWN)
                each.record(session, _pair_us(small, grown, alone, crowded))


def _segments(bench: Bench, subject: str) -> None:
    produce = bench.metric(Metric("Produce, 1 or 1,000 segments", "us", (FLAT,)))
    fetch = bench.metric(Metric("Fetch, 1 or 1,000 segments", "us", (FLAT,)))
    with _pair_of_brokers(bench, subject, "segments") as pair:
        for bootstrap, segment_ms in ((pair.small, SEGMENT_MS_NEVER), (pair.grown, "1")):
            config = {"segment.ms": segment_ms, "retention.ms": "-1"}
            create_topic(bootstrap, SEGMENTED, partition_count=1, config=config)
            _fill(bootstrap, SEGMENTED, bench.count(SEGMENTS_GROWN))
        _segment_counts_are_right(pair, bench.count(SEGMENTS_GROWN))
        with pair.connected() as (small, grown):
            for each in bench.passes("segments"):
                frames = _fetch_frames(bench, SEGMENTED)
                each.record(fetch, _pair_us(small, grown, frames, frames))
                frames = _produce_frames(bench, SEGMENTED)
                each.record(produce, _pair_us(small, grown, frames, frames))


def _connections(bench: Bench, subject: str) -> None:
    produce = bench.metric(Metric("Produce, 10 or 1,000 idle connections", "us", (FLAT,)))
    fetch = bench.metric(Metric("Fetch, 10 or 1,000 idle connections", "us", (FLAT,)))
    with (
        _pair_of_brokers(bench, subject, "connections") as pair,
        _idle_connections(pair.small, CONNECTIONS_SMALL),
        _idle_connections(pair.grown, CONNECTIONS_GROWN),
        pair.connected() as (small, grown),
    ):
        for each in bench.passes("connections"):
            frames = _produce_frames(bench, TOPIC)
            each.record(produce, _pair_us(small, grown, frames, frames))
            frames = _fetch_frames(bench, TOPIC)
            each.record(fetch, _pair_us(small, grown, frames, frames))


@dataclass(frozen=True, slots=True)
class Pair:
    """The bootstrap addresses and data folders of two brokers of one kind."""

    small: str
    grown: str
    small_folder: Path
    grown_folder: Path

    @contextmanager
    def connected(self) -> Iterator[tuple[RawConnection, RawConnection]]:
        with RawConnection(self.small) as small, RawConnection(self.grown) as grown:
            yield small, grown


@contextmanager
def _pair_of_brokers(bench: Bench, subject: str, label: str) -> Iterator[Pair]:
    """Two brokers that hold the same records and are alike until one of them grows."""
    folder = bench.folder / label
    with (
        new_broker(subject, folder / SMALL, {}) as small,
        new_broker(subject, folder / GROWN, {}) as grown,
    ):
        for broker in (small, grown):
            config = {"segment.ms": SEGMENT_MS_NEVER, "retention.ms": "-1"}
            create_topic(broker.bootstrap, TOPIC, partition_count=1, config=config)
            _fill(broker.bootstrap, TOPIC, RECORDS_HELD)
        yield Pair(small.bootstrap, grown.bootstrap, small.data_folder, grown.data_folder)


def _pair_us(
    small: RawConnection,
    grown: RawConnection,
    small_frames: Sequence[bytes],
    grown_frames: Sequence[bytes],
) -> dict[str, float]:
    systems = {SMALL: Exchanges(small, small_frames), GROWN: Exchanges(grown, grown_frames)}
    return {name: middle(values) for name, values in time_in_turns(systems).items()}


def _fill(bootstrap: str, topic: str, batch_count: int) -> None:
    """Batches of one record, a second apart, so that `segment.ms` decides where segments end."""
    with RawConnection(bootstrap) as connection:
        for n in range(batch_count):
            timestamp_ms = FIRST_TIMESTAMP_MS + n * 1_000
            batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=timestamp_ms)
            connection.exchange(produce_frame(topic, 0, batch, acks=1))


def _produce_frames(bench: Bench, topic: str) -> list[bytes]:
    # Within the last segment's time, so that appending never rolls.
    batch = batch_of(1, VALUE_SIZE_BYTES, timestamp_ms=FIRST_TIMESTAMP_MS)
    return [produce_frame(topic, 0, batch, acks=1)] * bench.count(REQUEST_COUNT)


def _fetch_frames(bench: Bench, topic: str) -> list[bytes]:
    """From offsets all over the log; the answer is the same size wherever it comes from."""
    held = bench.count(SEGMENTS_GROWN)
    return [
        fetch_frame(
            # Steps of a prime visit everything and never the neighbour of the offset before.
            {topic: [(0, n * 7_919 % held)]},
            partition_max_bytes=FETCH_BYTES,
            session_id=0,
            session_epoch=-1,
        )
        for n in range(bench.count(REQUEST_COUNT))
    ]


def _session_frames(bench: Bench, connection: RawConnection, *, crowd: int) -> list[bytes]:
    """Of an incremental fetch session (KIP-227) in which one partition of many has records."""
    opening: dict[str, list[tuple[int, int]]] = {TOPIC: [(0, 0)]}
    if crowd:
        opening[CROWD] = [(n, 0) for n in range(crowd)]
    frame = fetch_frame(opening, partition_max_bytes=FETCH_BYTES, session_id=0, session_epoch=0)
    session_id = fetched_session(connection.exchange(frame))
    assert session_id != 0, "the broker did not open a fetch session"
    return [
        fetch_frame(
            {TOPIC: [(0, n % RECORDS_HELD)]},
            partition_max_bytes=FETCH_BYTES,
            session_id=session_id,
            session_epoch=n + 1,
        )
        for n in range(bench.count(REQUEST_COUNT))
    ]


@contextmanager
def _idle_connections(bootstrap: str, count: int) -> Iterator[None]:
    """Connections that have said hello and nothing since."""
    hello = api_versions_frame()
    with ExitStack() as opened:
        for _connection in range(count):
            opened.enter_context(RawConnection(bootstrap)).exchange(hello)
        yield


def _segment_counts_are_right(pair: Pair, segment_count: int) -> None:
    folders = (pair.small_folder, pair.grown_folder)
    counts = [len(list((folder / f"{SEGMENTED}-0").glob("*.log"))) for folder in folders]
    assert counts == [1, segment_count], counts


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_NEEDED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_NEEDED, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


if __name__ == "__main__":
    sys.exit(run_script("flat_cost", QUESTION, measure))
