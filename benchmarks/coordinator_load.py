"""P3: how long groups wait for a new coordinator that has to read their commits first.

Three brokers, three replicas, one partition of `__consumer_offsets`. A thousand offsets (20 groups,
50 partitions) are committed again and again, ten in a request, until the log has as many commits as
the row says; it is one segment, which nobody compacts. Then the coordinator is killed with -9.

    load            from when another broker says that the partition has a new leader until that
                    one answers OffsetFetch with the offset that was committed last; finding out
                    that a broker is dead is not part of it (see failover)
    commit          the same until the first commit is answered
    beside it       p99 of one record at a time, acks=1, to a partition that the new coordinator
                    leads, of those that were under way during the load

The dead one is started again and catches up before the next kill.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from benchmarks.clients import in_turn
from benchmarks.harness import Bench, run_script
from benchmarks.raw import RawConnection, batch_of, now_ms, produce_frame, request_frame
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, Cluster, running_cluster
from tests.support.message_client import MessageClient
from tests.support.three_brokers import BROKER_IDS
from tidelog.base.errors import ErrorCode

QUESTION = "How long does a group wait for its new coordinator to load? (P3)"
OFFSETS_TOPIC = "__consumer_offsets"
TOPIC = "committed"
GROUP_COUNT = 20
PARTITION_COUNT = 50
PARTITIONS_PER_COMMIT = 10
COMMITS = (300_000, 1_000_000)
FILLING_CONNECTIONS = 4
POLL_S = 0.002
PRODUCE_ACKS = 1
AS_FAST = Target(requirement="P3", of=TIDELOG, against=KAFKA, at_most=1.0)
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass(frozen=True, slots=True)
class Takeover:
    fetched_s: float
    committed_s: float
    beside_p99_ms: float


def measure(bench: Bench) -> None:
    bench.warm_up_rounds = min(bench.warm_up_rounds, 1)
    clusters: dict[str, Cluster] = {}
    for name in bench.subjects:
        bench.say(f"starting three brokers of {name}")
        folder = bench.folder / name
        clusters[name] = bench.running.enter_context(running_cluster(name, folder, SETTINGS))
        clusters[name].create(TOPIC, *in_turn(PARTITION_COUNT))
        for leader, replicas in zip(BROKER_IDS, in_turn(len(BROKER_IDS)), strict=True):
            clusters[name].create(_beside(leader), replicas)
            clusters[name].wait_whole(_beside(leader))
        clusters[name].wait_whole(TOPIC)
        _make_coordinator(clusters[name])
    written = dict.fromkeys(clusters, 0)
    for count in COMMITS:
        total = bench.count(count)
        loaded = bench.metric(Metric(f"{total:,} commits: load", "s", (AS_FAST,)))
        committed = bench.metric(Metric(f"{total:,} commits: commit", "s", (AS_FAST,)))
        beside = bench.metric(Metric(f"{total:,} commits: beside it, p99", "ms", (AS_FAST,)))
        for name, cluster in clusters.items():
            bench.say(f"{name}: committing until there are {total:,}")
            _fill(cluster, total - written[name])
            written[name] = total
        for turn in bench.turns(f"{total:,} commits", list(clusters)):
            found = _take_over(clusters[turn.name], turn.round_index)
            turn.record(loaded, found.fetched_s)
            turn.record(committed, found.committed_s)
            turn.record(beside, found.beside_p99_ms)


def _make_coordinator(cluster: Cluster) -> None:
    """The first commit has the topic made."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "first"})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    finally:
        consumer.close()
    cluster.wait_whole(OFFSETS_TOPIC)


