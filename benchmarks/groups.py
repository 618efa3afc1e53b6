"""P3: what a consumer group costs: committing an offset, and changing who has what.

Three brokers, three replicas, min.insync.replicas 2, so that a commit that is answered is on two
brokers at least. Both systems are given the same client (librdkafka) with the same settings.

    commit          one consumer commits one offset after the other and waits for each
    commits at once thirty consumers, each with a group of its own, do so side by side
    join, leave     of a group of five on twelve partitions: from the moment at which the fifth
                    subscribes (or closes) until everybody who is left has its new share. Members
                    hear of a change by heartbeats, every 0.3 s here, which is most of it
    first join      of a new group of one, with group.initial.rebalance.delay.ms 0 on both sides.
                    50 ms of it librdkafka waits by itself; it asks twice where the topic is, which
                    tidelog answers 5 ms later than it could (`broker/departures.py` says why)

Joining and leaving are measured with the classic protocol (range, eager) and with the consumer
protocol of KIP-848, whose heartbeats the brokers set: 0.3 s as well.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from confluent_kafka import Consumer, TopicPartition

from benchmarks.clients import CLIENT_TIMEOUT_S, in_turn
from benchmarks.harness import Bench, run_script
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, running_cluster

QUESTION = "What do commits and rebalances of consumer groups cost? (P3)"
TOPIC = "grouped"
PARTITION_COUNT = 12
COMMIT_COUNT = 500
PARALLEL_GROUPS = 30
PARALLEL_COMMITS = 50
MEMBER_COUNT = 5
AS_FAST = Target(requirement="P3", of=TIDELOG, against=KAFKA, at_most=1.0)
AS_MANY = Target(requirement="P3", of=TIDELOG, against=KAFKA, at_least=1.0)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
}
CONSUMER = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
PROTOCOLS: dict[str, dict[str, str | int]] = {
    "classic": {
        "partition.assignment.strategy": "range",
        "heartbeat.interval.ms": 300,
        "session.timeout.ms": 6_000,
    },
    "consumer": {"group.protocol": "consumer"},
}


class Member:
    """A consumer of a group that is polled by `settle`."""

    def __init__(self, bootstrap: str, group: str, protocol: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group}
        self._consumer = Consumer({**settings, **CONSUMER, **PROTOCOLS[protocol]})
        self._consumer.subscribe([TOPIC])

    def poll(self) -> list[int]:
        """Do what there is to do, and tell which partitions are this member's now."""
        self._consumer.poll(0.001)
        return [one.partition for one in self._consumer.assignment()]

    def close(self) -> None:
        self._consumer.close()


def settle(members: Sequence[Member]) -> None:
    """Poll until all have a share, and all shares are all partitions in fair parts."""
    deadline = time.monotonic() + CLIENT_TIMEOUT_S
    fewest = PARTITION_COUNT // len(members)
    while True:
        shares = [member.poll() for member in members]
        owned = sorted(one for share in shares for one in share)
        if owned == list(range(PARTITION_COUNT)) and min(map(len, shares)) >= fewest:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"members have {shares}")


def measure(bench: Bench) -> None:
    clusters = {}
    for name in bench.subjects:
        bench.say(f"starting three brokers of {name}")
        folder = bench.folder / name
        cluster = bench.running.enter_context(running_cluster(name, folder, SETTINGS))
        cluster.create(TOPIC, *in_turn(PARTITION_COUNT))
        cluster.wait_whole(TOPIC)
        clusters[name] = cluster.bootstrap
    names = list(clusters)
    p50 = bench.metric(Metric("commit, p50", "ms", (AS_FAST,)))
    p99 = bench.metric(Metric("commit, p99", "ms", (AS_FAST,)))
    for turn in bench.turns("commit", names):
        took = sorted(_commits(clusters[turn.name], turn.label, bench.count(COMMIT_COUNT)))
        turn.record(p50, took[len(took) // 2] * 1000)
        turn.record(p99, took[len(took) * 99 // 100] * 1000)
    rate = bench.metric(
        Metric(f"commits of {PARALLEL_GROUPS} groups at once", "commits/s", (AS_MANY,))
    )
    for turn in bench.turns("commits at once", names):
        turn.record(
            rate, _commits_at_once(clusters[turn.name], turn.label, bench.count(PARALLEL_COMMITS))
        )
    for protocol in PROTOCOLS:
        _measure_rebalances(bench, clusters, protocol)


def _measure_rebalances(bench: Bench, clusters: Mapping[str, str], protocol: str) -> None:
    metrics = [
        bench.metric(Metric(f"{protocol}: {what}", "s", (AS_FAST,)))
        for what in (
            "a new group of one has its share",
            f"member {MEMBER_COUNT} joins",
            f"member {MEMBER_COUNT} leaves",
        )
    ]
    for turn in bench.turns(f"rebalances, {protocol}", list(clusters)):
        took = _rebalances(clusters[turn.name], f"{protocol}-{turn.label}", protocol)
        for metric, took_s in zip(metrics, took, strict=True):
            turn.record(metric, took_s)


def _commits(bootstrap: str, label: str, count: int) -> list[float]:
    """How long each took. The consumer is a member of nothing: it only keeps offsets."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"commits-{label}", **CONSUMER}
    )
    try:
        _commit(consumer, 0)  # Finds the coordinator.
        took = []
        for offset in range(1, count + 1):
            started_s = time.perf_counter()
            _commit(consumer, offset)
            took.append(time.perf_counter() - started_s)
        return took
    finally:
        consumer.close()


def _commits_at_once(bootstrap: str, label: str, count: int) -> float:
    with ExitStack() as stack:
        consumers = []
        for number in range(PARALLEL_GROUPS):
            consumer = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": f"many-{label}-{number}", **CONSUMER}
            )
            stack.callback(consumer.close)
            _commit(consumer, 0)
            consumers.append(consumer)

        def work(consumer: Consumer) -> None:
            for offset in range(1, count + 1):
                _commit(consumer, offset)

        return (
            PARALLEL_GROUPS
            * count
            / _side_by_side(
                [lambda one=one: work(one) for one in consumers]  # type: ignore[misc]
            )
        )


def _side_by_side(works: Sequence[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=work) for work in works]
    started_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started_s


def _commit(consumer: Consumer, offset: int) -> None:
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)


def _rebalances(bootstrap: str, group: str, protocol: str) -> tuple[float, float, float]:
    """A first member, a fifth that joins four, and one of the five that leaves."""
    with ExitStack() as stack:

        def new_member() -> Member:
            return Member(bootstrap, group, protocol)

        members = [new_member()]
        stack.callback(members[0].close)
        started_s = time.perf_counter()
        settle(members)
        first_s = time.perf_counter() - started_s
        while len(members) < MEMBER_COUNT - 1:
            members.append(new_member())
            stack.callback(members[-1].close)
        settle(members)
        last = new_member()
        started_s = time.perf_counter()
        settle([*members, last])
        joined_s = time.perf_counter() - started_s
        started_s = time.perf_counter()
        last.close()
        settle(members)
        return first_s, joined_s, time.perf_counter() - started_s


if __name__ == "__main__":
    sys.exit(run_script("groups", QUESTION, measure, (TIDELOG, KAFKA)))
