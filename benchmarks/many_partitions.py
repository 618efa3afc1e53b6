"""T8: opening and creating many partitions.

Opening is a start after a clean stop, compared with the start of an empty broker of the same kind;
it is asked of tidelog alone, so the first of `--subjects` is measured and no other.
Creating is from the request until every partition has a leader, and until every leader has opened
its log and answers; Kafka says the first long before the second. The same on three brokers with
three replicas, where the first is until all replicas are said to be in sync.
"""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.clients import CLIENT_TIMEOUT_S, drop_topic, in_turn, wait_until_removed
from benchmarks.harness import Bench, run_script
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, Broker, new_broker, running_cluster
from tests.support.clients import create_topic
from tests.support.server_process import wait_until

QUESTION = "How long do opening and creating many partitions take? (T8)"
OPENED_PARTITIONS = 2_000
CREATED_PARTITIONS = 1_000
TOPIC = "many"
A_MILLISECOND = Target(requirement="T8", of=TIDELOG, against=None, at_most=1.0)
THREE_TIMES_KAFKA = Target(requirement="T8", of=TIDELOG, against=KAFKA, at_most=3.0)


def measure(bench: Bench) -> None:
    names = bench.subjects
    # There is nothing to warm in a new process, and Kafka takes half a minute a round.
    bench.warm_up_rounds = 1
    _opening(bench, names[:1])
    _creating(bench, names)
    _creating_replicated(bench, names)


def _opening(bench: Bench, names: Sequence[str]) -> None:
    """Ready again after a clean stop: what each partition adds to the start of an empty broker."""
    per_partition = bench.metric(
        Metric("opening after a clean stop, each partition", "ms", (A_MILLISECOND,))
    )
    whole = bench.metric(Metric("opening 2,000 partitions", "s"))
    with ExitStack() as running:
        pairs = {}
        for name in names:
            empty = new_broker(name, bench.folder / f"{name}-empty", {})
            full = new_broker(name, bench.folder / f"{name}-full", {})
            for broker in (empty, full):
                running.enter_context(broker)
            create_topic(full.bootstrap, TOPIC, partition_count=OPENED_PARTITIONS, config={})
            pairs[name] = (empty, full)
        for turn in bench.turns("opening", names):
            empty, full = pairs[turn.name]
            opening_s = _restart_seconds(full)
            turn.record(whole, opening_s)
            added_s = opening_s - _restart_seconds(empty)
            turn.record(per_partition, max(0.0, added_s) * 1_000 / OPENED_PARTITIONS)


def _creating(bench: Bench, names: Sequence[str]) -> None:
    """Until every partition has a leader, and until every leader has opened its log and answers."""
    name = "creating a topic of 1,000 partitions"
    # Without a target: Kafka names leaders before they have opened their logs, tidelog after.
    led = bench.metric(Metric(f"{name}, until all are led", "s"))
    serving = bench.metric(Metric(f"{name}, until all answer", "s", (THREE_TIMES_KAFKA,)))
    with ExitStack() as running:
        brokers = {name: new_broker(name, bench.folder / f"{name}-creating", {}) for name in names}
        for broker in brokers.values():
            running.enter_context(broker)
        for turn in bench.turns("creating", names):
            broker = brokers[turn.name]
            topic = f"created-{turn.round_index}"
            led_s, serving_s = _creation_seconds(
                broker.bootstrap, partial(_create, broker.bootstrap, topic), topic
            )
            turn.record(led, led_s)
            turn.record(serving, serving_s)
            drop_topic(broker.bootstrap, topic)
            wait_until_removed(broker.data_folder, topic)


def _creating_replicated(bench: Bench, names: Sequence[str]) -> None:
    name = "three brokers, creating a topic of 1,000 partitions"
    in_sync = bench.metric(Metric(f"{name}, until all are in sync", "s", (THREE_TIMES_KAFKA,)))
    serving = bench.metric(Metric(f"{name}, until all answer", "s", (THREE_TIMES_KAFKA,)))
    with ExitStack() as running:
        clusters = {
            name: running.enter_context(running_cluster(name, bench.folder / f"{name}-three", {}))
            for name in names
        }
        for turn in bench.turns("creating replicas", names):
            cluster = clusters[turn.name]
            topic = f"replicated-{turn.round_index}"
            in_sync_s, serving_s = _creation_seconds(
                cluster.bootstrap,
                partial(cluster.create, topic, *in_turn(CREATED_PARTITIONS)),
                topic,
            )
            turn.record(in_sync, in_sync_s)
            turn.record(serving, serving_s)
            drop_topic(cluster.bootstrap, topic)
            for broker in cluster.brokers.values():
                wait_until_removed(broker.data_folder, topic)


def _restart_seconds(broker: Broker) -> float:
    broker.stop()
    started = time.perf_counter()
    broker.start()
    return time.perf_counter() - started


def _create(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partition_count=CREATED_PARTITIONS, config={})


def _creation_seconds(
    bootstrap: str, create: Callable[[], None], topic: str
) -> tuple[float, float]:
    """Until every partition has a leader and all its replicas in sync, and until each answers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "creation", "log_level": 0})
    consumer.list_topics(timeout=CLIENT_TIMEOUT_S)
    started = time.perf_counter()
    create()
    wait_until(
        lambda: _is_whole(consumer, topic), within_s=CLIENT_TIMEOUT_S, what="all are in sync"
    )
    led_s = time.perf_counter() - started
    wait_until(lambda: _answers(consumer, topic), within_s=CLIENT_TIMEOUT_S, what="all answer")
    serving_s = time.perf_counter() - started
    consumer.close()
    return led_s, serving_s


def _is_whole(consumer: Consumer, topic: str) -> bool:
    partitions = consumer.list_topics(topic, timeout=CLIENT_TIMEOUT_S).topics[topic].partitions
    return len(partitions) == CREATED_PARTITIONS and all(
        partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)
        for partition in partitions.values()
    )


def _answers(consumer: Consumer, topic: str) -> bool:
    wanted = [TopicPartition(topic, n, 0) for n in range(CREATED_PARTITIONS)]
    try:
        answers = consumer.offsets_for_times(wanted, timeout=CLIENT_TIMEOUT_S)
    except KafkaException:  # Said when none of them answers.
        return False
    return all(answer.error is None for answer in answers)


if __name__ == "__main__":
    sys.exit(run_script("many_partitions", QUESTION, measure, (TIDELOG, KAFKA)))
