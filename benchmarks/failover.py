"""T6: how long an acks=all producer stands still when its leader is killed with -9.

Three brokers, three replicas, defaults on every side: the producer's, the brokers', and the 18 s
after which ZooKeeper gives a silent broker up. The broker that dies leads every partition of the
topic, one or a thousand. What is measured:

    gap       the longest time between two acknowledgements of one partition that gets a record
              every millisecond
    all       from the kill until each of a thousand partitions has taken a record that was sent
              after it

The dead one is started again, catches up and leads again before the next round. A round in which it
is the controller as well is a case of its own; who that is Kafka does not tell clients, so there is
none of Kafka's. There is nothing to warm: what has to be fast happens once in a process's life.
"""

import sys
import time
from dataclasses import dataclass

from benchmarks.clients import running_failover
from benchmarks.harness import Bench, run_script
from benchmarks.load import FailoverTask, Interruption
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, ZOOKEEPER, Cluster
from tests.support.three_brokers import BROKER_IDS
from tidelog.lab.zookeeper import why_unavailable

QUESTION = "How long does a producer stand still when its leader is killed with -9? (T6)"
MANY = 1_000
SESSION_TIMEOUT_S = 18.0
A_TENTH_OF_KAFKA = Target(requirement="T6", of=TIDELOG, against=KAFKA, at_most=0.1)
HALF_A_SECOND = Target(requirement="T6", of=ZOOKEEPER, against=None, at_most=0.5)
TWICE_ONE = Target(requirement="T6", of="1,000 partitions", against="1 partition", at_most=2.0)


@dataclass(frozen=True, slots=True)
class Case:
    title: str
    topic: str
    partition_count: int
    is_controller: bool


ONE = Case("1 partition", "one", 1, is_controller=False)
THOUSAND = Case("1,000 partitions", "thousand", MANY, is_controller=False)
CONTROLLER = Case("1 partition, the controller dies with it", "with", 1, is_controller=True)


def measure(bench: Bench) -> None:
    is_left_out = why_unavailable() is not None
    names = [name for name in bench.subjects if not (is_left_out and name == ZOOKEEPER)]
    bench.warm_up_rounds = 0
    clusters = bench.start_clusters(names)
    gaps = {
        case: bench.metric(Metric(f"{case.title}: longest gap", "s", (A_TENTH_OF_KAFKA,)))
        for case in (ONE, THOUSAND)
    }
    gaps[CONTROLLER] = bench.metric(Metric(f"{CONTROLLER.title}: longest gap", "s"))
    whole = bench.metric(Metric("1,000 partitions: until all take records", "s"))
    beyond = bench.metric(
        Metric("beyond ZooKeeper's session time-out, longest gap", "s", (HALF_A_SECOND,))
    )
    batch = bench.metric(Metric("tidelog, from the kill until all take records", "s", (TWICE_ONE,)))
    for case, gap in gaps.items():
        for turn in bench.turns(case.title, _asked(case, names)):
            found = _interrupted(clusters[turn.name], case)
            turn.record(gap, found.gap_s)
            if case is THOUSAND:
                turn.record(whole, found.whole_s)
            if turn.name == ZOOKEEPER:
                beyond.record(ZOOKEEPER, found.gap_s - SESSION_TIMEOUT_S)
            if turn.name == TIDELOG and not case.is_controller:
                batch.record(case.title, found.whole_s)


def _asked(case: Case, names: list[str]) -> list[str]:
    return [name for name in names if not (case.is_controller and name == KAFKA)]


def _interrupted(cluster: Cluster, case: Case) -> Interruption:
    victim = _make_leader(cluster, case)
    task = FailoverTask(partition_count=case.partition_count)
    topic = _topic(case, victim)
    with running_failover(cluster.bootstrap, topic, task) as producer:
        killed_at_s = time.monotonic()
        cluster.brokers[victim].kill()
        found = producer.result(killed_at_s)
    cluster.brokers[victim].start()
    cluster.wait_whole(topic)
    return found


def _make_leader(cluster: Cluster, case: Case) -> int:
    """A broker that leads all partitions of the topic, which is made the first time."""
    if cluster_is_kafka(cluster):
        victim = BROKER_IDS[0]
    else:
        controller = cluster.controller_id()
        others = [each for each in BROKER_IDS if each != controller]
        victim = controller if case.is_controller else others[0]
    topic = _topic(case, victim)
    followers = [each for each in BROKER_IDS if each != victim]
    if topic not in cluster.admin().list_topics(timeout=60).topics:
        cluster.create(topic, *([victim, *followers] for _ in range(case.partition_count)))
    cluster.wait_whole(topic)
    if any(each.leader != victim for each in cluster.topic(topic).partitions.values()):
        cluster.elect_preferred(topic, case.partition_count)
    return victim


def _topic(case: Case, victim: int) -> str:
    return f"{case.topic}-led-by-{victim}"


def cluster_is_kafka(cluster: Cluster) -> bool:
    return any(broker.name == KAFKA for broker in cluster.brokers.values())


if __name__ == "__main__":
    sys.exit(run_script("failover", QUESTION, measure, (TIDELOG, ZOOKEEPER, KAFKA)))
