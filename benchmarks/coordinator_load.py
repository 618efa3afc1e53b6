"""P3, D3: how long groups and producers wait for a new coordinator that has to read first.

Three brokers, three replicas, one partition of `__consumer_offsets` and of `__transaction_state`.
A thousand offsets (20 groups, 50 partitions) are committed again and again, ten in a request, and
200 transactional ids get epoch after epoch, until the log has as many records as the row says; it
is one segment, which nobody compacts. Then the coordinator is killed with -9.

    load            from when another broker says that the partition has a new leader until that
                    one answers with what was stored last (OffsetFetch) or lists it
                    (ListTransactions); finding out that a broker is dead is not part of it
                    (see failover)
    commit, epoch   the same until the first commit or InitProducerId is answered
    beside it       p99 of one record at a time, acks=1, to a partition that the new coordinator
                    leads, of those that were under way during the load

The dead one is started again and catches up before the next kill.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta

from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
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
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from benchmarks.clients import CLIENT_TIMEOUT_S, in_turn
from benchmarks.harness import Bench, run_script
from benchmarks.raw import RawConnection, batch_of, now_ms, produce_frame, request_frame
from benchmarks.results import Metric, Target
from benchmarks.subjects import KAFKA, TIDELOG, Cluster, running_cluster
from tests.support.message_client import MessageClient
from tests.support.three_brokers import BROKER_IDS
from tidelog.base.errors import ErrorCode

QUESTION = "How long do groups and producers wait for a new coordinator to load? (P3, D3)"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
TOPIC = "committed"
GROUP_COUNT = 20
PARTITION_COUNT = 50
PARTITIONS_PER_COMMIT = 10
COMMITS = (300_000, 1_000_000)
ID_COUNT = 200
EPOCHS = (100_000,)
TRANSACTION_TIMEOUT = i32Timedelta.parse(timedelta(minutes=1))
FILLING_CONNECTIONS = 4
POLL_S = 0.002
PRODUCE_ACKS = 1
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}
NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass(frozen=True, slots=True)
class Office:
    """What a coordinator is for, and how it is asked."""

    requirement: str
    topic: str
    key: str
    key_type: int
    of_what: str
    write_name: str
    counts: tuple[int, ...]
    frames: Callable[[], list[bytes]]
    """What fills the log, each of them `records_per_frame`."""
    records_per_frame: int
    write: Callable[[MessageClient, int], int | ErrorCode]
    """Store something new in this round: what `look` finds then, or why it cannot be."""
    look: Callable[[MessageClient], int | None]
    """What was stored last; None if nobody can say yet."""


@dataclass(frozen=True, slots=True)
class Takeover:
    loaded_s: float
    written_s: float
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
    for office in (GROUPS, TRANSACTIONS):
        for cluster in clusters.values():
            _make_coordinator(cluster, office)
        _measure(bench, clusters, office)


def _measure(bench: Bench, clusters: dict[str, Cluster], office: Office) -> None:
    as_fast = Target(requirement=office.requirement, of=TIDELOG, against=KAFKA, at_most=1.0)
    written = dict.fromkeys(clusters, 0)
    for count in office.counts:
        total = bench.count(count)
        title = f"{total:,} {office.of_what}"
        loaded = bench.metric(Metric(f"{title}: load", "s", (as_fast,)))
        stored = bench.metric(Metric(f"{title}: {office.write_name}", "s", (as_fast,)))
        beside = bench.metric(Metric(f"{title}: beside it, p99", "ms", (as_fast,)))
        for name, cluster in clusters.items():
            bench.say(f"{name}: writing until there are {title}")
            _fill(cluster, office, total - written[name])
            written[name] = total
        for turn in bench.turns(title, list(clusters)):
            found = _take_over(clusters[turn.name], office, turn.round_index)
            turn.record(loaded, found.loaded_s)
            turn.record(stored, found.written_s)
            turn.record(beside, found.beside_p99_ms)


def _make_coordinator(cluster: Cluster, office: Office) -> None:
    """Who looks for it has the topic made."""
    request = FindCoordinatorRequest(key=office.key, key_type=i8(office.key_type))
    until_s = time.monotonic() + CLIENT_TIMEOUT_S
    with _client(cluster, BROKER_IDS[0]) as client:
        while client.ask(request).error_code:  # type: ignore[attr-defined]
            assert time.monotonic() < until_s, f"nobody coordinates {office.key}"
            time.sleep(POLL_S)
    cluster.wait_whole(office.topic)
    with _client(cluster, cluster.partition(office.topic).leader) as client:
        while isinstance(code := office.write(client, 0), ErrorCode):
            assert code in NOT_YET, code
            time.sleep(POLL_S)


def _fill(cluster: Cluster, office: Office, record_count: int) -> None:
    """`record_count` records, of all keys in turn."""
    frames = office.frames()
    bootstrap = cluster.leader(office.topic).bootstrap
    each = record_count // office.records_per_frame // FILLING_CONNECTIONS

    def work(part: int) -> None:
        with RawConnection(bootstrap) as connection:
            for number in range(each):
                connection.exchange(frames[(number * FILLING_CONNECTIONS + part) % len(frames)])

    threads = [threading.Thread(target=work, args=(part,)) for part in range(FILLING_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _take_over(cluster: Cluster, office: Office, round_index: int) -> Takeover:
    victim = cluster.partition(office.topic).leader
    with _client(cluster, victim) as client:
        mark = office.write(client, round_index)
        assert not isinstance(mark, ErrorCode), mark
    # Replicas are tried in their order, by both systems.
    replicas = cluster.partition(office.topic).replicas
    successor = next(each for each in replicas if each != victim)
    if cluster.partition(_beside(successor)).leader != successor:
        cluster.elect_preferred(_beside(successor), 1)
    with ExitStack() as stack:
        client = stack.enter_context(_client(cluster, successor))
        asked = stack.enter_context(_client(cluster, successor))
        beside = stack.enter_context(_producing(cluster, successor))
        cluster.brokers[victim].kill()
        while _leader(asked, office.topic) in (victim, -1):
            time.sleep(POLL_S)
        led_s = time.perf_counter()
        assert _leader(asked, office.topic) == successor, f"{successor} is not the coordinator"
        # Kafka answers with an older one at first.
        while office.look(client) != mark:
            time.sleep(POLL_S)
        loaded_s = time.perf_counter()
        while isinstance(code := office.write(client, round_index), ErrorCode):
            assert code in NOT_YET, code
            time.sleep(POLL_S)
        written_s = time.perf_counter()
    cluster.brokers[victim].start()
    cluster.wait_whole(office.topic)
    for each in BROKER_IDS:
        cluster.wait_whole(_beside(each))
    meanwhile = sorted(
        (end_s - start_s) * 1_000
        for start_s, end_s in beside
        if end_s >= led_s and start_s <= loaded_s
    )
    return Takeover(loaded_s - led_s, written_s - led_s, meanwhile[len(meanwhile) * 99 // 100])


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


def _leader(client: MessageClient, topic: str) -> int:
    answer = client.ask(
        MetadataRequest(
            topics=(MetadataRequestTopic(name=TopicName(topic)),),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
    )
    assert isinstance(answer, MetadataResponse)
    return int(answer.topics[0].partitions[0].leader_id)


# -- groups --------------------------------------------------------------------------------------


def _group(number: int) -> str:
    return f"group-{number}"


def _commit_frames() -> list[bytes]:
    return [
        request_frame(
            _commit_request(group, range(first, first + PARTITIONS_PER_COMMIT), 1),
            api_key=8,
            api_version=8,
        )
        for first in range(0, PARTITION_COUNT, PARTITIONS_PER_COMMIT)
        for group in map(_group, range(GROUP_COUNT))
    ]


def _commit(client: MessageClient, round_index: int) -> int | ErrorCode:
    offset = 1_000 + round_index
    answer = client.ask(_commit_request(_group(0), [0], offset))
    assert isinstance(answer, OffsetCommitResponse)
    code = ErrorCode(int(answer.topics[0].partitions[0].error_code))
    return offset if code is ErrorCode.NONE else code


def _committed(client: MessageClient) -> int | None:
    topic = OffsetFetchRequestTopic(name=TopicName(TOPIC), partition_indexes=(i32(0),))
    answer = client.ask(
        OffsetFetchRequest(group_id=GroupId(_group(0)), topics=(topic,), require_stable=False)
    )
    assert isinstance(answer, OffsetFetchResponse)
    if answer.error_code:
        assert ErrorCode(int(answer.error_code)) in NOT_YET, answer.error_code
        return None
    return int(answer.topics[0].partitions[0].committed_offset)


def _commit_request(group: str, partitions: Sequence[int], offset: int) -> OffsetCommitRequest:
    offsets = tuple(
        OffsetCommitRequestPartition(
            partition_index=i32(each), committed_offset=i64(offset), committed_metadata=""
        )
        for each in partitions
    )
    topic = OffsetCommitRequestTopic(name=TopicName(TOPIC), partitions=offsets)
    return OffsetCommitRequest(group_id=GroupId(group), member_id="", topics=(topic,))


GROUPS = Office(
    requirement="P3",
    topic=OFFSETS_TOPIC,
    key=_group(0),
    key_type=0,
    of_what="commits",
    write_name="commit",
    counts=COMMITS,
    frames=_commit_frames,
    records_per_frame=PARTITIONS_PER_COMMIT,
    write=_commit,
    look=_committed,
)


# -- transactions --------------------------------------------------------------------------------


def _transactional_id(number: int) -> TransactionalId:
    return TransactionalId(f"id-{number}")


def _epoch_frames() -> list[bytes]:
    return [
        request_frame(_epoch_request(number), api_key=22, api_version=4)
        for number in range(1, ID_COUNT)
    ]


def _next_epoch(client: MessageClient, _round_index: int) -> int | ErrorCode:
    answer = client.ask(_epoch_request(0))
    assert isinstance(answer, InitProducerIdResponse)
    code = ErrorCode(int(answer.error_code))
    return int(answer.producer_id) if code is ErrorCode.NONE else code


def _known_producer(client: MessageClient) -> int | None:
    answer = client.ask(ListTransactionsRequest(state_filters=(), producer_id_filters=()))
    assert isinstance(answer, ListTransactionsResponse)
    assert not answer.error_code or ErrorCode(int(answer.error_code)) in NOT_YET
    producers = {one.transactional_id: int(one.producer_id) for one in answer.transaction_states}
    return producers.get(_transactional_id(0))


def _epoch_request(number: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=_transactional_id(number),
        transaction_timeout=TRANSACTION_TIMEOUT,
        producer_id=ProducerId(-1),
        producer_epoch=i16(-1),
    )


TRANSACTIONS = Office(
    requirement="D3",
    topic=TRANSACTIONS_TOPIC,
    key=_transactional_id(0),
    key_type=1,
    of_what="states of transactional ids",
    write_name="epoch",
    counts=EPOCHS,
    frames=_epoch_frames,
    records_per_frame=1,
    write=_next_epoch,
    look=_known_producer,
)


if __name__ == "__main__":
    sys.exit(run_script("coordinator_load", QUESTION, measure, (TIDELOG, KAFKA)))