def _fill(cluster: Cluster, commit_count: int) -> None:
    """`commit_count` offsets, of all groups and partitions in turn."""
    frames = [
        request_frame(
            _commit_request(group, range(first, first + PARTITIONS_PER_COMMIT), 1),
            api_key=8,
            api_version=8,
        )
        for first in range(0, PARTITION_COUNT, PARTITIONS_PER_COMMIT)
        for group in map(_group, range(GROUP_COUNT))
    ]
    bootstrap = cluster.leader(OFFSETS_TOPIC).bootstrap
    each = commit_count // PARTITIONS_PER_COMMIT // FILLING_CONNECTIONS

    def work(part: int) -> None:
        with RawConnection(bootstrap) as connection:
            for number in range(each):
                connection.exchange(frames[(number * FILLING_CONNECTIONS + part) % len(frames)])

    threads = [threading.Thread(target=work, args=(part,)) for part in range(FILLING_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _take_over(cluster: Cluster, round_index: int) -> Takeover:
    victim = cluster.partition(OFFSETS_TOPIC).leader
    mark = 1_000 + round_index
    with _client(cluster, victim) as client:
        code = _commit(client, _group(0), mark)
        assert code is ErrorCode.NONE, code
    # Replicas are tried in their order, by both systems.
    replicas = cluster.partition(OFFSETS_TOPIC).replicas
    successor = next(each for each in replicas if each != victim)
    if cluster.partition(_beside(successor)).leader != successor:
        cluster.elect_preferred(_beside(successor), 1)
    with ExitStack() as stack:
        client = stack.enter_context(_client(cluster, successor))
        asked = stack.enter_context(_client(cluster, successor))
        beside = stack.enter_context(_producing(cluster, successor))
        cluster.brokers[victim].kill()
        while _leader(asked) in (victim, -1):
            time.sleep(POLL_S)
        led_s = time.perf_counter()
        assert _leader(asked) == successor, f"broker {successor} is not the coordinator"
        # Kafka answers with an older one at first.
        while _fetch(client, _group(0)) != mark:
            time.sleep(POLL_S)
        fetched_s = time.perf_counter()
        while (code := _commit(client, _group(0), mark)) is not ErrorCode.NONE:
            assert code in NOT_YET, code
            time.sleep(POLL_S)
        committed_s = time.perf_counter()
    cluster.brokers[victim].start()
    cluster.wait_whole(OFFSETS_TOPIC)
    for each in BROKER_IDS:
        cluster.wait_whole(_beside(each))
    meanwhile = sorted(
        (end_s - start_s) * 1_000
        for start_s, end_s in beside
        if end_s >= led_s and start_s <= fetched_s
    )
    return Takeover(fetched_s - led_s, committed_s - led_s, meanwhile[len(meanwhile) * 99 // 100])


@contextmanager
def _producing(cluster: Cluster, leader: int) -> Iterator[list[tuple[float, float]]]:
    """When each record was sent and acknowledged, one after the other until it is left."""
    batch = batch_of(1, 100, timestamp_ms=now_ms())
    frame = produce_frame(_beside(leader), 0, batch, acks=PRODUCE_ACKS)
    times: list[tuple[float, float]] = []
    has_ended = threading.Event()

    def work() -> None:
        with RawConnection(cluster.brokers[leader].bootstrap) as connection:
            while not has_ended.is_set():
                started_s = time.perf_counter()
                connection.exchange(frame)
                times.append((started_s, time.perf_counter()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield times
    finally:
        has_ended.set()
        thread.join()


def _client(cluster: Cluster, node_id: int) -> MessageClient:
    host, port = cluster.brokers[node_id].bootstrap.rsplit(":", maxsplit=1)
    return MessageClient(host, int(port))


def _beside(leader: int) -> str:
    """A topic of one partition, whose preferred leader is `leader`."""
    return f"beside-{leader}"


def _group(number: int) -> str:
    return f"group-{number}"


def _leader(client: MessageClient) -> int:
    answer = client.ask(
        MetadataRequest(
            topics=(MetadataRequestTopic(name=TopicName(OFFSETS_TOPIC)),),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
    )
    assert isinstance(answer, MetadataResponse)
    return int(answer.topics[0].partitions[0].leader_id)


def _fetch(client: MessageClient, group: str) -> int | None:
    """What the group has committed for the first partition; None if nobody can say yet."""
    topic = OffsetFetchRequestTopic(name=TopicName(TOPIC), partition_indexes=(i32(0),))
    answer = client.ask(
        OffsetFetchRequest(group_id=GroupId(group), topics=(topic,), require_stable=False)
    )
    assert isinstance(answer, OffsetFetchResponse)
    if answer.error_code:
        assert ErrorCode(int(answer.error_code)) in NOT_YET, answer.error_code
        return None
    return int(answer.topics[0].partitions[0].committed_offset)


def _commit(client: MessageClient, group: str, offset: int) -> ErrorCode:
    answer = client.ask(_commit_request(group, [0], offset))
    assert isinstance(answer, OffsetCommitResponse)
    return ErrorCode(int(answer.topics[0].partitions[0].error_code))


def _commit_request(group: str, partitions: Sequence[int], offset: int) -> OffsetCommitRequest:
    offsets = tuple(
        OffsetCommitRequestPartition(
            partition_index=i32(each), committed_offset=i64(offset), committed_metadata=""
        )
        for each in partitions
    )
    topic = OffsetCommitRequestTopic(name=TopicName(TOPIC), partitions=offsets)
    return OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,))


if __name__ == "__main__":
    sys.exit(run_script("coordinator_load", QUESTION, measure, (TIDELOG, KAFKA)))
